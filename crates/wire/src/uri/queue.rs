//! What a path of the Queue service names.

use super::{UriError, decode};

/// What the path of a request names, below the account. Names and ids are decoded and unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueResource {
    /// The service itself.
    Service,
    /// A queue.
    Queue(String),
    /// The messages of a queue.
    Messages(String),
    /// One message.
    Message {
        /// Name of its queue.
        queue: String,
        /// Its id.
        id: String,
    },
    /// Nothing that there is: below a queue of this name.
    Nothing(String),
}

impl QueueResource {
    /// The queue that is named, or in which something is.
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Service => None,
            Self::Queue(queue)
            | Self::Messages(queue)
            | Self::Message { queue, .. }
            | Self::Nothing(queue) => Some(queue),
        }
    }
}

/// Parses a path below the account, still encoded; empty or starting with `/`. Each segment is decoded by itself, so that
/// a `/` that is encoded separates nothing.
pub fn parse_queue_resource(raw_path: &str) -> Result<QueueResource, UriError> {
    let path = raw_path.strip_prefix('/').unwrap_or(raw_path);
    if path.is_empty() {
        return Ok(QueueResource::Service);
    }
    let mut segments = path.split('/').map(|segment| decode(segment).map(String::from));
    let mut next = || segments.next().transpose();
    let (queue, second, third) = (next()?.unwrap_or_default(), next()?, next()?);
    let third = third.filter(|text| !text.is_empty());
    let mut more = false;
    for segment in segments {
        more |= !segment?.is_empty();
    }
    Ok(match (second.as_deref(), third) {
        _ if more => QueueResource::Nothing(queue),
        (None | Some(""), None) => QueueResource::Queue(queue),
        (Some("messages"), None) => QueueResource::Messages(queue),
        (Some("messages"), Some(id)) => QueueResource::Message { queue, id },
        _ => QueueResource::Nothing(queue),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_of_a_path() {
        use QueueResource::{Message, Messages, Nothing, Queue, Service};
        let cases = [
            ("", Service),
            ("/", Service),
            ("/orders", Queue("orders".into())),
            ("/orders/", Queue("orders".into())),
            ("/orders/messages", Messages("orders".into())),
            ("/orders/messages/", Messages("orders".into())),
            ("/orders/messages/a-b", Message { queue: "orders".into(), id: "a-b".into() }),
            ("/orders/messages/a%2Fb", Message { queue: "orders".into(), id: "a/b".into() }),
            ("/orders/messages/a/", Message { queue: "orders".into(), id: "a".into() }),
            ("/orders/messages/a/b", Nothing("orders".into())),
            ("/orders/messages/a//b", Nothing("orders".into())),
            ("/orders/messages//a", Nothing("orders".into())),
            ("/orders////x", Nothing("orders".into())),
            ("/orders////messages/a/b", Nothing("orders".into())),
            ("/orders////", Queue("orders".into())),
            ("/orders/Messages", Nothing("orders".into())),
            ("/orders/other/x", Nothing("orders".into())),
            ("/or%64ers", Queue("orders".into())),
            ("/a%2Fmessages", Queue("a/messages".into())),
            ("//messages", Messages(String::new())),
        ];
        for (path, expected) in cases {
            assert_eq!(parse_queue_resource(path), Ok(expected), "{path}");
        }
        for path in ["/%", "/a/%zz", "/a/messages/%FF", "/a/messages/b///%"] {
            assert_eq!(parse_queue_resource(path), Err(UriError), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(path in "\\PC{0,40}|(/|messages|%2F|%|[a-c]){0,9}") {
            let _ = parse_queue_resource(&path);
        }

        #[test]
        fn written_paths_are_read_back(queue in "[a-z0-9-]{1,9}", id in "[a-f0-9-]{1,36}") {
            let read = parse_queue_resource(&format!("/{queue}/messages/{id}"));
            prop_assert_eq!(read, Ok(QueueResource::Message { queue, id }));
        }
    }
}
