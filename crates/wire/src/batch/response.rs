//! Builds the answer to a batch, byte for byte as the original does.
//!
//! Clients split this text with regular expressions and parsers of their own: line ends, blank lines and
//! the names of the boundaries are part of the promise.

/// An answer being written: parts in the order of the operations, then [`ResponseWriter::finish`].
#[derive(Clone, Debug)]
pub struct ResponseWriter {
    out: Vec<u8>,
    /// Boundary of the answer.
    batch: String,
    /// Boundary of the changeset; none around the answer to a query.
    changeset: Option<String>,
}

impl ResponseWriter {
    /// Starts the answer to a changeset. The ids make the boundaries unique.
    pub fn changeset(batch_id: &str, changeset_id: &str) -> Self {
        let batch = format!("batchresponse_{batch_id}");
        let changeset = format!("changesetresponse_{changeset_id}");
        let out =
            format!("--{batch}\r\nContent-Type: multipart/mixed; boundary={changeset}\r\n\r\n");
        Self { out: out.into_bytes(), batch, changeset: Some(changeset) }
    }

    /// Starts the answer to a query that is alone in its batch.
    pub fn query(batch_id: &str) -> Self {
        Self { out: Vec::new(), batch: format!("batchresponse_{batch_id}"), changeset: None }
    }

    /// The `Content-Type` of the whole answer.
    pub fn content_type(&self) -> String {
        format!("multipart/mixed; boundary={}", self.batch)
    }

    /// Makes room for so many more bytes, so that what is written is not moved.
    pub fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes);
    }

    /// Starts the answer to one operation. `status` is as in `204 No Content`.
    pub fn part(&mut self, status: &str) -> PartWriter<'_> {
        let boundary = self.changeset.as_ref().unwrap_or(&self.batch);
        for piece in [
            "--",
            boundary,
            "\r\nContent-Type: application/http\r\n",
            "Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 ",
            status,
            "\r\n",
        ] {
            self.out.extend_from_slice(piece.as_bytes());
        }
        PartWriter { out: &mut self.out }
    }

    /// Closes the answer.
    pub fn finish(mut self) -> Vec<u8> {
        for boundary in self.changeset.iter().chain([&self.batch]) {
            for piece in ["--", boundary, "--\r\n"] {
                self.out.extend_from_slice(piece.as_bytes());
            }
        }
        self.out
    }
}

/// The answer to one operation being written: headers in this order, then the body.
#[derive(Debug)]
#[must_use = "a part has no end before its body is written"]
pub struct PartWriter<'w> {
    out: &'w mut Vec<u8>,
}

impl PartWriter<'_> {
    /// Adds a header as it is; neither name nor value may hold a line end.
    pub fn header(&mut self, name: &str, value: &str) {
        for piece in [name, ": ", value, "\r\n"] {
            self.out.extend_from_slice(piece.as_bytes());
        }
    }

    /// Ends the part with a body, which may be empty.
    pub fn body(self, body: &[u8]) {
        for piece in [b"\r\n", body, b"\r\n"] {
            self.out.extend_from_slice(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(writer: &mut ResponseWriter, status: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut part = writer.part(status);
        for (name, value) in headers {
            part.header(name, value);
        }
        part.body(body);
    }

    /// The sample of the protocol text, with its line ends spelled out.
    #[test]
    fn changeset_byte_for_byte() {
        let address = "https://acct.table.example.net/people(PartitionKey='p',RowKey='1')";
        let mut writer = ResponseWriter::changeset(
            "94cfde8f-097e-4004-8186-ecb13dcaf1b1",
            "481e08cb-39bb-4bac-ae77-0b56a56cd24f",
        );
        assert_eq!(
            writer.content_type(),
            "multipart/mixed; boundary=batchresponse_94cfde8f-097e-4004-8186-ecb13dcaf1b1"
        );
        write(
            &mut writer,
            "204 No Content",
            &[
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-cache"),
                ("Preference-Applied", "return-no-content"),
                ("DataServiceVersion", "3.0;"),
                ("Location", address),
                ("DataServiceId", address),
                ("ETag", "W/\"datetime'2020-12-18T15%3A42%3A08.5037099Z'\""),
            ],
            b"",
        );
        write(
            &mut writer,
            "204 No Content",
            &[
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-cache"),
                ("DataServiceVersion", "1.0;"),
            ],
            b"",
        );
        let expected = concat!(
            "--batchresponse_94cfde8f-097e-4004-8186-ecb13dcaf1b1\r\n",
            "Content-Type: multipart/mixed; boundary=changesetresponse_481e08cb-39bb-4bac-ae77-0b56a56cd24f\r\n",
            "\r\n",
            "--changesetresponse_481e08cb-39bb-4bac-ae77-0b56a56cd24f\r\n",
            "Content-Type: application/http\r\n",
            "Content-Transfer-Encoding: binary\r\n",
            "\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "X-Content-Type-Options: nosniff\r\n",
            "Cache-Control: no-cache\r\n",
            "Preference-Applied: return-no-content\r\n",
            "DataServiceVersion: 3.0;\r\n",
            "Location: https://acct.table.example.net/people(PartitionKey='p',RowKey='1')\r\n",
            "DataServiceId: https://acct.table.example.net/people(PartitionKey='p',RowKey='1')\r\n",
            "ETag: W/\"datetime'2020-12-18T15%3A42%3A08.5037099Z'\"\r\n",
            "\r\n",
            "\r\n",
            "--changesetresponse_481e08cb-39bb-4bac-ae77-0b56a56cd24f\r\n",
            "Content-Type: application/http\r\n",
            "Content-Transfer-Encoding: binary\r\n",
            "\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "X-Content-Type-Options: nosniff\r\n",
            "Cache-Control: no-cache\r\n",
            "DataServiceVersion: 1.0;\r\n",
            "\r\n",
            "\r\n",
            "--changesetresponse_481e08cb-39bb-4bac-ae77-0b56a56cd24f--\r\n",
            "--batchresponse_94cfde8f-097e-4004-8186-ecb13dcaf1b1--\r\n",
        );
        assert_eq!(String::from_utf8(writer.finish()).unwrap(), expected);
    }

    #[test]
    fn lone_query_byte_for_byte() {
        let mut writer = ResponseWriter::query("363dbd98");
        let headers = [("DataServiceVersion", "3.0;"), ("ETag", "W/\"x\"")];
        write(&mut writer, "200 OK", &headers, b"{\"value\":[]}");
        let expected = concat!(
            "--batchresponse_363dbd98\r\n",
            "Content-Type: application/http\r\n",
            "Content-Transfer-Encoding: binary\r\n",
            "\r\n",
            "HTTP/1.1 200 OK\r\n",
            "DataServiceVersion: 3.0;\r\n",
            "ETag: W/\"x\"\r\n",
            "\r\n",
            "{\"value\":[]}\r\n",
            "--batchresponse_363dbd98--\r\n",
        );
        assert_eq!(String::from_utf8(writer.finish()).unwrap(), expected);
    }
}
