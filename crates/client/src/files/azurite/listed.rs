//! What Azurite's file says of tables themselves: their stored access policies.

use rowhouse_types::{Service, StoredPolicy, Timestamp};

/// A table as the list of tables has it.
#[derive(serde::Deserialize)]
pub(super) struct Listed {
    #[serde(default)]
    pub(super) account: String,
    #[serde(default)]
    pub(super) table: String,
    #[serde(rename = "tableAcl")]
    policies: Option<Vec<Identified>>,
}

#[derive(serde::Deserialize)]
struct Identified {
    id: String,
    #[serde(rename = "accessPolicy")]
    policy: Option<Policy>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Policy {
    start: Option<String>,
    expiry: Option<String>,
    permission: Option<String>,
}

impl Listed {
    /// Its policies, or why they are none.
    pub(super) fn policies(self) -> Result<Vec<StoredPolicy>, String> {
        self.policies.unwrap_or_default().into_iter().map(stored).collect()
    }
}

fn stored(Identified { id, policy }: Identified) -> Result<StoredPolicy, String> {
    let Policy { start, expiry, permission } = policy.unwrap_or_default();
    let time = |text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        let parsed = text.map(|text| Timestamp::parse_date_or_iso(&text).map_err(|_| text));
        parsed.transpose().map_err(|text| format!("policy {id:?}: {text:?} is not a time"))
    };
    let (start, expiry) = (time(start)?, time(expiry)?);
    let permission = permission.filter(|letters| !letters.is_empty());
    let permission = permission.map(|letters| in_order(&letters)).transpose();
    let permission =
        permission.map_err(|letter| format!("policy {id:?}: no permission {letter:?}"))?;
    Ok(StoredPolicy { id: id.into(), start, expiry, permission })
}

/// The letters as the protocol wants them; Azurite takes them in any order. Fails with one that it does not know.
fn in_order(letters: &str) -> Result<Box<str>, char> {
    let known = Service::Table.letters();
    match letters.chars().find(|letter| !known.contains(*letter)) {
        Some(letter) => Err(letter),
        None => Ok(known.chars().filter(|letter| letters.contains(*letter)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(list: &str) -> Result<Vec<StoredPolicy>, String> {
        let json = format!("{{\"account\":\"a\",\"table\":\"T\",\"$loki\":1{list}}}");
        serde_json::from_str::<Listed>(&json).unwrap().policies()
    }

    #[test]
    fn policies_are_those_of_the_protocol() {
        assert_eq!(policies("").unwrap(), []);
        let list = r#","tableAcl":[
            {"id":"a","accessPolicy":{"start":"2026-01-02T03:04:05Z","expiry":"2036-01-02","permission":"dr"}},
            {"id":"b","accessPolicy":{"start":"","permission":""}},{"id":"c"}]"#;
        let time = |text| Some(Timestamp::parse_iso(text).unwrap());
        let bare =
            |id: &str| StoredPolicy { id: id.into(), start: None, expiry: None, permission: None };
        let first = StoredPolicy {
            id: "a".into(),
            start: time("2026-01-02T03:04:05Z"),
            expiry: time("2036-01-02T00:00:00Z"),
            permission: Some("rd".into()),
        };
        assert_eq!(policies(list).unwrap(), [first, bare("b"), bare("c")]);
    }

    #[test]
    fn what_is_no_policy_is_told() {
        let cases = [
            (r#"{"permission":"rx"}"#, "no permission 'x'"),
            (r#"{"expiry":"tomorrow"}"#, "\"tomorrow\" is not a time"),
        ];
        for (policy, expected) in cases {
            let list = format!(",\"tableAcl\":[{{\"id\":\"a\",\"accessPolicy\":{policy}}}]");
            let told = policies(&list).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }
}
