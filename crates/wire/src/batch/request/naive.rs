//! Splits a batch line by line with nothing but the standard library: what the real one is compared with.

use super::{BatchError, Delimiter, Part, Request, multipart_boundary};
use rowhouse_types::limits;

/// Splits the body of a batch.
pub(super) fn parse<'a>(body: &'a [u8], boundary: &str) -> Result<Request<'a>, BatchError> {
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

/// The first header of this name.
pub(super) fn header<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    block
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
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
