//! Messages of a queue: the text of one that comes in, and what is told of those that go out.

use super::XmlError;
use super::text::{DECLARATION, push_element};
use super::tree::Node;
use crate::receipt;
use rowhouse_types::{Guid, Timestamp, limits};

/// Most bytes of a message beside its text, and of the list around it.
const FRAME_BYTES_MAX: usize = 512;

/// Bytes of a list of so many messages of the longest text there is, if no text more than doubles when it is written: ordinary
/// XML in a text does not. Nothing but `&` takes two and a half times as much, and nothing takes more.
pub const fn bytes_expected(messages: usize) -> usize {
    FRAME_BYTES_MAX + messages * (FRAME_BYTES_MAX + 2 * limits::MESSAGE_BYTES_MAX)
}

/// What is told of a message, each part where it is known or wanted.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    /// Its id.
    pub id: Guid,
    /// When it was put.
    pub inserted: Timestamp,
    /// When it is gone.
    pub expires: Timestamp,
    /// What its taker needs to change it, and when it is visible again.
    pub taken: Option<(Timestamp, Timestamp)>,
    /// How often it was taken, and what it says.
    pub content: Option<(u32, &'a str)>,
}

/// Reads the text of a message, with every blank. Whoever calls has limited the length of the body.
pub fn read(body: &[u8]) -> Result<String, XmlError> {
    let root = Node::parse_any_length(body, "QueueMessage")?;
    let mut texts = root.children.iter().filter(|child| child.name == "MessageText");
    match (texts.next(), texts.next()) {
        (Some(text), None) => Ok(text.raw_text()?.to_owned()),
        _ => Err(XmlError::Syntax),
    }
}

/// A list of messages.
pub fn write<'a>(messages: impl IntoIterator<Item = MessageView<'a>>) -> String {
    let mut out = String::from(DECLARATION);
    let start = out.len();
    for message in messages {
        push(&mut out, &message);
    }
    if out.len() == start {
        out.push_str("<QueueMessagesList />");
    } else {
        out.insert_str(start, "<QueueMessagesList>");
        out.push_str("</QueueMessagesList>");
    }
    out
}

fn push(out: &mut String, message: &MessageView<'_>) {
    let MessageView { id, inserted, expires, taken, content } = message;
    out.push_str("<QueueMessage>");
    push_element(out, "MessageId", &id.to_string());
    push_element(out, "InsertionTime", &inserted.rfc1123());
    push_element(out, "ExpirationTime", &expires.rfc1123());
    if let Some((receipt, visible)) = taken {
        push_element(out, "PopReceipt", &receipt::encode(*receipt));
        push_element(out, "TimeNextVisible", &visible.rfc1123());
    }
    if let Some((count, text)) = content {
        push_element(out, "DequeueCount", &count.to_string());
        push_element(out, "MessageText", text);
    }
    out.push_str("</QueueMessage>");
}

/// A message of a list, as a client is given it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedMessage {
    /// Its id.
    pub id: String,
    /// When it was put, as the service writes times.
    pub inserted: String,
    /// When it is gone.
    pub expires: String,
    /// What its taker needs to change it; empty if it was not taken.
    pub receipt: String,
    /// When it is visible again; empty if it was not taken.
    pub visible: String,
    /// How often it was taken.
    pub taken: u32,
    /// What it says, with every blank.
    pub text: String,
}

/// Reads a list of messages. Whoever calls has limited the length of the body.
pub fn read_list(body: &[u8]) -> Result<Vec<ListedMessage>, XmlError> {
    let root = Node::parse_any_length(body, "QueueMessagesList")?;
    let messages = root.children.iter().filter(|child| child.name == "QueueMessage");
    messages.map(read_listed).collect()
}

fn read_listed(node: &Node) -> Result<ListedMessage, XmlError> {
    let mut message = ListedMessage::default();
    for child in &node.children {
        let text = child.raw_text()?.to_owned();
        match child.name.as_str() {
            "MessageId" => message.id = text,
            "InsertionTime" => message.inserted = text,
            "ExpirationTime" => message.expires = text,
            "PopReceipt" => message.receipt = text,
            "TimeNextVisible" => message.visible = text,
            "DequeueCount" => message.taken = text.parse().map_err(|_| XmlError::NodeValue)?,
            "MessageText" => message.text = text,
            _ => {}
        }
    }
    Ok(message)
}

/// The body that puts a message with this text.
pub fn write_text(text: &str) -> String {
    let mut out = String::from(DECLARATION);
    out.push_str("<QueueMessage>");
    push_element(&mut out, "MessageText", text);
    out.push_str("</QueueMessage>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_kept_as_they_are() {
        let wrapped = |inner: &str| format!("<QueueMessage>{inner}</QueueMessage>");
        let cases = [
            ("<MessageText>Hello</MessageText>", "Hello"),
            ("<MessageText/>", ""),
            ("<MessageText></MessageText>", ""),
            ("\n <MessageText>  mess\t age1\n</MessageText>\n", "  mess\t age1\n"),
            ("<MessageText>&amp;lt;message1&amp;gt;</MessageText>", "&lt;message1&gt;"),
            ("<MessageText>a\r\nb\rc&#xD;\nd</MessageText>", "a\nb\nc\r\nd"),
            ("<MessageText><![CDATA[<b>&amp;]]></MessageText>", "<b>&amp;"),
            ("<Other/><MessageText>x</MessageText><More>y</More>", "x"),
        ];
        for (inner, expected) in cases {
            assert_eq!(read(wrapped(inner).as_bytes()).as_deref(), Ok(expected), "{inner:?}");
        }
        for start in ["\u{FEFF}<?xml version='1.0' encoding='utf-8' standalone='yes'?>\n", "\n"] {
            let body = start.to_owned() + &wrapped("<MessageText>x</MessageText>");
            assert_eq!(read(body.as_bytes()).as_deref(), Ok("x"), "{start:?}");
        }
    }

    #[test]
    fn lists_are_read_back() {
        let view = MessageView {
            id: Guid::parse("01234567-89ab-cdef-0123-456789abcdef").unwrap(),
            inserted: Timestamp::EDM_MIN,
            expires: Timestamp::EDM_MIN.plus_seconds(60),
            taken: Some((Timestamp::EDM_MIN, Timestamp::EDM_MIN.plus_seconds(30))),
            content: Some((3, " a <b>\r\n ")),
        };
        let list = read_list(write([view, view]).as_bytes()).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].taken, list[0].text.as_str()), (3, " a <b>\r\n "));
        assert_eq!(list[0].expires, Timestamp::EDM_MIN.plus_seconds(60).rfc1123());
        assert!(!list[0].receipt.is_empty() && !list[0].visible.is_empty());
        assert_eq!(read_list(write([]).as_bytes()), Ok(Vec::new()));
        let text = " mess\t&<age>\r\n";
        assert_eq!(read(write_text(text).as_bytes()).as_deref(), Ok(text));
    }

    #[test]
    fn what_is_no_message() {
        let cases = [
            "",
            "Hello",
            "<QueueMessage/>",
            "<QueueMessage></QueueMessage>",
            "<QueueMessage><Text>x</Text></QueueMessage>",
            "<QueueMessage><MessageText>x</MessageText><MessageText>y</MessageText></QueueMessage>",
            "<QueueMessage><MessageText><b/></MessageText></QueueMessage>",
            "<QueueMessages><MessageText>x</MessageText></QueueMessages>",
            "<QueueMessage><MessageText>\u{1}</MessageText></QueueMessage>",
            "<QueueMessage><MessageText>&#1;</MessageText></QueueMessage>",
            "<QueueMessage><MessageText>&#xD800;</MessageText></QueueMessage>",
            "<QueueMessage><MessageText>\u{FFFF}</MessageText></QueueMessage>",
            "<!DOCTYPE a><QueueMessage><MessageText>x</MessageText></QueueMessage>",
            "<QueueMessage><MessageText>x</MessageText>",
        ];
        for body in cases {
            assert_eq!(read(body.as_bytes()), Err(XmlError::Syntax), "{body:?}");
        }
    }

    #[test]
    fn three_forms_of_a_list() {
        let time = |text| Timestamp::parse_iso(text).unwrap();
        let put = MessageView {
            id: Guid::parse("917274f0-d51e-4768-9892-e6fdb9663621").unwrap(),
            inserted: time("2019-09-11T02:21:29.5Z"),
            expires: Timestamp::MAX,
            taken: Some((Timestamp::from_ticks(1).unwrap(), time("2019-09-11T02:21:30Z"))),
            content: None,
        };
        let start = "<QueueMessage><MessageId>917274f0-d51e-4768-9892-e6fdb9663621</MessageId><InsertionTime>Wed, 11 Sep 2019 02:21:29 GMT</InsertionTime><ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>";
        let receipt = "<PopReceipt>AAAAAAAAAAE=</PopReceipt><TimeNextVisible>Wed, 11 Sep 2019 02:21:30 GMT</TimeNextVisible>";
        let content =
            "<DequeueCount>2</DequeueCount><MessageText>a&lt;&amp;&gt;&#xD;\n</MessageText>";
        let list = |inner: &str| {
            format!(
                "{DECLARATION}<QueueMessagesList>{start}{inner}</QueueMessage></QueueMessagesList>"
            )
        };
        assert_eq!(write([put]), list(receipt));
        let got = MessageView { content: Some((2, "a<&>\r\n")), ..put };
        assert_eq!(write([got]), list(&format!("{receipt}{content}")));
        assert_eq!(write([MessageView { taken: None, ..got }]), list(content));
        let empty = MessageView { content: Some((0, "")), ..put };
        assert!(write([empty]).contains("<DequeueCount>0</DequeueCount><MessageText /></Queue"));
        assert_eq!(write([]), format!("{DECLARATION}<QueueMessagesList />"));
    }

    #[test]
    fn how_long_a_list_becomes() {
        let longest = |text: &str, count| {
            let text = text.repeat(limits::MESSAGE_BYTES_MAX / text.len());
            let message = MessageView {
                id: Guid::parse("917274f0-d51e-4768-9892-e6fdb9663621").unwrap(),
                inserted: Timestamp::MAX,
                expires: Timestamp::MAX,
                taken: Some((Timestamp::MAX, Timestamp::MAX)),
                content: Some((u32::MAX, &text)),
            };
            write(std::iter::repeat_n(message, count)).len()
        };
        for count in [0, 1, limits::MESSAGES_MAX] {
            for text in
                ["x", "\u{1F600}", "{\"a\":\"b&c\"}\r\n", "<order id='1'><city>Bern</city></order>"]
            {
                assert!(longest(text, count) <= bytes_expected(count), "{count} of {text}");
            }
            for text in ["&", "\r", "<", "\u{FFFD}"] {
                assert!(longest(text, count) <= bytes_expected(count) * 5 / 2, "{count} of {text}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in "[\\PC\t\n\r<>&\"']{0,40}") {
            let mut body = String::from("<QueueMessage>");
            push_element(&mut body, "MessageText", &text);
            body.push_str("</QueueMessage>");
            prop_assert_eq!(read(body.as_bytes()), Ok(text));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
        }
    }
}
