//! Entity group transactions: the multipart body of a request, and what its answer says.

use crate::client::Write;
use crate::entity::Entity;
use crate::error::{ServiceError, read_refusal};
use memchr::memmem;
use rowhouse_types::limits;
use rowhouse_wire::uri;

/// Most bytes of JSON that are put into one batch: leaves room for what stands around the entities.
const JSON_BYTES_MAX: usize = limits::BATCH_BODY_BYTES_MAX - 512 * 1024;

/// The `Content-Type` of a batch.
pub(crate) const CONTENT_TYPE: &str = "multipart/mixed; boundary=batch_rowhouse";

const OPEN: &str =
    "--batch_rowhouse\r\nContent-Type: multipart/mixed; boundary=changeset_rowhouse\r\n\r\n";
const PART: &str = "--changeset_rowhouse\r\nContent-Type: application/http\r\n\
                    Content-Transfer-Encoding: binary\r\n\r\n";
const HEADERS: &str = " HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n\
                       Content-Type: application/json\r\nDataServiceVersion: 3.0;\r\n\
                       Prefer: return-no-content\r\n\r\n";
const CLOSE: &str = "--changeset_rowhouse--\r\n--batch_rowhouse--\r\n";

/// How many of the entities, all of one partition, fit into one batch; at least one.
pub(crate) fn fitting<'e>(entities: impl Iterator<Item = &'e Entity>) -> usize {
    let mut bytes = 0;
    let fits = entities.take(limits::BATCH_OPERATIONS_MAX).take_while(|entity| {
        // JSON is longer than the record: twice for escapes and Base64, and the names of the types.
        let properties = entity.record.as_ref().len();
        bytes += 2 * (entity.record.as_bytes().len() + entity.partition.len() + entity.row.len())
            + 48 * properties
            + 512;
        bytes <= JSON_BYTES_MAX
    });
    fits.count().max(1)
}

/// The body that writes all entities or none. `base` is the address of the service.
pub(crate) fn body(base: &str, table: &str, write: Write, entities: &[&Entity]) -> Vec<u8> {
    let mut out = OPEN.as_bytes().to_vec();
    for entity in entities {
        out.extend_from_slice(PART.as_bytes());
        let address = match write {
            Write::Insert => format!("{base}/{table}"),
            Write::Replace | Write::Merge => {
                uri::entity_url(base, table, &entity.partition, &entity.row)
            }
        };
        for piece in [write.method(), " ", &address, HEADERS] {
            out.extend_from_slice(piece.as_bytes());
        }
        entity.write_json(&mut out, false);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(CLOSE.as_bytes());
    out
}

/// What the answer to a batch of so many operations says: all done, or the first that was refused.
/// Nothing if it is not such an answer.
pub(crate) fn read_answer(body: &[u8], operations: usize) -> Option<Result<(), ServiceError>> {
    let mut done = 0;
    for at in memmem::find_iter(body, b"HTTP/1.1 ") {
        let part = &body[at + 9..];
        let status: u16 = std::str::from_utf8(part.get(..3)?).ok()?.parse().ok()?;
        if (200..300).contains(&status) {
            done += 1;
            continue;
        }
        let start = memmem::find(part, b"\r\n\r\n").map_or(part.len(), |at| at + 4);
        let rest = &part[start..];
        let end = memmem::find(rest, b"\n--").unwrap_or(rest.len());
        return Some(Err(read_refusal(status, rest[..end].trim_ascii())));
    }
    (done == operations).then_some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_wire::batch;

    fn entity(row: &str, text: &str) -> Entity {
        let json = format!(r#"{{"PartitionKey":"it's","RowKey":"{row}","A":"{text}","D":1.0}}"#);
        Entity::from_json(json.as_bytes()).unwrap()
    }

    /// The server's own reader finds every operation.
    #[test]
    fn a_batch_is_valid() {
        let entities = [entity("1", "--batch_rowhouse"), entity("2", "")];
        let entities: Vec<_> = entities.iter().collect();
        for write in [Write::Insert, Write::Replace, Write::Merge] {
            let body = body("http://h/acct", "people", write, &entities);
            let parsed = batch::parse(&body, &batch::boundary(CONTENT_TYPE).unwrap()).unwrap();
            let batch::Request::Changeset(parts) = parsed else { panic!("a changeset") };
            assert_eq!(parts.len(), 2);
            assert_eq!(parts[0].method, write.method());
            let target = match write {
                Write::Insert => "http://h/acct/people",
                _ => "http://h/acct/people(PartitionKey='it''s',RowKey='1')",
            };
            assert_eq!(parts[0].target, target);
            let read = Entity::from_json(parts[0].body).unwrap();
            assert!(read.same_content(entities[0]));
        }
    }

    #[test]
    fn batches_keep_to_the_limits() {
        let small: Vec<_> = (0..250).map(|n| entity(&n.to_string(), "x")).collect();
        assert_eq!(fitting(small.iter()), 100);
        assert_eq!(fitting(small[..7].iter()), 7);
        let text = "x".repeat(30_000);
        let large: Vec<_> = (0..100).map(|n| entity(&n.to_string(), &text)).collect();
        let count = fitting(large.iter());
        let fitting: Vec<_> = large[..count].iter().collect();
        let length = body("http://h", "people", Write::Replace, &fitting).len();
        assert!(count < 100 && length <= limits::BATCH_BODY_BYTES_MAX, "{count}: {length}");
    }

    #[test]
    fn answers_are_understood() {
        let done = b"--b\r\n\r\nHTTP/1.1 204 No Content\r\nETag: x\r\n\r\n\r\n--b\r\n\r\nHTTP/1.1 201 Created\r\n\r\n{}\r\n--b--";
        assert_eq!(read_answer(done, 2), Some(Ok(())));
        assert_eq!(read_answer(done, 3), None);
        let refused = b"--b\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 409 Conflict\r\nX: y\r\n\r\n{\"odata.error\":{\"code\":\"EntityAlreadyExists\",\"message\":{\"lang\":\"en-US\",\"value\":\"1:There.\\nx\"}}}\r\n--b--\r\n";
        let error = read_answer(refused, 2).unwrap().unwrap_err();
        assert_eq!(
            (error.status, error.index, error.code.as_str()),
            (409, Some(1), "EntityAlreadyExists")
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_judged(body in "(HTTP/1.1 |2|4|04|\r\n|--b|\\{|é| ){0,20}") {
            let _ = read_answer(body.as_bytes(), 1);
        }
    }
}
