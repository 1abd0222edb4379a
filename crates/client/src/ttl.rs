//! When the entities of a table expire, which Rowhouse has beyond the protocol.

use crate::client::{Call, Client, path_of};
use crate::error::ClientError;
use http::Method;
use rowhouse_env::{Clock as _, SystemClock};
use rowhouse_types::Timestamp;
use serde::{Deserialize, Serialize};

const TICKS_PER_SECOND: u64 = 10_000_000;

/// When entities expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ttl {
    /// So long after, in seconds.
    pub seconds: u64,
    /// After what this DateTime says; after the Timestamp without.
    pub property: Option<String>,
}

#[derive(Deserialize)]
struct Told {
    expires: bool,
    #[serde(default)]
    seconds: u64,
    property: Option<String>,
}

impl Ttl {
    /// The filter for what has expired at that time; none if nothing can have.
    pub fn expired_at(&self, now: Timestamp) -> Option<String> {
        let ticks = self.seconds.checked_mul(TICKS_PER_SECOND)?;
        let last = now.ticks().checked_sub(ticks).and_then(Timestamp::from_ticks)?;
        let name = self.property.as_deref().unwrap_or("Timestamp");
        last.is_edm().then(|| format!("{name} le datetime'{}'", last.iso7()))
    }
}

impl Client {
    /// When the entities of a table expire; never if none.
    pub async fn ttl(&self, table: &str) -> Result<Option<Ttl>, ClientError> {
        Ok(self.ttl_and_time(table).await?.0)
    }

    /// The same with the time by the server's clock, or by this machine's if the answer has none.
    pub async fn ttl_and_time(&self, table: &str) -> Result<(Option<Ttl>, Timestamp), ClientError> {
        let call = Call::new(Method::GET, path_of(table)).query("comp", Some("ttl"));
        let answer = self.ask(call).await?;
        let now = answer.header("date").and_then(|date| Timestamp::parse_rfc1123(date).ok());
        let Told { expires, seconds, property } = self.read(&answer)?;
        let ttl = expires.then_some(Ttl { seconds, property });
        Ok((ttl, now.unwrap_or_else(|| SystemClock.now())))
    }

    /// Has the entities of a table expire, or no longer.
    pub async fn set_ttl(&self, table: &str, ttl: Option<&Ttl>) -> Result<(), ClientError> {
        let method = if ttl.is_some() { Method::PUT } else { Method::DELETE };
        let mut call = Call::new(method, path_of(table)).query("comp", Some("ttl"));
        if let Some(ttl) = ttl {
            call = call.body(serde_json::json!(ttl).to_string());
        }
        self.ask(call).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_is_found_by_a_filter() {
        let now = Timestamp::parse_iso("2026-01-02T00:00:10Z").unwrap();
        let at = |seconds, property: Option<&str>| {
            Ttl { seconds, property: property.map(str::to_owned) }.expired_at(now)
        };
        let expected = "Timestamp le datetime'2026-01-02T00:00:00.0000000Z'";
        assert_eq!(at(10, None).as_deref(), Some(expected));
        let expected = "Until le datetime'2026-01-02T00:00:10.0000000Z'";
        assert_eq!(at(0, Some("Until")).as_deref(), Some(expected));
        assert_eq!(at(3_155_760_000_000, None), None);
        assert_eq!(at(u64::MAX, None), None);
    }
}
