//! Entities in files: lines of JSON, CSV, and Azurite's data file.
//!
//! Readers give one row after the other and never fail on a row: what is wrong with it is said in its place,
//! and reading goes on. Types survive writing and reading exactly; a property that an entity does not have is
//! not there afterwards either.

mod azurite;
mod csv;
mod ndjson;

pub use azurite::{AzuriteReader, Beside, ReadPolicies};
pub use csv::{CsvReader, CsvWriter};
pub use ndjson::NdjsonReader;

use crate::entity::Entity;
use rowhouse_types::limits;
use serde_json::Value;
use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

/// Longest line or record that is read, in bytes: the largest entity with every character escaped.
const ROW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How entities stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// One JSON object a line.
    Ndjson,
    /// As Azure Storage Explorer writes it.
    Csv,
}

/// One row of a file.
#[derive(Debug)]
pub struct FileRow {
    /// The line on which it starts, from 1; in Azurite's file its place among the entities.
    pub number: u64,
    /// Its table, where the file knows it.
    pub table: Option<Arc<str>>,
    /// The entity, or why there is none.
    pub entity: Result<Entity, BadRow>,
}

/// A row that is no entity, and whose it would have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRow {
    /// What is wrong with it.
    pub reason: String,
    /// Its PartitionKey, as far as that can be read.
    pub partition: Option<String>,
    /// Its RowKey, as far as that can be read.
    pub row: Option<String>,
}

impl BadRow {
    /// Of a row with these keys. What is longer than a key can be is left out.
    fn new(reason: String, partition: Option<&str>, row: Option<&str>) -> Self {
        let short = |key: &&str| key.encode_utf16().count() <= limits::KEY_UTF16_UNITS_MAX;
        let key = |key: Option<&str>| key.filter(short).map(str::to_owned);
        Self { reason, partition: key(partition), row: key(row) }
    }

    /// Of a row of which no more can be read.
    fn unreadable(reason: String) -> Self {
        Self { reason, ..Self::default() }
    }

    /// Of the JSON of an entity.
    fn of_json(reason: String, json: &[u8]) -> Self {
        let members: Value = serde_json::from_slice(json).unwrap_or_default();
        let key = |name: &str| members.get(name).and_then(Value::as_str);
        Self::new(reason, key("PartitionKey"), key("RowKey"))
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for BadRow {}

/// Reads the rows of a file.
pub trait Rows: Send {
    /// The next row; nothing at the end.
    fn next_row(&mut self) -> io::Result<Option<FileRow>>;

    /// Passes over so many rows.
    fn skip_rows(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            if self.next_row()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// What [`read_line`] found.
enum Line {
    End,
    Whole,
    TooLong,
}

/// Reads up to and including the next line end into an empty buffer, but no more than the limit.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut length = 0;
    loop {
        let chunk = input.fill_buf()?;
        if chunk.is_empty() {
            return Ok(match length {
                0 => Line::End,
                _ if length <= ROW_BYTES_MAX => Line::Whole,
                _ => Line::TooLong,
            });
        }
        let end = memchr::memchr(b'\n', chunk).map(|at| at + 1);
        let taken = end.unwrap_or(chunk.len());
        length += taken;
        if length <= ROW_BYTES_MAX {
            line.extend_from_slice(&chunk[..taken]);
        }
        input.consume(taken);
        if end.is_some() {
            return Ok(if length <= ROW_BYTES_MAX { Line::Whole } else { Line::TooLong });
        }
    }
}

#[cfg(test)]
mod tests;
