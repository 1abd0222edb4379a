//! `rowhouse export`: a table into a file.

use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::{Args, ValueEnum};
use rowhouse_client::Progress;
use rowhouse_client::export::Export;
use rowhouse_client::files::Format;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Write a table, or part of it, to a file.
///
/// NDJSON has one entity a line, as the service writes it with its types. CSV is what Azure Storage
/// Explorer writes and reads. Both keep the type of every value.
///
/// The file has its name only when it is complete; until then there are FILE.part and FILE.progress,
/// with which --resume goes on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct ExportCommand {
    /// The table.
    table: String,

    /// Only entities that pass this filter, such as "PartitionKey eq 'north' and Age gt 6".
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// Only these properties, beside the keys and the Timestamp.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Vec<String>,

    /// How to write. Default: CSV if the name of the file ends in .csv, otherwise NDJSON.
    #[arg(long)]
    format: Option<FileFormat>,

    /// The file; - is standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,

    /// Parts of the table that are read at a time. With 1 the file is in the order of keys.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// Go on with an export that was interrupted.
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    service: Service,
}

const EXAMPLES: &str = "Examples:
  rowhouse export People --out people.ndjson
  rowhouse export People --filter \"PartitionKey eq 'north'\" --columns Name,Age --out north.csv";

/// How entities stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// A JSON object a line.
    Ndjson,
    /// With the type of each value beside it.
    Csv,
}

impl FileFormat {
    /// As it was named, or as the name of the file says.
    pub(crate) fn of(named: Option<Self>, path: &Path) -> Format {
        let by_name = || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        match named {
            Some(Self::Csv) => Format::Csv,
            None if by_name() => Format::Csv,
            Some(Self::Ndjson) | None => Format::Ndjson,
        }
    }
}

impl ExportCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let to_output = self.out.as_os_str() == "-";
        if to_output && self.resume {
            return Err("--resume needs a file: name it with --out".to_owned());
        }
        let export = Export {
            table: self.table,
            filter: self.filter,
            columns: self.columns,
            format: FileFormat::of(self.format, &self.out),
            out: (!to_output).then(|| self.out.clone()),
            jobs: self.jobs.into(),
            resume: self.resume,
        };
        let progress = Arc::new(Progress::default());
        let began = Instant::now();
        let rows = {
            let _shown = Shown::start(&progress, "entities");
            transfer::run(export.run(&client, &progress))?
        };
        if !to_output {
            let rate = transfer::rate(&progress, began.elapsed());
            let rows = output::counted(rows, "entity", "entities");
            output::print(&format!(
                "Exported {rows} of {} to {}, {rate} a second.\n",
                export.table,
                self.out.display()
            ));
        }
        Ok(())
    }
}
