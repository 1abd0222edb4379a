//! Access policies of a table or a queue.

use super::XmlError;
use super::text::{DECLARATION, push_element};
use super::tree::{Node, place_after};
use rowhouse_types::{Service, StoredPolicy, Timestamp, limits};

/// Every element below the root.
const NAMES: [&str; 6] =
    ["SignedIdentifier", "Id", "AccessPolicy", "Start", "Expiry", "Permission"];

/// Reads the body of Set Table ACL or Set Queue ACL. An empty body is an empty list.
///
/// Ids are unique and of legal length; permissions are letters of the service, each once: of tables in their order, of
/// queues in any, which is kept. Elements that nobody knows are refused for tables and passed over for queues.
pub fn read(body: &[u8], service: Service) -> Result<Vec<StoredPolicy>, XmlError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let root = Node::parse(body, "SignedIdentifiers")?.known_to(service, &NAMES);
    let mut policies: Vec<StoredPolicy> = Vec::new();
    for node in root.list("SignedIdentifier", limits::POLICIES_MAX)? {
        let policy = read_policy(node, service, body)?;
        if policies.iter().any(|other| other.id == policy.id) {
            return Err(XmlError::Syntax);
        }
        policies.push(policy);
    }
    Ok(policies)
}

fn read_policy(node: &Node, service: Service, body: &[u8]) -> Result<StoredPolicy, XmlError> {
    let [id, policy] = node.fields(["Id", "AccessPolicy"])?;
    let id = id.ok_or(XmlError::Syntax)?.text()?;
    if !(1..=limits::POLICY_ID_CHARS_MAX).contains(&id.chars().count()) {
        return Err(match service {
            Service::Table => XmlError::Syntax,
            Service::Queue => {
                let (line, position) = place_after(body, node);
                XmlError::PolicyId { line, position }
            }
        });
    }
    let [start, expiry, permission] = match policy {
        Some(policy) => policy.fields(["Start", "Expiry", "Permission"])?,
        None => [None; 3],
    };
    Ok(StoredPolicy {
        id: id.into(),
        start: read_time(start)?,
        expiry: read_time(expiry)?,
        permission: read_permission(permission, service)?,
    })
}

/// An empty element means the same as none.
fn optional_text(node: Option<&Node>) -> Result<Option<&str>, XmlError> {
    Ok(node.map(Node::text).transpose()?.filter(|text| !text.is_empty()))
}

fn read_time(node: Option<&Node>) -> Result<Option<Timestamp>, XmlError> {
    optional_text(node)?
        .map(|text| Timestamp::parse_date_or_iso(text).map_err(|_| XmlError::NodeValue))
        .transpose()
}

fn read_permission(node: Option<&Node>, service: Service) -> Result<Option<Box<str>>, XmlError> {
    let Some(text) = optional_text(node)? else { return Ok(None) };
    // The services disagree on what is wrong, and on what that is.
    let (right, wrong) = match service {
        Service::Table => {
            let mut order = service.letters().chars();
            let right = text.chars().all(|letter| order.any(|known| known == letter));
            (right, XmlError::NodeValue)
        }
        Service::Queue => {
            let count = |letter| text.chars().filter(|other| *other == letter).count();
            let known: Vec<_> = service.letters().chars().map(count).collect();
            let right = known.iter().all(|count| *count <= 1)
                && known.iter().sum::<usize>() == text.chars().count();
            (right, XmlError::Syntax)
        }
    };
    if right { Ok(Some(text.into())) } else { Err(wrong) }
}

/// The body of Get Table ACL and Get Queue ACL. What a policy leaves open is left out.
pub fn write(policies: &[StoredPolicy]) -> String {
    let mut out = String::from(DECLARATION);
    if policies.is_empty() {
        out.push_str("<SignedIdentifiers />");
        return out;
    }
    out.push_str("<SignedIdentifiers>");
    for StoredPolicy { id, start, expiry, permission } in policies {
        out.push_str("<SignedIdentifier>");
        push_element(&mut out, "Id", id);
        if start.is_some() || expiry.is_some() || permission.is_some() {
            out.push_str("<AccessPolicy>");
            if let Some(start) = start {
                push_element(&mut out, "Start", &start.iso7());
            }
            if let Some(expiry) = expiry {
                push_element(&mut out, "Expiry", &expiry.iso7());
            }
            if let Some(permission) = permission {
                push_element(&mut out, "Permission", permission);
            }
            out.push_str("</AccessPolicy>");
        }
        out.push_str("</SignedIdentifier>");
    }
    out.push_str("</SignedIdentifiers>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Result<Vec<StoredPolicy>, XmlError> {
        super::read(body, Service::Table)
    }

    fn wrapped(inner: &str) -> String {
        format!("{DECLARATION}<SignedIdentifiers>{inner}</SignedIdentifiers>")
    }

    #[test]
    fn what_is_read_is_written_in_normal_form() {
        let cases = [
            (
                "<SignedIdentifier><AccessPolicy><Permission>raud</Permission><Expiry>2025-10-12T00:00Z</Expiry><Start>2011-10-11</Start></AccessPolicy><Id>policy1</Id></SignedIdentifier>",
                "<SignedIdentifier><Id>policy1</Id><AccessPolicy><Start>2011-10-11T00:00:00.0000000Z</Start><Expiry>2025-10-12T00:00:00.0000000Z</Expiry><Permission>raud</Permission></AccessPolicy></SignedIdentifier>",
            ),
            (
                "<SignedIdentifier><Id>null</Id></SignedIdentifier><SignedIdentifier><Id>empty</Id><AccessPolicy/></SignedIdentifier>",
                "<SignedIdentifier><Id>null</Id></SignedIdentifier><SignedIdentifier><Id>empty</Id></SignedIdentifier>",
            ),
            (
                "<SignedIdentifier>\n<Id>a&lt;&amp;b</Id>\n<AccessPolicy><Start/><Expiry></Expiry><Permission>au</Permission></AccessPolicy></SignedIdentifier>",
                "<SignedIdentifier><Id>a&lt;&amp;b</Id><AccessPolicy><Permission>au</Permission></AccessPolicy></SignedIdentifier>",
            ),
        ];
        for (sent, returned) in cases {
            let policies = read(wrapped(sent).as_bytes()).unwrap();
            assert_eq!(write(&policies), wrapped(returned));
            assert_eq!(read(write(&policies).as_bytes()), Ok(policies));
        }
        for empty in ["", " \r\n", "<SignedIdentifiers/>", "<SignedIdentifiers />"] {
            assert_eq!(read(empty.as_bytes()), Ok(Vec::new()), "{empty}");
        }
        assert_eq!(write(&[]), format!("{DECLARATION}<SignedIdentifiers />"));
    }

    #[test]
    fn what_is_refused() {
        use XmlError::{NodeValue, Syntax, UnsupportedNode};
        let policy = |inner: &str| {
            format!(
                "<SignedIdentifier><Id>x</Id><AccessPolicy>{inner}</AccessPolicy></SignedIdentifier>"
            )
        };
        let id = |id: &str| format!("<SignedIdentifier><Id>{id}</Id></SignedIdentifier>");
        let ids = |count: usize| (0..count).map(|n| id(&n.to_string())).collect::<String>();
        let cases = [
            (ids(6), Syntax),
            (id(""), Syntax),
            (id(&"é".repeat(65)), Syntax),
            (id("x") + &id("x"), Syntax),
            ("<SignedIdentifier/>".into(), Syntax),
            (
                "<SignedIdentifier><AccessPolicy><Expiry>2042-01-01T01:01:01.000000001Z</Expiry></AccessPolicy></SignedIdentifier>".into(),
                Syntax,
            ),
            ("<SignedIdentifier><Id>x</Id><Id>y</Id></SignedIdentifier>".into(), Syntax),
            ("<Other/>".into(), UnsupportedNode),
            (policy("<Other/>"), UnsupportedNode),
            (policy("<Start>yesterday</Start>"), NodeValue),
            (policy("<Expiry>2011-02-30</Expiry>"), NodeValue),
            (policy("<Permission>rx</Permission>"), NodeValue),
            (policy("<Permission>ar</Permission>"), NodeValue),
            (policy("<Permission>rr</Permission>"), NodeValue),
        ];
        for (inner, error) in cases {
            assert_eq!(read(wrapped(&inner).as_bytes()), Err(error), "{inner}");
        }
        assert!(read(wrapped(&ids(5)).as_bytes()).is_ok());
        assert!(read(wrapped(&id(&"é".repeat(64))).as_bytes()).is_ok());
        assert_eq!(read(b"<Other/>"), Err(Syntax));
    }

    #[test]
    fn each_service_has_its_letters() {
        let policy = |letters: &str| {
            wrapped(&format!(
                "<SignedIdentifier><Id>x</Id><AccessPolicy><Permission>{letters}</Permission></AccessPolicy></SignedIdentifier>"
            ))
        };
        let queue = |letters: &str| super::read(policy(letters).as_bytes(), Service::Queue);
        for letters in ["raup", "r", "par", "pu", "puar"] {
            let policies = queue(letters).unwrap();
            assert_eq!(policies[0].permission.as_deref(), Some(letters));
            assert_eq!(super::read(write(&policies).as_bytes(), Service::Queue), Ok(policies));
        }
        for wrong in ["raud", "rwdl", "rr", "raupr", "ré", "R"] {
            assert_eq!(queue(wrong), Err(XmlError::Syntax), "{wrong}");
        }
        assert_eq!(read(policy("raup").as_bytes()), Err(XmlError::NodeValue));
    }

    #[test]
    fn queues_say_where_an_id_is_wrong() {
        let long = "x".repeat(65);
        let policy = |id: &str| format!("<SignedIdentifier><Id>{id}</Id></SignedIdentifier>");
        let cases = [
            (format!("<SignedIdentifiers>{}</SignedIdentifiers>", policy(&long)), (1, 133)),
            (format!("<SignedIdentifiers>\n{}\n</SignedIdentifiers>", policy("")), (3, 3)),
            (format!("<SignedIdentifiers>{0}{0}</SignedIdentifiers>", policy("")), (1, 67)),
        ];
        for (body, (line, position)) in cases {
            let error = Err(XmlError::PolicyId { line, position });
            assert_eq!(super::read(body.as_bytes(), Service::Queue), error, "{body}");
            assert_eq!(read(body.as_bytes()), Err(XmlError::Syntax), "{body}");
        }
    }

    #[test]
    fn queues_pass_over_what_nobody_knows() {
        let body = wrapped(
            "<New><Id>y</Id></New><SignedIdentifier><Id>x<New/></Id><AccessPolicy><New>1</New><Permission>r</Permission></AccessPolicy><New/></SignedIdentifier>",
        );
        let policies = super::read(body.as_bytes(), Service::Queue).unwrap();
        assert_eq!((policies.len(), &*policies[0].id), (1, "x"));
        assert_eq!(policies[0].permission.as_deref(), Some("r"));
        assert_eq!(read(body.as_bytes()), Err(XmlError::UnsupportedNode));
        let misplaced = wrapped("<SignedIdentifier><Id>x</Id><Start/></SignedIdentifier>");
        let misplaced = super::read(misplaced.as_bytes(), Service::Queue);
        assert_eq!(misplaced, Err(XmlError::UnsupportedNode));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
            let _ = super::read(&bytes, Service::Queue);
        }
    }
}
