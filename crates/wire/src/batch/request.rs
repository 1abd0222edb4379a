//! Splits the body of a batch into the requests inside it.
//!
//! Clients differ in line ends, blank lines, header names and closing delimiters; all that was ever seen
//! from one is accepted. Nothing is copied, lengths that parts claim are not trusted, and reading stops
//! at the first operation too many.

use crate::params;
use memchr::{memchr, memmem::Finder, memrchr};
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
        header_values(self.headers, name)
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
    let delimiters = Delimiters { hyphens: Finder::new(b"\n--"), outer: boundary };
    let mut rest = body;
    let (_, delimiter) = delimiters.split(&mut rest, None)?;
    let mut open = delimiter == Delimiter::Outer;
    let mut request = None;
    while open {
        if rest.trim_ascii().is_empty() {
            // The last delimiter lacked its two hyphens.
            break;
        }
        let headers = take_headers(&mut rest)?;
        let content_type = header_values(headers, "Content-Type").next().unwrap_or("");
        let changeset = match multipart_boundary(content_type) {
            Some(inner) => Some(parse_changeset(&mut rest, inner, &delimiters)?),
            None => None,
        };
        let (content, delimiter) = delimiters.split(&mut rest, None)?;
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
    delimiters: &Delimiters<'_>,
) -> Result<Vec<Part<'a>>, BatchError> {
    let mut operations = Vec::new();
    let (_, mut delimiter) = delimiters.split(rest, Some(inner))?;
    while delimiter == Delimiter::Inner {
        let before = *rest;
        let (part, next) = delimiters.split(rest, Some(inner))?;
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
    let (line, _) = take_line(&mut rest);
    check_line(line)?;
    let line = utf8(line)?;
    let end_of_method = memchr(b' ', line.as_bytes()).ok_or(BatchError::Malformed)?;
    let (method, tail) = (&line[..end_of_method], line[end_of_method + 1..].trim());
    let end_of_target = memrchr(b' ', tail.as_bytes()).ok_or(BatchError::Malformed)?;
    let (target, version) = (tail[..end_of_target].trim(), &tail[end_of_target + 1..]);
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

/// Takes header lines up to and including the blank line after them, or to the end. A line without an
/// end is cut off: something must follow it.
fn take_headers<'a>(rest: &mut &'a [u8]) -> Result<&'a str, BatchError> {
    let start = *rest;
    loop {
        let before = rest.len();
        let (line, ended) = take_line(rest);
        if line.is_empty() {
            return utf8(&start[..start.len() - before]);
        }
        check_line(line)?;
        let token = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
        let name = line.iter().position(|byte| !token(byte)).unwrap_or(line.len());
        if name == 0 || line.get(name) != Some(&b':') || !ended {
            return Err(BatchError::Malformed);
        }
    }
}

/// The values of the headers with this name, in any case, in a block that [`take_headers`] took.
fn header_values<'a>(block: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mut rest = block;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(end);
            rest = after;
            let value = line.split_at_checked(name.len()).and_then(|(found, value)| {
                let value = value.strip_prefix(':')?;
                found.eq_ignore_ascii_case(name).then(|| value.trim())
            });
            if value.is_some() {
                return value;
            }
        }
        None
    })
}

/// Refuses what is not text, and control characters other than tabs: they could not be repeated in an
/// answer.
fn check_line(line: &[u8]) -> Result<(), BatchError> {
    let plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
    // Looks at every byte, so that it can look at many at once.
    if line.iter().fold(true, |all, &byte| all & plain(byte)) {
        return Ok(());
    }
    let control = |c: char| c.is_control() && c != '\t';
    if utf8(line)?.contains(control) { Err(BatchError::Malformed) } else { Ok(()) }
}

fn utf8(bytes: &[u8]) -> Result<&str, BatchError> {
    std::str::from_utf8(bytes).map_err(|_| BatchError::Malformed)
}

/// Takes a line without its end, and says whether it had one.
fn take_line<'a>(rest: &mut &'a [u8]) -> (&'a [u8], bool) {
    let whole = *rest;
    let end = memchr(b'\n', whole);
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

/// What a delimiter line looks like.
struct Delimiters<'b> {
    /// Where a line may be one, except at the start of what is searched.
    hyphens: Finder<'static>,
    /// Boundary of the batch.
    outer: &'b str,
}

impl Delimiters<'_> {
    /// Takes everything up to the next delimiter line, and that line; there must be one.
    fn split<'a>(
        &self,
        rest: &mut &'a [u8],
        inner: Option<&str>,
    ) -> Result<(&'a [u8], Delimiter), BatchError> {
        let whole = *rest;
        let mut at = 0;
        loop {
            if whole[at..].starts_with(b"--") {
                let mut after = &whole[at..];
                let (line, _) = take_line(&mut after);
                if let Some(delimiter) = self.recognise(line[2..].trim_ascii_end(), inner) {
                    *rest = after;
                    return Ok((&whole[..at], delimiter));
                }
            }
            at += 1 + self.hyphens.find(&whole[at..]).ok_or(BatchError::Malformed)?;
        }
    }

    fn recognise(&self, dashed: &[u8], inner: Option<&str>) -> Option<Delimiter> {
        let of_inner = inner.and_then(|boundary| ends(dashed, boundary));
        match (of_inner, ends(dashed, self.outer)) {
            (Some(false), _) => Some(Delimiter::Inner),
            (Some(true), _) => Some(Delimiter::InnerEnd),
            (None, Some(false)) => Some(Delimiter::Outer),
            (None, Some(true)) => Some(Delimiter::OuterEnd),
            (None, None) => None,
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
mod naive;
#[cfg(test)]
mod tests;
