//! One JSON object a line, written as the service writes an entity with its types.

use super::{BadRow, FileRow, Line, Rows, read_line};
use crate::entity::Entity;
use std::io::{self, BufRead};

/// Reads lines of JSON. Blank lines are passed over.
#[derive(Debug)]
pub struct NdjsonReader<R> {
    input: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead + Send> NdjsonReader<R> {
    /// From the start of a file.
    pub fn new(input: R) -> Self {
        Self { input, number: 0, line: Vec::new() }
    }

    /// The next line that is not blank; an error is one that is too long.
    fn next_line(&mut self) -> io::Result<Option<Result<(), String>>> {
        loop {
            let found = read_line(&mut self.input, &mut self.line)?;
            self.number += 1;
            match found {
                Line::End => return Ok(None),
                Line::TooLong => return Ok(Some(Err("the line is longer than 16 MiB".to_owned()))),
                Line::Whole => {}
            }
            if self.number == 1 && self.line.starts_with(b"\xEF\xBB\xBF") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(Ok(())));
            }
        }
    }
}

impl<R: BufRead + Send> Rows for NdjsonReader<R> {
    fn next_row(&mut self) -> io::Result<Option<FileRow>> {
        let Some(line) = self.next_line()? else { return Ok(None) };
        let entity = line.map_err(BadRow::unreadable).and_then(|()| {
            Entity::from_json(&self.line).map_err(|reason| BadRow::of_json(reason, &self.line))
        });
        Ok(Some(FileRow { number: self.number, table: None, entity }))
    }

    fn skip_rows(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            if self.next_line()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}
