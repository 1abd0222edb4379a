//! A file into a table.
//!
//! Rows are taken in portions. Those of a portion are written side by side in batches, and the next one begins
//! when all of them are done, so that of two rows with the same keys the later one wins. After each portion
//! the progress is made certain; an interrupted import resumes with the portion that it was in. Writing that
//! portion again changes nothing: see [`OnConflict`].
//!
//! A row that cannot be written is left out, and said so in the file of errors, a line of JSON each.

use crate::client::Client;
use crate::error::TransferError;
use crate::files::{FileRow, Rows};
use crate::loader::{Item, Loaded, Loader, OnConflict};
use crate::progress::Progress;
use crate::state;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Full batches of a portion for each job: enough to find rows of the same partition that are not neighbours,
/// few enough to save the progress every few seconds.
const BATCHES_PER_JOB: usize = 32;
/// Most bytes of a portion.
const PORTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Refused rows that are kept for the report.
const SHOWN_MAX: usize = 10;

/// How to import.
#[derive(Clone, Debug)]
pub struct Import {
    /// The table, for rows that name none.
    pub table: Option<String>,
    /// What happens where keys are taken.
    pub on_conflict: OnConflict,
    /// Batches that are written at a time.
    pub jobs: usize,
    /// Where refused rows are told.
    pub errors: Option<PathBuf>,
    /// How long the input is, to recognise it again.
    pub input_bytes: Option<u64>,
    /// Where the progress is kept; nowhere if the input cannot be read again.
    pub progress: Option<PathBuf>,
    /// Go on where an earlier import was interrupted.
    pub resume: bool,
}

/// What came of an import, with what earlier runs of it did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Rows read.
    pub rows: u64,
    /// Written.
    pub written: u64,
    /// Were there already, exactly so.
    pub present: u64,
    /// Left as they were there.
    pub skipped: u64,
    /// Could not be written.
    pub refused: u64,
    /// The first of those: number and reason.
    pub shown: Vec<(u64, String)>,
}

/// What is certain of an unfinished import.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    destination: String,
    table: Option<String>,
    input_bytes: Option<u64>,
    report: Report,
    /// Bytes of the file of errors.
    errors: u64,
}

/// Rows that are written together.
struct Portion {
    items: Vec<Item>,
    refused: Vec<(u64, String)>,
    rows: u64,
    /// A row that was read too early: its keys are in this portion already.
    held: Option<FileRow>,
}

impl Import {
    /// Runs to the end of the rows.
    pub async fn run(
        &self,
        client: &Client,
        mut input: Box<dyn Rows>,
        progress: &Arc<Progress>,
    ) -> Result<Report, TransferError> {
        let mut state = self.begin(client)?;
        let mut errors = ErrorFile::open(self.errors.as_deref(), state.errors)?;
        progress.resume(state.report.rows, state.report.refused);
        let done = state.report.rows;
        input = blocking(move || input.skip_rows(done).map(|()| input)).await?;
        progress.expect_rows(done);
        let loader = Loader {
            client: client.clone(),
            on_conflict: self.on_conflict,
            progress: progress.clone(),
        };
        let (most, table) = (self.jobs.max(1) * BATCHES_PER_JOB * 100, self.table.as_deref());
        let table: Option<Arc<str>> = table.map(Into::into);
        let mut held = None;
        loop {
            let table = table.clone();
            let (portion, back) = blocking(move || {
                read_portion(&mut *input, held, table.as_ref(), most).map(|p| (p, input))
            })
            .await?;
            (input, held) = (back, portion.held);
            if portion.rows == 0 {
                break;
            }
            progress.expect_rows(portion.rows);
            let outcome = loader.load(portion.items, self.jobs).await?;
            progress.add(portion.refused.len() as u64);
            progress.add_refused(portion.refused.len() as u64);
            state.errors = errors.tell(&portion.refused)?;
            state.errors = errors.tell(&outcome.refused)?;
            state.report.add(portion.rows, &portion.refused, &outcome);
            if let Some(path) = &self.progress {
                state::save(path, &state)?;
            }
        }
        if let Some(path) = &self.progress {
            state::remove(path)?;
        }
        Ok(state.report)
    }

    fn begin(&self, client: &Client) -> Result<State, TransferError> {
        let new = State {
            destination: client.address(),
            table: self.table.clone(),
            input_bytes: self.input_bytes,
            report: Report::default(),
            errors: 0,
        };
        let Some(path) = &self.progress else { return Ok(new) };
        let found: Option<State> = state::load(path)?;
        let refused = |text: String| Err(TransferError::Refused(text));
        match found {
            None => Ok(new),
            Some(_) if !self.resume => refused(format!(
                "this import was interrupted before: add --resume to go on, or remove {} to begin anew",
                path.display()
            )),
            Some(found) if (&found.destination, &found.table) != (&new.destination, &new.table) => {
                refused(format!(
                    "the interrupted import was into another table: repeat the command as it was, or \
                     remove {} to begin anew",
                    path.display()
                ))
            }
            Some(found) if found.input_bytes != new.input_bytes => refused(format!(
                "the file is not the one whose import was interrupted: remove {} to begin anew",
                path.display()
            )),
            Some(found) => Ok(found),
        }
    }
}

impl Report {
    fn add(&mut self, rows: u64, malformed: &[(u64, String)], loaded: &Loaded) {
        self.rows += rows;
        self.written += loaded.written;
        self.present += loaded.present;
        self.skipped += loaded.skipped;
        for refused in malformed.iter().chain(&loaded.refused) {
            self.refused += 1;
            if self.shown.len() < SHOWN_MAX {
                self.shown.push(refused.clone());
            }
        }
    }
}

/// Runs what reads a file where it may wait.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, TransferError> {
    let outcome = tokio::task::spawn_blocking(read).await.expect("reading does not panic");
    outcome.map_err(TransferError::file(Path::new("the input")))
}

fn read_portion(
    input: &mut dyn Rows,
    mut held: Option<FileRow>,
    table: Option<&Arc<str>>,
    most: usize,
) -> io::Result<Portion> {
    let mut portion = Portion { items: Vec::new(), refused: Vec::new(), rows: 0, held: None };
    let mut keys = HashSet::new();
    let mut bytes = 0;
    while portion.items.len() + portion.refused.len() < most && bytes < PORTION_BYTES_MAX {
        let row = match held.take() {
            Some(row) => row,
            None => match input.next_row()? {
                Some(row) => row,
                None => break,
            },
        };
        let FileRow { number, table: own, entity } = row;
        match (entity, own.clone().or_else(|| table.cloned())) {
            (Ok(entity), Some(table)) => {
                let key = (table.clone(), entity.partition.clone(), entity.row.clone());
                if !keys.insert(key) {
                    portion.held = Some(FileRow { number, table: own, entity: Ok(entity) });
                    break;
                }
                bytes += entity.record.as_bytes().len();
                portion.items.push(Item { table, number, entity });
            }
            (Ok(_), None) => portion.refused.push((number, "the table is not known".to_owned())),
            (Err(reason), _) => portion.refused.push((number, reason)),
        }
        portion.rows += 1;
    }
    Ok(portion)
}

/// The file of refused rows.
struct ErrorFile(Option<(File, PathBuf)>);

impl ErrorFile {
    /// Opens it and cuts off what is not certain.
    fn open(path: Option<&Path>, bytes: u64) -> Result<Self, TransferError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let opened = File::options().create(true).truncate(false).write(true).open(path);
        let cut = opened.and_then(|mut file| {
            let length = file.metadata()?.len().min(bytes);
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        let file = cut.map_err(TransferError::file(path))?;
        Ok(Self(Some((file, path.to_owned()))))
    }

    /// Adds a line for each, and returns how long the file is then.
    fn tell(&mut self, refused: &[(u64, String)]) -> Result<u64, TransferError> {
        let Some((file, path)) = &mut self.0 else { return Ok(0) };
        let mut lines = String::new();
        for (number, reason) in refused {
            lines.push_str(&json!({ "line": number, "reason": reason }).to_string());
            lines.push('\n');
        }
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.stream_position());
        written.map_err(TransferError::file(path))
    }
}
