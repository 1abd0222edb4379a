//! Who a client is behind proxies: only what proxies that are trusted say counts.

use crate::Peer;
use http::HeaderMap;
use rowhouse_types::Network;
use std::net::{IpAddr, SocketAddr};

/// The client that a request comes from.
///
/// Each proxy appends the address it was called from to `X-Forwarded-For`, so the list is read from its end: as long as an
/// address is that of a trusted proxy, the one before it is what that proxy saw. Whatever stands before the
/// first address that is not trusted was sent by that client, and says nothing.
pub(crate) fn client(trusted: &[Network], headers: &HeaderMap, peer: Peer) -> Peer {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer.addr.ip()) {
        return peer;
    }
    // Where every address is trusted, that can only mean whoever connects: others in the list may be anybody's words.
    let every = [Network::EVERY_V4, Network::EVERY_V6];
    let is_trusted = |address: IpAddr| {
        trusted.iter().any(|network| !every.contains(network) && network.contains(address))
    };
    let mut client = peer.addr;
    // How many proxies the request came through, counted from here.
    let mut proxies = 1;
    let list = entries(headers, "x-forwarded-for");
    for entry in list.iter().rev() {
        let Some(address) = address(entry) else { break };
        client = SocketAddr::new(address, 0);
        if !is_trusted(address) {
            break;
        }
        proxies += 1;
    }
    let schemes = entries(headers, "x-forwarded-proto");
    // A proxy replaces the scheme or appends to it. If all of them appended, the outermost of those that are trusted is
    // the one that the client spoke with; otherwise only the last one is sure to have been set by a proxy.
    let at = if schemes.len() < proxies { 1 } else { proxies };
    let scheme = schemes.len().checked_sub(at).map(|at| schemes[at]);
    let tls = scheme.map_or(peer.tls, |scheme| scheme.eq_ignore_ascii_case("https"));
    Peer { addr: client, tls }
}

/// The entries of a list in a header, over all its lines. A line that is not text has none that mean anything.
fn entries<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("?"));
    lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .collect()
}

/// An address, or one with a port as some proxies write it.
fn address(entry: &str) -> Option<IpAddr> {
    let alone = |entry: &str| entry.parse::<IpAddr>().ok();
    let with_port = || entry.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || alone(entry.strip_prefix('[')?.strip_suffix(']')?);
    alone(entry).or_else(with_port).or_else(bracketed).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn seen(trusted: &[&str], peer: &str, lines: &[(&'static str, &str)]) -> (String, bool) {
        let trusted: Vec<Network> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let addr = SocketAddr::new(peer.parse().unwrap(), 9);
        let found = client(&trusted, &headers, Peer { addr, tls: false });
        (found.addr.ip().to_string(), found.tls)
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        // Trusted networks, peer, headers, and what is believed: an address, and whether it came by TLS.
        type Case<'a> = (&'a [&'a str], &'a str, &'a [(&'static str, &'a str)], (&'a str, bool));
        const FOR: &str = "x-forwarded-for";
        const PROTO: &str = "x-forwarded-proto";
        let near = &["10.0.0.0/8"][..];
        let both = &["10.0.0.0/8", "192.0.2.1"][..];
        let cases: [Case<'_>; 14] = [
            (&[], "10.0.0.1", &[(FOR, "203.0.113.5"), (PROTO, "https")], ("10.0.0.1", false)),
            (
                near,
                "198.51.100.7",
                &[(FOR, "127.0.0.1"), (PROTO, "https")],
                ("198.51.100.7", false),
            ),
            (near, "10.0.0.1", &[], ("10.0.0.1", false)),
            (near, "10.0.0.1", &[(FOR, "203.0.113.5"), (PROTO, "https")], ("203.0.113.5", true)),
            // What the client made up stands before what the proxy saw.
            (near, "10.0.0.1", &[(FOR, "127.0.0.1, 203.0.113.5")], ("203.0.113.5", false)),
            (near, "10.0.0.1", &[(FOR, "127.0.0.1"), (FOR, "203.0.113.5")], ("203.0.113.5", false)),
            (near, "10.0.0.1", &[(FOR, "203.0.113.5, 192.0.2.1")], ("192.0.2.1", false)),
            (both, "10.0.0.1", &[(FOR, "1.2.3.4, 203.0.113.5, 192.0.2.1")], ("203.0.113.5", false)),
            // All the way trusted: the first one.
            (both, "10.0.0.1", &[(FOR, "10.0.0.9, 10.0.0.8")], ("10.0.0.9", false)),
            (near, "10.0.0.1", &[(FOR, "203.0.113.5:4711")], ("203.0.113.5", false)),
            (near, "::ffff:10.0.0.1", &[(FOR, "[2001:db8::1]:80")], ("2001:db8::1", false)),
            (near, "10.0.0.1", &[(FOR, "203.0.113.5, unknown")], ("10.0.0.1", false)),
            (
                near,
                "10.0.0.1",
                &[(FOR, "203.0.113.5"), (PROTO, "https, http")],
                ("203.0.113.5", false),
            ),
            (
                both,
                "10.0.0.1",
                &[(FOR, "203.0.113.5, 192.0.2.1"), (PROTO, "https, http")],
                ("203.0.113.5", true),
            ),
        ];
        for (trusted, peer, lines, (address, tls)) in cases {
            assert_eq!(seen(trusted, peer, lines), (address.to_owned(), tls), "{peer} {lines:?}");
        }
    }

    proptest! {
        /// Whatever is sent, who is not trusted is who it is.
        #[test]
        fn strangers_cannot_pass_for_others(list in "[0-9a-f:., \\[\\]]{0,60}", scheme in "\\PC{0,12}") {
            let mut headers = HeaderMap::new();
            for (name, value) in [("x-forwarded-for", list), ("x-forwarded-proto", scheme)] {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    headers.append(name, value);
                }
            }
            let peer = Peer { addr: "198.51.100.7:9".parse().unwrap(), tls: false };
            let found = client(&["10.0.0.0/8".parse().unwrap()], &headers, peer);
            prop_assert_eq!((found.addr, found.tls), (peer.addr, false));
            let proxy = Peer { addr: "10.0.0.1:9".parse().unwrap(), tls: false };
            let _ = client(&["10.0.0.0/8".parse().unwrap()], &headers, proxy);
        }
    }
}
