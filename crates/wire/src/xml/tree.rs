//! Reading XML into a small tree.

use super::XmlError;
use super::text::is_xml;
use quick_xml::Reader;
use quick_xml::events::Event;
use rowhouse_types::{Service, limits};

/// No document of the protocol is deeper than four elements.
const DEPTH_MAX: usize = 8;

/// An element with its children or its text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// As written, with a prefix if it has one.
    pub(super) name: String,
    /// All text directly inside.
    text: String,
    pub(super) children: Vec<Node>,
    /// Where the element ends, in bytes of the body without a byte order mark.
    end: usize,
}

impl Node {
    /// Parses a whole document and checks the name of its root.
    pub(super) fn parse(body: &[u8], root: &str) -> Result<Self, XmlError> {
        if limits::XML_BODY_BYTES_MAX < body.len() {
            return Err(XmlError::Syntax);
        }
        Self::parse_any_length(body, root)
    }

    /// The same, of a body whose length somebody else has limited.
    pub(super) fn parse_any_length(body: &[u8], root: &str) -> Result<Self, XmlError> {
        let body = std::str::from_utf8(body).map_err(|_| XmlError::Syntax)?;
        let body = body.strip_prefix('\u{FEFF}').unwrap_or(body);
        if !body.chars().all(is_xml) {
            return Err(XmlError::Syntax);
        }
        let document = Self::parse_document(body)?;
        let mut roots = document.children.into_iter();
        match (roots.next(), roots.next(), document.text.trim()) {
            (Some(node), None, "") if node.name == root => Ok(node),
            _ => Err(XmlError::Syntax),
        }
    }

    /// The document as a node without a name.
    fn parse_document(body: &str) -> Result<Self, XmlError> {
        let mut reader = Reader::from_str(body);
        let mut open = vec![Self::default()];
        loop {
            let event = reader.read_event().map_err(|_| XmlError::Syntax)?;
            let top = open.last_mut().ok_or(XmlError::Syntax)?;
            match event {
                Event::Start(tag) => {
                    let name = tag.name().into_inner().to_owned();
                    open.push(Self { name, ..Self::default() });
                    if DEPTH_MAX < open.len() {
                        return Err(XmlError::Syntax);
                    }
                }
                Event::Empty(tag) => {
                    let name = tag.name().into_inner().to_owned();
                    top.children.push(Self { name, end: position(&reader), ..Self::default() });
                }
                Event::End(_) => {
                    let mut node = open.pop().ok_or(XmlError::Syntax)?;
                    node.end = position(&reader);
                    open.last_mut().ok_or(XmlError::Syntax)?.children.push(node);
                }
                Event::Text(text) => top.text.push_str(&text.xml10_content()),
                Event::CData(text) => top.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => top.text.push(match reference.as_ref() {
                    "lt" => '<',
                    "gt" => '>',
                    "amp" => '&',
                    "quot" => '"',
                    "apos" => '\'',
                    _ => reference
                        .resolve_char_ref()
                        .ok()
                        .flatten()
                        .filter(|c| is_xml(*c))
                        .ok_or(XmlError::Syntax)?,
                }),
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::DocType(_) => return Err(XmlError::Syntax),
                Event::Eof => break,
            }
        }
        match (open.pop(), open.is_empty()) {
            (Some(document), true) => Ok(document),
            _ => Err(XmlError::Syntax),
        }
    }

    /// As a service sees it that knows these elements and no others: queues pass over the rest, wherever it stands.
    pub(super) fn known_to(mut self, service: Service, names: &[&str]) -> Self {
        if service == Service::Queue {
            self.children.retain(|child| names.contains(&child.name.as_str()));
            let children = self.children.into_iter();
            self.children = children.map(|child| child.known_to(service, names)).collect();
        }
        self
    }

    /// The text of an element without children.
    pub(super) fn text(&self) -> Result<&str, XmlError> {
        if self.children.is_empty() { Ok(self.text.trim()) } else { Err(XmlError::NodeValue) }
    }

    /// The text of an element without children, with every blank.
    pub(super) fn raw_text(&self) -> Result<&str, XmlError> {
        if self.children.is_empty() { Ok(&self.text) } else { Err(XmlError::Syntax) }
    }

    /// The children with these names, each at most once and no others.
    pub(super) fn fields<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<&Self>; N], XmlError> {
        self.only_children()?;
        let mut found = [None; N];
        for child in &self.children {
            let at = names
                .iter()
                .position(|name| *name == child.name)
                .ok_or(XmlError::UnsupportedNode)?;
            if found[at].replace(child).is_some() {
                return Err(XmlError::Syntax);
            }
        }
        Ok(found)
    }

    /// The children, all with this name and no more than so many.
    pub(super) fn list(&self, name: &str, max: usize) -> Result<&[Self], XmlError> {
        self.only_children()?;
        if self.children.iter().any(|child| child.name != name) {
            return Err(XmlError::UnsupportedNode);
        }
        if max < self.children.len() { Err(XmlError::Syntax) } else { Ok(&self.children) }
    }

    fn only_children(&self) -> Result<(), XmlError> {
        if self.text.trim().is_empty() { Ok(()) } else { Err(XmlError::Syntax) }
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or_default()
}

/// Line and position, both from 1, of what stands behind that text.
fn place(before: &str) -> (usize, usize) {
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Where the tag behind an element of the body has its name: line and position, both from 1.
pub(super) fn place_after(body: &[u8], node: &Node) -> (usize, usize) {
    let text = str::from_utf8(body).unwrap_or_default();
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let rest = text.get(node.end..).unwrap_or_default();
    let tag = rest.trim_start();
    let marks = tag.len() - tag.trim_start_matches(['<', '/']).len();
    place(text.get(..text.len() - tag.len() + marks).unwrap_or_default())
}

/// Where a document ceases to be one: line and position, both from 1. None if it is not the form that is at fault.
pub(super) fn fault(body: &[u8]) -> Option<(usize, usize)> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default(),
    };
    let whole = text.len() == body.len();
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    if let Some(at) = text.find(|c| !is_xml(c)) {
        return Some(place(&text[..at]));
    }
    if !whole {
        return Some(place(text));
    }
    let mut reader = Reader::from_str(text);
    loop {
        let start = usize::try_from(reader.buffer_position()).unwrap_or_default();
        let legal = match reader.read_event() {
            Ok(Event::Eof) => return None,
            Ok(Event::DocType(_)) | Err(_) => false,
            Ok(Event::GeneralRef(reference)) => match reference.as_ref() {
                "lt" | "gt" | "amp" | "quot" | "apos" => true,
                _ => reference.resolve_char_ref().ok().flatten().is_some_and(is_xml),
            },
            Ok(_) => true,
        };
        if !legal {
            return Some(place(text.get(..start).unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(body: &str) -> Result<String, XmlError> {
        Node::parse(body.as_bytes(), "a").and_then(|node| node.text().map(str::to_owned))
    }

    #[test]
    fn texts() {
        let cases = [
            ("<a/>", ""),
            ("<a></a>", ""),
            ("\u{FEFF}<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<a x='y'> b </a>\n", "b"),
            ("<a>b<!-- c -->d<?e f?></a>", "bd"),
            ("<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;</a>", "<>&\"'AB"),
            ("<a><![CDATA[<b>&]]></a>", "<b>&"),
        ];
        for (body, expected) in cases {
            assert_eq!(text_of(body).as_deref(), Ok(expected), "{body}");
        }
    }

    #[test]
    fn what_is_malformed() {
        let deep = format!("<a>{}", "<b>".repeat(1000));
        let cases = [
            "",
            "x",
            "<a>",
            "</a>",
            "<a></b>",
            "<a><b></a></b>",
            "<a/><a/>",
            "<a/>x",
            "x<a/>",
            "<b/>",
            "<A/>",
            "<a>&x;</a>",
            "<a>&</a>",
            "<a>&#0;</a>",
            "<a>&#x1;</a>",
            "<a>&#xD800;</a>",
            "<a>&#99999999999;</a>",
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            "<a>\u{1}</a>",
            "<a",
            "<a><!-- </a>",
            &deep,
        ];
        for body in cases {
            assert_eq!(text_of(body), Err(XmlError::Syntax), "{body}");
        }
        assert_eq!(Node::parse(b"<a>\xFF</a>", "a"), Err(XmlError::Syntax));
        assert_eq!(text_of("<a><b/></a>"), Err(XmlError::NodeValue));
    }

    #[test]
    fn faults_have_a_place() {
        type Case<'a> = (&'a [u8], Option<(usize, usize)>);
        let cases: [Case<'_>; 8] = [
            (b"<a/>", None),
            ("<?xml version='1.0'?>\n<a><b>\u{1}</b></a>".as_bytes(), Some((2, 7))),
            ("\u{FEFF}<a>\u{FFFE}</a>".as_bytes(), Some((1, 4))),
            (b"<a>&#1;</a>", Some((1, 4))),
            (b"<a>\n&x;</a>", Some((2, 1))),
            (b"<a>\xFF</a>", Some((1, 4))),
            (b"<a></b>", Some((1, 4))),
            (b"<!DOCTYPE a><a/>", Some((1, 1))),
        ];
        for (body, expected) in cases {
            assert_eq!(fault(body), expected, "{}", String::from_utf8_lossy(body));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Node::parse(&bytes, "a");
            let _ = fault(&bytes);
        }

        #[test]
        fn any_text_is_answered(text in "([<>/&;#?! ab\\[\\]-]|<a>|</a>|&lt;|<!--|-->){0,30}") {
            let _ = fault(text.as_bytes());
            let _ = Node::parse(text.as_bytes(), "a");
        }
    }
}
