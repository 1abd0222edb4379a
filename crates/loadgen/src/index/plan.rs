//! How the server says that it has answered a query.

/// The header that says it.
pub(super) const HEADER: &str = "x-rowhouse-plan";

/// `kind; examined=N; returned=N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan<'a> {
    pub(super) kind: &'a str,
    pub(super) examined: u64,
    pub(super) returned: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split(';').map(str::trim);
        let kind = fields.next().filter(|kind| !kind.is_empty())?;
        let (mut examined, mut returned) = (None, None);
        for field in fields {
            match field.split_once('=')? {
                ("examined", number) => examined = number.parse().ok(),
                ("returned", number) => returned = number.parse().ok(),
                _ => {}
            }
        }
        Some(Self { kind, examined: examined?, returned: returned? })
    }

    /// Whether entries of an index were read, and not entities in the order of their keys.
    pub(super) fn by_index(&self) -> bool {
        self.kind.starts_with("index(")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let cases = [
            ("table-scan; examined=1000; returned=0", Some(("table-scan", 1000, 0, false))),
            ("index(Name); examined=2; returned=1", Some(("index(Name)", 2, 1, true))),
            ("index(a,b);returned=1;cost=9;examined=2", Some(("index(a,b)", 2, 1, true))),
            ("point", None),
            ("point; examined=1", None),
            ("point; examined=x; returned=1", None),
            ("; examined=1; returned=1", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let found = Plan::parse(text);
            let found =
                found.map(|plan| (plan.kind, plan.examined, plan.returned, plan.by_index()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
