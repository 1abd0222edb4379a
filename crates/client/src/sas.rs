//! Shared access signatures: made with an account's key, and taken apart to see what they allow.

use crate::target::{Target, TargetError};
use rowhouse_auth::{
    AccountSasFields, Credentials, QueueSasFields, Request, Service, TableSasFields, sign,
};
use rowhouse_wire::uri::Query;

/// The version that signatures are made for: every service knows it.
const VERSION: &str = "2019-02-02";

/// What all signatures may say.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Letters; empty if a stored policy says it.
    pub permissions: String,
    /// ISO 8601; empty for at once.
    pub start: String,
    /// ISO 8601; empty if a stored policy says it.
    pub expiry: String,
    /// A stored access policy; none if empty. Accounts have none.
    pub policy: String,
    /// An IPv4 address or range; any if empty.
    pub ip: String,
    /// `https` or `https,http`; both if empty.
    pub protocol: String,
}

/// A key of a range: a partition, or a row of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// PartitionKey.
    pub partition: Option<String>,
    /// RowKey.
    pub row: Option<String>,
}

/// What a signature is for.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A table, or the keys of it from one bound to the other, both included.
    Table {
        /// Its name.
        table: String,
        /// The first key.
        from: Bound,
        /// The last key.
        to: Bound,
    },
    /// A queue.
    Queue(String),
    /// Everything of the account.
    Account {
        /// `t`, `q` or both.
        services: String,
        /// Letters of `sco`.
        types: String,
    },
}

/// A signature that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The parameters, as they stand in a URL.
    pub token: String,
    /// The resource with the parameters.
    pub url: String,
}

/// Makes a signature with the key of the account.
pub fn create(target: &Target, subject: &Subject, terms: &Terms) -> Result<Made, TargetError> {
    let (Some(account), Some(key)) = (target.account(), target.key()) else {
        return Err(TargetError::new(
            "a shared access signature is made with the key of an account: give a connection string with AccountKey",
        ));
    };
    let Terms { permissions, start, expiry, policy, ip, protocol } = terms.clone();
    let (token, path) = match subject {
        Subject::Table { table, from, to } => {
            let fields = TableSasFields {
                version: VERSION.to_owned(),
                table: table.clone(),
                permissions,
                start,
                expiry,
                policy_id: policy,
                ip,
                protocol,
                start_partition: from.partition.clone(),
                start_row: from.row.clone(),
                end_partition: to.partition.clone(),
                end_row: to.row.clone(),
            };
            (sign::table_sas(account, key, &fields), format!("/{table}"))
        }
        Subject::Queue(queue) => {
            let fields = QueueSasFields {
                version: VERSION.to_owned(),
                queue: queue.clone(),
                permissions,
                start,
                expiry,
                policy_id: policy,
                ip,
                protocol,
            };
            (sign::queue_sas(account, key, &fields), format!("/{queue}"))
        }
        Subject::Account { services, types } => {
            let fields = AccountSasFields {
                version: VERSION.to_owned(),
                services: services.clone(),
                resource_types: types.clone(),
                permissions,
                start,
                expiry,
                ip,
                protocol,
                encryption_scope: String::new(),
            };
            (sign::account_sas(account, key, &fields), "/".to_owned())
        }
    };
    let token = token.to_string();
    let url = format!("{}{path}?{token}", target.address());
    Ok(Made { token, url })
}

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This table.
    Table(String),
    /// This queue; unknown without a URL.
    Queue(Option<String>),
    /// Services and types of resources of an account, in letters.
    Account(String, String),
}

/// Whether a key made a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Right,
    /// Another key did, or something was changed.
    Wrong,
    /// There is no key to check it with.
    Unchecked,
}

/// A signature taken apart. Says what stands there, and does not mean that a service accepts it.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What it is for.
    pub kind: Kind,
    /// The account, if a URL or a key names it.
    pub account: Option<String>,
    parameters: Vec<(String, String)>,
    /// Whether the key made it.
    pub verdict: Verdict,
}

impl Explained {
    /// A parameter; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// The first key of a table's range.
    pub fn from(&self) -> Option<Bound> {
        self.bound("spk", "srk")
    }

    /// The last key of a table's range.
    pub fn to(&self) -> Option<Bound> {
        self.bound("epk", "erk")
    }

    /// Only signatures of tables have bounds. The string to sign is the same for an empty key and an absent one, so an empty
    /// key is no bound; only next to a RowKey the empty PartitionKey is a key.
    fn bound(&self, partition: &str, row: &str) -> Option<Bound> {
        let Kind::Table(_) = &self.kind else { return None };
        let row = Some(self.get(row)).filter(|row| !row.is_empty());
        let (_, partition) = self.parameters.iter().find(|(found, _)| found == partition)?;
        let is_key = !partition.is_empty() || row.is_some();
        let bound = || Bound { partition: Some(partition.clone()), row: row.map(str::to_owned) };
        is_key.then(bound)
    }
}

/// Takes a signature apart: a URL, or the parameters alone. The key of the target checks it where the account is the
/// same.
pub fn explain(text: &str, target: Option<&Target>) -> Result<Explained, TargetError> {
    let text = text.trim();
    let (url, token) = match text.split_once('?') {
        Some((url, token)) => (Some(url).filter(|url| url.contains("://")), token),
        None if text.contains("://") => (Some(text), ""),
        None => (None, text),
    };
    let refuse = |reason: &str| Err(TargetError::new(reason));
    let Ok(query) = Query::parse(token) else {
        return refuse("the shared access signature is not encoded as in a URL: copy it whole");
    };
    let parameters = query.pairs().to_vec();
    let has = |name: &str| parameters.iter().any(|(found, _)| found == name);
    if !has("sig") {
        return refuse(
            "there is no sig= in it, so it is no shared access signature: copy it whole",
        );
    }
    let place = url.and_then(Place::of);
    let value = |name: &str| {
        let found = parameters.iter().find(|(found, _)| found == name);
        found.map_or_else(String::new, |(_, value)| value.clone())
    };
    let kind = if has("ss") && has("srt") {
        Kind::Account(value("ss"), value("srt"))
    } else if has("tn") {
        Kind::Table(value("tn"))
    } else {
        Kind::Queue(place.as_ref().and_then(|place| place.resource.clone()))
    };
    let of_key = target.and_then(|target| target.account()).map(str::to_owned);
    let account = place.map(|place| place.account).or_else(|| of_key.clone());
    let key = target.and_then(|target| target.key()).filter(|_| account == of_key);
    let verdict = match (key, &account, &kind) {
        (_, _, Kind::Queue(None)) | (None, _, _) | (_, None, _) => Verdict::Unchecked,
        (Some(key), Some(account), _) => verify(&parameters, account, &kind, key),
    };
    Ok(Explained { kind, account, parameters, verdict })
}

fn verify(parameters: &[(String, String)], account: &str, kind: &Kind, key: &[u8]) -> Verdict {
    let header = |_: &str| None;
    let service = match kind {
        Kind::Queue(Some(queue)) => Service::Queue { queue, headers: &[] },
        _ => Service::Table,
    };
    let (method, path) = ("GET", "/");
    let request = Request { method, account, path, query: parameters, header: &header, service };
    let keys = [key];
    let verified = rowhouse_auth::parse(&request).and_then(|credentials| match credentials {
        Credentials::AccountSas(sas) => sas.verify(&request, &keys),
        Credentials::TableSas(sas) => sas.verify(&request, &keys),
        Credentials::QueueSas(sas) => sas.verify(&request, &keys),
        _ => Err(rowhouse_auth::AuthError::NoCredentials),
    });
    if verified.is_ok() { Verdict::Right } else { Verdict::Wrong }
}

/// The table or queue that a URL names.
pub(crate) fn resource_of(url: &str) -> Option<String> {
    Place::of(url)?.resource
}

/// What a URL names.
struct Place {
    account: String,
    resource: Option<String>,
}

impl Place {
    /// `https://account.table.core.windows.net/People`, or `http://127.0.0.1:10002/account/People`.
    fn of(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let labels: Vec<&str> = host.split('.').collect();
        let account = match labels[..] {
            [account, "table" | "queue" | "table-secondary" | "queue-secondary", ..] => account,
            _ => segments.next()?,
        };
        let resource = segments.next().map(|name| name.trim_end_matches("()").to_owned());
        let account = account.strip_suffix("-secondary").unwrap_or(account);
        Some(Self { account: account.to_owned(), resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        "AccountName=shop;AccountKey=c2VjcmV0;TableEndpoint=http://127.0.0.1:1/shop"
            .parse()
            .unwrap()
    }

    fn terms(permissions: &str) -> Terms {
        Terms {
            permissions: permissions.to_owned(),
            expiry: "2099-01-01T00:00:00Z".to_owned(),
            ..Terms::default()
        }
    }

    #[test]
    fn what_is_made_is_verified() {
        let other: Target =
            "AccountName=shop;AccountKey=b3RoZXI=;TableEndpoint=http://h/shop".parse().unwrap();
        let from = Bound { partition: Some("ä b".to_owned()), row: None };
        let table = Subject::Table { table: "People".to_owned(), from, to: Bound::default() };
        let account = Subject::Account { services: "qt".to_owned(), types: "sco".to_owned() };
        for (subject, letters) in
            [(table, "raud"), (Subject::Queue("jobs".to_owned()), "raup"), (account, "rl")]
        {
            let made = create(&target(), &subject, &terms(letters)).unwrap();
            let found = explain(&made.url, Some(&target())).unwrap();
            assert_eq!(found.verdict, Verdict::Right, "{subject:?}");
            assert_eq!((found.get("sp"), found.account.as_deref()), (letters, Some("shop")));
            assert_eq!(explain(&made.url, Some(&other)).unwrap().verdict, Verdict::Wrong);
            assert_eq!(explain(&made.url, None).unwrap().verdict, Verdict::Unchecked);
            let changed = made.url.replace(&format!("sp={letters}"), "sp=r");
            let verdict = explain(&changed, Some(&target())).unwrap().verdict;
            assert_eq!(verdict, Verdict::Wrong, "{changed}");
        }
    }

    #[test]
    fn empty_keys_are_no_bounds() {
        let key = |text: &str| Some(text.to_owned());
        let bound = |partition, row| Some(Bound { partition: key(partition), row });
        for (range, from, to) in [
            ("", None, None),
            ("&spk=&srk=&epk=&erk=", None, None),
            ("&epk=", None, None),
            ("&spk=a&srk=&epk=b&erk=", bound("a", None), bound("b", None)),
            ("&spk=&srk=1&epk=&erk=5", bound("", key("1")), bound("", key("5"))),
        ] {
            let found = explain(&format!("sv=2019-02-02&tn=People&sig=a{range}"), None).unwrap();
            assert_eq!((found.from(), found.to()), (from, to), "{range}");
        }
        let account = explain("sv=2019-02-02&ss=t&srt=o&sig=a&epk=b", None).unwrap();
        assert_eq!(account.to(), None, "a signature of an account has no range");
    }

    #[test]
    fn places() {
        for (url, expected) in [
            ("https://shop.table.core.windows.net/People", Some(("shop", Some("People")))),
            ("https://shop.queue.core.windows.net/jobs/messages", Some(("shop", Some("jobs")))),
            ("http://127.0.0.1:10002/shop/People()", Some(("shop", Some("People")))),
            ("http://localhost/shop-secondary", Some(("shop", None))),
            ("http://localhost", None),
        ] {
            let found = Place::of(url);
            let found = found.as_ref().map(|place| (&*place.account, place.resource.as_deref()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn what_is_no_signature() {
        for text in ["", "sv=1", "https://h/a?sv=1", "https://h/a"] {
            let sentence = explain(text, None).unwrap_err().to_string();
            assert!(sentence.contains("no sig="), "{text}: {sentence}");
        }
        let sas = "https://h/shop?sv=2019-02-02&sig=a".parse::<Target>().unwrap();
        let refused = create(&sas, &Subject::Queue("jobs".to_owned()), &terms("r"));
        assert!(refused.unwrap_err().to_string().contains("AccountKey"));
    }
}
