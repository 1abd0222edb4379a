//! Settings of the service: logging, metrics, cross-origin rules.

use super::XmlError;
use super::text::{DECLARATION, push_element};
use super::tree::Node;
use rowhouse_types::{
    CorsRule, Logging, Metrics, Service, ServiceProperties, ServicePropertiesUpdate, limits,
};

const METHODS: [&str; 8] = ["DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT", "PATCH"];
/// Longest version of logging or metrics, in bytes: there has only ever been `1.0`.
const VERSION_BYTES_MAX: usize = 16;

/// Every element below the root.
const NAMES: [&str; 18] = [
    "Logging",
    "HourMetrics",
    "MinuteMetrics",
    "Cors",
    "Version",
    "Read",
    "Write",
    "Delete",
    "RetentionPolicy",
    "Enabled",
    "IncludeAPIs",
    "Days",
    "CorsRule",
    "AllowedOrigins",
    "AllowedMethods",
    "AllowedHeaders",
    "ExposedHeaders",
    "MaxAgeInSeconds",
];

/// Reads the body of Set Service Properties. What is there must be complete; what is not keeps its value. Elements that
/// nobody knows are refused for tables and passed over for queues.
pub fn read(body: &[u8], service: Service) -> Result<ServicePropertiesUpdate, XmlError> {
    let root = Node::parse(body, "StorageServiceProperties")?.known_to(service, &NAMES);
    let [logging, hour_metrics, minute_metrics, cors] =
        root.fields(["Logging", "HourMetrics", "MinuteMetrics", "Cors"])?;
    Ok(ServicePropertiesUpdate {
        logging: logging.map(read_logging).transpose()?,
        hour_metrics: hour_metrics.map(read_metrics).transpose()?,
        minute_metrics: minute_metrics.map(read_metrics).transpose()?,
        cors: cors.map(read_cors).transpose()?,
    })
}

fn required(node: Option<&Node>) -> Result<&Node, XmlError> {
    node.ok_or(XmlError::MissingNode)
}

fn read_logging(node: &Node) -> Result<Logging, XmlError> {
    let [version, read, write, delete, retention] =
        node.fields(["Version", "Read", "Write", "Delete", "RetentionPolicy"])?;
    Ok(Logging {
        version: read_version(version)?,
        read: read_bool(read)?,
        write: read_bool(write)?,
        delete: read_bool(delete)?,
        retention_days: read_retention(retention)?,
    })
}

fn read_metrics(node: &Node) -> Result<Metrics, XmlError> {
    let [version, enabled, include_apis, retention] =
        node.fields(["Version", "Enabled", "IncludeAPIs", "RetentionPolicy"])?;
    let enabled = read_bool(enabled)?;
    Ok(Metrics {
        version: read_version(version)?,
        enabled,
        include_apis: if enabled { Some(read_bool(include_apis)?) } else { None },
        retention_days: read_retention(retention)?,
    })
}

fn read_version(node: Option<&Node>) -> Result<String, XmlError> {
    let text = required(node)?.text()?;
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if text.is_empty() || VERSION_BYTES_MAX < text.len() || !numeric {
        return Err(XmlError::NodeValue);
    }
    Ok(text.to_owned())
}

fn read_bool(node: Option<&Node>) -> Result<bool, XmlError> {
    let text = required(node)?.text()?;
    // The Python SDK writes `True`.
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(XmlError::NodeValue)
    }
}

fn read_number(node: Option<&Node>) -> Result<u32, XmlError> {
    required(node)?.text()?.parse().map_err(|_| XmlError::NodeValue)
}

fn read_retention(node: Option<&Node>) -> Result<Option<u32>, XmlError> {
    let [enabled, days] = required(node)?.fields(["Enabled", "Days"])?;
    if !read_bool(enabled)? {
        return Ok(None);
    }
    let days = read_number(days)?;
    // The original calls this a malformed document, not a wrong value.
    if (1..=limits::RETENTION_DAYS_MAX).contains(&days) {
        Ok(Some(days))
    } else {
        Err(XmlError::Syntax)
    }
}

fn read_cors(node: &Node) -> Result<Vec<CorsRule>, XmlError> {
    let mut text_bytes = 0;
    node.list("CorsRule", limits::CORS_RULES_MAX)?
        .iter()
        .map(|rule| read_rule(rule, &mut text_bytes))
        .collect()
}

/// Reads one rule and adds the bytes of its text to those of the rules before it.
fn read_rule(node: &Node, text_bytes: &mut usize) -> Result<CorsRule, XmlError> {
    let fields = node.fields([
        "AllowedOrigins",
        "AllowedMethods",
        "AllowedHeaders",
        "ExposedHeaders",
        "MaxAgeInSeconds",
    ])?;
    for field in fields {
        *text_bytes += required(field)?.text()?.len();
    }
    if limits::CORS_TEXT_BYTES_MAX < *text_bytes {
        return Err(XmlError::Syntax);
    }
    let [origins, methods, allowed, exposed, max_age] = fields;
    let rule = CorsRule {
        allowed_origins: read_items(origins)?,
        allowed_methods: read_items(methods)?,
        allowed_headers: read_headers(allowed)?,
        exposed_headers: read_headers(exposed)?,
        max_age_seconds: read_number(max_age)?,
    };
    let known = |method: &String| METHODS.contains(&&**method);
    if rule.allowed_origins.is_empty()
        || rule.allowed_methods.is_empty()
        || !rule.allowed_methods.iter().all(known)
    {
        return Err(XmlError::NodeValue);
    }
    Ok(rule)
}

/// A list with commas between its items.
fn read_items(node: Option<&Node>) -> Result<Vec<String>, XmlError> {
    let text = required(node)?.text()?;
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            if limits::CORS_ITEM_CHARS_MAX < item.chars().count() {
                return Err(XmlError::Syntax);
            }
            Ok(item.to_owned())
        })
        .collect()
}

fn read_headers(node: Option<&Node>) -> Result<Vec<String>, XmlError> {
    let headers = read_items(node)?;
    let prefixes =
        headers.iter().filter(|header| header.len() > 1 && header.ends_with('*')).count();
    let too_many = limits::CORS_PREFIX_HEADERS_MAX < prefixes
        || limits::CORS_LITERAL_HEADERS_MAX < headers.len() - prefixes;
    if too_many { Err(XmlError::Syntax) } else { Ok(headers) }
}

/// The body of Get Service Properties.
pub fn write(properties: &ServiceProperties) -> String {
    let ServiceProperties { logging, hour_metrics, minute_metrics, cors } = properties;
    let mut out = String::from(DECLARATION);
    out.push_str("<StorageServiceProperties><Logging>");
    push_element(&mut out, "Version", &logging.version);
    push_bool(&mut out, "Read", logging.read);
    push_bool(&mut out, "Write", logging.write);
    push_bool(&mut out, "Delete", logging.delete);
    push_retention(&mut out, logging.retention_days);
    out.push_str("</Logging><HourMetrics>");
    push_metrics(&mut out, hour_metrics);
    out.push_str("</HourMetrics><MinuteMetrics>");
    push_metrics(&mut out, minute_metrics);
    out.push_str("</MinuteMetrics>");
    if cors.is_empty() {
        out.push_str("<Cors />");
    } else {
        out.push_str("<Cors>");
        for rule in cors {
            push_rule(&mut out, rule);
        }
        out.push_str("</Cors>");
    }
    out.push_str("</StorageServiceProperties>");
    out
}

fn push_bool(out: &mut String, name: &str, value: bool) {
    push_element(out, name, if value { "true" } else { "false" });
}

fn push_metrics(out: &mut String, metrics: &Metrics) {
    push_element(out, "Version", &metrics.version);
    push_bool(out, "Enabled", metrics.enabled);
    if let Some(include_apis) = metrics.include_apis {
        push_bool(out, "IncludeAPIs", include_apis);
    }
    push_retention(out, metrics.retention_days);
}

fn push_retention(out: &mut String, days: Option<u32>) {
    out.push_str("<RetentionPolicy>");
    push_bool(out, "Enabled", days.is_some());
    if let Some(days) = days {
        push_element(out, "Days", &days.to_string());
    }
    out.push_str("</RetentionPolicy>");
}

fn push_rule(out: &mut String, rule: &CorsRule) {
    out.push_str("<CorsRule>");
    push_element(out, "AllowedMethods", &rule.allowed_methods.join(","));
    push_element(out, "AllowedOrigins", &rule.allowed_origins.join(","));
    push_element(out, "AllowedHeaders", &rule.allowed_headers.join(","));
    push_element(out, "ExposedHeaders", &rule.exposed_headers.join(","));
    push_element(out, "MaxAgeInSeconds", &rule.max_age_seconds.to_string());
    out.push_str("</CorsRule>");
}

#[cfg(test)]
mod tests;
