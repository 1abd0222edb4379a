//! HTTP/1.1 by hand, over one TCP connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection to a server. Sends whatever it is told and reads answers one after the other.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Names as sent, in order.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects; reads and writes give up after 30 seconds.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Ends the sending side; answers can still be read.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.reader.get_ref().shutdown(std::net::Shutdown::Write)
    }

    /// Whether the server has sent something or closed, waiting no longer than this.
    pub fn has_answer(&mut self, within: Duration) -> bool {
        let stream = self.reader.get_ref();
        let before = stream.read_timeout().ok().flatten();
        let _ = stream.set_read_timeout(Some(within));
        let result = self.reader.fill_buf().map(drop);
        let _ = self.reader.get_ref().set_read_timeout(before);
        match result {
            Ok(()) => true,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }

    /// Reads the next answer. Interim answers (100) are passed over.
    pub fn receive(&mut self, method: &str) -> io::Result<Response> {
        loop {
            let (status, headers) = self.head()?;
            if (100..200).contains(&status) {
                continue;
            }
            let find = |name: &str| {
                let named = headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
                named.map(|(_, value)| value.as_str())
            };
            let body = if method == "HEAD" || status == 204 || status == 304 {
                Vec::new()
            } else if find("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
                self.chunks()?
            } else if let Some(length) = find("content-length") {
                let length = length.parse().map_err(|_| invalid("content-length"))?;
                let mut body = vec![0; length];
                self.reader.read_exact(&mut body)?;
                body
            } else {
                let mut body = Vec::new();
                self.reader.read_to_end(&mut body)?;
                body
            };
            return Ok(Response { status, headers, body });
        }
    }

    /// Everything until the server closes.
    pub fn receive_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest)?;
        Ok(rest)
    }

    fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let line = self.line()?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = status.and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| invalid("status line"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("header"))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| invalid("text"))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| invalid("chunk"))?;
            let start = body.len();
            body.resize(start + size, 0);
            self.reader.read_exact(&mut body[start..])?;
            if size > 0 {
                self.line()?;
                continue;
            }
            while !self.line()?.is_empty() {}
            return Ok(body);
        }
    }
}

impl Response {
    /// The first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// The ETag; panics without one.
    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_else(|| panic!("no ETag in {}: {}", self.status, self.text()))
    }

    /// The body as text, whatever it is.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; panics if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The code of an error, from JSON, XML or the header.
    pub fn code(&self) -> Option<String> {
        let text = self.text();
        let between = |start: &str, end: &str| {
            let rest = &text[text.find(start)? + start.len()..];
            Some(rest[..rest.find(end)?].to_owned())
        };
        between("\"code\":\"", "\"")
            .or_else(|| between("<m:code>", "<"))
            .or_else(|| self.header("x-ms-error-code").map(str::to_owned))
    }

    /// Whether the server means to close the connection.
    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed answer: {what}"))
}
