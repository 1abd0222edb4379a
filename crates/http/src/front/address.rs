//! Whose resource a URL names: host style, path style, primary or secondary.

use rowhouse_types::Service;

/// What a request addresses, before its path is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    /// Name of the account, unchecked, without `-secondary`.
    pub(crate) account: &'a str,
    /// The read-only endpoint.
    pub(crate) secondary: bool,
    /// `/account` in path style, empty in host style.
    pub(crate) prefix: &'a str,
    /// What follows the account, still encoded; empty or starting with `/`.
    pub(crate) path: &'a str,
    /// The encoded path that a signature covers.
    pub(crate) signed_path: &'a str,
    /// URL of the service as this client sees it: what links are built on, without a slash at the end.
    pub(crate) base: String,
}

/// Finds the account in the host's first label (`acct.table.example.org`) or else in the first segment of
/// the path, which is also where it is when the host is an address or has no label of the service.
pub(crate) fn parse<'a>(
    service: Service,
    scheme: &str,
    host: &'a str,
    raw_path: &'a str,
) -> Address<'a> {
    if let Some(label) = host_style_account(service, host) {
        let (account, secondary) = without_secondary(label);
        let base = [scheme, "://", host].concat();
        let (path, signed_path) = (raw_path, raw_path);
        return Address { account, secondary, prefix: "", path, signed_path, base };
    }
    let slash = raw_path.bytes().skip(1).position(|byte| byte == b'/');
    let (prefix, path) = raw_path.split_at(slash.map_or(raw_path.len(), |at| at + 1));
    let (account, secondary) = without_secondary(prefix.strip_prefix('/').unwrap_or(prefix));
    // The Python SDK puts the secondary's segment before that of the primary instead of in its place, and
    // signs without it.
    let doubled = path.strip_prefix('/').and_then(|rest| rest.strip_prefix(account));
    let (path, signed_path) = match doubled {
        Some(rest) if secondary && rest.starts_with('/') => (rest, path),
        _ => (path, raw_path),
    };
    let base = [scheme, "://", host, prefix].concat();
    Address { account, secondary, prefix, path, signed_path, base }
}

/// The name in `Host` without its port.
pub(crate) fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// True if only a program on this machine, or one that was told a literal address, calls it that: a
/// name that someone else's DNS cannot make point here.
pub(crate) fn is_own_name(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// True if the name or address is one by which every machine means itself. Other addresses do not count: a stranger's
/// page may well be served under one, and so may a stranger's service.
pub(crate) fn is_loopback(name: &str) -> bool {
    match name.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => is_own_name(name),
    }
}

/// The first label of a host whose second one is that of the service.
pub(crate) fn host_style_account(service: Service, host: &str) -> Option<&str> {
    let mut labels = host_name(host).split('.');
    let (first, second, third) = (labels.next()?, labels.next()?, labels.next()?);
    let named =
        second.eq_ignore_ascii_case(service.label()) && !first.is_empty() && !third.is_empty();
    named.then_some(first)
}

/// The name of the account, and whether its secondary is meant.
pub(crate) fn without_secondary(name: &str) -> (&str, bool) {
    match name.strip_suffix("-secondary") {
        Some(account) => (account, true),
        None => (name, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_and_both_endpoints() {
        let cases = [
            ("acct.table.example.net", "/Tables", ("acct", false, "/Tables"), ""),
            ("acct-secondary.table.localhost:1", "/", ("acct", true, "/"), ""),
            ("127.0.0.1:10002", "/acct/Tables", ("acct", false, "/Tables"), "/acct"),
            ("localhost:10002", "/acct", ("acct", false, ""), "/acct"),
            ("[::1]:10002", "/acct/", ("acct", false, "/"), "/acct"),
            (
                "tables.example.net",
                "/acct-secondary/t()",
                ("acct", true, "/t()"),
                "/acct-secondary",
            ),
            (
                "127.0.0.1:10002",
                "/acct-secondary/acct/t()",
                ("acct", true, "/t()"),
                "/acct-secondary",
            ),
            ("127.0.0.1:10002", "/", ("", false, ""), "/"),
        ];
        for (host, path, expected, base) in cases {
            let found = parse(Service::Table, "http", host, path);
            assert_eq!((found.account, found.secondary, found.path), expected, "{host} {path}");
            assert_eq!(found.base, format!("http://{host}{base}"));
        }
    }

    #[test]
    fn own_names() {
        for own in ["127.0.0.1", "::1", "10.0.0.1", "localhost", "a.table.LOCALHOST"] {
            assert!(is_own_name(own), "{own}");
        }
        for foreign in ["example.org", "localhost.example.org", "127.0.0.1.example.org", ""] {
            assert!(!is_own_name(foreign), "{foreign}");
        }
        assert!(is_loopback("127.0.0.1") && is_loopback("::1") && is_loopback("localhost"));
        assert!(!is_loopback("203.0.113.5") && !is_loopback("evil.example"));
        assert_eq!(host_name("[::1]:80"), "::1");
        assert_eq!(host_name("a.b:80"), "a.b");
    }
}
