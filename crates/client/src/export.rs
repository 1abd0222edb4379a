//! A table, or part of it, into a file.
//!
//! Ranges of keys are read side by side, and whole pages are appended to `FILE.part` as they come; with one
//! job they come in the order of keys. `FILE.progress` says how much of that is certain and where each range
//! goes on, so that an interrupted export resumes there: what was written after is cut off and read again.
//! The file has its own name only when everything is in it.
//!
//! CSV needs the names of all properties before the first row. It is therefore made at the end, from the lines
//! of JSON that were read.

use crate::client::{Client, Place, Query};
use crate::error::{ClientError, TransferError};
use crate::files::{CsvWriter, Format, NdjsonReader, Rows as _};
use crate::progress::Progress;
use crate::range::{self, Range};
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often the progress is made certain.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How errors call standard output.
pub const STANDARD_OUTPUT: &str = "standard output";
/// What every row has.
const SYSTEM: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];
/// Most columns of a CSV file.
const COLUMNS_MAX: usize = 10_000;

/// What to export, and where to.
#[derive(Clone, Debug)]
pub struct Export {
    /// The table.
    pub table: String,
    /// `$filter`.
    pub filter: Option<String>,
    /// Names of properties; all if there is none.
    pub columns: Vec<String>,
    /// How to write them.
    pub format: Format,
    /// The file; standard output if there is none.
    pub out: Option<PathBuf>,
    /// Ranges that are read at a time.
    pub jobs: usize,
    /// Go on where an earlier export was interrupted.
    pub resume: bool,
}

/// What is certain of an unfinished export.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// What was asked for: another export is not this one resumed.
    asked: Asked,
    ranges: Vec<RangeState>,
    /// Bytes and rows of the part file.
    bytes: u64,
    rows: u64,
    names: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    source: String,
    table: String,
    filter: Option<String>,
    columns: Vec<String>,
    format: Format,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RangeState {
    pub(crate) range: Range,
    pub(crate) place: Option<Place>,
    pub(crate) done: bool,
}

impl RangeState {
    pub(crate) fn new(range: Range) -> Self {
        Self { range, place: None, done: false }
    }
}

/// A page on its way to the file.
struct Piece {
    range: usize,
    lines: Vec<u8>,
    rows: u64,
    names: BTreeSet<String>,
    next: Option<Place>,
}

impl Export {
    /// Runs to the end and returns how many rows the file has.
    pub async fn run(
        &self,
        client: &Client,
        progress: &Arc<Progress>,
    ) -> Result<u64, TransferError> {
        let paths = self.out.as_deref().map(Paths::new);
        let mut state = match &paths {
            Some(paths) => self.begin(client, paths).await?,
            None => self.fresh(client).await?,
        };
        let outcome = self.go_on(client, paths.as_ref(), &mut state, progress).await;
        if let (Err(_), Some(paths), 0) = (&outcome, &paths, state.rows) {
            // There is nothing to go on with.
            paths.remove_unfinished();
        }
        match outcome {
            Err(TransferError::Client(error)) => Err(self.as_typed(client, error).await.into()),
            outcome => outcome,
        }
    }

    async fn go_on(
        &self,
        client: &Client,
        paths: Option<&Paths>,
        state: &mut State,
        progress: &Arc<Progress>,
    ) -> Result<u64, TransferError> {
        progress.resume(state.rows, 0);
        let mut sink = Sink::open(paths, self.format, state.bytes)?;
        self.read_all(client, state, &mut sink, progress).await?;
        tokio::task::block_in_place(|| self.finish(state, sink))?;
        Ok(state.rows)
    }

    /// The service complained about a filter with a range of keys in it: what it says about the filter alone is what
    /// a user understands.
    async fn as_typed(&self, client: &Client, error: ClientError) -> ClientError {
        let is_about_filter = matches!(error.status(), Some(400 | 501));
        let Some(filter) = self.filter.clone().filter(|_| is_about_filter) else { return error };
        let query = Query { filter: Some(filter), select: None, top: Some(1), order: None };
        match client.page(&self.table, &query, None).await {
            Err(alone) if alone.status() == error.status() => alone,
            _ => error,
        }
    }

    /// The state to begin with: that of an interrupted export, or none.
    async fn begin(&self, client: &Client, paths: &Paths) -> Result<State, TransferError> {
        let refused = |text: String| Err(TransferError::Refused(text));
        let name = paths.file.display();
        if paths.file.exists() {
            return refused(format!("{name} is there already: remove it or choose another name"));
        }
        let directory = paths.file.parent().filter(|directory| !directory.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            return refused(format!(
                "cannot write {name}: there is no directory {}",
                directory.display()
            ));
        }
        let found: Option<State> = state::load(&paths.progress)?;
        match found {
            Some(_) if !self.resume => refused(format!(
                "an export to {name} was interrupted: add --resume to go on, or remove {}",
                paths.progress.display()
            )),
            Some(state) if state.asked != self.asked(client) => refused(format!(
                "the interrupted export to {name} was of something else: repeat the command as it \
                 was, or remove {}",
                paths.progress.display()
            )),
            Some(state) => Ok(state),
            None => {
                let state = self.fresh(client).await?;
                state::save(&paths.progress, &state)?;
                Ok(state)
            }
        }
    }

    async fn fresh(&self, client: &Client) -> Result<State, TransferError> {
        let ranges = range::plan(client, &self.table, self.jobs).await?;
        let ranges = ranges.into_iter().map(RangeState::new).collect();
        let names = self.named().into_iter().collect();
        Ok(State { asked: self.asked(client), ranges, bytes: 0, rows: 0, names })
    }

    /// The columns that were named, each once and without those that every row has anyway.
    fn named(&self) -> Vec<String> {
        let mut named: Vec<String> = Vec::new();
        for column in self.columns.iter().map(|column| column.trim()) {
            let is_new = !column.is_empty() && named.iter().all(|other| other != column);
            if is_new && !SYSTEM.contains(&column) {
                named.push(column.to_owned());
            }
        }
        named
    }

    fn asked(&self, client: &Client) -> Asked {
        Asked {
            source: client.address(),
            table: self.table.clone(),
            filter: self.filter.clone(),
            columns: self.columns.clone(),
            format: self.format,
        }
    }

    async fn read_all(
        &self,
        client: &Client,
        state: &mut State,
        sink: &mut Sink,
        progress: &Arc<Progress>,
    ) -> Result<(), TransferError> {
        let open = state.ranges.iter().enumerate().filter(|(_, range)| !range.done);
        let work: Vec<_> = open.map(|(index, range)| (index, range.clone())).collect();
        let work = Arc::new(std::sync::Mutex::new(work.into_iter()));
        let (sender, mut pieces) = mpsc::channel(self.jobs.max(1));
        for _ in 0..self.jobs.max(1) {
            let reader = Reader { client: client.clone(), export: self.clone() };
            tokio::spawn(reader.run(work.clone(), sender.clone()));
        }
        drop(sender);
        progress.expect(state.ranges.len() as u64);
        progress.advance(state.ranges.iter().filter(|range| range.done).count() as u64);
        let mut saved = Instant::now();
        while let Some(piece) = pieces.recv().await {
            let Piece { range, lines, rows, names, next } = piece?;
            tokio::task::block_in_place(|| sink.write(&lines))?;
            state.bytes += lines.len() as u64;
            state.rows += rows;
            state.names.extend(names);
            state.ranges[range].done = next.is_none();
            state.ranges[range].place = next;
            progress.add(rows);
            progress.advance(u64::from(state.ranges[range].done));
            if self.format == Format::Csv && COLUMNS_MAX < state.names.len() {
                return Err(TransferError::Refused(format!(
                    "the table has more than {COLUMNS_MAX} different properties: name some with \
                     --columns, or export NDJSON"
                )));
            }
            if SAVE_EVERY <= saved.elapsed() {
                tokio::task::block_in_place(|| sink.save(state))?;
                saved = Instant::now();
            }
        }
        let whole = state.ranges.iter().all(|range| range.done);
        assert!(whole, "readers end with their ranges, or with an error that is told");
        Ok(())
    }

    /// Makes the file out of its part.
    fn finish(&self, state: &State, sink: Sink) -> Result<(), TransferError> {
        let columns = || match self.columns.as_slice() {
            [] => state.names.iter().cloned().collect(),
            _ => self.named(),
        };
        match sink {
            Sink::Out(mut out) => {
                out.flush().map_err(TransferError::file(Path::new(STANDARD_OUTPUT)))
            }
            Sink::Spool(spool) => {
                let made = to_csv(spool, io::stdout().lock(), columns());
                made.map(drop).map_err(TransferError::file(Path::new(STANDARD_OUTPUT)))
            }
            Sink::Part { file, paths } => {
                file.sync_data().map_err(TransferError::file(&paths.part))?;
                let named = match self.format {
                    Format::Csv => paths.make_csv(columns()),
                    Format::Ndjson => fs::rename(&paths.part, &paths.file),
                };
                named.map_err(TransferError::file(&paths.file))?;
                state::remove(&paths.progress)
            }
        }
    }
}

/// The file, and those beside it while it is not complete.
#[derive(Clone)]
struct Paths {
    file: PathBuf,
    part: PathBuf,
    made: PathBuf,
    progress: PathBuf,
}

impl Paths {
    fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            part: state::beside(file, ".part"),
            made: state::beside(file, ".made"),
            progress: state::beside(file, ".progress"),
        }
    }

    /// As far as that is possible: what is left is in nobody's way but the next export's, which says so.
    fn remove_unfinished(&self) {
        for path in [&self.progress, &self.part, &self.made] {
            let _ = fs::remove_file(path);
        }
    }

    /// Makes the file out of the lines of JSON in its part.
    fn make_csv(&self, names: Vec<String>) -> io::Result<()> {
        let made = BufWriter::new(File::create(&self.made)?);
        let made = to_csv(File::open(&self.part)?, made, names)?;
        made.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&self.made, &self.file)?;
        fs::remove_file(&self.part)
    }
}

/// Where lines of JSON go.
enum Sink {
    Out(io::Stdout),
    /// A file without a name, for CSV on standard output.
    Spool(File),
    Part {
        file: File,
        paths: Paths,
    },
}

impl Sink {
    /// Opens it and cuts off what is not certain.
    fn open(paths: Option<&Paths>, format: Format, bytes: u64) -> Result<Self, TransferError> {
        match (paths, format) {
            (Some(paths), _) => {
                let opened =
                    File::options().create(true).truncate(false).write(true).open(&paths.part);
                let cut = opened.and_then(|mut file| {
                    if file.metadata()?.len() < bytes {
                        return Err(io::Error::other("shorter than the progress says"));
                    }
                    file.set_len(bytes)?;
                    file.seek(SeekFrom::End(0))?;
                    Ok(Self::Part { file, paths: paths.clone() })
                });
                cut.map_err(TransferError::file(&paths.part))
            }
            (None, Format::Ndjson) => Ok(Self::Out(io::stdout())),
            (None, Format::Csv) => unnamed_file().map(Self::Spool),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        match self {
            Self::Out(out) => {
                out.write_all(bytes).map_err(TransferError::file(Path::new(STANDARD_OUTPUT)))
            }
            Self::Spool(file) => {
                file.write_all(bytes).map_err(TransferError::file(&std::env::temp_dir()))
            }
            Self::Part { file, paths } => {
                file.write_all(bytes).map_err(TransferError::file(&paths.part))
            }
        }
    }

    /// Makes certain what was written, and says so in the file of progress.
    fn save(&mut self, state: &State) -> Result<(), TransferError> {
        let Self::Part { file, paths } = self else { return Ok(()) };
        file.sync_data().map_err(TransferError::file(&paths.part))?;
        state::save(&paths.progress, state)
    }
}

/// A temporary file that is gone when it is closed.
fn unnamed_file() -> Result<File, TransferError> {
    let name = format!("rowhouse-export-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let opened = File::options().create_new(true).read(true).write(true).open(&path);
    let file = opened.map_err(TransferError::file(&path))?;
    fs::remove_file(&path).map_err(TransferError::file(&path))?;
    Ok(file)
}

/// Turns lines of JSON into CSV.
fn to_csv<W: Write>(mut spool: File, out: W, names: Vec<String>) -> io::Result<W> {
    spool.seek(SeekFrom::Start(0))?;
    let mut rows = NdjsonReader::new(BufReader::new(spool));
    let mut csv = CsvWriter::new(out, names)?;
    while let Some(row) = rows.next_row()? {
        csv.write(&row.entity.map_err(io::Error::other)?)?;
    }
    csv.finish()
}

/// Reads ranges until there is none left.
struct Reader {
    client: Client,
    export: Export,
}

impl Reader {
    async fn run(
        self,
        work: Arc<std::sync::Mutex<std::vec::IntoIter<(usize, RangeState)>>>,
        out: mpsc::Sender<Result<Piece, ClientError>>,
    ) {
        loop {
            let next = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
            let Some((index, range)) = next else { return };
            let query = Query {
                filter: range.range.filter(self.export.filter.as_deref()),
                select: self.select(),
                top: None,
                order: None,
            };
            let mut place = range.place;
            loop {
                let piece = self.piece(index, &query, place.as_ref()).await;
                place = piece.as_ref().ok().and_then(|piece| piece.next.clone());
                let failed = piece.is_err();
                // Nobody takes any more: the export has ended.
                if out.send(piece).await.is_err() || failed {
                    return;
                }
                if place.is_none() {
                    break;
                }
            }
        }
    }

    fn select(&self) -> Option<String> {
        if self.export.columns.is_empty() {
            return None;
        }
        let named = self.export.named();
        Some(
            SYSTEM
                .into_iter()
                .chain(named.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(","),
        )
    }

    async fn piece(
        &self,
        range: usize,
        query: &Query,
        place: Option<&Place>,
    ) -> Result<Piece, ClientError> {
        let page = self.client.page(&self.export.table, query, place).await?;
        let mut piece = Piece {
            range,
            lines: Vec::new(),
            rows: page.entities.len() as u64,
            names: BTreeSet::new(),
            next: page.next,
        };
        for entity in &page.entities {
            entity.write_json(&mut piece.lines, true);
            piece.lines.push(b'\n');
            if self.export.format == Format::Csv {
                for property in entity.record.as_ref().iter().flatten() {
                    if !piece.names.contains(property.name) {
                        piece.names.insert(property.name.to_owned());
                    }
                }
            }
        }
        Ok(piece)
    }
}
