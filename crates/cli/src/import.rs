//! `rowhouse import`: a file into a table, and Azurite's data file into its tables.

mod azurite;

use crate::export::{FileFormat, beside};
use crate::service::Service;
use crate::transfer::{self, Shown};
use crate::{Failure, output};
use clap::{Args, Subcommand, ValueEnum};
use rowhouse_client::files::{AzuriteReader, CsvReader, FileRow, Format, NdjsonReader, Rows};
use rowhouse_client::import::{Import, Report};
use rowhouse_client::{Client, OnConflict, Progress, Refused};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Write the rows of a file to a table.
///
/// The file is NDJSON or CSV, as 'rowhouse export' and Azure Storage Explorer write them. Rows that
/// cannot be written are left out and reported, and the exit code is then 1.
///
/// While it runs, FILE.TABLE.progress says how far it is, with which --resume goes on. To import into
/// a table that is called azurite, write its name with a capital letter: names of tables are the same
/// in any case.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    mut_args(|argument| argument.hide_env_values(true))
)]
pub(crate) struct ImportCommand {
    #[command(subcommand)]
    source: Option<Source>,

    /// The table.
    #[arg(required = true)]
    table: Option<String>,

    /// The file; - is standard input.
    #[arg(required = true)]
    file: Option<PathBuf>,

    /// How the file is written. Default: as its suffix says, NDJSON without one.
    #[arg(long)]
    format: Option<FileFormat>,

    /// Make the table if it is not there.
    #[arg(long)]
    create: bool,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "Examples:
  rowhouse import People people.ndjson --create
  rowhouse import People people.csv --on-conflict replace --errors refused.ndjson
  rowhouse import azurite __azurite_db_table__.json";

#[derive(Debug, Subcommand)]
enum Source {
    /// Write all tables of Azurite's data file, with all their entities and stored access policies.
    ///
    /// Stop Azurite with Ctrl-C (SIGINT) first: only then is the file complete, which is
    /// __azurite_db_table__.json in Azurite's directory. 'rowhouse copy' from a running Azurite is safer. Tables are made where they are missing. Service properties (CORS rules, logging, metrics)
    /// are left out, and so are other accounts; the command says so if there are any.
    #[command(mut_args(|argument| argument.hide_env_values(true)))]
    Azurite {
        /// Azurite's data file.
        file: PathBuf,
        /// The account of Azurite whose tables are read.
        #[arg(long, value_name = "NAME", default_value = "devstoreaccount1")]
        from_account: String,
        #[command(flatten)]
        options: Options,
    },
}

/// What both ways of importing can be told.
#[derive(Debug, Args)]
struct Options {
    /// What to do where an entity with the same keys is there.
    #[arg(long, value_enum, default_value_t = Policy::Fail)]
    on_conflict: Policy,

    /// Batches that are written at a time. A batch holds rows of one partition: where each partition has few rows,
    /// more jobs are faster.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// Write line number, table, keys and reason of each refused row to this file, a JSON object a line.
    /// Never to one that holds something already, unless an import is resumed that wrote it.
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,

    /// Go on with an import that was interrupted.
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    service: Service,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Refuse the row, unless what is there is exactly the same.
    Fail,
    /// Leave what is there.
    Skip,
    /// Replace what is there.
    Replace,
    /// Keep the properties that the row does not have.
    Merge,
}

impl From<Policy> for OnConflict {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fail => Self::Fail,
            Policy::Skip => Self::Skip,
            Policy::Replace => Self::Replace,
            Policy::Merge => Self::Merge,
        }
    }
}

impl ImportCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(Source::Azurite { file, from_account, options }) = self.source {
            return import_azurite(&file, &from_account, &options);
        }
        let (table, file) = (self.table.unwrap_or_default(), self.file.unwrap_or_default());
        transfer::check_table(&table)?;
        let client = transfer::client(&self.options.service.target()?)?;
        let format = FileFormat::of(self.format, &file)?;
        let from_input = file.as_os_str() == "-";
        if from_input && self.options.resume {
            return Err("--resume needs a file: standard input cannot be read again".to_owned());
        }
        let counts = Arc::new(Progress::default());
        let rows = open(&file, format, &counts)?;
        let progress = (!from_input).then(|| beside(&file, &format!(".{table}.progress")));
        let tables = if self.create { vec![table.as_str()] } else { Vec::new() };
        let import = self.options.import(&file, Some(table.clone()), progress);
        let report = import_rows(&client, &import, rows, &tables, &counts)?;
        self.options.tell(&report, &table, true)
    }
}

fn import_azurite(file: &Path, account: &str, options: &Options) -> Result<(), Failure> {
    let client = transfer::client(&options.service.target()?)?;
    let mut rows = AzuriteReader::open(file, account)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let (tables, rest) = (rows.tables().to_vec(), rows.take_beside());
    if tables.is_empty() {
        return Err(format!(
            "{} has no tables of the account {account}: name another with --from-account",
            file.display()
        ));
    }
    let names: Vec<&str> = tables.iter().map(|name| &**name).collect();
    let import = options.import(file, None, Some(beside(file, ".progress")));
    let counts = Arc::new(Progress::default());
    counts.expect(rows.entities());
    let rows = CountedRows { rows, progress: counts.clone() };
    let report = import_rows(&client, &import, Box::new(rows), &names, &counts)?;
    let tables = output::counted(names.len() as u64, "table", "tables");
    let told = options.tell(&report, &tables, false);
    let policies = azurite::set_policies(&client, options.on_conflict.into(), &rest);
    azurite::tell_left_out(&rest);
    azurite::warn();
    match (told, policies) {
        (Err(rows), Err(policies)) => Err(format!("{rows}; {policies}")),
        (told, policies) => told.and(policies),
    }
}

impl Options {
    fn import(&self, file: &Path, table: Option<String>, progress: Option<PathBuf>) -> Import {
        Import {
            table,
            input: (file.as_os_str() != "-").then(|| file.to_owned()),
            on_conflict: self.on_conflict.into(),
            jobs: self.jobs.into(),
            errors: self.errors.clone(),
            progress,
            resume: self.resume,
        }
    }

    /// Says what came of it; refused rows are a failure.
    fn tell(
        &self,
        (report, rate): &(Report, u64),
        table: &str,
        by_line: bool,
    ) -> Result<(), Failure> {
        let Report { rows, written, present, skipped, refused, shown } = report;
        let rows = output::counted(*rows, "row", "rows");
        let mut text = format!("Imported {written} of {rows} into {table}");
        for (count, what) in [(present, "already there"), (skipped, "left alone")] {
            if *count > 0 {
                // Writing to a string cannot fail.
                let _ = write!(text, ", {count} {what}");
            }
        }
        output::print(&format!("{text}; {rate} a second.\n"));
        if *refused == 0 {
            return Ok(());
        }
        let refused = output::counted(*refused, "row was", "rows were");
        if let Some(path) = &self.errors {
            return Err(format!("{refused} refused: see {}", path.display()));
        }
        for refused in shown {
            eprintln!("{}", described(refused, by_line));
        }
        Err(format!("{refused} refused; list refused rows with --errors FILE"))
    }
}

/// Makes the tables and writes the rows; tells how many in a second too.
fn import_rows(
    client: &Client,
    import: &Import,
    rows: Box<dyn Rows>,
    tables: &[&str],
    progress: &Arc<Progress>,
) -> Result<(Report, u64), Failure> {
    if let Some(path) = import.progress.as_ref().filter(|path| import.resume && !path.exists()) {
        eprintln!(
            "rowhouse: no such import was interrupted ({} is not there): this one begins anew",
            path.display()
        );
    }
    let began = Instant::now();
    let report = {
        let _shown = Shown::start(progress, "rows");
        let hint = "; --create makes it";
        let importing = async {
            for table in tables {
                client.create_table(table).await?;
            }
            import.run(client, rows, progress).await
        };
        transfer::run_until_stopped(client, hint, importing, || stopped(import, progress))?
    };
    let rate = transfer::rate(progress, began.elapsed());
    Ok((report, rate))
}

/// How an import that was stopped goes on.
fn stopped(import: &Import, progress: &Progress) -> Failure {
    let rows = output::counted(progress.rows(), "row", "rows");
    match &import.progress {
        Some(path) if path.exists() => {
            format!("stopped after {rows}: the same command with --resume goes on from there")
        }
        Some(_) => format!(
            "stopped after {rows}, before anything was noted: give the same command again; rows that are there \
             already are recognised"
        ),
        None => format!("stopped after {rows} of standard input"),
    }
}

/// Which row was refused, and why. Where rows have no lines they are told by table and keys.
fn described(refused: &Refused, by_line: bool) -> String {
    let Refused { number, reason, table, partition, row } = refused;
    match (table, partition, row) {
        (Some(table), Some(partition), Some(row)) if !by_line => {
            format!("{table}, PartitionKey {partition:?}, RowKey {row:?}: {reason}")
        }
        _ if by_line => format!("line {number}: {reason}"),
        _ => format!("entity {number}: {reason}"),
    }
}

/// Rows that tell how many of them were read.
struct CountedRows<R> {
    rows: R,
    progress: Arc<Progress>,
}

impl<R: Rows> Rows for CountedRows<R> {
    fn next_row(&mut self) -> io::Result<Option<FileRow>> {
        let row = self.rows.next_row()?;
        self.progress.read_ahead(u64::from(row.is_some()));
        Ok(row)
    }
}

fn open(path: &Path, format: Format, progress: &Arc<Progress>) -> Result<Box<dyn Rows>, Failure> {
    let told = |reason: String| format!("cannot read {}: {reason}", path.display());
    if path.as_os_str() == "-" {
        return reader(BufReader::new(std::io::stdin()), format).map_err(told);
    }
    let file = File::open(path).map_err(|error| told(error.to_string()))?;
    progress.expect(file.metadata().map_or(0, |metadata| metadata.len()));
    let file = Counted { file, progress: progress.clone() };
    reader(BufReader::with_capacity(1 << 20, file), format).map_err(told)
}

/// A file that tells how much of it was read.
struct Counted {
    file: File,
    progress: Arc<Progress>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.read_ahead(read as u64);
        Ok(read)
    }
}

fn reader<R: std::io::BufRead + Send + 'static>(
    input: R,
    format: Format,
) -> Result<Box<dyn Rows>, String> {
    Ok(match format {
        Format::Ndjson => Box::new(NdjsonReader::new(input)),
        Format::Csv => Box::new(CsvReader::new(input)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rowhouse_client::files::BadRow;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        import: ImportCommand,
    }

    fn parsed(arguments: &[&str]) -> Option<String> {
        let line = Line::try_parse_from([&["import"], arguments].concat()).ok()?;
        Some(match line.import {
            ImportCommand { source: Some(Source::Azurite { file, .. }), .. } => {
                format!("azurite {}", file.display())
            }
            ImportCommand { table, file, .. } => {
                format!("{} {}", table.unwrap_or_default(), file.unwrap_or_default().display())
            }
        })
    }

    #[test]
    fn refused_rows_are_named() {
        let mut refused = Refused {
            number: 3,
            reason: "no".to_owned(),
            table: Some("T".to_owned()),
            partition: Some("p".to_owned()),
            row: Some(String::new()),
        };
        assert_eq!(described(&refused, true), "line 3: no");
        assert_eq!(described(&refused, false), "T, PartitionKey \"p\", RowKey \"\": no");
        refused.row = None;
        assert_eq!(described(&refused, false), "entity 3: no");
    }

    /// What Azurite's file holds is known from the first time it was read.
    #[test]
    fn rows_of_azurite_fill_the_bar() {
        struct Two(u64);
        impl Rows for Two {
            fn next_row(&mut self) -> io::Result<Option<FileRow>> {
                self.0 += 1;
                let entity = Err(BadRow::default());
                Ok((self.0 <= 2).then_some(FileRow { number: self.0, table: None, entity }))
            }
        }
        let counts = Arc::new(Progress::default());
        counts.expect(2);
        let rows = CountedRows { rows: Two(0), progress: counts.clone() };
        let target = "AccountName=a;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/a";
        let client = transfer::client(&target.parse().unwrap()).unwrap();
        let import = Import {
            table: None,
            input: None,
            on_conflict: OnConflict::Fail,
            jobs: 1,
            errors: None,
            progress: None,
            resume: false,
        };
        let report = transfer::run(&client, import.run(&client, Box::new(rows), &counts)).unwrap();
        assert_eq!((report.refused, counts.share()), (2, Some(1000)));
    }

    #[test]
    fn a_table_or_azurite() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["People", "people.csv"], Some("People people.csv")),
            (&["People", "-", "--create", "--on-conflict", "merge"], Some("People -")),
            (&["azurite", "db.json", "--jobs", "2"], Some("azurite db.json")),
            (&["Azurite", "db.json"], Some("Azurite db.json")),
            (&["People"], None),
            (&["azurite"], None),
            (&[], None),
            (&["People", "people.csv", "--jobs", "0"], None),
            (&["People", "people.csv", "--on-conflict", "guess"], None),
        ];
        for (arguments, expected) in cases {
            assert_eq!(parsed(arguments).as_deref(), *expected, "{arguments:?}");
        }
    }
}
