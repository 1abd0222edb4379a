//! Takes a backup apart, in order, and believes nothing that it has not checked.

use crate::error::{BackupError, FileError};
use crate::fields::{Fields, Offence};
use crate::frame::{Frame, FrameReader, Kind};
use crate::items::{self, Extent, Header, Totals};
use crate::queues;
use crate::survey::Progress;
use rowhouse_store::{Account, Change, Message, Queue, QueueId, Table, TableId};
use rowhouse_types::{AccountName, EntityKey, Record};
use std::collections::VecDeque;
use tokio::io::AsyncRead;

/// A part of a backup, in the order in which they come.
#[derive(Debug)]
pub enum Part {
    /// Some of the accounts, in the order of their names.
    Accounts(Vec<Account>),
    /// Some of the tables, in the order of their ids.
    Tables(Vec<Table>),
    /// Some of the queues, in the order of their ids.
    Queues(Vec<Queue>),
    /// Some of the messages of a queue. Queues come in the order of their ids.
    Messages(Messages),
    /// Some of the entities of a table. Tables come in the order of their ids.
    Entities(Entities),
    /// A table has no more entities.
    TableEnd(TableId),
    /// Some of the changes.
    Changes(Vec<Change>),
    /// The backup is whole.
    End(Totals),
}

/// Messages of one queue.
#[derive(Debug)]
pub struct Messages {
    /// The queue, by the id that it had.
    pub queue: QueueId,
    /// The messages.
    pub messages: Vec<Message>,
}

/// Entities of one table, in the order of their keys. They stay in the frame that they came in until somebody wants them.
#[derive(Debug)]
pub struct Entities {
    /// The table, by the id that it had.
    pub table: TableId,
    /// How many.
    pub count: u64,
    /// The frame, which has been checked.
    content: Vec<u8>,
}

impl Entities {
    /// Keys and records.
    pub fn iter(&self) -> impl Iterator<Item = (EntityKey, Record)> {
        let mut fields = Fields::new(&self.content);
        let head = items::entities_head(&mut fields);
        debug_assert!(head.is_ok_and(|(table, _)| table == self.table));
        (0..self.count)
            .map(move |_| items::checked_entity(&mut fields).expect("the frame was checked"))
    }
}

/// Reads one backup. Takes exactly its bytes from the source, so that another may follow.
pub struct Reader<R> {
    frames: FrameReader<R>,
    header: Header,
    seen: Seen,
}

/// What has been read, as far as what follows must fit it.
#[derive(Debug, Default)]
struct Seen {
    totals: Totals,
    /// The kind of the last frame.
    last: Option<Kind>,
    last_account: Option<AccountName>,
    last_table: Option<TableId>,
    /// Tables whose entities have not all been read.
    awaited: VecDeque<TableId>,
    /// Of the first of these.
    entities: u64,
    last_key: Option<EntityKey>,
    /// In the order of their ids.
    queues: Vec<QueueId>,
    /// Whose messages came last, and how many.
    messages_of: Option<(QueueId, u64)>,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("header", &self.header).finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads the beginning.
    pub async fn begin(source: R) -> Result<Self, BackupError> {
        Self::begin_if_any(source).await?.ok_or(BackupError::File(FileError::Foreign))
    }

    /// Reads the beginning, unless the source has nothing more.
    pub async fn begin_if_any(source: R) -> Result<Option<Self>, BackupError> {
        let Some(mut frames) = FrameReader::begin(source).await? else { return Ok(None) };
        let Frame { kind, content, at, .. } = frames.next().await?;
        if kind != Kind::Header {
            return Err(BackupError::damaged(at, "it does not begin with a header"));
        }
        let header = Header::decode(Fields::new(&content));
        let header = header.map_err(|what| BackupError::damaged(at, what))?;
        Ok(Some(Self { frames, header, seen: Seen::default() }))
    }

    /// What the backup says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes have been read.
    pub fn position(&self) -> u64 {
        self.frames.position()
    }

    /// How far it has been read.
    pub fn progress(&self) -> Progress {
        let (bytes, content) = (self.position(), self.frames.content());
        Progress { bytes, content, items: self.items() }
    }

    /// How many entities, changes and messages have been read.
    pub fn items(&self) -> u64 {
        self.seen.totals.items()
    }

    /// The next part. After [`Part::End`] there is none.
    pub async fn next(&mut self) -> Result<Part, BackupError> {
        let frame = self.frames.next().await?;
        let (at, version) = (frame.at, self.frames.version());
        let part = decode(version, &self.header, &mut self.seen, frame);
        part.map_err(|what| BackupError::damaged(at, what))
    }

    /// Fails unless the source ends with the backup.
    pub async fn expect_nothing_more(&mut self) -> Result<(), BackupError> {
        let at = self.position();
        let ended = self.frames.is_at_end().await?;
        if ended { Ok(()) } else { Err(FileError::Overlong { at }.into()) }
    }

    /// The source, behind the backup.
    pub fn into_inner(self) -> R {
        self.frames.into_inner()
    }
}

fn decode(version: u32, header: &Header, seen: &mut Seen, frame: Frame) -> Result<Part, Offence> {
    seen.follow(header, frame.kind)?;
    let fields = Fields::new(&frame.content);
    match frame.kind {
        Kind::Header => Err("there is a second header"),
        Kind::Accounts => seen.accounts(items::accounts(fields)?),
        Kind::Tables => seen.tables(items::tables(fields, version)?),
        Kind::Queues => seen.queues(items::queues(fields)?),
        Kind::Messages => seen.messages(fields),
        Kind::Entities => seen.entities(frame.content),
        Kind::TableEnd => seen.table_end(items::table_end(fields)?),
        Kind::Changes => seen.changes(header, items::changes(fields)?),
        Kind::End => {
            let (totals, digest) = Totals::decode(fields)?;
            if digest != frame.digest_before {
                return Err("the digest of the whole differs");
            }
            seen.end(header, totals)
        }
    }
}

impl Seen {
    /// Whether a frame of that kind may come now.
    fn follow(&mut self, header: &Header, kind: Kind) -> Result<(), Offence> {
        let stage = |kind: Kind| match kind {
            Kind::Header => 0,
            Kind::Accounts => 1,
            Kind::Tables => 2,
            Kind::Queues => 3,
            Kind::Messages => 4,
            Kind::Entities | Kind::TableEnd | Kind::Changes => 5,
            Kind::End => 6,
        };
        let full = header.extent == Extent::Full;
        let belongs = match kind {
            Kind::Entities | Kind::TableEnd => full,
            Kind::Changes => !full,
            Kind::Header
            | Kind::Accounts
            | Kind::Tables
            | Kind::Queues
            | Kind::Messages
            | Kind::End => true,
        };
        if !belongs || self.last.is_some_and(|last| stage(kind) < stage(last)) {
            return Err("a frame is not where it belongs");
        }
        if self.last == Some(Kind::End) {
            return Err("there is a frame behind the last");
        }
        self.last = Some(kind);
        Ok(())
    }

    fn accounts(&mut self, accounts: Vec<Account>) -> Result<Part, Offence> {
        for account in &accounts {
            if self.last_account.as_ref().is_some_and(|last| account.name <= *last) {
                return Err("accounts are out of order");
            }
            self.last_account = Some(account.name.clone());
        }
        self.totals.accounts += accounts.len() as u64;
        Ok(Part::Accounts(accounts))
    }

    fn tables(&mut self, tables: Vec<Table>) -> Result<Part, Offence> {
        for table in &tables {
            if self.last_table.is_some_and(|last| table.id <= last) {
                return Err("tables are out of order");
            }
            self.last_table = Some(table.id);
            self.awaited.push_back(table.id);
        }
        self.totals.tables += tables.len() as u64;
        Ok(Part::Tables(tables))
    }

    fn queues(&mut self, queues: Vec<Queue>) -> Result<Part, Offence> {
        for queue in &queues {
            if self.queues.last().is_some_and(|last| queue.id <= *last) {
                return Err("queues are out of order");
            }
            self.queues.push(queue.id);
        }
        self.totals.queues += queues.len() as u64;
        Ok(Part::Queues(queues))
    }

    fn messages(&mut self, mut fields: Fields<'_>) -> Result<Part, Offence> {
        let (queue, before) = queues::messages_head(&mut fields)?;
        let expected = match self.messages_of {
            Some((last, count)) if last == queue => count,
            Some((last, _)) if queue < last => return Err("messages are out of order"),
            _ => 0,
        };
        if self.queues.binary_search(&queue).is_err() || before != expected {
            return Err("messages are not where they belong");
        }
        let mut messages = Vec::new();
        while !fields.is_empty() {
            messages.push(queues::message(&mut fields)?);
        }
        let count = messages.len() as u64;
        self.messages_of = Some((queue, before + count));
        self.totals.messages += count;
        Ok(Part::Messages(Messages { queue, messages }))
    }

    fn entities(&mut self, content: Vec<u8>) -> Result<Part, Offence> {
        let mut fields = Fields::new(&content);
        let (table, before) = items::entities_head(&mut fields)?;
        if self.awaited.front() != Some(&table) || before != self.entities {
            return Err("entities are not where they belong");
        }
        let last = self.last_key.as_ref();
        let mut last = last.map(|key| (key.partition.as_str(), key.row.as_str()));
        let mut count = 0;
        while !fields.is_empty() {
            let row = items::entity(&mut fields)?;
            let key = (row.partition, row.row);
            if last.is_some_and(|last| key <= last) {
                return Err("entities are out of order");
            }
            last = Some(key);
            count += 1;
        }
        self.last_key = last.map(items::owned_key);
        self.entities += count;
        self.totals.entities += count;
        Ok(Part::Entities(Entities { table, count, content }))
    }

    fn table_end(&mut self, ended: (TableId, u64)) -> Result<Part, Offence> {
        if self.awaited.pop_front() != Some(ended.0) {
            return Err("a table ends that was not there");
        }
        if self.entities != ended.1 {
            return Err("a table has another number of entities");
        }
        (self.entities, self.last_key) = (0, None);
        Ok(Part::TableEnd(ended.0))
    }

    fn changes(&mut self, header: &Header, changes: Vec<Change>) -> Result<Part, Offence> {
        let Extent::Incremental(base) = header.extent else {
            return Err("a full backup has no changes");
        };
        let within = |change: &Change| base.place < change.place && change.place <= header.place;
        if !changes.iter().all(within) {
            return Err("a change does not belong to this backup");
        }
        if !changes.iter().all(|change| self.awaited.binary_search(&change.table).is_ok()) {
            return Err("a change is of a table that is not there");
        }
        self.totals.changes += changes.len() as u64;
        Ok(Part::Changes(changes))
    }

    fn end(&self, header: &Header, totals: Totals) -> Result<Part, Offence> {
        if header.extent == Extent::Full && !self.awaited.is_empty() {
            return Err("a table is missing");
        }
        if totals != self.totals {
            return Err("the numbers at its end differ");
        }
        Ok(Part::End(totals))
    }
}
