//! A page of the queues of an account, and the marker between pages.

use super::XmlError;
use super::text::{DECLARATION, push_element, push_escaped};
use super::tree::Node;

/// What was asked for: an answer repeats it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// `prefix`
    pub prefix: Option<&'a str>,
    /// `marker`
    pub marker: Option<&'a str>,
    /// `maxresults`, as it was taken.
    pub max_results: Option<usize>,
}

/// One queue of a page.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its users say about it, if that is asked for.
    pub metadata: Option<&'a [(Box<str>, Box<str>)]>,
}

/// A page; `base` is the address of the service. Queues that would make it longer than `limit` bytes are left to the next
/// one, but not the first.
pub fn write<'a>(
    base: &str,
    account: &str,
    asked: Asked<'_>,
    queues: impl IntoIterator<Item = QueueView<'a>>,
    next: Option<&'a str>,
    limit: usize,
) -> String {
    let mut out = String::from(DECLARATION);
    out.push_str("<EnumerationResults ServiceEndpoint=\"");
    let mut address = String::new();
    push_escaped(&mut address, base);
    out.push_str(&address.replace('"', "&quot;"));
    out.push_str("/\">");
    for (name, text) in [("Prefix", asked.prefix), ("Marker", asked.marker)] {
        if let Some(text) = text {
            push_element(&mut out, name, text);
        }
    }
    if let Some(most) = asked.max_results {
        push_element(&mut out, "MaxResults", &most.to_string());
    }
    let start = out.len();
    let mut next = next;
    for queue in queues {
        if start < out.len() && limit <= out.len() {
            next = Some(queue.name);
            break;
        }
        push(&mut out, &queue);
    }
    if out.len() == start {
        out.push_str("<Queues />");
    } else {
        out.insert_str(start, "<Queues>");
        out.push_str("</Queues>");
    }
    push_element(&mut out, "NextMarker", &next.map_or(String::new(), |name| marker(account, name)));
    out.push_str("</EnumerationResults>");
    out
}

fn push(out: &mut String, queue: &QueueView<'_>) {
    out.push_str("<Queue>");
    push_element(out, "Name", queue.name);
    match queue.metadata {
        None => {}
        Some([]) => out.push_str("<Metadata />"),
        Some(pairs) => {
            out.push_str("<Metadata>");
            for (name, value) in pairs {
                push_element(out, name, value);
            }
            out.push_str("</Metadata>");
        }
    }
    out.push_str("</Queue>");
}

/// The marker of the page that starts with that queue.
pub fn marker(account: &str, queue: &str) -> String {
    ["/", account, "/", queue].concat()
}

/// The queue that a page starts with; none if the marker is not one of this account.
pub fn read_marker<'a>(account: &str, marker: &'a str) -> Option<&'a str> {
    marker.strip_prefix('/')?.strip_prefix(account)?.strip_prefix('/')
}

/// Reads a page: the names of the queues, and the marker of the next page.
pub fn read(body: &[u8]) -> Result<(Vec<String>, Option<String>), XmlError> {
    let root = Node::parse_any_length(body, "EnumerationResults")?;
    let (mut names, mut next) = (Vec::new(), None);
    for child in &root.children {
        match child.name.as_str() {
            "Queues" => {
                let names_of = child.children.iter().flat_map(|queue| &queue.children);
                for name in names_of.filter(|child| child.name == "Name") {
                    names.push(name.text()?.to_owned());
                }
            }
            "NextMarker" => next = Some(child.text()?.to_owned()).filter(|text| !text.is_empty()),
            _ => {}
        }
    }
    Ok((names, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_read_back() {
        let queues = ["list0", "list1"].map(|name| QueueView { name, metadata: None });
        let page = write("http://h/a", "a", Asked::default(), queues, Some("list2"), 10_000);
        let names = vec!["list0".to_owned(), "list1".to_owned()];
        assert_eq!(read(page.as_bytes()), Ok((names, Some("/a/list2".to_owned()))));
        let page = write("http://h/a", "a", Asked::default(), [], None, 10_000);
        assert_eq!(read(page.as_bytes()), Ok((Vec::new(), None)));
        assert!(read(b"<Other/>").is_err());
    }

    #[test]
    fn a_page() {
        let metadata: [(Box<str>, Box<str>); 2] =
            [("color".into(), "red & blue".into()), ("empty".into(), "".into())];
        let queues = [
            QueueView { name: "list0", metadata: Some(&metadata) },
            QueueView { name: "list1", metadata: Some(&[]) },
        ];
        let asked = Asked { prefix: Some("list"), marker: None, max_results: Some(2) };
        let base = "https://acct.queue.example.net";
        assert_eq!(
            write(base, "acct", asked, queues, Some("list2"), usize::MAX),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"https://acct.queue.example.net/\"><Prefix>list</Prefix><MaxResults>2</MaxResults><Queues><Queue><Name>list0</Name><Metadata><color>red &amp; blue</color><empty /></Metadata></Queue><Queue><Name>list1</Name><Metadata /></Queue></Queues><NextMarker>/acct/list2</NextMarker></EnumerationResults>"
        );
        let short = write(base, "acct", asked, queues, None, 1);
        assert!(short.contains("list0") && short.contains("<NextMarker>/acct/list1<"), "{short}");
        let all = Asked { marker: Some(""), ..Asked::default() };
        assert_eq!(
            write("http://h/acct", "acct", all, [], None, 0),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"http://h/acct/\"><Marker /><Queues /><NextMarker /></EnumerationResults>"
        );
    }

    #[test]
    fn markers() {
        assert_eq!(read_marker("acct", &marker("acct", "list2")), Some("list2"));
        for wrong in ["list2", "/other/list2", "/acct", "acct/list2", ""] {
            assert_eq!(read_marker("acct", wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_page_is_xml(base in "\\PC{0,9}", prefix in "\\PC{0,9}", marker in "\\PC{0,9}") {
            let asked = Asked { prefix: Some(&prefix), marker: Some(&marker), max_results: None };
            let page = write(&base, "a", asked, [], None, 0);
            prop_assert!(Node::parse(page.as_bytes(), "EnumerationResults").is_ok());
            let _ = read_marker("a", &marker);
        }
    }
}
