//! Bodies of error answers, in both shapes.
//!
//! Clients pick these apart with regular expressions and strict parsers: nothing may be added, and no
//! blank may stand between the members.

use crate::json::writer::{self, Object};
use crate::xml::text;
use rowhouse_types::Timestamp;

/// The shape of everything that answers in JSON.
pub fn json(code: &str, message: &str, request_id: &str, time: Timestamp) -> String {
    let mut out = br#"{"odata.error":"#.to_vec();
    let mut error = Object::open(&mut out);
    error.text("code", code);
    error.name("message", "");
    let mut object = Object::open(error.out);
    object.text("lang", "en-US");
    object.name("value", "");
    writer::string(object.out, &whole_message(message, request_id, time));
    object.close();
    error.close();
    out.push(b'}');
    String::from_utf8(out).expect("made of text")
}

/// The shape of everything that answers in XML.
pub fn xml(code: &str, message: &str, request_id: &str, time: Timestamp) -> String {
    let mut out = String::from(text::DECLARATION);
    out.push_str(
        "<m:error xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><m:code>",
    );
    text::push_escaped(&mut out, code);
    out.push_str("</m:code><m:message xml:lang=\"en-US\">");
    text::push_escaped(&mut out, &whole_message(message, request_id, time));
    out.push_str("</m:message></m:error>");
    out
}

/// The shape of the errors of queues: further elements stand after the message, in their order.
pub fn plain_xml(
    code: &str,
    message: &str,
    details: &[(&str, &str)],
    request_id: &str,
    time: Timestamp,
) -> String {
    let mut out = String::from(text::DECLARATION);
    out.push_str("<Error>");
    text::push_element(&mut out, "Code", code);
    text::push_element(&mut out, "Message", &whole_message(message, request_id, time));
    for (name, value) in details {
        text::push_element(&mut out, name, value);
    }
    out.push_str("</Error>");
    out
}

fn whole_message(message: &str, request_id: &str, time: Timestamp) -> String {
    format!("{message}\nRequestId:{request_id}\nTime:{}", time.iso7())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes() {
        let time = Timestamp::parse_iso("2021-09-15T18:02:23.8660025Z").unwrap();
        let id = "dd1dcc7e-4002-0085-0d5b-aab6fe000000";
        assert_eq!(
            json("ResourceNotFound", "The specified resource does not exist.", id, time),
            r#"{"odata.error":{"code":"ResourceNotFound","message":{"lang":"en-US","value":"The specified resource does not exist.\nRequestId:dd1dcc7e-4002-0085-0d5b-aab6fe000000\nTime:2021-09-15T18:02:23.8660025Z"}}}"#
        );
        assert_eq!(
            xml("ResourceNotFound", "The specified resource does not exist.", id, time),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><m:error xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><m:code>ResourceNotFound</m:code><m:message xml:lang=\"en-US\">The specified resource does not exist.\nRequestId:dd1dcc7e-4002-0085-0d5b-aab6fe000000\nTime:2021-09-15T18:02:23.8660025Z</m:message></m:error>"
        );
    }

    #[test]
    fn errors_of_queues() {
        let time = Timestamp::parse_iso("2019-05-09T01:19:46.1028034Z").unwrap();
        let id = "7ad8c2f3-4003-0029-6105-06b969000000";
        let whole = |details: &[(&str, &str)]| {
            plain_xml("QueueNotFound", "The specified queue does not exist.", details, id, time)
        };
        let start = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>QueueNotFound</Code><Message>The specified queue does not exist.\nRequestId:7ad8c2f3-4003-0029-6105-06b969000000\nTime:2019-05-09T01:19:46.1028034Z</Message>";
        assert_eq!(whole(&[]), format!("{start}</Error>"));
        assert_eq!(
            whole(&[("LineNumber", "0"), ("Reason", "")]),
            format!("{start}<LineNumber>0</LineNumber><Reason /></Error>")
        );
    }

    #[test]
    fn messages_are_escaped() {
        let time = Timestamp::EDM_MIN;
        assert!(json("C", "a\"b\u{1}", "", time).contains(r#""value":"a\"b\u0001\nRequestId:"#));
        assert!(xml("C", "a<b>&\u{1}", "", time).contains(">a&lt;b&gt;&amp;\u{FFFD}\nRequestId:"));
    }
}
