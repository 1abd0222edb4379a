//! `rowhouse copy`: tables from one service to another.

use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::Args;
use rowhouse_client::copy::{Compared, Copy};
use rowhouse_client::{Client, Progress, Target};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Copy tables from one service to another.
///
/// Each side is Rowhouse, Azure or Azurite. Types stay exact; an entity replaces one with the same keys
/// at the destination.
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

    /// Then read both sides again and compare them.
    #[arg(long)]
    verify: bool,

    /// Copy stored access policies too.
    #[arg(long)]
    acls: bool,
}

const EXAMPLES: &str = "Examples:
  rowhouse copy \"$AZURE\" UseDevelopmentStorage=true --verify
  rowhouse copy UseDevelopmentStorage=true \"$AZURE\" --tables People,Orders --resume copy.state

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
        let copy = Copy {
            tables: self.tables,
            jobs: self.jobs.into(),
            state: self.resume,
            acls: self.acls,
        };
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
        if self.verify { verify(&copy, &source, &dest, &copied.tables) } else { Ok(()) }
    }
}

fn side(text: &str, which: &str) -> Result<Client, Failure> {
    let target: Target = text.parse().map_err(|error| format!("the {which}: {error}"))?;
    transfer::client(&target)
}

fn verify(copy: &Copy, source: &Client, dest: &Client, tables: &[String]) -> Result<(), Failure> {
    let progress = Arc::new(Progress::default());
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
