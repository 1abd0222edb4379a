//! Entities found through indexes, in the order of their keys, each once.
//!
//! Where every span holds one entry, the entities of each are in the order of keys already. Then the spans are read side
//! by side from where the ranges begin, and the page ends as soon as it is full: whoever asks for a value looks at no more
//! entries than there are matches, and one.
//!
//! Otherwise all the entries are walked, and of the keys the first that the page has room for are remembered. Entries outside
//! the ranges are passed, and neither counted nor named. That may take longer than there is time, and would again on the next page. So when half of it is gone the ranges are read
//! as if there were no index, and the page gets somewhere.

use crate::committer::Fault;
use crate::entity::look;
use crate::index::{Way, range_after, walk, within};
use crate::scan::{Reading, Role, Step};
use rowhouse_store::{IndexId, Page, Take};
use rowhouse_types::{Direction, KeyRange, Position, RecordRef, Row};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// Entities of one entry: from a key on, before a key, or the last.
pub(crate) const FROM: &str = "SELECT pk, rk FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND (pk, rk) >= (?4, ?5) ORDER BY pk, rk LIMIT ?3";
pub(crate) const BEFORE: &str = "SELECT pk, rk FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND (pk, rk) < (?4, ?5) ORDER BY pk DESC, rk DESC LIMIT ?3";
pub(crate) const LAST: &str = "SELECT pk, rk FROM entries
    WHERE index_id = ?1 AND entry = ?2 ORDER BY pk DESC, rk DESC LIMIT ?3";

/// Keys that are read at a time of each entry: few at first.
const READ_MIN: usize = 8;
const READ_MAX: usize = 256;
/// Most bytes of keys that a page remembers; a page may end with fewer entities than were asked for.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

type Key = (Box<str>, Box<str>);

/// Fills the page with what is found in any of the ways.
pub(crate) fn read(reading: &mut Reading<'_>, ways: &[Way<'_>]) -> Result<(), Fault> {
    if reading.scan.ranges.is_empty() || ways.iter().all(|way| way.spans.is_empty()) {
        return Ok(());
    }
    let singles: Option<Vec<_>> = ways
        .iter()
        .flat_map(|way| way.spans.iter().map(|span| Some((way.id, span.single()?))))
        .collect();
    if let Some(singles) = singles {
        return merge(reading, &singles);
    }
    let now = Instant::now();
    let half = now + reading.scan.deadline.saturating_duration_since(now) / 2;
    let in_time = match reading.scan.take {
        Take::Entities => gather(reading, ways, half)?,
        Take::Count => count(reading, ways, half)?,
    };
    if !in_time {
        // How far the entries were walked depends on those outside the ranges too: that is not counted.
        let mut scanning = Reading { ways, page: Page::default(), role: Role::Alone, ..*reading };
        scanning.ranges()?;
        reading.page = scanning.page;
    }
    Ok(())
}

/// Reads entries side by side. Each is in the order of keys.
fn merge(reading: &mut Reading<'_>, singles: &[(IndexId, &[u8])]) -> Result<(), Fault> {
    let (conn, scan) = (reading.conn, reading.scan);
    let mut streams: Vec<_> = singles
        .iter()
        .map(|(index, entry)| Stream::new(*index, entry, &scan.ranges, scan.direction))
        .collect();
    // The next key of every stream, and which streams have it.
    let mut heads = BTreeMap::<Key, Vec<usize>>::new();
    for (at, stream) in streams.iter_mut().enumerate() {
        if let Some(key) = stream.next(conn)? {
            heads.entry(key).or_default().push(at);
        }
    }
    let first = |heads: &mut BTreeMap<Key, Vec<usize>>| match scan.direction {
        Direction::Ascending => heads.pop_first(),
        Direction::Descending => heads.pop_last(),
    };
    while let Some(((partition, row), having)) = first(&mut heads) {
        if reading.is_out_of_time() {
            reading.page.next = Some(Position::before(&partition, &row));
            break;
        }
        reading.page.examined += 1;
        if candidate(reading, &partition, &row)? == Step::Stop {
            reading.page.next = Some(Position::before(&partition, &row));
            break;
        }
        for at in having {
            if let Some(key) = streams[at].next(conn)? {
                heads.entry(key).or_default().push(at);
            }
        }
    }
    Ok(())
}

fn candidate(reading: &mut Reading<'_>, partition: &str, row: &str) -> Result<Step, Fault> {
    if let Some(step) = reading.unseen() {
        return Ok(step);
    }
    let (conn, table) = (reading.conn, reading.table);
    let step = look(conn, table, partition, row, |bytes| reading.record(partition, row, bytes))?;
    Ok(step.unwrap_or(Step::Next))
}

/// The entities of one entry within the ranges, one after the other.
pub(super) struct Stream<'a> {
    index: i64,
    entry: &'a [u8],
    ranges: &'a [KeyRange],
    direction: Direction,
    ahead: VecDeque<Key>,
    /// Where reading goes on; none if there is no more.
    from: Option<Edge>,
    at_a_time: usize,
}

/// Where reading begins.
enum Edge {
    From(Position),
    Before(Position),
    Last,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        index: IndexId,
        entry: &'a [u8],
        ranges: &'a [KeyRange],
        direction: Direction,
    ) -> Self {
        let from = match direction {
            Direction::Ascending => ranges.first().map(|range| Edge::From(range.start.clone())),
            Direction::Descending => ranges.last().map(before_end),
        };
        let index = index.0.cast_signed();
        Self { index, entry, ranges, direction, ahead: VecDeque::new(), from, at_a_time: READ_MIN }
    }

    pub(super) fn next(&mut self, conn: &Connection) -> Result<Option<Key>, Fault> {
        loop {
            let Some(key) = self.ahead.pop_front() else {
                let Some(from) = self.from.take() else { return Ok(None) };
                self.fill(conn, &from)?;
                continue;
            };
            if within(self.ranges, &key.0, &key.1) {
                return Ok(Some(key));
            }
            self.skip(&key);
        }
    }

    /// Goes on with the range that comes after the key, which is in none.
    fn skip(&mut self, key: &Key) {
        let after = range_after(self.ranges, &key.0, &key.1);
        let edge = match self.direction {
            Direction::Ascending => {
                self.ranges.get(after).map(|range| Edge::From(range.start.clone()))
            }
            Direction::Descending => self.ranges[..after].last().map(before_end),
        };
        let Some(edge) = edge else {
            self.ahead.clear();
            self.from = None;
            return;
        };
        while self.ahead.front().is_some_and(|key| !edge.is_passed(key)) {
            self.ahead.pop_front();
        }
        if self.ahead.is_empty() && self.from.is_some() {
            self.from = Some(edge);
        }
    }

    fn fill(&mut self, conn: &Connection, from: &Edge) -> Result<(), Fault> {
        let (sql, edge) = match from {
            Edge::From(edge) => (FROM, Some(edge)),
            Edge::Before(edge) => (BEFORE, Some(edge)),
            Edge::Last => (LAST, None),
        };
        let most = i64::try_from(self.at_a_time).unwrap_or(i64::MAX);
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = match edge {
            Some(edge) => statement.query(params![
                self.index,
                self.entry,
                most,
                &*edge.partition,
                &*edge.row
            ])?,
            None => statement.query(params![self.index, self.entry, most])?,
        };
        while let Some(row) = rows.next()? {
            self.ahead.push_back((row.get(0)?, row.get(1)?));
        }
        if self.ahead.len() == self.at_a_time
            && let Some((partition, row)) = self.ahead.back()
        {
            self.from = Some(match self.direction {
                Direction::Ascending => Edge::From(Position::after(partition, row)),
                Direction::Descending => Edge::Before(Position::before(partition, row)),
            });
        }
        self.at_a_time = (2 * self.at_a_time).min(READ_MAX);
        Ok(())
    }
}

impl Edge {
    /// Whether reading from here would yield the key.
    fn is_passed(&self, key: &Key) -> bool {
        let key = (&*key.0, &*key.1);
        match self {
            Self::From(edge) => (&*edge.partition, &*edge.row) <= key,
            Self::Before(edge) => key < (&*edge.partition, &*edge.row),
            Self::Last => true,
        }
    }
}

fn before_end(range: &KeyRange) -> Edge {
    match &range.end {
        Some(end) => Edge::Before(end.clone()),
        None => Edge::Last,
    }
}

/// Walks all entries and keeps the first keys that match; false if there was not enough time.
fn gather(reading: &mut Reading<'_>, ways: &[Way<'_>], until: Instant) -> Result<bool, Fault> {
    let (conn, table, scan) = (reading.conn, reading.table, reading.scan);
    let mut kept = Kept::new(scan.limit, scan.direction);
    for way in ways {
        let in_time = each(reading, way, until, |reading, partition, row| {
            if !kept.has_room_for(partition, row) {
                return Ok(());
            }
            let matches = !reading.is_choosy()
                || look(conn, table, partition, row, |bytes| {
                    let record = RecordRef::parse(bytes)?;
                    Ok(reading.matches(&Row { partition, row, record })?)
                })?
                .unwrap_or(false);
            if matches {
                kept.insert(partition, row);
            }
            Ok(())
        })?;
        if !in_time {
            return Ok(false);
        }
    }
    let (keys, beyond) = kept.finish();
    for (partition, row) in &keys {
        if reading.full {
            reading.page.next = Some(Position::before(partition, row));
            return Ok(true);
        }
        look(conn, table, partition, row, |bytes| {
            reading.take(&Row { partition, row, record: RecordRef::parse(bytes)? });
            Ok(())
        })?;
    }
    reading.page.next = beyond.map(|(partition, row)| Position::before(&partition, &row));
    Ok(true)
}

/// Walks all entries and counts the entities; false if there was not enough time.
fn count(reading: &mut Reading<'_>, ways: &[Way<'_>], until: Instant) -> Result<bool, Fault> {
    let (conn, table) = (reading.conn, reading.table);
    let mut counted = 0;
    for (at, way) in ways.iter().enumerate() {
        let before = &ways[..at];
        let in_time = each(reading, way, until, |reading, partition, row| {
            let is_new = (!reading.is_choosy() && before.is_empty())
                || look(conn, table, partition, row, |bytes| {
                    let row = Row { partition, row, record: RecordRef::parse(bytes)? };
                    // Whatever is in an earlier way was counted there.
                    for way in before {
                        if way.contains(&row)? {
                            return Ok(false);
                        }
                    }
                    Ok(reading.matches(&row)?)
                })?
                .unwrap_or(false);
            counted += u64::from(is_new);
            Ok(())
        })?;
        if !in_time {
            return Ok(false);
        }
    }
    reading.page.counted = counted;
    Ok(true)
}

/// Hands over the key of every entry in the way whose entity is in the ranges; false if there was not enough time.
///
/// Only those are counted. An entry outside is passed without a trace, but for the time it takes.
fn each(
    reading: &mut Reading<'_>,
    way: &Way<'_>,
    until: Instant,
    mut found: impl FnMut(&Reading<'_>, &str, &str) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let (conn, scan) = (reading.conn, reading.scan);
    let mut passed: u64 = 0;
    let mut visit = |partition: &str, row: &str| -> Result<Step, Fault> {
        let look = passed.is_multiple_of(reading.rows_per_look);
        if look && (until <= Instant::now() || (reading.abandoned)()) {
            return Ok(Step::Stop);
        }
        passed += 1;
        if within(&scan.ranges, partition, row) {
            reading.page.examined += 1;
            found(reading, partition, row)?;
        }
        Ok(Step::Next)
    };
    for span in way.spans {
        let step = match span.single() {
            Some(entry) => {
                let mut stream = Stream::new(way.id, entry, &scan.ranges, Direction::Ascending);
                loop {
                    let Some((partition, row)) = stream.next(conn)? else { break Step::Next };
                    if visit(&partition, &row)? == Step::Stop {
                        break Step::Stop;
                    }
                }
            }
            None => walk::entries(conn, way.id, span, |_, partition, row| visit(partition, row))?,
        };
        if step == Step::Stop {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first keys of many, and one more.
struct Kept {
    keys: BTreeSet<Key>,
    most: usize,
    bytes: usize,
    direction: Direction,
    /// Some keys were let go.
    cut: bool,
}

impl Kept {
    fn new(limit: usize, direction: Direction) -> Self {
        let most = limit.saturating_add(1);
        Self { keys: BTreeSet::new(), most, bytes: 0, direction, cut: false }
    }

    /// Whether the key is new and would stay.
    fn has_room_for(&self, partition: &str, row: &str) -> bool {
        let key = (partition, row);
        let last = match self.direction {
            Direction::Ascending => self.keys.last(),
            Direction::Descending => self.keys.first(),
        };
        let is_after_all = last.is_some_and(|last| {
            let last = (&*last.0, &*last.1);
            match self.direction {
                Direction::Ascending => last < key,
                Direction::Descending => key < last,
            }
        });
        let is_full = self.cut || self.most <= self.keys.len();
        if is_full && is_after_all {
            return false;
        }
        !self.keys.contains(&(partition.into(), row.into()))
    }

    fn insert(&mut self, partition: &str, row: &str) {
        self.keys.insert((partition.into(), row.into()));
        self.bytes += weight(partition, row);
        while self.most < self.keys.len() || (KEPT_BYTES_MAX < self.bytes && 2 < self.keys.len()) {
            let last = self.pop();
            self.bytes -= last.map_or(0, |(partition, row)| weight(&partition, &row));
            self.cut = true;
        }
    }

    fn pop(&mut self) -> Option<Key> {
        match self.direction {
            Direction::Ascending => self.keys.pop_last(),
            Direction::Descending => self.keys.pop_first(),
        }
    }

    /// The keys of the page in order, and the one after them.
    fn finish(mut self) -> (Vec<Key>, Option<Key>) {
        let is_more = self.cut || self.most <= self.keys.len();
        let beyond = if is_more { self.pop() } else { None };
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        if self.direction == Direction::Descending {
            keys.reverse();
        }
        (keys, beyond)
    }
}

fn weight(partition: &str, row: &str) -> usize {
    size_of::<Key>() + partition.len() + row.len()
}
