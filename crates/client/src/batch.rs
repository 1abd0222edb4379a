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
const DELETE_HEADERS: &str = " HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n\
                              DataServiceVersion: 3.0;\r\nIf-Match: *\r\n\r\n";
const CLOSE: &str = "--changeset_rowhouse--\r\n--batch_rowhouse--\r\n";

/// What is done to one entity.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'e> {
    /// It is written.
    Write(Write, &'e Entity),
    /// It is deleted, whatever its state; only its keys count.
    Delete(&'e Entity),
}

impl Operation<'_> {
    fn method(&self) -> &'static str {
        match self {
            Self::Write(write, _) => write.method(),
            Self::Delete(_) => "DELETE",
        }
    }

    fn address(&self, base: &str, table: &str) -> String {
        match self {
            Self::Write(Write::Insert, _) => format!("{base}/{table}"),
            Self::Write(_, entity) | Self::Delete(entity) => {
                uri::entity_url(base, table, &entity.partition, &entity.row)
            }
        }
    }
}

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

/// The body that does everything or nothing. `base` is the address of the service.
pub(crate) fn body(base: &str, table: &str, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut out = OPEN.as_bytes().to_vec();
    for operation in operations {
        for piece in [PART, operation.method(), " ", &operation.address(base, table)] {
            out.extend_from_slice(piece.as_bytes());
        }
        match operation {
            Operation::Write(_, entity) => {
                out.extend_from_slice(HEADERS.as_bytes());
                entity.write_json(&mut out, false);
            }
            Operation::Delete(_) => out.extend_from_slice(DELETE_HEADERS.as_bytes()),
        }
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
        let insert = ("http://h/acct/people", "POST");
        let of_entity = "http://h/acct/people(PartitionKey='it''s',RowKey='1')";
        let cases = [
            (Operation::Write(Write::Insert, &entities[0]), insert),
            (Operation::Write(Write::Replace, &entities[0]), (of_entity, "PUT")),
            (Operation::Write(Write::Merge, &entities[0]), (of_entity, "PATCH")),
            (Operation::Delete(&entities[0]), (of_entity, "DELETE")),
        ];
        for (operation, (target, method)) in cases {
            let operations = [operation, Operation::Write(Write::Replace, &entities[1])];
            let body = body("http://h/acct", "people", &operations);
            let parsed = batch::parse(&body, &batch::boundary(CONTENT_TYPE).unwrap()).unwrap();
            let batch::Request::Changeset(parts) = parsed else { panic!("a changeset") };
            assert_eq!(parts.len(), 2);
            assert_eq!((parts[0].target, parts[0].method), (target, method));
            if method == "DELETE" {
                assert!(parts[0].body.trim_ascii().is_empty());
            } else {
                let read = Entity::from_json(parts[0].body).unwrap();
                assert!(read.same_content(&entities[0]));
            }
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
        let replace = |entity| Operation::Write(Write::Replace, entity);
        let fitting: Vec<_> = large[..count].iter().map(replace).collect();
        let length = body("http://h", "people", &fitting).len();
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
