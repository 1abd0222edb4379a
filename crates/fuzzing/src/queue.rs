use crate::valid_prefix;
use rowhouse_types::QueueName;
use rowhouse_wire::metadata;
use rowhouse_wire::uri::{Query, QueueResource, parse_queue_resource};
use rowhouse_wire::xml::queues::{marker, read_marker};

/// Paths, queries, markers and metadata of queues.
///
/// The path that the server writes for a message names that message.
pub fn queue(data: &[u8]) {
    let text = valid_prefix(data);
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    if let Ok(query) = Query::parse(query) {
        for (_, value) in query.iter() {
            if let Some(queue) = read_marker("acct", value) {
                assert_eq!(marker("acct", queue), value);
            }
        }
        let headers = query.iter().map(|(name, value)| (name, Some(value)));
        if let Ok(pairs) = metadata::read(headers) {
            assert!(pairs.iter().all(|(name, value)| !name.is_empty() && value.is_ascii()));
        }
    }
    if let Ok(QueueResource::Message { queue, id }) = parse_queue_resource(path)
        && queue.parse::<QueueName>().is_ok()
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        let again = parse_queue_resource(&format!("/{queue}/messages/{id}"));
        assert_eq!(again, Ok(QueueResource::Message { queue, id }));
    }
}
