//! A page of entities as the whole answer, written at once or piece by piece: the bytes are the same.

use super::write::{Context, write_members, write_metadata};
use crate::json::writer::Object;
use crate::media::Metadata;
use crate::select::Select;
use rowhouse_types::{Corrupt, Row, Rows};

/// Writes a page of entities as the whole answer, up to the one that reaches `limit` bytes, and tells how
/// many it wrote. If it is known how many there are in all, that is said before them. After an error `out` is as it was before.
pub fn write_page<'r>(
    out: &mut Vec<u8>,
    cx: &Context<'_>,
    count: Option<u64>,
    rows: impl Iterator<Item = Result<Row<'r>, Corrupt>>,
    limit: usize,
) -> Result<usize, Corrupt> {
    let start = out.len();
    begin(out, cx, count);
    let written = write_rows(out, cx, true, rows, start.saturating_add(limit));
    end(out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// A page that is written piece by piece, each when it is asked for. It owns the entities and all that their JSON needs.
#[derive(Debug)]
pub struct PageWriter {
    base: Box<str>,
    account: Box<str>,
    table: Box<str>,
    level: Metadata,
    select: Option<Select>,
    count: Option<u64>,
    rows: Rows,
    /// How many of them are written; nothing at all before the first piece.
    written: Option<usize>,
    ended: bool,
}

impl PageWriter {
    /// A page of all these entities, nothing of it written.
    pub fn new(cx: &Context<'_>, count: Option<u64>, rows: Rows) -> Self {
        Self {
            base: cx.base.into(),
            account: cx.account.into(),
            table: cx.table.into(),
            level: cx.level,
            select: cx.select.cloned(),
            count,
            rows,
            written: None,
            ended: false,
        }
    }

    /// The next piece, up to the entity that reaches `limit` bytes, or as much as comes before and after entities; empty
    /// after the last one, and after an error.
    pub fn piece(&mut self, limit: usize) -> Result<Vec<u8>, Corrupt> {
        if self.ended {
            return Ok(Vec::new());
        }
        // An entity is not divided: most reach beyond the limit by less than this.
        let mut out = Vec::with_capacity(limit.saturating_add(limit / 8));
        let cx = Context {
            base: &self.base,
            account: &self.account,
            table: &self.table,
            level: self.level,
            select: self.select.as_ref(),
        };
        if self.written.is_none() {
            begin(&mut out, &cx, self.count);
        }
        let done = self.written.unwrap_or(0);
        let written = write_rows(&mut out, &cx, done == 0, self.rows.iter_from(done), limit.max(1));
        self.ended = written.is_err();
        let done = done + written?;
        self.written = Some(done);
        if done == self.rows.len() {
            end(&mut out);
            self.ended = true;
        }
        Ok(out)
    }

    /// Whether the last piece has been written.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// About how long the whole page will be, if what is written of it is so long.
    pub fn expected_bytes(&self, so_far: usize) -> usize {
        match self.written {
            None | Some(0) => usize::MAX,
            Some(written) => so_far.saturating_mul(self.rows.len()) / written,
        }
    }

    /// Bytes of stored rows that it holds.
    pub fn held_bytes(&self) -> usize {
        self.rows.byte_len()
    }
}

/// Writes what comes before the entities.
pub(super) fn begin(out: &mut Vec<u8>, cx: &Context<'_>, count: Option<u64>) {
    let mut page = Object::open(out);
    write_metadata(&mut page, cx, "");
    if let Some(count) = count {
        page.text("odata.count", &count.to_string());
    }
    page.name("value", "");
    page.out.push(b'[');
}

/// Writes what comes after them.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// Writes entities until `out` is as long as `limit`, and tells how many.
fn write_rows<'r>(
    out: &mut Vec<u8>,
    cx: &Context<'_>,
    first: bool,
    rows: impl Iterator<Item = Result<Row<'r>, Corrupt>>,
    limit: usize,
) -> Result<usize, Corrupt> {
    let mut written = 0;
    for row in rows {
        if limit <= out.len() {
            break;
        }
        if !first || 0 < written {
            out.push(b',');
        }
        let mut object = Object::open(out);
        write_members(&mut object, cx, &row?)?;
        object.close();
        written += 1;
    }
    Ok(written)
}
