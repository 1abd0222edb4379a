//! Credentials: the first line is the Authorization header, the second the date, the third the path, the
//! fourth the query. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rowhouse_auth::{Credentials, Request, parse};
use rowhouse_types::{StoredPolicy, Timestamp};
use rowhouse_wire::uri::Query;
use std::net::{IpAddr, Ipv4Addr};

const SKEW_SECONDS: u64 = 900;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or("");
    let (authorization, date, path) = (line(), line(), line());
    let Ok(query) = Query::parse(line()) else { return };
    let header = |name: &str| match name {
        "authorization" => Some(authorization).filter(|text| !text.is_empty()),
        "x-ms-date" => Some(date).filter(|text| !text.is_empty()),
        _ => None,
    };
    let request =
        Request { method: "GET", account: "acct", path, query: query.pairs(), header: &header };
    let now = Timestamp::parse_iso("2022-06-27T15:25:14Z").expect("a legal time");
    let (peer, keys): (_, [&[u8]; 1]) = (IpAddr::V4(Ipv4Addr::LOCALHOST), [b"a key"]);
    match parse(&request) {
        Ok(Credentials::SharedKey(shared)) => {
            let _ = shared.verify(&request, &keys, now, SKEW_SECONDS);
        }
        Ok(Credentials::AccountSas(sas)) => {
            let _ = sas.verify(&request, &keys);
            let _ = sas.terms().check(now, peer, true);
            let _ = sas.grant();
        }
        Ok(Credentials::TableSas(sas)) => {
            let _ = sas.verify(&request, &keys);
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
        Ok(Credentials::Bearer | Credentials::Anonymous) | Err(_) => {}
    }
});
