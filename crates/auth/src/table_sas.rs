//! Shared access signatures of one table, with key ranges and stored access policies.

use crate::mac::Signature;
use crate::sas::{self, Parameters};
use crate::stated::Stated;
use crate::terms::Terms;
use crate::{AuthError, Request};
use rowhouse_types::{FoldedName, Grant, KeyRange, Position, Service, StoredPolicy};
use std::fmt;

/// The signed fields as text; an empty one is as good as absent. The string to sign holds them verbatim,
/// except for the name of the table, which is signed in lower case.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TableSasFields {
    /// `sv`, which selects the string to sign.
    pub version: String,
    /// `tn`, in any case.
    pub table: String,
    /// `sp`: letters of `raud` in this order; empty if the stored policy says it.
    pub permissions: String,
    /// `st`
    pub start: String,
    /// `se`; empty if the stored policy says it.
    pub expiry: String,
    /// `si`
    pub policy_id: String,
    /// `sip`
    pub ip: String,
    /// `spr`
    pub protocol: String,
    /// `spk`
    pub start_partition: Option<String>,
    /// `srk`, only with `spk`.
    pub start_row: Option<String>,
    /// `epk`
    pub end_partition: Option<String>,
    /// `erk`, only with `epk`.
    pub end_row: Option<String>,
}

/// Shows the name of the table only: the range holds keys of entities.
impl fmt::Debug for TableSasFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSasFields").field("table", &self.table).finish_non_exhaustive()
    }
}

impl TableSasFields {
    pub(crate) fn string_to_sign(&self, account: &str) -> String {
        let Self { version, permissions, start, expiry, policy_id, ip, protocol, .. } = self;
        let service = if version.as_str() >= sas::NAMED_SERVICE { "/table" } else { "" };
        let table = self.table.to_ascii_lowercase();
        let range = [&self.start_partition, &self.start_row, &self.end_partition, &self.end_row]
            .map(|key| key.as_deref().unwrap_or_default())
            .join("\n");
        let restrictions = if version.as_str() >= sas::RESTRICTIONS {
            format!("{ip}\n{protocol}\n")
        } else {
            String::new()
        };
        format!(
            "{permissions}\n{start}\n{expiry}\n{service}/{account}/{table}\n{policy_id}\n\
             {restrictions}{version}\n{range}"
        )
    }

    /// The keys between both ends, each included.
    ///
    /// An empty key is as good as absent, since nobody could tell from the signature; only beside a
    /// row key an empty partition key is a key.
    fn range(&self) -> Result<KeyRange, AuthError> {
        let orphan = AuthError::Failed("the range has a row key without a partition key");
        let given = |key: &Option<String>| key.clone().filter(|key| !key.is_empty());
        let start = match (&self.start_partition, given(&self.start_row)) {
            (None, Some(_)) => return Err(orphan),
            (None, None) => Position::min(),
            (Some(partition), row) => Position::before(partition, &row.unwrap_or_default()),
        };
        let end = match (&self.end_partition, given(&self.end_row)) {
            (None, Some(_)) => return Err(orphan),
            (Some(partition), Some(row)) => Some(Position::after(partition, &row)),
            (Some(partition), None) if !partition.is_empty() => {
                Some(Position::after_partition(partition))
            }
            (_, None) => None,
        };
        Ok(KeyRange { start, end })
    }
}

/// A shared access signature of one table, well formed and not yet verified.
#[derive(Clone, Debug)]
pub struct TableSas {
    fields: TableSasFields,
    signature: Signature,
    stated: Stated,
    range: KeyRange,
}

impl TableSas {
    pub(crate) fn parse(parameters: &Parameters<'_>) -> Result<Self, AuthError> {
        let key = |name| parameters.get(name).map(str::to_owned);
        let fields = TableSasFields {
            version: parameters.text("sv"),
            table: parameters.text("tn"),
            permissions: parameters.text("sp"),
            start: parameters.text("st"),
            expiry: parameters.text("se"),
            policy_id: parameters.text("si"),
            ip: parameters.text("sip"),
            protocol: parameters.text("spr"),
            start_partition: key("spk"),
            start_row: key("srk"),
            end_partition: key("epk"),
            end_row: key("erk"),
        };
        let stated = Stated::parse(parameters, Service::Table)?;
        if fields.table.is_empty() {
            return Err(AuthError::Failed("the signature names no table"));
        }
        Ok(Self {
            signature: Signature::parse(parameters.get("sig").unwrap_or_default())?,
            stated,
            range: fields.range()?,
            fields,
        })
    }

    /// Accepts the signature if one of the keys made it for a table of the account that the request addresses.
    ///
    /// Whether it is the table that the request works on is checked by the grant, which also covers
    /// the parts of a batch.
    pub fn verify(&self, request: &Request<'_>, keys: &[&[u8]]) -> Result<(), AuthError> {
        if self.signature.matches(keys, &self.fields.string_to_sign(request.account)) {
            Ok(())
        } else {
            Err(AuthError::Signature)
        }
    }

    /// The table it is for.
    pub fn table(&self) -> FoldedName {
        FoldedName::of(&self.fields.table)
    }

    /// The keys it is for.
    pub fn range(&self) -> KeyRange {
        self.range.clone()
    }

    /// The stored access policy that says what the signature itself leaves open.
    pub fn policy_id(&self) -> Option<&str> {
        self.stated.policy_id()
    }

    /// The effective terms, given the stored policy of that id from the table it is for.
    ///
    /// Each of start, expiry and permissions is said by the signature or by the policy and not by both;
    /// only the start may be said by neither.
    pub fn resolve(&self, policy: Option<&StoredPolicy>) -> Result<Terms, AuthError> {
        self.stated.resolve(policy)
    }

    /// What it allows under these terms, once it is verified and they are met.
    pub fn grant(&self, terms: &Terms) -> Grant {
        Grant::TableSignature {
            table: self.table(),
            permissions: terms.permissions,
            range: self.range(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_types::Timestamp;
    use rowhouse_types::grant::Letters;

    type Keys<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn ranges() {
        let range = |keys: [Option<&str>; 4]| {
            let [start_partition, start_row, end_partition, end_row] =
                keys.map(|key| key.map(str::to_owned));
            let fields = TableSasFields {
                start_partition,
                start_row,
                end_partition,
                end_row,
                ..TableSasFields::default()
            };
            fields.range()
        };
        let cases: &[(&str, [Option<&str>; 4], Keys<'_>, Keys<'_>)] = &[
            ("none", [None, None, None, None], &[("", ""), ("z", "z")], &[]),
            ("empty", [Some(""), Some(""), Some(""), Some("")], &[("", ""), ("z", "z")], &[]),
            ("from", [Some("b"), None, None, None], &[("b", ""), ("c", "")], &[("a", "z")]),
            (
                "to",
                [None, None, Some("b"), None],
                &[("", ""), ("b", "z")],
                &[("ba", ""), ("c", "")],
            ),
            (
                "from a row",
                [Some("b"), Some("5"), None, None],
                &[("b", "5"), ("b", "6"), ("ba", "")],
                &[("b", "4"), ("a", "9")],
            ),
            (
                "to a row",
                [None, None, Some("b"), Some("5")],
                &[("b", "5"), ("b", ""), ("a", "9")],
                &[("b", "50"), ("b", "6"), ("ba", "")],
            ),
            (
                "rows of the empty partition",
                [Some(""), Some("2"), Some(""), Some("5")],
                &[("", "2"), ("", "5")],
                &[("", "1"), ("", "6"), ("a", "3")],
            ),
            (
                "backwards",
                [Some("b"), None, Some("a"), None],
                &[],
                &[("a", ""), ("b", ""), ("aa", "")],
            ),
        ];
        for (rule, keys, inside, outside) in cases {
            let range = range(*keys).unwrap();
            for (partition, row) in *inside {
                assert!(range.contains(partition, row), "{rule}: {partition} {row}");
            }
            for (partition, row) in *outside {
                assert!(!range.contains(partition, row), "{rule}: {partition} {row}");
            }
        }
        assert!(range([None, Some("1"), None, None]).is_err());
        assert!(range([Some("a"), None, None, Some("1")]).is_err());
    }

    #[test]
    fn terms_come_from_the_signature_or_the_policy() {
        let time = |text: &str| Timestamp::parse_date_or_iso(text).unwrap();
        let (start, expiry) = (time("2022-01-01"), time("2099-01-01"));
        let policy = |start, expiry, permission: Option<&str>| StoredPolicy {
            id: "id".into(),
            start,
            expiry,
            permission: permission.map(Into::into),
        };
        let sas = |fields: &[(&str, &str)]| {
            let signature = "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=";
            let common = [("sv", "2019-02-02"), ("tn", "People"), ("si", "id"), ("sig", signature)];
            let query = common.iter().chain(fields);
            let query: Vec<_> = query.map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
            TableSas::parse(&Parameters::new(&query).unwrap()).unwrap()
        };
        let (sp, se, st) = (("sp", "r"), ("se", "2099-01-01"), ("st", "2022-01-01"));
        let full = policy(Some(start), Some(expiry), Some("r"));
        let cases = [
            ("policy says all", sas(&[]), full.clone(), Ok(Some(start))),
            ("policy says no start", sas(&[]), policy(None, Some(expiry), Some("r")), Ok(None)),
            ("signature says all", sas(&[sp, se, st]), policy(None, None, None), Ok(Some(start))),
            ("mixed", sas(&[sp, st]), policy(None, Some(expiry), Some("")), Ok(Some(start))),
            ("permissions twice", sas(&[sp]), full.clone(), Err(())),
            ("expiry twice", sas(&[se]), full.clone(), Err(())),
            ("start twice", sas(&[st]), full.clone(), Err(())),
            ("no expiry", sas(&[]), policy(None, None, Some("r")), Err(())),
            ("no permissions", sas(&[]), policy(None, Some(expiry), None), Err(())),
            ("another policy", sas(&[]), StoredPolicy { id: "ID".into(), ..full.clone() }, Err(())),
        ];
        for (rule, sas, policy, expected) in cases {
            let terms = sas.resolve(Some(&policy));
            assert_eq!(terms.map(|terms| terms.start).map_err(drop), expected, "{rule}");
            if let Ok(terms) = terms {
                assert_eq!(
                    (terms.expiry, terms.permissions),
                    (expiry, Letters::new("r")),
                    "{rule}"
                );
            }
        }
        assert!(sas(&[]).resolve(None).is_err());
    }
}
