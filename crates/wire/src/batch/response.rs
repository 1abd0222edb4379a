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

    /// Adds the answer to one operation. Headers are written as they are and in this order; neither
    /// names nor values may hold a line end.
    pub fn part(
        &mut self,
        status: u16,
        reason: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) {
        let boundary = self.changeset.as_ref().unwrap_or(&self.batch);
        let status = status.to_string();
        let lines = ["--", boundary, "\r\nContent-Type: application/http\r\n"];
        let status =
            ["Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 ", &status, " ", reason, "\r\n"];
        for piece in lines.into_iter().chain(status) {
            self.out.extend_from_slice(piece.as_bytes());
        }
        for (name, value) in headers {
            for piece in [name, ": ", value, "\r\n"] {
                self.out.extend_from_slice(piece.as_bytes());
            }
        }
        self.out.extend_from_slice(b"\r\n");
        self.out.extend_from_slice(body.unwrap_or_default());
        self.out.extend_from_slice(b"\r\n");
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

#[cfg(test)]
mod tests {
    use super::*;

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
        writer.part(
            204,
            "No Content",
            &[
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-cache"),
                ("Preference-Applied", "return-no-content"),
                ("DataServiceVersion", "3.0;"),
                ("Location", address),
                ("DataServiceId", address),
                ("ETag", "W/\"datetime'2020-12-18T15%3A42%3A08.5037099Z'\""),
            ],
            None,
        );
        writer.part(
            204,
            "No Content",
            &[
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-cache"),
                ("DataServiceVersion", "1.0;"),
            ],
            None,
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
        writer.part(200, "OK", &headers, Some(b"{\"value\":[]}"));
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
