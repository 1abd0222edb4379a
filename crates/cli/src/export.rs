//! `rowhouse export`: a table into a file.

use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::{Args, ValueEnum};
use rowhouse_client::export::{Export, STANDARD_OUTPUT};
use rowhouse_client::files::Format;
use rowhouse_client::{Progress, TransferError};
use std::ffi::OsString;
use std::io::ErrorKind;
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

    /// How to write. Default: as the suffix of the file says, NDJSON without one.
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

/// What the export returns, or nothing if standard output was closed: `rowhouse export People | head` is no error.
async fn quietly(
    export: impl Future<Output = Result<u64, TransferError>>,
) -> Result<Option<u64>, TransferError> {
    match export.await {
        Err(TransferError::File { path, error })
            if error.kind() == ErrorKind::BrokenPipe && path == Path::new(STANDARD_OUTPUT) =>
        {
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
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
    pub(crate) fn of(named: Option<Self>, path: &Path) -> Result<Format, Failure> {
        match named {
            Some(Self::Csv) => return Ok(Format::Csv),
            Some(Self::Ndjson) => return Ok(Format::Ndjson),
            None => {}
        }
        let suffix = path.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase());
        match suffix.as_deref() {
            Some("csv") => Ok(Format::Csv),
            None | Some("ndjson" | "jsonl" | "json") => Ok(Format::Ndjson),
            Some(_) => Err(format!(
                "{} has no suffix of a known format: name it .ndjson or .csv, or add --format ndjson or \
                 --format csv",
                path.display()
            )),
        }
    }
}

/// The name of a file with a suffix behind it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
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
            format: FileFormat::of(self.format, &self.out)?,
            out: (!to_output).then(|| self.out.clone()),
            jobs: self.jobs.into(),
            resume: self.resume,
        };
        if let Some(out) = export.out.as_ref().filter(|_| self.resume)
            && !beside(out, ".progress").exists()
        {
            eprintln!(
                "rowhouse: no export to {} was interrupted: this one begins anew",
                out.display()
            );
        }
        let progress = Arc::new(Progress::default());
        let began = Instant::now();
        let outcome = {
            let _shown = Shown::start(&progress, "entities");
            transfer::run_until_stopped(
                &client,
                "",
                quietly(export.run(&client, &progress)),
                || {
                    let rows = output::counted(progress.rows(), "entity", "entities");
                    match export.out.as_ref().map(|out| beside(out, ".progress").exists()) {
                        Some(true) => format!(
                            "stopped after {rows}: the same command with --resume goes on from there"
                        ),
                        _ => format!("stopped after {rows}"),
                    }
                },
            )?
        };
        // Nobody reads any more.
        let Some(rows) = outcome else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        let of = |named, name: &str| FileFormat::of(named, Path::new(name));
        for name in ["rows", "-", "a/rows.ndjson", "rows.jsonl", "rows.JSON"] {
            assert_eq!(of(None, name), Ok(Format::Ndjson), "{name}");
        }
        assert_eq!(of(None, "rows.CSV"), Ok(Format::Csv));
        for name in ["rows.parquet", "rows.csv.gz", "rows.xlsx"] {
            let sentence = of(None, name).unwrap_err();
            assert!(sentence.starts_with(&format!("{name} ")), "{sentence}");
            assert_eq!(of(Some(FileFormat::Csv), name), Ok(Format::Csv));
        }
    }
}
