use rowhouse_types::limits;
use rowhouse_wire::batch::{self, Request};
use rowhouse_wire::uri;

/// Batch bodies: the first line of the input is the Content-Type header, the rest the body.
///
/// Every part lies within the body, and its headers and target can be read.
pub fn batch(data: &[u8]) {
    let Some(end) = data.iter().position(|&byte| byte == b'\n') else { return };
    let Ok(header) = std::str::from_utf8(&data[..end]) else { return };
    let Some(boundary) = batch::boundary(header.trim_end()) else { return };
    let body = &data[end + 1..];
    let parts = match batch::parse(body, &boundary) {
        Ok(Request::Changeset(parts)) => parts,
        Ok(Request::Query(part)) => vec![part],
        Err(_) => return,
    };
    assert!(!parts.is_empty() && parts.len() <= limits::BATCH_OPERATIONS_MAX);
    for part in parts {
        assert!(part.body.len() <= body.len());
        for name in ["If-Match", "prefer", "X-HTTP-Method"] {
            assert_eq!(part.header(name).is_some(), 0 < part.header_count(name));
        }
        let _ = part.inner_content_id();
        let (path, query) = part.target.split_once('?').unwrap_or((part.target, ""));
        let _ = uri::parse_resource(path);
        let _ = uri::Query::parse(query);
    }
}
