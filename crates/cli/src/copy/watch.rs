//! `rowhouse copy --watch`: and then every change.

use super::verify;
use crate::progress::{self, Status, make_room};
use crate::signals::stop_requested;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use rowhouse_client::watch::{Watch, Watched};
use rowhouse_client::{Client, Following, Notice, Progress, Stop, TransferError};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Over how long the rate that is shown is taken.
const RATE_OVER: Duration = Duration::from_secs(5);

pub(super) fn run(
    watch: &Watch,
    source: &Client,
    dest: &Client,
    verified: bool,
) -> Result<(), Failure> {
    let progress = Arc::new(Progress::default());
    let until_caught_up = watch.until_caught_up;
    let following = Arc::new(Following::new(move |notice| tell(notice, until_caught_up)));
    let (stopper, stop) = Stop::new();
    let watched = {
        let _shown = shown(&progress, &following);
        transfer::run(source, async {
            let mut watched = pin!(watch.run(source, dest, &progress, &following, &stop));
            tokio::select! {
                ended = &mut watched => return ended,
                () = stop_requested() => stopper.stop(),
            }
            tokio::select! {
                ended = &mut watched => ended,
                () = stop_requested() => Err(TransferError::Refused(
                    "stopped at once: the same command goes on, and repeats what was under way".to_owned(),
                )),
            }
        })?
    };
    if stop.is_asked() {
        let line = stopped(&watched, &progress, &following, watch.copy.state.is_some());
        output::print(&line);
        return Ok(());
    }
    let changes = output::counted(following.changes(), "change", "changes");
    let tables = output::counted(watched.tables.len() as u64, "table", "tables");
    output::print(&format!("Caught up with the source: {changes} of {tables} copied.\n"));
    if !verified {
        return Ok(());
    }
    verify(&watch.copy, source, dest, &watched.tables, progress.rows())
}

fn tell(notice: Notice, until_caught_up: bool) {
    make_room();
    match notice {
        Notice::Following { tables, copied } => {
            let tables = output::counted(tables as u64, "table", "tables");
            output::print(&match copied {
                Some(entities) => format!(
                    "Copied {} of {tables}; following the changes.\n",
                    output::counted(entities, "entity", "entities")
                ),
                None => format!("Following the changes of {tables}.\n"),
            });
        }
        // The end of the command says so too.
        Notice::CaughtUp if until_caught_up => {}
        Notice::CaughtUp => output::print("Caught up with the source.\n"),
        Notice::Made(table) => {
            output::print(&format!("{table} is new at the source: copied, and followed.\n"));
        }
        Notice::Deleted(table) => {
            output::print(&format!(
                "{table} was deleted at the source: the destination keeps it.\n"
            ));
        }
        Notice::NotCopied(notes) => output::print(&super::told(&notes)),
        Notice::Waiting(reason) => eprintln!("rowhouse: {reason}: trying again"),
    }
}

/// One line that says where it stands.
fn stopped(watched: &Watched, progress: &Progress, following: &Following, kept: bool) -> String {
    let goes_on = if kept {
        "the same command goes on from here"
    } else {
        "without --resume, nothing keeps the place"
    };
    if !watched.copied {
        let entities = output::counted(progress.rows(), "entity is", "entities are");
        return format!("Stopped while copying: {entities} copied; {goes_on}.\n");
    }
    let changes = output::counted(following.changes(), "change", "changes");
    format!("Stopped: {changes} copied, {}; {goes_on}.\n", distance(following))
}

/// `up to date`, `12 s behind`
fn distance(following: &Following) -> String {
    match following.behind() {
        _ if following.is_level() => "up to date".to_owned(),
        Some(behind) => format!("{} behind", progress::time(behind)),
        None => "catching up".to_owned(),
    }
}

fn shown(progress: &Arc<Progress>, following: &Arc<Following>) -> Shown {
    let (progress, following) = (progress.clone(), following.clone());
    let mut pace = Pace { since: Instant::now(), from: 0, rate: 0 };
    Shown::with(move |elapsed| {
        if following.tables() == 0 {
            return transfer::status(&progress, elapsed, "entities");
        }
        let tables = output::counted(following.tables() as u64, "table", "tables");
        let changes = following.changes();
        let changes_told = output::counted(changes, "change", "changes");
        let (rate, distance) = (pace.rate(changes), distance(&following));
        let text = format!("{changes_told} of {tables}, {rate} a second, {distance}");
        Status { text, share: None }
    })
}

/// How many in a second, lately.
struct Pace {
    since: Instant,
    from: u64,
    rate: u64,
}

impl Pace {
    fn rate(&mut self, count: u64) -> u64 {
        let elapsed = self.since.elapsed();
        if RATE_OVER <= elapsed {
            let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let rate = (count - self.from).saturating_mul(1000) / millis;
            *self = Self { since: Instant::now(), from: count, rate };
        }
        self.rate
    }
}
