//! Cross-origin rules: which answer a browser may show to a page of another origin.

use rowhouse_types::{CorsRule, ServiceProperties};

/// Headers to add to a response. A preflight that no rule allows has none.
pub(crate) type CorsHeaders = Vec<(&'static str, String)>;

/// The answer to a preflight, or `None` if no rule allows it.
///
/// The first rule that matches origin and method decides; if its headers do not cover what is asked, no
/// other is tried.
pub(crate) fn preflight(
    properties: &ServiceProperties,
    origin: &str,
    method: &str,
    headers: Option<&str>,
) -> Option<CorsHeaders> {
    let rule = select(&properties.cors, origin, method)?;
    let asked = headers.unwrap_or_default();
    let covered = asked
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .all(|name| rule.allowed_headers.iter().any(|allowed| header_matches(allowed, name)));
    if !covered {
        return None;
    }
    let mut answer = vec![
        ("access-control-allow-origin", allowed_origin(rule, origin)),
        ("access-control-allow-methods", method.to_owned()),
    ];
    if let Some(headers) = headers {
        answer.push(("access-control-allow-headers", headers.to_owned()));
    }
    answer.push(("access-control-max-age", rule.max_age_seconds.to_string()));
    answer.push(("access-control-allow-credentials", "true".to_owned()));
    Some(answer)
}

/// What an ordinary response carries beside the headers `present`.
pub(crate) fn actual<'a>(
    properties: &ServiceProperties,
    origin: impl FnOnce() -> Option<&'a str>,
    method: &str,
    present: impl Iterator<Item = &'a str>,
) -> CorsHeaders {
    let rules = &properties.cors;
    if rules.is_empty() {
        return Vec::new();
    }
    let origin = origin();
    let read = matches!(method, "GET" | "HEAD");
    let vary = || if read { vec![("vary", "Origin".to_owned())] } else { Vec::new() };
    let rule = match origin {
        Some(origin) => select(rules, origin, method),
        None => rules.iter().find(|rule| any_origin(rule)),
    };
    let Some(rule) = rule else { return vary() };
    let mut answer = Vec::new();
    let exposed = exposed(rule, &present.collect::<Vec<_>>());
    if any_origin(rule) {
        answer.push(("access-control-allow-origin", "*".to_owned()));
        answer.push(("access-control-expose-headers", exposed));
        return answer;
    }
    let origin = origin.unwrap_or_default();
    answer.push(("access-control-allow-origin", origin.to_owned()));
    answer.push(("access-control-expose-headers", exposed));
    answer.push(("access-control-allow-credentials", "true".to_owned()));
    answer.extend(vary());
    answer
}

/// True if some rule names the origin, whatever the method.
pub(crate) fn origin_is_known(properties: &ServiceProperties, origin: &str) -> bool {
    properties
        .cors
        .iter()
        .any(|rule| rule.allowed_origins.iter().any(|o| origin_matches(o, origin)))
}

fn select<'a>(rules: &'a [CorsRule], origin: &str, method: &str) -> Option<&'a CorsRule> {
    rules.iter().find(|rule| {
        rule.allowed_origins.iter().any(|allowed| origin_matches(allowed, origin))
            && rule.allowed_methods.iter().any(|allowed| allowed == method)
    })
}

fn any_origin(rule: &CorsRule) -> bool {
    rule.allowed_origins.iter().any(|origin| origin == "*")
}

fn allowed_origin(rule: &CorsRule, origin: &str) -> String {
    if any_origin(rule) { "*".to_owned() } else { origin.to_owned() }
}

/// Exact, `*`, or `http://*.example.org` for any subdomain.
fn origin_matches(allowed: &str, origin: &str) -> bool {
    if allowed == "*" || allowed == origin {
        return true;
    }
    allowed.split_once("*.").is_some_and(|(scheme, domain)| {
        origin.strip_prefix(scheme).is_some_and(|rest| {
            rest.strip_suffix(domain).is_some_and(|sub| sub.len() > 1 && sub.ends_with('.'))
        })
    })
}

fn header_matches(allowed: &str, name: &str) -> bool {
    match allowed.strip_suffix('*') {
        Some(prefix) => {
            name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        }
        None => allowed.eq_ignore_ascii_case(name),
    }
}

/// The headers that the page may see: those named, and those present that a prefix covers.
fn exposed(rule: &CorsRule, present: &[&str]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for wanted in &rule.exposed_headers {
        if wanted.ends_with('*') {
            names.extend(present.iter().filter(|name| header_matches(wanted, name)));
        } else {
            names.push(wanted);
        }
    }
    names.dedup();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CorsRule {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        CorsRule {
            allowed_origins: own(origins),
            allowed_methods: own(methods),
            allowed_headers: own(headers),
            exposed_headers: own(&["x-ms-meta*", "etag"]),
            max_age_seconds: 5,
        }
    }

    fn properties(cors: Vec<CorsRule>) -> ServiceProperties {
        ServiceProperties { cors, ..ServiceProperties::default() }
    }

    #[test]
    fn the_first_rule_of_origin_and_method_decides() {
        let properties = properties(vec![
            rule(&["http://a.example"], &["GET"], &["x-ms-*"]),
            rule(&["*"], &["GET", "PUT"], &["*"]),
        ]);
        let ask = |origin, method, headers| {
            preflight(&properties, origin, method, headers).map(|headers| headers[0].1.clone())
        };
        assert_eq!(
            ask("http://a.example", "GET", Some("X-MS-date")),
            Some("http://a.example".into())
        );
        assert_eq!(ask("http://a.example", "GET", Some("other")), None);
        assert_eq!(ask("http://a.example", "PUT", Some("other")), Some("*".into()));
        assert_eq!(ask("http://b.example", "GET", None), Some("*".into()));
        assert_eq!(ask("http://b.example", "DELETE", None), None);
    }

    #[test]
    fn ordinary_responses_follow_the_table() {
        let names = |properties: &ServiceProperties, origin| {
            let headers = actual(properties, || origin, "GET", ["etag"].into_iter());
            headers.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let (origin, expose, credentials) = (
            "access-control-allow-origin",
            "access-control-expose-headers",
            "access-control-allow-credentials",
        );
        let exact = properties(vec![rule(&["http://a.example"], &["GET"], &[])]);
        let any = properties(vec![rule(&["*"], &["GET"], &[])]);
        let none = properties(vec![]);
        assert!(names(&none, Some("http://a.example")).is_empty());
        assert_eq!(names(&any, None), [origin, expose]);
        assert_eq!(names(&exact, None), ["vary"]);
        assert_eq!(names(&exact, Some("http://a.example")), [origin, expose, credentials, "vary"]);
        assert_eq!(names(&any, Some("http://a.example")), [origin, expose]);
        assert_eq!(names(&exact, Some("http://b.example")), ["vary"]);
    }

    #[test]
    fn subdomain_wildcards() {
        assert!(origin_matches("http://*.contoso.com", "http://www.contoso.com"));
        assert!(!origin_matches("http://*.contoso.com", "http://contoso.com"));
        assert!(!origin_matches("http://*.contoso.com", "https://www.contoso.com"));
        assert!(!origin_matches("http://*.contoso.com", "http://evilcontoso.com"));
    }
}
