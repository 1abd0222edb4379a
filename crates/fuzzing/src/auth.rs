use crate::valid_prefix;
use rowhouse_auth::{Credentials, Request, Service, parse};
use rowhouse_types::{StoredPolicy, Timestamp};
use rowhouse_wire::uri::Query;
use std::net::{IpAddr, Ipv4Addr};

const SKEW_SECONDS: u64 = 900;

/// Credentials of a request: a Shared Key header, a shared access signature, or a bearer token.
///
/// The first line of the input is the Authorization header, the second the date, the third the
/// path, the rest the query. Parsing, verifying and explaining must not panic, on either service.
pub fn auth(data: &[u8]) {
    let text = valid_prefix(data);
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or("");
    let (authorization, ms_date, path) = (line(), line(), line());
    let Ok(query) = Query::parse(line()) else { return };
    let header = |name: &str| match name {
        "authorization" => Some(authorization).filter(|text| !text.is_empty()),
        "x-ms-date" => Some(ms_date).filter(|text| !text.is_empty()),
        _ => None,
    };
    let headers = [("x-ms-date", ms_date), ("X-MS-Meta-a", path), ("content-length", "0")];
    for service in [Service::Table, Service::Queue { queue: "orders", headers: &headers }] {
        let (method, account, query) = ("GET", "acct", query.pairs());
        exercise(&Request { method, account, path, query, header: &header, service });
    }
}

fn exercise(request: &Request<'_>) {
    let now = Timestamp::parse_iso("2022-06-27T15:25:14Z").expect("a legal time");
    let (peer, keys): (_, [&[u8]; 1]) = (IpAddr::V4(Ipv4Addr::LOCALHOST), [b"a key"]);
    match parse(request) {
        Ok(Credentials::SharedKey(shared)) => {
            let _ = shared.verify(request, &keys, now, SKEW_SECONDS);
        }
        Ok(Credentials::AccountSas(sas)) => {
            let _ = sas.verify(request, &keys);
            let _ = sas.terms().check(now, peer, true);
            let _ = sas.grant();
        }
        Ok(Credentials::TableSas(sas)) => {
            let _ = sas.verify(request, &keys);
            let _ = (sas.table(), sas.range());
            let policy = StoredPolicy {
                id: "policy".into(),
                start: None,
                expiry: Some(now),
                permission: Some("r".into()),
            };
            for stored in [None, Some(&policy)] {
                if let Ok(terms) = sas.resolve(stored) {
                    let _ = terms.check(now, peer, false);
                    let _ = sas.grant(&terms);
                }
            }
        }
        Ok(Credentials::QueueSas(sas)) => {
            let _ = sas.verify(request, &keys);
            if let Ok(terms) = sas.resolve(None) {
                let _ = sas.grant(&terms);
            }
        }
        Ok(Credentials::Bearer | Credentials::Anonymous) | Err(_) => {}
    }
    if let Ok(credentials) = parse(request) {
        let _ = credentials.explain(request);
    }
}
