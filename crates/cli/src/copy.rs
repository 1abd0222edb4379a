//! `rowhouse copy`: tables from one service to another.

mod watch;

use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::Args;
use rowhouse_client::copy::{Compared, Copy};
use rowhouse_client::watch::Watch;
use rowhouse_client::{Client, Note, Policies, Progress, Target};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Copy tables from one service to another.
///
/// Each side is Rowhouse, Azure or Azurite. Types stay exact; an entity replaces one with the same keys
/// at the destination. Stored access policies are copied where both sides allow it, which takes the key of
/// the account; what is not copied is told. Queues are not looked at.
///
/// With --watch, the source must be a Rowhouse that keeps changes (rowhouse serve --keep-changes 7d). When
/// everything is copied, it goes on with every change that is made, and with tables that are made, until
/// Ctrl-C. Tables that are deleted at the source stay at the destination.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct CopyCommand {
    /// Where to copy from: a connection string, or a URL with a shared access signature.
    #[arg(env = "ROWHOUSE_COPY_SOURCE")]
    source: String,

    /// Where to copy to: a connection string, or a URL with a shared access signature.
    #[arg(env = "ROWHOUSE_COPY_DEST")]
    dest: String,

    /// Only these tables. Default: all.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    tables: Vec<String>,

    /// Parts of tables that are copied at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// Keep the place in this file, and go on from there if the file is there.
    #[arg(long, value_name = "STATEFILE")]
    resume: Option<PathBuf>,

    #[command(flatten)]
    changes: Changes,

    /// Then read both sides again and compare them: entities, and stored access policies.
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    acls: Acls,
}

/// Whether stored access policies are copied. Default: where both sides allow it, and the destination has
/// no others.
#[derive(Debug, Args)]
struct Acls {
    /// Make the stored access policies exactly those of the source, and fail where that is refused.
    #[arg(long, conflicts_with = "no_acls")]
    acls: bool,

    /// Leave stored access policies as they are, and do not compare them.
    #[arg(long)]
    no_acls: bool,
}

impl From<Acls> for Policies {
    fn from(acls: Acls) -> Self {
        match acls {
            Acls { acls: true, .. } => Self::Required,
            Acls { no_acls: true, .. } => Self::LeftOut,
            Acls { .. } => Self::Possible,
        }
    }
}

/// Whether, and for how long, changes are copied too.
#[derive(Debug, Args)]
struct Changes {
    /// Go on with the changes that are made at the source, from those made during the copy on.
    #[arg(long)]
    watch: bool,

    /// With --watch, end when every change is copied that was made before: to follow in steps, and for the
    /// last step when nobody writes to the source any more.
    #[arg(long, requires = "watch")]
    until_caught_up: bool,
}

const EXAMPLES: &str = "Examples:
  rowhouse copy \"$AZURE\" UseDevelopmentStorage=true --verify
  rowhouse copy UseDevelopmentStorage=true \"$AZURE\" --tables People,Orders --resume copy.state
  rowhouse copy UseDevelopmentStorage=true \"$NEW\" --watch --resume copy.state

Connection strings hold secrets that others on this machine can see in arguments: the variables
ROWHOUSE_COPY_SOURCE and ROWHOUSE_COPY_DEST hide them.";

impl CopyCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        for table in &self.tables {
            transfer::check_table(table)?;
        }
        let source = side(&self.source, "source")?;
        let dest = side(&self.dest, "destination")?;
        if source.address() == dest.address() {
            return Err("source and destination are the same service: nothing to copy".to_owned());
        }
        let Changes { watch, until_caught_up } = self.changes;
        if watch && self.verify && !until_caught_up {
            return Err(
                "--verify compares at the end, and --watch has none: add --until-caught-up"
                    .to_owned(),
            );
        }
        let copy = Copy {
            tables: self.tables,
            jobs: self.jobs.into(),
            state: self.resume,
            policies: self.acls.into(),
        };
        if watch {
            let watch = Watch { copy, until_caught_up };
            return watch::run(&watch, &source, &dest, self.verify);
        }
        let (progress, began) = (Arc::new(Progress::default()), Instant::now());
        let copied = {
            let _shown = Shown::start(&progress, "entities");
            let stopped = || stopped(copy.state.as_deref(), progress.rows());
            transfer::run_until_stopped(&source, "", copy.run(&source, &dest, &progress), stopped)?
        };
        let rate = transfer::rate(&progress, began.elapsed());
        let tables = output::counted(copied.tables.len() as u64, "table", "tables");
        output::print(&format!(
            "Copied {} of {tables}, {rate} a second.\n",
            output::counted(copied.entities, "entity", "entities")
        ));
        output::print(&told(&copied.notes));
        if !self.verify {
            output::print(how_to_verify(copy.state.is_some()));
            return Ok(());
        }
        verify(&copy, &source, &dest, &copied.tables, copied.entities)
    }
}

fn side(text: &str, which: &str) -> Result<Client, Failure> {
    let target: Target = text.parse().map_err(|error| format!("the {which}: {error}"))?;
    transfer::client(&target)
}

/// How a copy that was stopped goes on.
fn stopped(state: Option<&Path>, rows: u64) -> Failure {
    let entities = output::counted(rows, "entity", "entities");
    match state {
        Some(state) if state.exists() => {
            format!("stopped after {entities}: the same command goes on from there")
        }
        Some(_) => format!(
            "stopped after {entities}, before anything was noted: the same command starts from the beginning"
        ),
        None => format!(
            "stopped after {entities}: the same command copies everything again; with --resume FILE it goes on \
             where it was stopped the next time"
        ),
    }
}

/// The copy itself was complete.
fn stopped_comparing(kept: bool) -> Failure {
    let again =
        if kept { "compares again, and copies nothing" } else { "copies and compares again" };
    format!(
        "everything is copied, but stopped before all of it was compared: the same command {again}"
    )
}

/// What was not copied, a line for each kind.
fn told(notes: &[Note]) -> String {
    let mut text = String::new();
    let mut refused = BTreeMap::<&str, Vec<&str>>::new();
    for note in notes {
        match note {
            Note::Policies { table, reason } => {
                refused.entry(reason.as_str()).or_default().push(table.as_str());
            }
            Note::Extensions { table, indexes, expires } => {
                let mut left = Vec::new();
                if *indexes > 0 {
                    let indexes = output::counted(*indexes as u64, "index", "indexes");
                    left.push(format!("{indexes} (rowhouse index create)"));
                }
                if *expires {
                    left.push("when entities expire (rowhouse table ttl)".to_owned());
                }
                // Writing to a string cannot fail.
                let _ = writeln!(text, "Not copied of {table}: {}.", left.join(", "));
            }
        }
    }
    for (why, tables) in refused {
        let tables = tables.join(", ");
        let _ = writeln!(text, "Access policies not copied of {tables}: {why}.");
    }
    text
}

/// The line at the end of a copy that was not compared.
fn how_to_verify(kept: bool) -> &'static str {
    if kept {
        "Not verified: the same command with --verify compares both sides.\n"
    } else {
        "Not verified: with --verify, both sides are read again and compared.\n"
    }
}

/// Compares the tables, which have about so many entities.
fn verify(
    copy: &Copy,
    source: &Client,
    dest: &Client,
    tables: &[String],
    entities: u64,
) -> Result<(), Failure> {
    let progress = Arc::new(Progress::default());
    progress.expect(2 * entities);
    let compared = {
        let _shown = Shown::start(&progress, "entities compared");
        let comparing = copy.compare(source, dest, tables, &progress);
        transfer::run_until_stopped(source, "", comparing, || {
            stopped_comparing(copy.state.is_some())
        })?
    };
    let row = |table: &Compared| {
        let verdict = match table {
            table if table.same() => "same",
            table if table.same_entities() => "OTHER POLICIES",
            _ => "DIFFERENT",
        };
        let (from, to) = (&table.source, &table.destination);
        vec![
            table.table.clone(),
            from.entities.to_string(),
            from.to_string(),
            to.entities.to_string(),
            to.to_string(),
            verdict.to_owned(),
        ]
    };
    let rows: Vec<_> = compared.iter().map(row).collect();
    output::print(&output::table(
        &["TABLE", "SOURCE", "DIGEST", "DESTINATION", "DIGEST", "VERDICT"],
        &rows,
    ));
    let count = |which: fn(&Compared) -> bool| {
        let tables = compared.iter().filter(|table| which(table)).count();
        (0 < tables).then_some(tables as u64)
    };
    if copy.policies == Policies::Possible
        && let Some(unknown) = count(|table| table.policies.is_none())
    {
        let tables = output::counted(unknown, "table", "tables");
        output::print(&format!("Access policies not compared of {tables}.\n"));
    }
    if let Some(different) = count(|table| !table.same_entities()) {
        return Err(format!(
            "{} different: copy again if the source was written to meanwhile, or look for entities that \
             only the destination has",
            output::counted(different, "table is", "tables are")
        ));
    }
    match count(|table| !table.same()) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{} other access policies: --acls makes them those of the source, --no-acls leaves them alone",
            output::counted(other, "table has", "tables have")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_copied_is_told() {
        assert_eq!(told(&[]), "");
        let refused = |table: &str| Note::Policies { table: table.into(), reason: "No (X)".into() };
        let beyond = |indexes, expires| Note::Extensions { table: "A".into(), indexes, expires };
        let other = Note::Policies { table: "C".into(), reason: "Never".into() };
        let cases: [(&[Note], &str); 5] = [
            (
                &[refused("A"), other, refused("B")],
                "Access policies not copied of C: Never.\nAccess policies not copied of A, B: No (X).\n",
            ),
            (&[refused("A"), refused("B")], "Access policies not copied of A, B: No (X).\n"),
            (&[beyond(1, false)], "Not copied of A: 1 index (rowhouse index create).\n"),
            (&[beyond(0, true)], "Not copied of A: when entities expire (rowhouse table ttl).\n"),
            (
                &[beyond(2, true)],
                "Not copied of A: 2 indexes (rowhouse index create), when entities expire (rowhouse table ttl).\n",
            ),
        ];
        for (notes, expected) in cases {
            assert_eq!(told(notes), expected);
        }
    }
}
