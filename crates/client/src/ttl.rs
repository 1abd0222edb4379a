//! When the entities of a table expire, which Rowhouse has beyond the protocol.

use crate::client::{Call, Client, path_of};
use crate::error::ClientError;
use http::Method;
use serde::{Deserialize, Serialize};

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

impl Client {
    /// When the entities of a table expire; never if none.
    pub async fn ttl(&self, table: &str) -> Result<Option<Ttl>, ClientError> {
        let call = Call::new(Method::GET, path_of(table)).query("comp", Some("ttl"));
        let answer = self.ask(call).await?;
        let Told { expires, seconds, property } = self.read(&answer)?;
        Ok(expires.then_some(Ttl { seconds, property }))
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
