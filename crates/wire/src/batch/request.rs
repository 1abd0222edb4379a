//! Splits the body of a batch into the requests inside it.
//!
//! Clients differ in line ends, blank lines, header names and closing delimiters; all that was ever seen
//! from one is accepted. Nothing is copied, lengths that parts claim are not trusted, and reading stops
//! at the first operation too many.

use crate::params;
use rowhouse_types::limits;

/// A request inside a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The verb.
    pub method: &'a str,
    /// What the request line names, as sent: with or without scheme and host.
    pub target: &'a str,
    /// The body without blanks around it; often empty.
    pub body: &'a [u8],
    headers: &'a str,
}

/// What a batch asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Writes that happen together or not at all; at least one.
    Changeset(Vec<Part<'a>>),
    /// A single query.
    Query(Part<'a>),
}

/// Why a body is not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Not multipart, cut off, or a part that is not a request.
    #[error("the batch is malformed")]
    Malformed,
    /// More than [`limits::BATCH_OPERATIONS_MAX`] operations.
    #[error("the batch has too many operations")]
    TooManyOperations,
    /// A query inside a changeset or beside anything else.
    #[error("a query must be alone in its batch")]
    MixedQuery,
    /// More than one changeset.
    #[error("a batch has one changeset")]
    SeveralChangesets,
    /// Nothing to do.
    #[error("the batch is empty")]
    Empty,
}

impl<'a> Part<'a> {
    /// The first header of the inner request with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers_named(name).next()
    }

    /// How often the inner request has this header.
    pub fn header_count(&self, name: &str) -> usize {
        self.headers_named(name).count()
    }

    /// The `Content-ID` of the inner request, which the answer repeats. One in the headers of the part
    /// around it is not this one.
    pub fn inner_content_id(&self) -> Option<&'a str> {
        self.header("Content-ID")
    }

    fn headers_named(&self, name: &str) -> impl Iterator<Item = &'a str> {
        header_lines(self.headers)
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// The boundary in the `Content-Type` of a batch; nothing if it is not multipart.
pub fn boundary(content_type: &str) -> Option<String> {
    multipart_boundary(content_type).map(str::to_owned)
}

fn multipart_boundary(content_type: &str) -> Option<&str> {
    let media_type = params::split(content_type, ';').next()?;
    if !media_type.eq_ignore_ascii_case("multipart/mixed") {
        return None;
    }
    params::value(content_type, "boundary").filter(|boundary| !boundary.is_empty())
}

/// Splits the body of a batch.
pub fn parse<'a>(body: &'a [u8], boundary: &str) -> Result<Request<'a>, BatchError> {
    let mut rest = body;
    let (_, delimiter) = split(&mut rest, None, boundary)?;
    let mut open = delimiter == Delimiter::Outer;
    let mut request = None;
    while open {
        if rest.trim_ascii().is_empty() {
            // The last delimiter lacked its two hyphens.
            break;
        }
        let headers = take_headers(&mut rest)?;
        let content_type = header(headers, "Content-Type").unwrap_or("");
        let changeset = match multipart_boundary(content_type) {
            Some(inner) => Some(parse_changeset(&mut rest, inner, boundary)?),
            None => None,
        };
        let (content, delimiter) = split(&mut rest, None, boundary)?;
        let found = if let Some(operations) = changeset {
            Request::Changeset(operations)
        } else {
            let part = parse_part(content)?;
            if part.method != "GET" {
                return Err(BatchError::Malformed);
            }
            Request::Query(part)
        };
        request = match (request, found) {
            (None, found) => Some(found),
            (Some(Request::Changeset(_)), Request::Changeset(_)) => {
                return Err(BatchError::SeveralChangesets);
            }
            _ => return Err(BatchError::MixedQuery),
        };
        open = delimiter == Delimiter::Outer;
    }
    request.ok_or(BatchError::Empty)
}

/// Reads the operations of a changeset up to its closing delimiter.
fn parse_changeset<'a>(
    rest: &mut &'a [u8],
    inner: &str,
    outer: &str,
) -> Result<Vec<Part<'a>>, BatchError> {
    let mut operations = Vec::new();
    let (_, mut delimiter) = split(rest, Some(inner), outer)?;
    while delimiter == Delimiter::Inner {
        let before = *rest;
        let (part, next) = split(rest, Some(inner), outer)?;
        delimiter = next;
        if matches!(delimiter, Delimiter::Outer | Delimiter::OuterEnd) {
            if !part.trim_ascii().is_empty() {
                return Err(BatchError::Malformed);
            }
            // The last delimiter lacked its two hyphens; the batch goes on with its own.
            *rest = before;
            break;
        }
        if operations.len() == limits::BATCH_OPERATIONS_MAX {
            return Err(BatchError::TooManyOperations);
        }
        let mut content = part;
        take_headers(&mut content)?;
        let part = parse_part(content)?;
        if part.method == "GET" {
            return Err(BatchError::MixedQuery);
        }
        operations.push(part);
    }
    match delimiter {
        Delimiter::Outer | Delimiter::OuterEnd if operations.is_empty() => {
            Err(BatchError::Malformed)
        }
        _ if operations.is_empty() => Err(BatchError::Empty),
        _ => Ok(operations),
    }
}

/// Reads a request: its line, its headers and what follows.
fn parse_part(content: &[u8]) -> Result<Part<'_>, BatchError> {
    let mut rest = content.trim_ascii_start();
    let line = text(take_line(&mut rest).0)?;
    let (method, tail) = line.split_once(' ').ok_or(BatchError::Malformed)?;
    let (target, version) = tail.trim().rsplit_once(' ').ok_or(BatchError::Malformed)?;
    let target = target.trim();
    let formed = !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_alphabetic())
        && !target.is_empty()
        && version.starts_with("HTTP/1.");
    if !formed {
        return Err(BatchError::Malformed);
    }
    let headers = take_headers(&mut rest)?;
    Ok(Part { method, target, body: rest.trim_ascii(), headers })
}

/// Takes header lines up to and including the blank line after them, or to the end.
fn take_headers<'a>(rest: &mut &'a [u8]) -> Result<&'a str, BatchError> {
    let start = *rest;
    loop {
        let before = rest.len();
        let (line, ended) = take_line(rest);
        if line.is_empty() {
            return text(&start[..start.len() - before]);
        }
        let line = text(line)?;
        let (name, _) = line.split_once(':').ok_or(BatchError::Malformed)?;
        let token = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || !name.bytes().all(token) {
            return Err(BatchError::Malformed);
        }
        if !ended {
            return text(start);
        }
    }
}

fn header_lines(block: &str) -> impl Iterator<Item = (&str, &str)> {
    block.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
}

fn header<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    header_lines(block).find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Text of lines; refuses control characters, which could not be repeated in an answer.
fn text(bytes: &[u8]) -> Result<&str, BatchError> {
    let text = std::str::from_utf8(bytes).map_err(|_| BatchError::Malformed)?;
    let control = |c: char| c.is_control() && !matches!(c, '\t' | '\r' | '\n');
    let inner_return = |text: &str| text.lines().any(|line| line.contains('\r'));
    if text.contains(control) || inner_return(text) { Err(BatchError::Malformed) } else { Ok(text) }
}

/// Takes a line without its end, and says whether it had one.
fn take_line<'a>(rest: &mut &'a [u8]) -> (&'a [u8], bool) {
    let whole = *rest;
    let end = whole.iter().position(|byte| *byte == b'\n');
    let line = &whole[..end.unwrap_or(whole.len())];
    *rest = end.map_or(&[], |at| &whole[at + 1..]);
    (line.strip_suffix(b"\r").unwrap_or(line), end.is_some())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delimiter {
    Inner,
    InnerEnd,
    Outer,
    OuterEnd,
}

/// Takes everything up to the next delimiter line, and that line; there must be one.
fn split<'a>(
    rest: &mut &'a [u8],
    inner: Option<&str>,
    outer: &str,
) -> Result<(&'a [u8], Delimiter), BatchError> {
    let start = *rest;
    loop {
        let at = start.len() - rest.len();
        let (line, ended) = take_line(rest);
        if let Some(dashed) = line.strip_prefix(b"--") {
            let dashed = dashed.trim_ascii_end();
            let of_inner = inner.and_then(|boundary| ends(dashed, boundary));
            let delimiter = match (of_inner, ends(dashed, outer)) {
                (Some(false), _) => Some(Delimiter::Inner),
                (Some(true), _) => Some(Delimiter::InnerEnd),
                (None, Some(false)) => Some(Delimiter::Outer),
                (None, Some(true)) => Some(Delimiter::OuterEnd),
                (None, None) => None,
            };
            if let Some(delimiter) = delimiter {
                return Ok((&start[..at], delimiter));
            }
        }
        if !ended {
            return Err(BatchError::Malformed);
        }
    }
}

/// Whether a delimiter of this boundary is a closing one; nothing if it is not one of it.
fn ends(dashed: &[u8], boundary: &str) -> Option<bool> {
    match dashed.strip_prefix(boundary.as_bytes())? {
        b"" => Some(false),
        b"--" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
