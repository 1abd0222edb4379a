//! `rowhouse table ttl`: when the entities of a table expire.

use super::delete::all;
use crate::progress::Status;
use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::Args;
use rowhouse_client::{Client, Deleted, Deletion, TransferError, Ttl};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Show or set when the entities of a table expire.
///
/// An expired entity does not exist: no query finds it, and it can be inserted anew. The server removes it later: not before
/// its grace period after the TTL was set is over, a minute unless it was started with another --ttl-grace-seconds. Until then
/// --off brings every entity back.
///
/// If entities expire within a minute, or have expired already, setting a TTL needs --yes. Without options the setting is
/// shown. A key of the account is needed.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)), after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
pub(crate) struct TtlCommand {
    /// The table.
    table: String,

    /// How long after its Timestamp an entity expires, or after what --property says: such as 30d (days), 12h (hours),
    /// 90m (minutes) or 45s (seconds).
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "off")]
    after: Option<Duration>,

    /// The DateTime property that says when an entity expires. One without it never does.
    #[arg(long, value_name = "NAME", conflicts_with = "off")]
    property: Option<String>,

    /// Entities no longer expire. Those that have and are not yet removed are there again.
    #[arg(long, conflicts_with = "dry_run")]
    off: bool,

    /// Only count the entities that would expire within a minute.
    #[arg(long)]
    dry_run: bool,

    /// Set it although entities expire within a minute.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// What expires within this time is counted beforehand.
const SOON_SECONDS: u64 = 60;

const EXAMPLES: &str = "Examples:
  rowhouse table ttl Logs --after 30d --dry-run
  rowhouse table ttl Logs --after 30d --yes
  rowhouse table ttl Sessions --property ExpiresAt
  rowhouse table ttl Logs
  rowhouse table ttl Logs --off";

/// How many entities a setting has expire within a minute, of how many.
#[derive(Clone, Copy, Debug)]
struct Expired {
    expired: u64,
    of: u64,
}

impl TtlCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let Self { table, after, property, off, dry_run, yes, json, .. } = self;
        let seconds = after.map(|after| after.as_secs());
        let wanted = match (seconds, property) {
            (None, None) => None,
            (seconds, property) => Some(Ttl { seconds: seconds.unwrap_or(0), property }),
        };
        let Some(wanted) = wanted else {
            if dry_run {
                return Err("--dry-run needs --after or --property: what would expire?".to_owned());
            }
            let ttl = transfer::run(&client, async {
                if off {
                    client.set_ttl(&table, None).await?;
                    return Ok(None);
                }
                Ok(client.ttl(&table).await?)
            })?;
            show(&table, ttl.as_ref(), json);
            return Ok(());
        };
        if !yes {
            let Expired { expired, of } = transfer::run(&client, count(&client, &table, &wanted))?;
            let entities = output::counted(of, "entity", "entities");
            if dry_run {
                output::print(&if json {
                    format!("{}\n", serde_json::json!({ "expired": expired, "of": of }))
                } else {
                    format!("{expired} of {entities} of {table} would expire within a minute.\n")
                });
                return Ok(());
            }
            if 0 < expired {
                let that = told(&table, Some(&wanted)).replacen('E', "e", 1);
                return Err(format!(
                    "{expired} of {entities} of {table} would expire within a minute ({}): add --yes to set it",
                    that.trim_end_matches('.')
                ));
            }
        }
        transfer::run(&client, async { Ok(client.set_ttl(&table, Some(&wanted)).await?) })?;
        show(&table, Some(&wanted), json);
        if yes && !json {
            output::print(&format!(
                "Until the server's grace period is over (a minute, unless --ttl-grace-seconds says otherwise), \
                 'rowhouse table ttl {table} --off' brings every entity back.\n"
            ));
        }
        Ok(())
    }
}

fn show(table: &str, ttl: Option<&Ttl>, json: bool) {
    output::print(&if json {
        format!("{}\n", serde_json::json!(ttl))
    } else {
        format!("{}\n", told(table, ttl))
    });
}

/// Counts what a setting has expire within a minute, by the server's clock: what a mistake would remove first. The grace
/// period of the server may be shorter or longer than that; the command does not know it.
async fn count(client: &Client, table: &str, ttl: &Ttl) -> Result<Expired, TransferError> {
    let (_, now) = client.ttl_and_time(table).await?;
    let looked = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&looked);
    let _shown = Shown::with(move |_| {
        let looked = output::counted(shown.load(Ordering::Relaxed), "entity", "entities");
        Status { text: format!("{looked} counted"), share: None }
    });
    let show = |sum: &Deleted| looked.store(sum.matched, Ordering::Relaxed);
    let everything = Deletion { filter: None, dry_run: true };
    let of = all(client, table, &everything, show, None).await?.matched;
    let expired = match ttl.expired_at(now.plus_seconds(SOON_SECONDS)) {
        None => 0,
        Some(filter) => {
            let expired = Deletion { filter: Some(filter), dry_run: true };
            all(client, table, &expired, |_| {}, None).await?.matched
        }
    };
    Ok(Expired { expired, of })
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
