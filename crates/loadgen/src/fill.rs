//! Loads entities in bulk: batches of a hundred over many connections.

use crate::batch::{self, Change, OPERATIONS, Rows};
use crate::drive::{Driver, Pace, Script, Verdict};
use crate::entity::{Key, ROWS};
use crate::request::{JSON, Requests};
use crate::response::Answer;
use std::io;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;

/// How often progress is told.
const SLICE: Duration = Duration::from_secs(1);

/// Consecutive rows of one partition, few enough for one request.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) table: Rc<str>,
    pub(crate) first: Key,
    pub(crate) count: u64,
}

/// Pieces of a table with full partitions, from one entity (by number) to another.
pub(crate) fn pieces(table: &str, from: u64, to: u64) -> impl Iterator<Item = Piece> + use<> {
    let table: Rc<str> = table.into();
    let mut index = from;
    std::iter::from_fn(move || {
        let first = Key::nth(index);
        let count = OPERATIONS.min(ROWS - first.row).min(to.saturating_sub(index));
        index += count;
        (count > 0).then(|| Piece { table: Rc::clone(&table), first, count })
    })
}

/// What has been loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) entities: u64,
    /// JSON of the entities, in bytes.
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

impl Loaded {
    pub(crate) fn rate(&self) -> f64 {
        self.entities as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.entities += other.entities;
        self.bytes += other.bytes;
        self.elapsed += other.elapsed;
    }
}

/// Changes all pieces, telling about it every second. Whatever the server is too busy for is sent again; any
/// other failure ends it.
pub(crate) fn fill(
    address: SocketAddrV4,
    connections: usize,
    change: Change,
    pieces: impl Iterator<Item = Piece>,
    mut tell: impl FnMut(&Loaded),
) -> io::Result<Loaded> {
    let mut driver = Driver::open(address, connections)?;
    let mut script = Bulk {
        change,
        pieces,
        again: Vec::new(),
        under_way: vec![None; connections],
        loaded: Loaded::default(),
        body: Vec::new(),
    };
    loop {
        let tally = driver.run(&mut script, SLICE, Pace::Closed)?;
        script.loaded.elapsed += tally.elapsed;
        if tally.wrong + tally.lost > 0 {
            return Err(io::Error::other(tally.fault.unwrap_or_default()));
        }
        tell(&script.loaded);
        if tally.exhausted && script.again.is_empty() {
            return Ok(script.loaded);
        }
    }
}

struct Bulk<I> {
    change: Change,
    pieces: I,
    again: Vec<Piece>,
    under_way: Vec<Option<(Piece, u64)>>,
    loaded: Loaded,
    body: Vec<u8>,
}

impl<I: Iterator<Item = Piece>> Script for Bulk<I> {
    fn ask(&mut self, slot: usize, _fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        let Some(piece) = self.again.pop().or_else(|| self.pieces.next()) else { return false };
        let bytes = if piece.count == 1 && self.change != Change::Delete {
            let mut path = Vec::new();
            piece.first.push_path(&mut path, &piece.table);
            self.body.clear();
            piece.first.push_entity(&mut self.body, 0);
            to.push(out, "PUT", &path, b"", JSON, &self.body);
            self.body.len() as u64
        } else {
            let rows = Rows { table: &piece.table, first: piece.first, count: piece.count };
            batch::push(out, &mut self.body, to, self.change, rows)
        };
        self.under_way[slot] = Some((piece, bytes));
        true
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        let (piece, bytes) = self.under_way[slot].take().expect("an answer follows a request");
        let single = piece.count == 1 && answer.status == 204;
        if single || batch::all_done(answer.status, answer.body, piece.count) {
            self.loaded.entities += piece.count;
            self.loaded.bytes += bytes;
            return Verdict::Done;
        }
        if answer.status == 503 {
            self.again.push(piece);
            return Verdict::Refused;
        }
        let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(800)]);
        Verdict::Wrong(format!("loading {piece:?} was answered {}: {body}", answer.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_once_and_stay_within_partitions() {
        for (from, to) in [(0, 0), (0, 1), (0, 100), (0, 2050), (950, 1050), (1, 3000), (5, 5)] {
            let mut index = from;
            for piece in pieces("t", from, to) {
                assert_eq!(piece.first, Key::nth(index));
                assert!(piece.count <= OPERATIONS && piece.first.row + piece.count <= ROWS);
                index += piece.count;
            }
            assert_eq!(index, to, "{from} to {to}");
        }
    }
}
