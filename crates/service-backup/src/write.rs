//! Makes a backup from a snapshot, frame by frame.
//!
//! Frames are compressed on threads that let others go first, one while the next page is read: whoever is being
//! served does not wait for it.

use crate::catalogue::Catalogue;
use crate::error::BackupError;
use crate::frame::{FRAME_BYTES, FrameMaker, Kind};
use crate::items::{self, Base, Extent, Header, Totals};
use crate::keys::KeepKeys;
use crate::queues;
use rowhouse_store::{
    Change, Changes, ChangesWanted, Conflict, Page, Scan, Snapshot, StoreError, TableId, Take,
};
use rowhouse_types::{Direction, Guid, KeyRange, Rows, Timestamp, limits};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::oneshot;

/// Most entities in a frame: short ones fill it before its bytes do.
const FRAME_ITEMS: usize = 16 * 1024;

/// Which backup is made, when and by what.
#[derive(Clone, Debug)]
pub struct About {
    /// Names it.
    pub id: Guid,
    /// When it begins.
    pub taken: Timestamp,
    /// The release.
    pub product: Box<str>,
}

impl About {
    fn header(self, place: u64, extent: Extent) -> Header {
        Header { id: self.id, taken: self.taken, place, extent, product: self.product }
    }
}

/// Writes everything that the snapshot shows, with keys as `keys` gives them.
pub async fn write_full<W: AsyncWrite + Unpin>(
    snapshot: &dyn Snapshot,
    keys: &KeepKeys,
    about: About,
    sink: W,
) -> Result<Totals, BackupError> {
    let header = about.header(snapshot.place(), Extent::Full);
    let catalogue = Catalogue::of(snapshot, keys).await?;
    let mut out = Writer::begin(sink, &header).await?;
    out.catalogue(&catalogue).await?;
    out.messages(snapshot, &catalogue).await?;
    for table in &catalogue.tables {
        out.table(snapshot, table.id).await?;
    }
    out.end().await
}

/// Writes all accounts with keys as `keys` gives them, tables and queues that the snapshot shows, with the messages of the queues,
/// and what has changed of entities since the base.
///
/// The changes are those that the snapshot shows, so entities, catalogue and messages are of one moment. Those that stand
/// behind its place are said to stand at it: the next backup repeats them, which changes nothing, as each holds the whole
/// entity. Changes of tables that are no longer there are left out. Fails with [`BackupError::ChangesNotKept`] before
/// anything is written if some of them are not there.
pub async fn write_incremental<W: AsyncWrite + Unpin>(
    snapshot: &dyn Snapshot,
    keys: &KeepKeys,
    base: Base,
    about: About,
    sink: W,
) -> Result<Totals, BackupError> {
    let place = snapshot.place();
    check_kept(snapshot, base).await?;
    let catalogue = Catalogue::of(snapshot, keys).await?;
    let mut out = Writer::begin(sink, &about.header(place, Extent::Incremental(base))).await?;
    out.catalogue(&catalogue).await?;
    out.messages(snapshot, &catalogue).await?;
    let tables: HashSet<TableId> = catalogue.tables.iter().map(|table| table.id).collect();
    let mut after = base.place;
    loop {
        let wanted = wanted(after, FRAME_ITEMS);
        let Changes { mut changes, next } = snapshot.changes(wanted).await.map_err(not_kept)?;
        if next <= after {
            return out.end().await;
        }
        after = next;
        changes.retain(|change| tables.contains(&change.table));
        for change in &mut changes {
            change.place = change.place.min(place);
        }
        out.changes(changes).await?;
    }
}

fn wanted(after: u64, limit: usize) -> ChangesWanted {
    ChangesWanted { after, table: None, limit, max_bytes: FRAME_BYTES, wait_until: Instant::now() }
}

/// Whether the snapshot shows all changes since the base.
pub(crate) async fn check_kept(snapshot: &dyn Snapshot, base: Base) -> Result<(), BackupError> {
    if snapshot.place() < base.place {
        return Err(BackupError::ChangesNotKept);
    }
    snapshot.changes(wanted(base.place, 1)).await.map(drop).map_err(not_kept)
}

fn not_kept(error: StoreError) -> BackupError {
    match error {
        StoreError::Rejected { reason: Conflict::ChangesNotKept, .. } => {
            BackupError::ChangesNotKept
        }
        error => error.into(),
    }
}

/// A backup in the making.
struct Writer<W> {
    sink: W,
    /// The frame that is being compressed, and the maker of frames with it.
    pending: oneshot::Receiver<Result<(FrameMaker, Vec<u8>), BackupError>>,
    totals: Totals,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn begin(sink: W, header: &Header) -> Result<Self, BackupError> {
        let begin = || FrameMaker::begin().map_err(BackupError::Sink);
        let pending = aside(begin)?;
        let mut out = Self { sink, pending, totals: Totals::default() };
        let header = header.encode();
        out.put(Kind::Header, move |_| Ok(header)).await?;
        Ok(out)
    }

    /// Sends the frame before and begins one with the content that is made on the other thread.
    async fn put(
        &mut self,
        kind: Kind,
        content: impl FnOnce(&FrameMaker) -> Result<Vec<u8>, StoreError> + Send + 'static,
    ) -> Result<(), BackupError> {
        let mut maker = self.settle().await?;
        self.pending = aside(move || {
            let content = content(&maker)?;
            let frame = maker.frame(kind, &content).map_err(BackupError::Sink)?;
            Ok((maker, frame))
        })?;
        Ok(())
    }

    /// Sends the frame that is being made.
    async fn settle(&mut self) -> Result<FrameMaker, BackupError> {
        let made = (&mut self.pending).await;
        let (maker, frame) = made.map_err(|error| BackupError::Sink(io::Error::other(error)))??;
        self.sink.write_all(&frame).await.map_err(BackupError::Sink)?;
        Ok(maker)
    }

    async fn catalogue(&mut self, catalogue: &Catalogue) -> Result<(), BackupError> {
        self.totals.accounts = catalogue.accounts.len() as u64;
        self.totals.tables = catalogue.tables.len() as u64;
        self.items(Kind::Accounts, &catalogue.accounts, items::put_account).await?;
        self.totals.queues = catalogue.queues.len() as u64;
        self.items(Kind::Tables, &catalogue.tables, items::put_table).await?;
        self.items(Kind::Queues, &catalogue.queues, queues::put).await
    }

    /// The messages of every queue.
    async fn messages(
        &mut self,
        snapshot: &dyn Snapshot,
        catalogue: &Catalogue,
    ) -> Result<(), BackupError> {
        for queue in catalogue.queues.iter().map(|queue| queue.id) {
            let (mut from, mut before) = (None, 0);
            loop {
                let page = snapshot.messages(queue, from, FRAME_ITEMS, FRAME_BYTES).await?;
                let (messages, count) = (page.messages, before);
                before += messages.len() as u64;
                if !messages.is_empty() {
                    self.put(Kind::Messages, move |_| {
                        let mut content = Vec::new();
                        queues::put_messages_head(&mut content, queue, count);
                        for message in &messages {
                            queues::put_message(&mut content, message);
                        }
                        Ok(content)
                    })
                    .await?;
                }
                match page.next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            self.totals.messages += before;
        }
        Ok(())
    }

    /// As many frames as the things need.
    async fn items<T>(
        &mut self,
        kind: Kind,
        things: &[T],
        put: impl Fn(&mut Vec<u8>, &T),
    ) -> Result<(), BackupError> {
        let mut content = Vec::new();
        for (index, thing) in things.iter().enumerate() {
            put(&mut content, thing);
            if FRAME_BYTES <= content.len() || index + 1 == things.len() {
                let content = std::mem::take(&mut content);
                self.put(kind, move |_| Ok(content)).await?;
            }
        }
        Ok(())
    }

    async fn table(&mut self, snapshot: &dyn Snapshot, table: TableId) -> Result<(), BackupError> {
        let mut range = KeyRange::all();
        let mut count = 0;
        loop {
            let Page { rows, next, .. } = snapshot.scan(table, page(range)).await?;
            let before = count;
            count += rows.len() as u64;
            if !rows.is_empty() {
                self.put(Kind::Entities, move |_| entities(table, before, &rows)).await?;
            }
            match next {
                Some(start) => range = KeyRange { start, end: None },
                None => break,
            }
        }
        self.totals.entities += count;
        self.put(Kind::TableEnd, move |_| Ok(items::encode_table_end(table, count))).await
    }

    async fn changes(&mut self, changes: Vec<Change>) -> Result<(), BackupError> {
        self.totals.changes += changes.len() as u64;
        self.items(Kind::Changes, &changes, items::put_change).await
    }

    async fn end(mut self) -> Result<Totals, BackupError> {
        let totals = self.totals;
        self.put(Kind::End, move |maker| Ok(totals.encode(&maker.digest()))).await?;
        self.settle().await?;
        self.sink.flush().await.map_err(BackupError::Sink)?;
        self.sink.shutdown().await.map_err(BackupError::Sink)?;
        Ok(totals)
    }
}

/// Does something on a thread of its own that lets others go first. A frame takes far longer than its thread.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, BackupError> {
    let (done, result) = oneshot::channel();
    let run = move || {
        rowhouse_env::step_back();
        // Nobody waits for it when the backup was given up.
        let _ = done.send(work());
    };
    let thread = std::thread::Builder::new().name("rowhouse-backup".to_owned());
    thread.spawn(run).map_err(BackupError::Sink)?;
    Ok(result)
}

/// The content of a frame.
fn entities(table: TableId, before: u64, rows: &Rows) -> Result<Vec<u8>, StoreError> {
    let mut content = Vec::with_capacity(rows.byte_len() + 8 * rows.len() + 16);
    items::put_entities_head(&mut content, table, before);
    for row in rows.iter() {
        items::put_entity(&mut content, &row?);
    }
    Ok(content)
}

/// Asks for the entities of a frame.
fn page(range: KeyRange) -> Scan {
    Scan {
        ranges: vec![range],
        through: None,
        direction: Direction::Ascending,
        take: Take::Entities,
        filter: None,
        select: None,
        limit: FRAME_ITEMS,
        max_bytes: FRAME_BYTES,
        deadline: Instant::now() + Duration::from_millis(limits::PAGE_MILLIS_MAX),
    }
}
