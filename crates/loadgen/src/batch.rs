//! Entity group transactions as bytes.

use crate::entity::Key;
use crate::request::{ACCEPT, Requests};
use crate::signer::ACCOUNT;

/// Most operations of one batch.
pub(crate) const OPERATIONS: u64 = 100;

const HEADERS: &str = "Content-Type: multipart/mixed; boundary=batch_rowhouse\r\n";

/// What a batch does with each of its entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds them; none may exist.
    Insert,
    /// Writes them, whether they exist or not.
    Upsert,
    /// Removes them; all must exist.
    Delete,
}

/// Consecutive rows of one partition of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) table: &'a str,
    pub(crate) first: Key,
    pub(crate) count: u64,
}

/// Appends a request that changes all the rows or none. Returns the bytes of JSON in it.
pub(crate) fn push(
    out: &mut Vec<u8>,
    body: &mut Vec<u8>,
    to: &mut Requests,
    change: Change,
    rows: Rows<'_>,
) -> u64 {
    body.clear();
    let mut entity = Vec::with_capacity(512);
    let mut bytes = 0;
    body.extend_from_slice(
        b"--batch_rowhouse\r\nContent-Type: multipart/mixed; boundary=changeset_rowhouse\r\n\r\n",
    );
    for offset in 0..rows.count {
        let key = Key { row: rows.first.row + offset, ..rows.first };
        let (method, more) = match change {
            Change::Insert => ("POST", "Prefer: return-no-content\r\n"),
            Change::Upsert => ("PUT", ""),
            Change::Delete => ("DELETE", "If-Match: *\r\n"),
        };
        for part in [
            "--changeset_rowhouse\r\nContent-Type: application/http\r\n\
             Content-Transfer-Encoding: binary\r\n\r\n",
            method,
            " http://127.0.0.1/",
            ACCOUNT,
        ] {
            body.extend_from_slice(part.as_bytes());
        }
        if change == Change::Insert {
            body.push(b'/');
            body.extend_from_slice(rows.table.as_bytes());
        } else {
            key.push_path(body, rows.table);
        }
        for part in [" HTTP/1.1\r\nAccept: ", ACCEPT, "\r\nDataServiceVersion: 3.0\r\n", more] {
            body.extend_from_slice(part.as_bytes());
        }
        if change == Change::Delete {
            body.extend_from_slice(b"\r\n");
        } else {
            entity.clear();
            key.push_entity(&mut entity, 0);
            bytes += entity.len() as u64;
            body.extend_from_slice(b"Content-Type: application/json\r\n\r\n");
            body.extend_from_slice(&entity);
        }
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--changeset_rowhouse--\r\n--batch_rowhouse--\r\n");
    to.push(out, "POST", b"/$batch", b"", HEADERS, body);
    bytes
}

/// Whether the answer to a batch says that all of its operations were done.
pub(crate) fn all_done(status: u16, body: &[u8], operations: u64) -> bool {
    status == 202 && memchr::memmem::find_iter(body, b"HTTP/1.1 204").count() as u64 == operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_wire::batch;

    /// The server's own reader finds every operation.
    #[test]
    fn a_batch_is_valid() {
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        let rows = Rows { table: "bench", first: Key { partition: 3, row: 40 }, count: OPERATIONS };
        for change in [Change::Insert, Change::Upsert, Change::Delete] {
            let (mut out, mut body) = (Vec::new(), Vec::new());
            let bytes = push(&mut out, &mut body, &mut to, change, rows);
            assert_eq!(bytes > 30_000, change != Change::Delete);
            let parsed = batch::parse(&body, "batch_rowhouse").unwrap();
            let batch::Request::Changeset(operations) = parsed else { panic!("a changeset") };
            assert_eq!(operations.len() as u64, OPERATIONS);
            assert!(out.ends_with(&body));
        }
    }
}
