//! What the change feed of a Rowhouse service tells. Azure and Azurite have none.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Some changes in order, and where to go on.
#[derive(Debug, Deserialize)]
pub struct ChangesPage {
    /// Each as the service wrote it: an object with `sequence`, `change` and `entity`.
    #[serde(rename = "value")]
    pub changes: Vec<Box<RawValue>>,
    /// The token of the place after them.
    pub next: String,
    /// Whether there was more already.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_as_it_was_written() {
        let change = r#"{"sequence":"1","change":"put","entity":{"Big":"5","Half":0.50}}"#;
        let body =
            format!(r#"{{"odata.metadata":"m","value":[{change}],"next":"1!0!","more":false}}"#);
        let page: ChangesPage = serde_json::from_str(&body).unwrap();
        assert_eq!(page.changes[0].get(), change);
        assert_eq!((page.next.as_str(), page.more), ("1!0!", false));
    }
}
