//! A file into a table.
//!
//! Rows are taken in portions. Those of a portion are written side by side in batches, and the next one begins
//! when all of them are done, so that of two rows with the same keys the later one meets what the earlier one
//! left. After each portion the progress is made certain; an interrupted import resumes with the portion that it was in. Writing that
//! portion again changes nothing: see [`OnConflict`].
//!
//! A row that cannot be written is left out, and said so in the file of errors, a line of JSON each. That file
//! is never one that holds something already, but for what an earlier run of the same import told in it.

use crate::client::Client;
use crate::error::TransferError;
use crate::files::{BadRow, FileRow, Rows};
use crate::loader::{Item, Loaded, Loader, OnConflict, Refused};
use crate::progress::Progress;
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
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
    /// The file that is read, if it is one. Nothing is ever written to it.
    pub input: Option<PathBuf>,
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
    /// The first of those.
    pub shown: Vec<Refused>,
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
    /// Which that is.
    #[serde(default)]
    errors_in: Option<PathBuf>,
}

/// Rows that are written together.
struct Portion {
    items: Vec<Item>,
    refused: Vec<Refused>,
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
        let mut errors = self.open_errors(&mut state)?;
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
            let refused = [portion.refused, outcome.refused.clone()].concat();
            if state.report.rows == 0 && !refused.is_empty() {
                // Whoever is interrupted now has to know the file of errors again.
                self.save(&state)?;
            }
            state.errors = errors.tell(&refused)?.unwrap_or(state.errors);
            state.report.add(portion.rows, &refused, &outcome);
            self.save(&state)?;
        }
        if let Some(path) = &self.progress {
            state::remove(path)?;
        }
        Ok(state.report)
    }

    fn save(&self, state: &State) -> Result<(), TransferError> {
        self.progress.as_ref().map_or(Ok(()), |path| state::save(path, state))
    }

    fn begin(&self, client: &Client) -> Result<State, TransferError> {
        let length = |path: &PathBuf| fs::metadata(path).ok().map(|metadata| metadata.len());
        let new = State {
            destination: client.address(),
            table: self.table.clone(),
            input_bytes: self.input.as_ref().and_then(length),
            report: Report::default(),
            errors: 0,
            errors_in: None,
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

    /// Opens the file of errors, of which no more is lost than what an earlier run was not certain of.
    fn open_errors(&self, state: &mut State) -> Result<ErrorFile, TransferError> {
        let by_line = self.table.is_some();
        let Some(path) = &self.errors else { return Ok(ErrorFile { file: None, by_line }) };
        let refused = |text: String| Err(TransferError::Refused(text));
        if self.input.as_ref().is_some_and(|input| is_same_file(input, path)) {
            return refused(format!(
                "{} is the file that is imported: name another one with --errors",
                path.display()
            ));
        }
        // The next run may be given in another directory.
        let place = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        // Files of progress of older versions name none.
        let is_known = state.errors_in.as_ref() == Some(&place)
            || (state.errors_in.is_none() && 0 < state.errors);
        let is_empty = fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
        if !is_known {
            if !is_empty {
                return refused(format!(
                    "{} is there already and not empty: remove it, or name another one with --errors",
                    path.display()
                ));
            }
            state.errors = 0;
        }
        state.errors_in = Some(place);
        ErrorFile::open(path, state.errors, by_line)
    }
}

/// Whether both names are of one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        identity(one).is_some_and(|one| identity(other) == Some(one))
    }
    #[cfg(not(unix))]
    {
        let place = |path: &Path| path.canonicalize().ok();
        place(one).is_some_and(|one| place(other) == Some(one))
    }
}

impl Report {
    fn add(&mut self, rows: u64, refused: &[Refused], loaded: &Loaded) {
        self.rows += rows;
        self.written += loaded.written;
        self.present += loaded.present;
        self.skipped += loaded.skipped;
        self.refused += refused.len() as u64;
        let room = SHOWN_MAX.saturating_sub(self.shown.len());
        self.shown.extend(refused.iter().take(room).cloned());
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
            (Ok(entity), None) => portion.refused.push(Refused {
                number,
                reason: "the table is not known".to_owned(),
                table: None,
                partition: Some(entity.partition.into()),
                row: Some(entity.row.into()),
            }),
            (Err(BadRow { reason, partition, row }), table) => {
                let length = |key: &Option<String>| key.as_ref().map_or(0, String::len);
                bytes += reason.len() + length(&partition) + length(&row);
                let table = table.map(|table| table.to_string());
                portion.refused.push(Refused { number, reason, table, partition, row });
            }
        }
        portion.rows += 1;
    }
    Ok(portion)
}

/// The file of refused rows, if there is to be one.
struct ErrorFile {
    file: Option<(File, PathBuf)>,
    /// Rows have lines; if not, places among entities.
    by_line: bool,
}

/// A refused row as the file has it.
#[derive(Serialize)]
struct ErrorLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'a str>,
    #[serde(rename = "PartitionKey", skip_serializing_if = "Option::is_none")]
    partition: Option<&'a str>,
    #[serde(rename = "RowKey", skip_serializing_if = "Option::is_none")]
    row: Option<&'a str>,
    reason: &'a str,
}

impl ErrorFile {
    /// Opens it and cuts off what is not certain.
    fn open(path: &Path, bytes: u64, by_line: bool) -> Result<Self, TransferError> {
        let opened = File::options().create(true).truncate(false).write(true).open(path);
        let cut = opened.and_then(|mut file| {
            let length = file.metadata()?.len();
            if bytes < length {
                file.set_len(bytes)?;
            }
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        let file = cut.map_err(TransferError::file(path))?;
        Ok(Self { file: Some((file, path.to_owned())), by_line })
    }

    /// Adds a line for each, and returns how long the file is then, if there is one.
    fn tell(&mut self, refused: &[Refused]) -> Result<Option<u64>, TransferError> {
        let Some((file, path)) = &mut self.file else { return Ok(None) };
        let mut lines = Vec::new();
        for Refused { number, reason, table, partition, row } in refused {
            let line = ErrorLine {
                line: self.by_line.then_some(*number),
                entity: (!self.by_line).then_some(*number),
                table: table.as_deref(),
                partition: partition.as_deref(),
                row: row.as_deref(),
                reason,
            };
            serde_json::to_writer(&mut lines, &line).expect("text can always be written");
            lines.push(b'\n');
        }
        let written = file.write_all(&lines).and_then(|()| file.stream_position());
        written.map(Some).map_err(TransferError::file(path))
    }
}
