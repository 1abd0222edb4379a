//! Signatures from end to end: published vectors, tampering, and whatever a client may send.

mod properties;
mod tamper;
mod vectors;

use base64::Engine as _;
use rowhouse_auth::sign::SasToken;
use rowhouse_auth::{AuthError, Credentials, Request, Service, parse};
use rowhouse_types::Timestamp;

const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const DATE: &str = "Mon, 27 Jun 2022 15:25:14 GMT";

fn key() -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(KEY).unwrap()
}

fn now() -> Timestamp {
    Timestamp::parse_rfc1123(DATE).unwrap()
}

/// A request that owns its parts and can be changed before it is verified.
#[derive(Clone)]
struct Sent {
    method: String,
    account: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    /// The queue of the path, if the request is for the Queue service.
    queue: Option<String>,
}

impl Sent {
    fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            account: ACCOUNT.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            queue: None,
        }
    }

    fn with_token(token: &SasToken) -> Self {
        let mut sent = Self::new("GET", "/devstoreaccount1/People()");
        sent.query = token.pairs().iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        sent
    }

    /// A request to the Queue service, of the version that the vectors are of.
    fn to_queue(method: &str, path: &str, queue: &str) -> Self {
        let sent = Self::new(method, path).header("x-ms-version", "2020-04-08");
        Self { queue: Some(queue.to_owned()), ..sent }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn query(mut self, name: &str, value: &str) -> Self {
        self.query.retain(|(other, _)| other != name);
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without_query(mut self, name: &str) -> Self {
        self.query.retain(|(other, _)| other != name);
        self
    }

    /// Calls with the request as the crate takes it.
    fn view<T>(&self, call: impl FnOnce(&Request<'_>) -> T) -> T {
        let find = |name: &str| {
            let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        let headers: Vec<_> = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let service = match &self.queue {
            Some(queue) => Service::Queue { queue, headers: &headers },
            None => Service::Table,
        };
        let Self { method, account, path, query, .. } = self;
        call(&Request { method, account, path, query, header: &find, service })
    }

    /// Finds the credentials and verifies their signature, but no terms.
    fn verify(&self, keys: &[&[u8]]) -> Result<Credentials, AuthError> {
        self.view(|request| {
            let credentials = parse(request)?;
            match &credentials {
                Credentials::SharedKey(shared) => shared.verify(request, keys, now(), 900)?,
                Credentials::AccountSas(sas) => sas.verify(request, keys)?,
                Credentials::TableSas(sas) => sas.verify(request, keys)?,
                Credentials::QueueSas(sas) => sas.verify(request, keys)?,
                Credentials::Bearer => return Err(AuthError::BearerNotSupported),
                Credentials::Anonymous => return Err(AuthError::NoCredentials),
            }
            Ok(credentials)
        })
    }

    fn is_accepted(&self) -> bool {
        self.verify(&[&key()]).is_ok()
    }
}
