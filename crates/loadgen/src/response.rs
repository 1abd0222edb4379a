//! Reads answers as their bytes arrive.
//!
//! Understands what servers of the protocol send: a length or chunks, and the headers that a load client
//! acts on. Whatever else arrives is refused; nothing panics. An answer stays in the buffer where it arrived
//! (only chunks are put together), and the buffer is used again for the next one.

use memchr::{memchr, memmem};

/// Largest answer that is accepted, in bytes: above any page of a thousand of our entities.
const LARGEST: usize = 64 * 1024 * 1024;
const FIRST_BUFFER: usize = 4 * 1024;

/// The bytes are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    /// The body, chunks put together.
    pub(crate) body: &'a [u8],
    /// Where a query goes on: the values of the two continuation headers, of which the second may be
    /// missing and then is empty.
    pub(crate) next: Option<(&'a str, &'a str)>,
    /// The lines before the body.
    pub(crate) head: &'a [u8],
    /// Whether the server will close the connection.
    pub(crate) close: bool,
}

impl<'a> Answer<'a> {
    /// The value of a header; of those that matter only now and then, and are not read beforehand.
    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        let value = self.head.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
            let colon = memchr(b':', line)?;
            line[..colon].eq_ignore_ascii_case(name.as_bytes()).then_some(&line[colon + 1..])
        });
        std::str::from_utf8(value?.trim_ascii()).ok()
    }
}

#[derive(Clone, Debug)]
struct Head {
    length: usize,
    status: u16,
    body: Body,
    close: bool,
    next_partition: Option<String>,
    next_row: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
}

/// What has arrived of an answer.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    filled: usize,
    head: Option<Head>,
    /// How far chunks are decoded, counted from the start of the buffer.
    decoded: usize,
    chunks: Vec<u8>,
}

impl Reader {
    /// Room for bytes that have yet to arrive; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() {
            self.buffer.resize((2 * self.filled).max(FIRST_BUFFER), 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes note that so many bytes have been put into the room. True once the answer is whole.
    pub(crate) fn advance(&mut self, bytes: usize) -> Result<bool, Malformed> {
        self.filled += bytes;
        if self.filled > LARGEST {
            return Err(Malformed);
        }
        if self.head.is_none() {
            self.head = parse_head(&self.buffer[..self.filled])?;
            self.decoded = self.head.as_ref().map_or(0, |head| head.length);
        }
        let Some(head) = &self.head else { return Ok(false) };
        match head.body {
            Body::Length(length) => match (self.filled - head.length).cmp(&length) {
                std::cmp::Ordering::Less => Ok(false),
                std::cmp::Ordering::Equal => Ok(true),
                // Nothing was asked that these bytes could answer.
                std::cmp::Ordering::Greater => Err(Malformed),
            },
            Body::Chunked => self.decode_chunks(),
        }
    }

    fn decode_chunks(&mut self) -> Result<bool, Malformed> {
        loop {
            let rest = &self.buffer[self.decoded..self.filled];
            let Some(line) = memchr(b'\n', rest) else { return Ok(false) };
            let size = rest[..line].trim_ascii();
            let size = size.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            let size = std::str::from_utf8(size).map_err(|_| Malformed)?;
            let size = usize::from_str_radix(size, 16).map_err(|_| Malformed)?;
            if size > LARGEST {
                return Err(Malformed);
            }
            let (from, end) = (line + 1, line + 1 + size + 2);
            if rest.len() < end {
                return Ok(false);
            }
            if &rest[end - 2..end] != b"\r\n" {
                return Err(Malformed);
            }
            self.chunks.extend_from_slice(&rest[from..end - 2]);
            self.decoded += end;
            if size == 0 {
                return if self.decoded == self.filled { Ok(true) } else { Err(Malformed) };
            }
        }
    }

    /// The answer, once it is whole.
    pub(crate) fn answer(&self) -> Option<Answer<'_>> {
        let head = self.head.as_ref()?;
        let body = match head.body {
            Body::Length(length) => self.buffer.get(head.length..head.length + length)?,
            Body::Chunked => &self.chunks,
        };
        let row = head.next_row.as_deref().unwrap_or_default();
        let next = head.next_partition.as_deref().map(|partition| (partition, row));
        let lines = &self.buffer[..head.length];
        Some(Answer { status: head.status, body, next, head: lines, close: head.close })
    }

    /// Forgets the answer, to read the next.
    pub(crate) fn clear(&mut self) {
        (self.filled, self.decoded, self.head) = (0, 0, None);
        self.chunks.clear();
    }
}

/// The head, if it has arrived whole.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    if !bytes.starts_with(b"HTTP/1.") && bytes.len() >= 7 {
        return Err(Malformed);
    }
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let mut lines = bytes[..end].split(|&byte| byte == b'\n');
    let status = lines.next().and_then(|line| line.get(9..12)).ok_or(Malformed)?;
    let status = number(status).and_then(|status| u16::try_from(status).ok()).ok_or(Malformed)?;
    let bodiless = status == 204 || status == 304;
    let mut head = Head {
        length: end + 4,
        status,
        body: Body::Length(0),
        close: false,
        next_partition: None,
        next_row: None,
    };
    let mut framed = bodiless;
    for line in lines {
        let colon = memchr(b':', line).ok_or(Malformed)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // The length tells most names apart.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = number(value).filter(|&length| length <= LARGEST).ok_or(Malformed)?;
                if !bodiless {
                    (head.body, framed) = (Body::Length(length), true);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed);
                }
                if !bodiless {
                    (head.body, framed) = (Body::Chunked, true);
                }
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                head.close = value.eq_ignore_ascii_case(b"close");
            }
            34 if name.eq_ignore_ascii_case(b"x-ms-continuation-nextpartitionkey") => {
                head.next_partition = Some(text(value)?);
            }
            28 if name.eq_ignore_ascii_case(b"x-ms-continuation-nextrowkey") => {
                head.next_row = Some(text(value)?);
            }
            _ => {}
        }
    }
    // A body that ends with the connection is nothing that these servers send.
    if framed { Ok(Some(head)) } else { Err(Malformed) }
}

fn number(digits: &[u8]) -> Option<usize> {
    let valid = !digits.is_empty() && digits.len() < 10 && digits.iter().all(u8::is_ascii_digit);
    let value = |sum, digit: &u8| sum * 10 + usize::from(digit - b'0');
    valid.then(|| digits.iter().fold(0, value))
}

fn text(value: &[u8]) -> Result<String, Malformed> {
    std::str::from_utf8(value).map(str::to_owned).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds the bytes in pieces of the given sizes, again and again. The answer, or nothing if it is not whole.
    fn feed(reader: &mut Reader, mut bytes: &[u8], sizes: &[usize]) -> Result<bool, Malformed> {
        let mut whole = false;
        for size in sizes.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let room = reader.room();
            let count = (*size).clamp(1, bytes.len()).min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            whole = reader.advance(count)?;
            bytes = &bytes[count..];
        }
        Ok(whole)
    }

    /// Status and body of a whole answer, or nothing of a part.
    type Found<'a> = Result<Option<(u16, &'a str)>, Malformed>;

    #[test]
    fn answers() {
        let cases: &[(&str, &str, Found<'_>)] = &[
            ("length", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", Ok(Some((200, "hi")))),
            ("no body", "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", Ok(Some((204, "")))),
            (
                "204 with a length",
                "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
                Ok(Some((204, ""))),
            ),
            (
                "chunks",
                "HTTP/1.1 202 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
                Ok(Some((202, "abc0123456789"))),
            ),
            ("cut head", "HTTP/1.1 200 OK\r\ncontent-le", Ok(None)),
            ("cut body", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", Ok(None)),
            ("cut chunk", "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", Ok(None)),
            ("too much", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi", Err(Malformed)),
            ("no length", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", Err(Malformed)),
            ("no number", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Err(Malformed)),
            ("not HTTP", "SSH-2.0-OpenSSH\r\n", Err(Malformed)),
            (
                "bad chunk",
                "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
                Err(Malformed),
            ),
        ];
        for (rule, bytes, expected) in cases {
            for sizes in [&[1][..], &[7], &[4096]] {
                let mut reader = Reader::default();
                let whole = feed(&mut reader, bytes.as_bytes(), sizes);
                let found = whole.map(|whole| {
                    let answer = reader.answer().filter(|_| whole)?;
                    Some((answer.status, std::str::from_utf8(answer.body).unwrap()))
                });
                assert_eq!(&found, expected, "{rule}");
            }
        }
    }

    #[test]
    fn headers_that_matter() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\
                      x-ms-continuation-NextPartitionKey: 1!4!cA--\r\n\r\n";
        let mut reader = Reader::default();
        assert_eq!(feed(&mut reader, bytes, &[bytes.len()]), Ok(true));
        let answer = reader.answer().unwrap();
        assert_eq!(answer.next, Some(("1!4!cA--", "")));
        assert!(answer.close);
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.header("etag"), None);
    }

    proptest! {
        /// However a body is cut into chunks and packets, it comes out as it was, time after time.
        #[test]
        fn bodies_survive(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
            sizes in proptest::collection::vec(1_usize..200, 1..8),
            chunked in any::<bool>(),
        ) {
            let body = parts.concat();
            let mut bytes = if chunked {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
            } else {
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes()
            };
            if chunked {
                for part in &parts {
                    bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    bytes.extend_from_slice(part);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            } else {
                bytes.extend_from_slice(&body);
            }
            let mut reader = Reader::default();
            for _ in 0..2 {
                prop_assert_eq!(feed(&mut reader, &bytes, &sizes), Ok(true));
                prop_assert_eq!(reader.answer().unwrap().body, body.as_slice());
                reader.clear();
            }
        }

        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            start in proptest::sample::select(vec![
                "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: ",
            ]),
            sizes in proptest::collection::vec(1_usize..50, 1..4),
        ) {
            let bytes = [start.as_bytes(), &bytes].concat();
            let _ = feed(&mut Reader::default(), &bytes, &sizes);
        }
    }
}
