//! `rowhouse table ttl`: when the entities of a table expire.

use crate::service::Service;
use crate::{Failure, output, transfer};
use clap::Args;
use rowhouse_client::Ttl;
use std::time::Duration;

/// Tell or set when the entities of a table expire.
///
/// An expired entity does not exist: nobody reads it, and it can be inserted anew. The server removes it later. Without
/// options the setting is told. A key of the account is needed.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)), after_help = EXAMPLES)]
pub(crate) struct TtlCommand {
    /// The table.
    table: String,

    /// How long after its Timestamp an entity expires, or after what --property says: such as 30d, 12h, 90m or 45s.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "off")]
    after: Option<Duration>,

    /// The DateTime property that says when an entity expires. One without it never does.
    #[arg(long, value_name = "NAME", conflicts_with = "off")]
    property: Option<String>,

    /// Entities no longer expire. Those that have and are not yet removed are there again.
    #[arg(long)]
    off: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

const EXAMPLES: &str = "Examples:
  rowhouse table ttl Logs --after 30d
  rowhouse table ttl Sessions --property ExpiresAt
  rowhouse table ttl Logs
  rowhouse table ttl Logs --off";

impl TtlCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let Self { table, after, property, off, json, .. } = self;
        let seconds = after.map(|after| after.as_secs());
        let wanted = match (seconds, property) {
            (None, None) => None,
            (seconds, property) => Some(Ttl { seconds: seconds.unwrap_or(0), property }),
        };
        let set = off || wanted.is_some();
        let ttl = transfer::run(async {
            if set {
                client.set_ttl(&table, wanted.as_ref()).await?;
                return Ok(wanted);
            }
            Ok(client.ttl(&table).await?)
        })?;
        if json {
            output::print(&format!("{}\n", serde_json::json!(ttl)));
        } else {
            output::print(&format!("{}\n", told(&table, ttl.as_ref())));
        }
        Ok(())
    }
}

fn told(table: &str, ttl: Option<&Ttl>) -> String {
    let Some(Ttl { seconds, property }) = ttl else {
        return format!("Entities of {table} do not expire.");
    };
    match (property, seconds) {
        (None, _) => format!("Entities of {table} expire {} after their Timestamp.", age(*seconds)),
        (Some(name), 0) => format!("Entities of {table} expire when their property {name} says."),
        (Some(name), _) => {
            format!(
                "Entities of {table} expire {} after what their property {name} says.",
                age(*seconds)
            )
        }
    }
}

/// In the largest unit that tells it whole.
fn age(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "second"));
    output::counted(seconds / unit, name, &format!("{name}s"))
}

/// `30d`, `12h`, `90m`, `45s`
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time such as 30d, 12h, 90m or 45s".to_owned();
    let unit = match text.chars().next_back().ok_or_else(wrong)? {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let seconds = |text| time(text).map(|time| time.as_secs());
        assert_eq!(seconds("30d"), Ok(2_592_000));
        assert_eq!(seconds("12h"), Ok(43_200));
        assert_eq!(seconds("90m"), Ok(5_400));
        assert_eq!(seconds("0s"), Ok(0));
        for wrong in ["", "d", "5", "-1d", "1.5h", "5w", "5é", "99999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_are_told() {
        let ttl = |seconds, property: Option<&str>| Ttl {
            seconds,
            property: property.map(str::to_owned),
        };
        for (ttl, expected) in [
            (None, "Entities of T do not expire."),
            (Some(ttl(86_400, None)), "Entities of T expire 1 day after their Timestamp."),
            (Some(ttl(5_400, None)), "Entities of T expire 90 minutes after their Timestamp."),
            (Some(ttl(0, Some("X"))), "Entities of T expire when their property X says."),
            (
                Some(ttl(7, Some("X"))),
                "Entities of T expire 7 seconds after what their property X says.",
            ),
        ] {
            assert_eq!(told("T", ttl.as_ref()), expected);
        }
    }
}
