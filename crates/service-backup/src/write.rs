//! Makes a backup from a snapshot, frame by frame.
//!
//! Whoever is being served goes first: a backup is the work of one thread at a time, in pieces of about 128 KiB, and after each
//! piece it rests.

use crate::catalogue::Catalogue;
use crate::error::BackupError;
use crate::frame::{FRAME_BYTES, FrameMaker, Kind};
use crate::items::{self, Base, Extent, Header, Totals};
use crate::keys::KeepKeys;
use crate::pace::Pace;
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

/// How long a backup rests after a piece of work, as a share of what that took. Somebody has to receive it, too, often on the
/// same machine: with this, both together keep about one processor busy.
const REST: f64 = 0.5;
/// No rest is longer, however long something took.
const REST_MAX: Duration = Duration::from_millis(20);

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
    pace: Pace,
    /// Absent while a frame is being made.
    maker: Option<FrameMaker>,
    /// When the piece of work began that the next frame is a part of.
    began: Instant,
    totals: Totals,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn begin(mut sink: W, header: &Header) -> Result<Self, BackupError> {
        let (maker, start) = FrameMaker::begin().map_err(BackupError::Sink)?;
        sink.write_all(&start).await.map_err(BackupError::Sink)?;
        let (maker, began) = (Some(maker), Instant::now());
        let (pace, totals) = (Pace::default(), Totals::default());
        let mut out = Self { sink, pace, maker, began, totals };
        let header = header.encode();
        out.put(Kind::Header, move |_| Ok(header)).await?;
        Ok(out)
    }

    /// Makes a frame of the content, which is put together on the other thread, and sends it, and rests.
    ///
    /// Waiting for whoever takes the bytes counts as rest.
    async fn put(
        &mut self,
        kind: Kind,
        content: impl FnOnce(&FrameMaker) -> Result<Vec<u8>, StoreError> + Send + 'static,
    ) -> Result<(), BackupError> {
        let gone = || BackupError::Sink(io::Error::other("a frame was not made to its end"));
        let mut maker = self.maker.take().ok_or_else(gone)?;
        let Aside { done, rested } = aside(self.began, move || {
            let content = content(&maker)?;
            let frame = maker.frame(kind, &content).map_err(BackupError::Sink)?;
            Ok::<_, BackupError>((maker, frame))
        })?;
        let (maker, frame) = done.await.map_err(|_| gone())??;
        self.maker = Some(maker);
        self.pace.write(&mut self.sink, &frame).await?;
        rested.await.map_err(|_| gone())?;
        self.began = Instant::now();
        Ok(())
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
        if changes.is_empty() {
            // Nothing is sent, perhaps for long: an empty write tells whether anybody is there.
            return self.sink.write(&[]).await.map(drop).map_err(BackupError::Sink);
        }
        self.totals.changes += changes.len() as u64;
        self.items(Kind::Changes, &changes, items::put_change).await
    }

    async fn end(mut self) -> Result<Totals, BackupError> {
        let totals = self.totals;
        self.put(Kind::End, move |maker| Ok(totals.encode(&maker.digest()))).await?;
        self.sink.flush().await.map_err(BackupError::Sink)?;
        self.sink.shutdown().await.map_err(BackupError::Sink)?;
        Ok(totals)
    }
}

/// What a thread does aside.
struct Aside<T> {
    done: oneshot::Receiver<T>,
    rested: oneshot::Receiver<()>,
}

/// Ends a piece of work, which began some time ago, on a thread of its own that lets others go first, and rests there. A frame
/// takes far longer than its thread.
fn aside<T: Send + 'static>(
    began: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Aside<T>, BackupError> {
    let ((tell_done, done), (tell_rested, rested)) = (oneshot::channel(), oneshot::channel());
    let run = move || {
        rowhouse_env::step_back();
        // Nobody waits for either when the backup was given up.
        let _ = tell_done.send(work());
        std::thread::sleep(began.elapsed().mul_f64(REST).min(REST_MAX));
        let _ = tell_rested.send(());
    };
    let thread = std::thread::Builder::new().name("rowhouse-backup".to_owned());
    thread.spawn(run).map_err(BackupError::Sink)?;
    Ok(Aside { done, rested })
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
