//! `rowhouse table delete-where` and `truncate`: the server deletes step by step, and whoever was interrupted gives the
//! command again.

use crate::progress::Status;
use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::Args;
use rowhouse_client::{Client, Deleted, Deletion, Place, TransferError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a server may be away before the command gives up.
const PATIENCE: Duration = Duration::from_mins(10);
/// Between two attempts, beyond those that every request makes.
const PAUSE: Duration = Duration::from_secs(1);
/// How long is counted beforehand, to tell how far it is.
const COUNT_TIME: Duration = Duration::from_secs(10);

/// Delete the entities that satisfy a filter.
///
/// An entity that is changed meanwhile is looked at again, and goes only if it still matches. The command may be
/// interrupted, and the server restarted: given again, it goes on with what is left.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)), after_help = WHERE_EXAMPLES)]
pub(crate) struct DeleteWhere {
    /// The table.
    table: String,

    /// Which entities, as in $filter of a query.
    #[arg(long)]
    filter: String,

    #[command(flatten)]
    how: How,
}

/// Delete all entities of a table. The table stays, with its policies and indexes.
///
/// Deleting the table and making it again is faster, and loses both.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)), after_help = TRUNCATE_EXAMPLES)]
pub(crate) struct Truncate {
    /// The table.
    table: String,

    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// Only count them.
    #[arg(long)]
    dry_run: bool,

    /// Needed, since it cannot be undone.
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    service: Service,
}

const WHERE_EXAMPLES: &str = "Examples:
  rowhouse table delete-where Logs --filter \"Level eq 'debug'\" --dry-run
  rowhouse table delete-where Logs --filter \"Level eq 'debug'\" --yes";

const TRUNCATE_EXAMPLES: &str = "Examples:
  rowhouse table truncate Logs --dry-run
  rowhouse table truncate Logs --yes";

impl DeleteWhere {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.filter.trim().is_empty() {
            return Err(
                "the filter is empty: 'rowhouse table truncate' deletes everything".to_owned()
            );
        }
        self.how.run(&self.table, Some(self.filter))
    }
}

impl Truncate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.how.run(&self.table, None)
    }
}

impl How {
    fn run(self, table: &str, filter: Option<String>) -> Result<(), Failure> {
        transfer::check_table(table)?;
        if !self.yes && !self.dry_run {
            return Err(format!(
                "this deletes entities of {table}: see how many with --dry-run, or say so with --yes"
            ));
        }
        let client = transfer::client(&self.service.target()?)?;
        let deletion = Deletion { filter, dry_run: self.dry_run };
        let began = Instant::now();
        let entities = |count| output::counted(count, "entity", "entities");
        let seen = Arc::new(Seen::default());
        let done = transfer::run_until_stopped(
            &client,
            "",
            delete(&client, table, &deletion, &seen),
            || {
                if self.dry_run {
                    return "stopped before all entities were counted: nothing was deleted"
                        .to_owned();
                }
                // What is under way may be done or not.
                let deleted = seen.deleted.load(Ordering::Relaxed);
                let verb = if deleted == 1 { "was" } else { "were" };
                format!(
                    "stopped after at least {} of {table} {verb} deleted: the same command goes on with the rest",
                    entities(deleted)
                )
            },
        )?;
        let (matched, deleted) = (entities(done.matched), entities(done.deleted));
        let seconds = began.elapsed().as_secs_f64();
        output::print(&if self.dry_run {
            format!("{matched} of {table} would be deleted; looked at {} to tell.\n", done.examined)
        } else {
            format!("Deleted {deleted} of {table} in {seconds:.1} s.\n")
        });
        Ok(())
    }
}

/// How far it is.
#[derive(Default)]
struct Seen {
    done: AtomicU64,
    deleted: AtomicU64,
    /// How many there are; 0 if nobody knows.
    of: AtomicU64,
}

/// Every step; what they did together.
async fn delete(
    client: &Client,
    table: &str,
    deletion: &Deletion,
    seen: &Arc<Seen>,
) -> Result<Deleted, TransferError> {
    let shown = Arc::clone(seen);
    let _shown = Shown::with(move |_| status(&shown));
    if !deletion.dry_run {
        let counting = Deletion { dry_run: true, ..deletion.clone() };
        let show = |sum: &Deleted| seen.of.store(sum.matched, Ordering::Relaxed);
        let counted = all(client, table, &counting, show, Some(COUNT_TIME)).await?;
        let known = if counted.next.is_none() { counted.matched } else { 0 };
        seen.of.store(known, Ordering::Relaxed);
    }
    let show = |sum: &Deleted| {
        seen.done.store(sum.matched, Ordering::Relaxed);
        seen.deleted.store(sum.deleted, Ordering::Relaxed);
    };
    all(client, table, deletion, show, None).await
}

/// Steps until nothing is left, or for so long. Shows the sum after every step.
pub(super) async fn all(
    client: &Client,
    table: &str,
    deletion: &Deletion,
    show: impl Fn(&Deleted),
    most: Option<Duration>,
) -> Result<Deleted, TransferError> {
    let began = Instant::now();
    let mut sum = Deleted { matched: 0, deleted: 0, examined: 0, next: None };
    loop {
        let step = patiently(client, table, deletion, sum.next.as_ref()).await?;
        sum.matched += step.matched;
        sum.deleted += step.deleted;
        sum.examined += step.examined;
        sum.next = step.next;
        show(&sum);
        if sum.next.is_none() || most.is_some_and(|most| most < began.elapsed()) {
            return Ok(sum);
        }
    }
}

/// One step, repeated while the server is away.
async fn patiently(
    client: &Client,
    table: &str,
    deletion: &Deletion,
    place: Option<&Place>,
) -> Result<Deleted, TransferError> {
    let began = Instant::now();
    loop {
        match client.delete_step(table, deletion, place).await {
            Err(error) if error.is_passing() && began.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// `12000 of 40000 entities`
fn status(seen: &Seen) -> Status {
    let (done, of) = (seen.done.load(Ordering::Relaxed), seen.of.load(Ordering::Relaxed));
    if of == 0 {
        return Status { text: output::counted(done, "entity", "entities"), share: None };
    }
    // The last thousandth is for what came later.
    let share = (done.saturating_mul(1000) / of).min(999);
    Status { text: format!("{done} of {of} entities"), share: Some(share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told() {
        let seen = Seen::default();
        seen.done.store(1, Ordering::Relaxed);
        assert_eq!(status(&seen), Status { text: "1 entity".to_owned(), share: None });
        seen.of.store(4, Ordering::Relaxed);
        assert_eq!(status(&seen), Status { text: "1 of 4 entities".to_owned(), share: Some(250) });
        seen.done.store(9, Ordering::Relaxed);
        assert_eq!(status(&seen).share, Some(999));
    }
}
