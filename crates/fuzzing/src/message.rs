use rowhouse_types::{Guid, Timestamp};
use rowhouse_wire::receipt;
use rowhouse_wire::xml::{fault, message};

/// Queue messages: a message survives being written and read again.
///
/// The position of a syntax error lies inside the body.
pub fn message(data: &[u8]) {
    match message::read(data) {
        Ok(text) => {
            assert_eq!(fault(data), None);
            let view = message::MessageView {
                id: Guid([0; 16]),
                inserted: Timestamp::EDM_MIN,
                expires: Timestamp::MAX,
                taken: None,
                content: Some((1, &text)),
            };
            let list = message::write([view]);
            let inner = list.split_once("<MessageText").expect("it has a text").1;
            let inner = inner.split_once("</QueueMessage>").expect("it has an end").0;
            let again = format!("<QueueMessage><MessageText{inner}</QueueMessage>");
            assert_eq!(message::read(again.as_bytes()), Ok(text));
        }
        Err(_) => {
            if let Some((line, position)) = fault(data) {
                assert!(0 < line && 0 < position && line + position <= data.len() + 2);
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(Some(time)) = receipt::decode(text)
    {
        assert_eq!(receipt::decode(&receipt::encode(time)), Ok(Some(time)));
    }
}
