//! Entity group transactions: the body to send and the answer to read.

use crate::client::entity_path;
use crate::connection::Response;
use serde_json::Value;

/// One operation of a batch.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: &'static str,
    /// Below the account.
    pub path: String,
    /// The condition.
    pub if_match: Option<String>,
    /// Properties; none for a delete.
    pub body: Option<Value>,
}

/// The answer to one operation, or the error that stands for all.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its status.
    pub status: u16,
    /// Its ETag.
    pub etag: Option<String>,
    /// All of it.
    pub text: String,
}

/// The answer to a batch.
#[derive(Clone, Debug)]
pub struct BatchAnswer {
    /// The answer around the parts.
    pub response: Response,
    /// One per operation, or one error.
    pub parts: Vec<Part>,
}

impl Operation {
    /// Inserts an entity given as JSON with its keys.
    pub fn insert(table: &str, entity: Value) -> Self {
        Self { method: "POST", path: table.to_owned(), if_match: None, body: Some(entity) }
    }

    /// Replaces an entity, or inserts it without a tag.
    pub fn replace(
        table: &str,
        (partition, row): (&str, &str),
        if_match: Option<&str>,
        body: Value,
    ) -> Self {
        let path = entity_path(table, partition, row);
        Self { method: "PUT", path, if_match: if_match.map(str::to_owned), body: Some(body) }
    }

    /// Merges into an entity, or inserts it without a tag.
    pub fn merge(table: &str, keys: (&str, &str), if_match: Option<&str>, body: Value) -> Self {
        Self { method: "PATCH", ..Self::replace(table, keys, if_match, body) }
    }

    /// Deletes an entity.
    pub fn delete(table: &str, (partition, row): (&str, &str), if_match: &str) -> Self {
        let path = entity_path(table, partition, row);
        Self { method: "DELETE", path, if_match: Some(if_match.to_owned()), body: None }
    }
}

/// Content type and body of a batch; `base` is the URL of the account.
pub fn multipart(base: &str, operations: &[Operation]) -> (String, Vec<u8>) {
    use std::fmt::Write as _;
    let mut text = String::new();
    text.push_str("--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n");
    for operation in operations {
        text.push_str("--changeset_c\r\nContent-Type: application/http\r\n");
        text.push_str("Content-Transfer-Encoding: binary\r\n\r\n");
        let _ = write!(text, "{} {base}/{} HTTP/1.1\r\n", operation.method, operation.path);
        text.push_str("Accept: application/json;odata=minimalmetadata\r\n");
        if let Some(tag) = &operation.if_match {
            let _ = write!(text, "If-Match: {tag}\r\n");
        }
        if let Some(body) = &operation.body {
            let body = body.to_string();
            text.push_str("Content-Type: application/json\r\nPrefer: return-no-content\r\n");
            let _ = write!(text, "Content-Length: {}\r\n\r\n{body}\r\n", body.len());
        } else {
            text.push_str("\r\n\r\n");
        }
    }
    text.push_str("--changeset_c--\r\n--batch_b--\r\n");
    ("multipart/mixed; boundary=batch_b".to_owned(), text.into_bytes())
}

impl BatchAnswer {
    pub(crate) fn new(response: Response) -> Self {
        let text = response.text();
        let parts = text.split("--changesetresponse_").filter_map(|part| {
            let start = part.find("HTTP/1.1 ")?;
            let part = &part[start..];
            let status = part.get(9..12)?.parse().ok()?;
            let etag = part.lines().find_map(|line| line.strip_prefix("ETag: "));
            Some(Part { status, etag: etag.map(str::to_owned), text: part.to_owned() })
        });
        let parts = parts.collect();
        Self { response, parts }
    }

    /// True if the batch took effect.
    pub fn succeeded(&self) -> bool {
        let good = |part: &Part| (200..300).contains(&part.status);
        self.response.status == 202 && !self.parts.is_empty() && self.parts.iter().all(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let body = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n\
            --changesetresponse_2\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 204 No Content\r\n\
            ETag: W/\"a\"\r\n\r\n\r\n--changesetresponse_2\r\nContent-Type: application/http\r\n\r\n\
            HTTP/1.1 409 Conflict\r\n\r\n{}\r\n--changesetresponse_2--\r\n--batchresponse_1--\r\n";
        let response = Response { status: 202, headers: vec![], body: body.into() };
        let answer = BatchAnswer::new(response);
        let seen: Vec<_> =
            answer.parts.iter().map(|part| (part.status, part.etag.as_deref())).collect();
        assert_eq!(seen, [(204, Some("W/\"a\"")), (409, None)]);
        assert!(!answer.succeeded());
    }
}
