//! Where a service is and who asks: connection strings and URLs with a shared access signature.
//!
//! Understands every form that the SDKs do for tables. Nothing that is printed or shown in an error holds a
//! key or a signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_types::Service;
use std::fmt;
use std::str::FromStr;

/// The account that every emulator knows.
const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// Its public key.
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const DEVELOPMENT_PORT: u16 = 10002;
const DEVELOPMENT_QUEUE_PORT: u16 = 10001;
const DEFAULT_SUFFIX: &str = "core.windows.net";

/// A service of one account, and what to ask it with.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) kind: Service,
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: Credentials,
}

/// The address of a Table or Queue service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Empty, or the account's segment with a slash before it.
    pub(crate) path: String,
}

/// What shows who asks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Each request is signed.
    Key { account: String, key: Vec<u8> },
    /// A shared access signature: parameters of every request, encoded as they were given.
    Sas(String),
}

/// Why a text names no service, as a sentence that says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(String);

impl TargetError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, TargetError> {
    Err(TargetError(reason.into()))
}

impl Target {
    /// The development account of a server on this machine: `UseDevelopmentStorage=true`.
    pub fn development() -> Self {
        let endpoint = Endpoint {
            tls: false,
            host: "127.0.0.1".to_owned(),
            port: DEVELOPMENT_PORT,
            path: format!("/{DEVELOPMENT_ACCOUNT}"),
        };
        let key = STANDARD.decode(DEVELOPMENT_KEY).expect("the public key is Base64");
        let credentials = Credentials::Key { account: DEVELOPMENT_ACCOUNT.to_owned(), key };
        Self { kind: Service::Table, endpoint, credentials }
    }

    /// The queues of the same.
    pub fn development_queues() -> Self {
        let mut target = Self::development().of_kind(Service::Queue);
        target.endpoint.port = DEVELOPMENT_QUEUE_PORT;
        target
    }

    /// From a connection string, or from the URL of a Queue service with a shared access signature.
    pub fn queues(text: &str) -> Result<Self, TargetError> {
        Self::parse(text, Service::Queue)
    }

    /// The same address and credentials for another service.
    #[must_use]
    pub fn of_kind(self, kind: Service) -> Self {
        Self { kind, ..self }
    }

    /// An account by its endpoint and one of its keys in Base64.
    pub fn with_key(endpoint: &str, account: &str, key: &str) -> Result<Self, TargetError> {
        let endpoint = Endpoint::parse(endpoint)?;
        Ok(Self { kind: Service::Table, endpoint, credentials: key_credentials(account, key)? })
    }

    /// An endpoint and a shared access signature, with or without a `?` before it.
    pub fn with_sas(endpoint: &str, sas: &str) -> Result<Self, TargetError> {
        let mut endpoint = Endpoint::parse(endpoint)?;
        let credentials = sas_credentials(sas)?;
        endpoint.drop_table(&credentials);
        Ok(Self { kind: Service::Table, endpoint, credentials })
    }

    fn parse(text: &str, kind: Service) -> Result<Self, TargetError> {
        let text = text.trim();
        if text.starts_with("http://") || text.starts_with("https://") {
            return match text.split_once('?') {
                Some((endpoint, sas)) => {
                    let mut target = Self::with_sas(endpoint, sas)?.of_kind(kind);
                    let queue = crate::sas::resource_of(endpoint);
                    if let (Service::Queue, Some(queue)) = (kind, queue) {
                        let path = target.endpoint.path.rsplit_once(&format!("/{queue}"));
                        target.endpoint.path = path.map_or("", |(path, _)| path).to_owned();
                    }
                    Ok(target)
                }
                None => refuse(
                    "a URL must carry a shared access signature (...?sv=...&sig=...): \
                     give a connection string instead to use a key",
                ),
            };
        }
        Ok(Fields::parse(text)?.target(kind)?.of_kind(kind))
    }

    /// The account, if requests are signed with its key.
    pub fn account(&self) -> Option<&str> {
        match &self.credentials {
            Credentials::Key { account, .. } => Some(account),
            Credentials::Sas(_) => None,
        }
    }

    /// The key, if requests are signed with one.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match &self.credentials {
            Credentials::Key { key, .. } => Some(key),
            Credentials::Sas(_) => None,
        }
    }

    /// Whether this is the account that every emulator knows, with its public key.
    pub(crate) fn is_development(&self) -> bool {
        let development = Self::development();
        self.credentials == development.credentials
            && self.endpoint.path == development.endpoint.path
    }

    /// The address of the service, for people and for recognising it again; no secret is in it.
    pub fn address(&self) -> String {
        self.endpoint.to_string()
    }
}

/// From a connection string or a URL with a shared access signature.
impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text, Service::Table)
    }
}

/// Shows where, never with what.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.endpoint)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl Endpoint {
    /// Takes `https://host:port/account` apart.
    fn parse(text: &str) -> Result<Self, TargetError> {
        let wrong = || {
            TargetError(
                "an endpoint is a URL such as https://account.table.core.windows.net or \
                 http://127.0.0.1:10002/devstoreaccount1"
                    .to_owned(),
            )
        };
        let text = text.trim();
        let (tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (
                    host,
                    if port.is_empty() {
                        None
                    } else {
                        Some(port.strip_prefix(':').ok_or_else(wrong)?)
                    },
                )
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(wrong());
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if tls => 443,
            None => 80,
        };
        let path = path.trim_end_matches('/');
        let segment = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_.~%".contains(&byte);
        if !path.bytes().all(segment) {
            return Err(wrong());
        }
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { tls, host: host.to_owned(), port, path })
    }

    /// Host and port as they stand in a URL.
    pub(crate) fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// A signature of one table is often handed out with the table in its URL.
    fn drop_table(&mut self, credentials: &Credentials) {
        let Credentials::Sas(sas) = credentials else { return };
        let table = sas.split('&').find_map(|pair| pair.strip_prefix("tn="));
        let Some((rest, last)) = self.path.rsplit_once('/') else { return };
        if table.is_some_and(|table| table.eq_ignore_ascii_case(last)) {
            self.path = rest.to_owned();
        }
    }
}

fn key_credentials(account: &str, key: &str) -> Result<Credentials, TargetError> {
    match STANDARD.decode(key.trim()) {
        Ok(key) if !key.is_empty() => Ok(Credentials::Key { account: account.to_owned(), key }),
        _ => refuse("the account key is not in Base64: copy it again, it ends in =="),
    }
}

fn sas_credentials(sas: &str) -> Result<Credentials, TargetError> {
    let sas = sas.trim().trim_start_matches('?').trim_matches('&');
    let legal = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
    if !sas.bytes().all(legal) || !sas.split('&').any(|pair| pair.starts_with("sig=")) {
        return refuse(
            "the shared access signature has no sig= in it or holds characters that a URL cannot: \
             copy it whole",
        );
    }
    Ok(Credentials::Sas(sas.to_owned()))
}

/// The fields of a connection string that tables need.
#[derive(Debug, Default)]
struct Fields<'a> {
    development: Option<&'a str>,
    proxy: Option<&'a str>,
    protocol: Option<&'a str>,
    account: Option<&'a str>,
    key: Option<&'a str>,
    suffix: Option<&'a str>,
    endpoint: Option<&'a str>,
    queue_endpoint: Option<&'a str>,
    sas: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Names are found in any case; those of other services are passed over.
    fn parse(text: &'a str) -> Result<Self, TargetError> {
        let mut fields = Self::default();
        for piece in text.split(';').map(str::trim).filter(|piece| !piece.is_empty()) {
            let Some((name, value)) = piece.split_once('=') else {
                return refuse(
                    "a connection string is Name=Value;Name=Value, such as UseDevelopmentStorage=true \
                     or AccountName=...;AccountKey=...;TableEndpoint=...",
                );
            };
            let slot = match name.trim().to_ascii_lowercase().as_str() {
                "usedevelopmentstorage" => &mut fields.development,
                "developmentstorageproxyuri" => &mut fields.proxy,
                "defaultendpointsprotocol" => &mut fields.protocol,
                "accountname" => &mut fields.account,
                "accountkey" => &mut fields.key,
                "endpointsuffix" => &mut fields.suffix,
                "tableendpoint" => &mut fields.endpoint,
                "queueendpoint" => &mut fields.queue_endpoint,
                "sharedaccesssignature" => &mut fields.sas,
                _ => continue,
            };
            if slot.replace(value.trim()).is_some() {
                return refuse(format!("the connection string has {} twice", name.trim()));
            }
        }
        Ok(fields)
    }

    fn target(self, kind: Service) -> Result<Target, TargetError> {
        if self.development.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return self.development_target(kind);
        }
        let (given, other) = match kind {
            Service::Table => (self.endpoint, None),
            Service::Queue => (self.queue_endpoint, self.endpoint),
        };
        let endpoint = match (given, self.account) {
            (Some(endpoint), _) => endpoint.to_owned(),
            (None, _) if other.is_some() => {
                return refuse("the connection string has a TableEndpoint and no QueueEndpoint");
            }
            (None, Some(account)) => self.default_endpoint(account, kind)?,
            (None, None) => {
                return refuse("the connection string needs AccountName or TableEndpoint");
            }
        };
        match (self.sas, self.account, self.key) {
            (Some(sas), _, None) => Target::with_sas(&endpoint, sas),
            (None, Some(account), Some(key)) => Target::with_key(&endpoint, account, key),
            (Some(_), _, Some(_)) => {
                refuse("the connection string has AccountKey and SharedAccessSignature: use one")
            }
            (None, None, _) => refuse("the connection string needs AccountName beside AccountKey"),
            (None, Some(_), None) => {
                refuse("the connection string needs AccountKey or SharedAccessSignature")
            }
        }
    }

    fn default_endpoint(&self, account: &str, kind: Service) -> Result<String, TargetError> {
        let protocol = match self.protocol.unwrap_or("https").to_ascii_lowercase().as_str() {
            "https" => "https",
            "http" => "http",
            _ => return refuse("DefaultEndpointsProtocol is https or http"),
        };
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if account.is_empty() || !account.bytes().all(legal) {
            return refuse("AccountName is letters and digits");
        }
        let kind = match kind {
            Service::Table => "table",
            Service::Queue => "queue",
        };
        Ok(format!("{protocol}://{account}.{kind}.{}", self.suffix.unwrap_or(DEFAULT_SUFFIX)))
    }

    fn development_target(self, kind: Service) -> Result<Target, TargetError> {
        let mut target = match kind {
            Service::Table => Target::development(),
            Service::Queue => Target::development_queues(),
        };
        if let Some(proxy) = self.proxy {
            let proxy = Endpoint::parse(proxy)?;
            (target.endpoint.tls, target.endpoint.host) = (proxy.tls, proxy.host);
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn described(text: &str) -> String {
        match text.parse::<Target>() {
            Ok(target) => match &target.credentials {
                Credentials::Key { account, key } => {
                    format!("{} {account} {}", target.address(), STANDARD.encode(key))
                }
                Credentials::Sas(sas) => format!("{} ?{sas}", target.address()),
            },
            Err(error) => format!("refused: {error}"),
        }
    }

    #[test]
    fn every_form_is_understood() {
        let development =
            format!("http://127.0.0.1:10002/devstoreaccount1 devstoreaccount1 {DEVELOPMENT_KEY}");
        let cases = [
            ("UseDevelopmentStorage=true", development.as_str()),
            (" usedevelopmentstorage = TRUE ; ", &development),
            (
                "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=YQ==;EndpointSuffix=core.windows.net",
                "https://shop.table.core.windows.net shop YQ==",
            ),
            ("AccountName=shop;AccountKey=YQ==", "https://shop.table.core.windows.net shop YQ=="),
            (
                "AccountName=shop;AccountKey=YQ==;EndpointSuffix=core.chinacloudapi.cn;DefaultEndpointsProtocol=http",
                "http://shop.table.core.chinacloudapi.cn shop YQ==",
            ),
            (
                "AccountName=shop;AccountKey=YQ==;BlobEndpoint=http://x;TableEndpoint=http://[::1]:1/shop/;",
                "http://[::1]:1/shop shop YQ==",
            ),
            (
                "TableEndpoint=https://shop.table.core.windows.net/;SharedAccessSignature=?sv=2019-02-02&sig=a%3D",
                "https://shop.table.core.windows.net ?sv=2019-02-02&sig=a%3D",
            ),
            (
                "SharedAccessSignature=sv=2019-02-02&sig=a%3D;AccountName=shop",
                "https://shop.table.core.windows.net ?sv=2019-02-02&sig=a%3D",
            ),
            (
                "https://shop.table.core.windows.net/People?tn=people&sig=a",
                "https://shop.table.core.windows.net ?tn=people&sig=a",
            ),
            ("http://127.0.0.1:10002/shop/?tn=t&sig=a", "http://127.0.0.1:10002/shop ?tn=t&sig=a"),
            ("http://127.0.0.1:10002/shop/t?tn=t&sig=a", "http://127.0.0.1:10002/shop ?tn=t&sig=a"),
            ("http://localhost:80/shop?sig=a", "http://localhost/shop ?sig=a"),
        ];
        for (text, expected) in cases {
            assert_eq!(described(text), expected, "{text}");
        }
        let proxied =
            described("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite");
        assert!(proxied.starts_with("http://azurite:10002/devstoreaccount1 "), "{proxied}");
    }

    #[test]
    fn what_is_refused_says_why() {
        let cases = [
            ("", "needs AccountName"),
            ("nonsense", "Name=Value"),
            ("AccountName=shop", "needs AccountKey or"),
            ("AccountKey=YQ==;TableEndpoint=http://h", "needs AccountName beside"),
            ("AccountName=shop;AccountKey=***", "Base64"),
            ("AccountName=shop;AccountKey=", "Base64"),
            ("AccountName=a b;AccountKey=YQ==", "letters and digits"),
            ("AccountName=a;AccountName=b;AccountKey=YQ==", "twice"),
            ("AccountName=a;AccountKey=YQ==;SharedAccessSignature=sig=a", "use one"),
            ("AccountName=a;AccountKey=YQ==;DefaultEndpointsProtocol=ftp", "https or http"),
            ("AccountName=a;AccountKey=YQ==;TableEndpoint=shop", "is a URL"),
            ("AccountName=a;AccountKey=YQ==;TableEndpoint=http://h:port", "is a URL"),
            ("https://shop.table.core.windows.net/", "shared access signature"),
            ("https://shop.table.core.windows.net/?sv=1", "no sig="),
            ("https://?sig=a", "is a URL"),
        ];
        for (text, expected) in cases {
            let found = described(text);
            assert!(found.starts_with("refused: ") && found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn queues_have_an_address_of_their_own() {
        let address = |text| Target::queues(text).map(|target| target.address());
        for (text, expected) in [
            ("UseDevelopmentStorage=true", "http://127.0.0.1:10001/devstoreaccount1"),
            ("AccountName=shop;AccountKey=YQ==", "https://shop.queue.core.windows.net"),
            (
                "AccountName=a;AccountKey=YQ==;TableEndpoint=http://h:2/a;QueueEndpoint=http://h:1/a",
                "http://h:1/a",
            ),
            ("http://h:1/a?sv=1&sig=a", "http://h:1/a"),
            ("http://h:1/a/jobs?sv=1&sig=a", "http://h:1/a"),
            ("https://a.queue.core.windows.net/a?sig=a", "https://a.queue.core.windows.net"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(expected), "{text}");
        }
        let lacking = address("AccountName=a;AccountKey=YQ==;TableEndpoint=http://h:2/a");
        assert!(lacking.unwrap_err().to_string().contains("no QueueEndpoint"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let with_key: Target = "AccountName=shop;AccountKey=c2VjcmV0".parse().unwrap();
        assert_eq!(format!("{with_key:?}"), "Target(https://shop.table.core.windows.net)");
        let with_sas: Target = "https://h/?sv=1&sig=secret".parse().unwrap();
        assert_eq!(format!("{with_sas:?}"), "Target(https://h)");
    }

    proptest! {
        #[test]
        fn a_written_string_is_read_back(
            account in "[a-z0-9]{3,24}",
            key in prop::collection::vec(any::<u8>(), 1..64),
            host in "[a-z]{1,10}",
            port in 1024u16..,
        ) {
            let key = STANDARD.encode(key);
            let text = format!(
                "DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};\
                 TableEndpoint=http://{host}:{port}/{account};"
            );
            prop_assert_eq!(described(&text), format!("http://{host}:{port}/{account} {account} {key}"));
        }

        #[test]
        fn any_text_is_taken_or_refused(
            text in "\\PC{0,60}|(AccountName|AccountKey|TableEndpoint|UseDevelopmentStorage|;|=|true|https?://|/|\\?|sig=|:|\\[|\\]|é){0,12}"
        ) {
            let _ = text.parse::<Target>();
        }
    }
}
