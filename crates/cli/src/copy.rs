//! `rowhouse copy`: tables from one service to another.

mod watch;

use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::Args;
use rowhouse_client::copy::{Compared, Copy};
use rowhouse_client::watch::Watch;
use rowhouse_client::{Client, Progress, Target};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Copy tables from one service to another.
///
/// Each side is Rowhouse, Azure or Azurite. Types stay exact; an entity replaces one with the same keys
/// at the destination. Queues are not looked at.
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

    /// Then read both sides again and compare them.
    #[arg(long)]
    verify: bool,

    /// Copy stored access policies too.
    #[arg(long)]
    acls: bool,
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
            acls: self.acls,
        };
        if watch {
            let watch = Watch { copy, until_caught_up };
            return watch::run(&watch, &source, &dest, self.verify);
        }
        let (progress, began) = (Arc::new(Progress::default()), Instant::now());
        let copied = {
            let _shown = Shown::start(&progress, "entities");
            transfer::run(copy.run(&source, &dest, &progress))?
        };
        let rate = transfer::rate(&progress, began.elapsed());
        let tables = output::counted(copied.tables.len() as u64, "table", "tables");
        output::print(&format!(
            "Copied {} of {tables}, {rate} a second.\n",
            output::counted(copied.entities, "entity", "entities")
        ));
        if !self.verify {
            return Ok(());
        }
        verify(&copy, &source, &dest, &copied.tables, copied.entities)
    }
}

fn side(text: &str, which: &str) -> Result<Client, Failure> {
    let target: Target = text.parse().map_err(|error| format!("the {which}: {error}"))?;
    transfer::client(&target)
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
        transfer::run(copy.compare(source, dest, tables, &progress))?
    };
    let row = |table: &Compared| {
        let verdict = if table.same() { "same" } else { "DIFFERENT" };
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
    let different = compared.iter().filter(|table| !table.same()).count();
    if different == 0 {
        return Ok(());
    }
    Err(format!(
        "{} different: copy again if the source was written to meanwhile, or look for entities that \
         only the destination has",
        output::counted(different as u64, "table is", "tables are")
    ))
}
