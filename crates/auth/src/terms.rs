//! When, from where and over what a shared access signature holds.

use crate::AuthError;
use rowhouse_types::Timestamp;
use rowhouse_types::grant::Letters;
use std::net::{IpAddr, Ipv4Addr};

/// The effective terms of a shared access signature, wherever each of them was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Holds from then on; from ever if absent.
    pub start: Option<Timestamp>,
    /// Holds before then.
    pub expiry: Timestamp,
    /// What it allows.
    pub permissions: Letters,
    /// Who may use it; everybody if absent.
    pub ip: Option<IpRange>,
    /// Over what it may travel.
    pub protocol: Protocol,
}

/// IPv4 addresses from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

/// Over what a signature may travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Encrypted connections only.
    Https,
    /// Any connection.
    #[default]
    HttpsAndHttp,
}

impl Terms {
    /// Checks time, address and protocol, in the order of the protocol's answers.
    pub fn check(&self, now: Timestamp, peer: IpAddr, https: bool) -> Result<(), AuthError> {
        if self.start.is_some_and(|start| now < start) {
            return Err(AuthError::TimeFrame);
        }
        if self.expiry <= now {
            return Err(AuthError::TimeFrame);
        }
        if self.ip.is_some_and(|range| !range.contains(peer)) {
            return Err(AuthError::SourceIp);
        }
        if self.protocol == Protocol::Https && !https {
            return Err(AuthError::Protocol);
        }
        Ok(())
    }
}

impl IpRange {
    /// `192.0.2.1` or `192.0.2.1-192.0.2.9`; none if the field is empty.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, AuthError> {
        if text.is_empty() {
            return Ok(None);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Some(Self { first, last })),
            _ => Err(AuthError::Failed("the signed address is not an IPv4 address or range")),
        }
    }

    /// True if the address is in the range; an IPv4 address written as IPv6 counts as what it is.
    pub fn contains(self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.first <= address && address <= self.last,
            IpAddr::V6(_) => false,
        }
    }
}

impl Protocol {
    pub(crate) fn parse(text: &str) -> Result<Self, AuthError> {
        match text {
            "https" => Ok(Self::Https),
            "" | "https,http" => Ok(Self::HttpsAndHttp),
            _ => Err(AuthError::Failed("the signed protocol is neither https nor https,http")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse_date_or_iso(text).unwrap()
    }

    #[test]
    fn each_term_has_its_answer() {
        let terms = Terms {
            start: Some(time("2022-01-02")),
            expiry: time("2022-01-04"),
            permissions: Letters::new("r"),
            ip: IpRange::parse("192.0.2.5-192.0.2.7").unwrap(),
            protocol: Protocol::Https,
        };
        let inside = "192.0.2.6";
        let (early, late) = (Err(AuthError::TimeFrame), Err(AuthError::TimeFrame));
        let cases = [
            ("inside", "2022-01-03", inside, true, Ok(())),
            ("the start", "2022-01-02", inside, true, Ok(())),
            ("before the start", "2022-01-01T23:59:59.9999999Z", inside, true, early),
            ("before the expiry", "2022-01-03T23:59:59.9999999Z", inside, true, Ok(())),
            ("the expiry", "2022-01-04", inside, true, late),
            ("first address", "2022-01-03", "192.0.2.5", true, Ok(())),
            ("last address", "2022-01-03", "192.0.2.7", true, Ok(())),
            ("address below", "2022-01-03", "192.0.2.4", true, Err(AuthError::SourceIp)),
            ("address above", "2022-01-03", "192.0.2.8", true, Err(AuthError::SourceIp)),
            ("mapped address", "2022-01-03", "::ffff:192.0.2.6", true, Ok(())),
            ("IPv6", "2022-01-03", "::1", true, Err(AuthError::SourceIp)),
            ("not encrypted", "2022-01-03", inside, false, Err(AuthError::Protocol)),
            ("everything at once: time first", "2022-01-05", "::1", false, late),
            ("address before protocol", "2022-01-03", "::1", false, Err(AuthError::SourceIp)),
        ];
        for (rule, now, peer, https, expected) in cases {
            assert_eq!(terms.check(time(now), peer.parse().unwrap(), https), expected, "{rule}");
        }
        let open = Terms { start: None, ip: None, protocol: Protocol::HttpsAndHttp, ..terms };
        assert_eq!(open.check(time("0001-01-01"), "::1".parse().unwrap(), false), Ok(()));
    }

    #[test]
    fn addresses_and_protocols_in_text() {
        for good in ["", "1.2.3.4", "1.2.3.4-1.2.3.4", "0.0.0.0-255.255.255.255"] {
            assert!(IpRange::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "1.2.3",
            "1.2.3.4-",
            "-1.2.3.4",
            "1.2.3.5-1.2.3.4",
            "::1",
            "1.2.3.4-1.2.3.5-1.2.3.6",
            " 1.2.3.4",
        ] {
            assert!(IpRange::parse(bad).is_err(), "{bad}");
        }
        for bad in ["http", "HTTPS", "https,", "http,https", "https,http,https"] {
            assert!(Protocol::parse(bad).is_err(), "{bad}");
        }
    }
}
