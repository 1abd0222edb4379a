//! Reads a backup to its end, and tells what is in it.

use crate::catalogue::Catalogue;
use crate::error::BackupError;
use crate::items::{Extent, Header, Totals};
use crate::read::{Messages, Part, Reader};
use rowhouse_store::{QueueId, TableId};
use rowhouse_types::{Timestamp, limits::CLOCK_SKEW_SECONDS};
use std::collections::BTreeMap;
use tokio::io::AsyncRead;

/// What a backup holds. Who has one knows that every byte of it was as it was written.
#[derive(Debug)]
pub struct Survey {
    /// What it says of itself.
    pub header: Header,
    /// Accounts, tables and queues at its moment.
    pub catalogue: Catalogue,
    /// Entities, or changes of entities, by table; a table without is not named.
    pub items: BTreeMap<TableId, u64>,
    /// How much there is of everything.
    pub totals: Totals,
    /// Its length in bytes.
    pub bytes: u64,
    /// The latest Timestamp of the entities, or of the changes, and of the receipts of messages.
    pub latest: Option<Latest>,
}

/// The latest Timestamp of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    /// Which it is.
    pub timestamp: Timestamp,
    /// What has it.
    pub held_by: Holder,
}

/// What has a Timestamp, by the id that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An entity of a table.
    Table(TableId),
    /// A message of a queue.
    Queue(QueueId),
}

impl Latest {
    fn later_of(
        before: Option<Self>,
        held_by: Holder,
        timestamps: impl Iterator<Item = Timestamp>,
    ) -> Option<Self> {
        let Some(timestamp) = timestamps.max() else { return before };
        match before {
            Some(before) if timestamp <= before.timestamp => Some(before),
            _ => Some(Self { timestamp, held_by }),
        }
    }
}

/// How far somebody has got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the backup that was read.
    pub bytes: u64,
    /// Bytes that these were before they were compressed.
    pub content: u64,
    /// Entities, changes and messages among them.
    pub items: u64,
}

/// Reads a backup whole. `accept` is asked as soon as accounts, tables and queues are known, and may refuse.
pub async fn survey<R: AsyncRead + Unpin>(
    source: R,
    accept: impl Fn(&Header, &Catalogue) -> Result<(), BackupError>,
    mut progress: impl FnMut(Progress),
) -> Result<Survey, BackupError> {
    let mut reader = Reader::begin(source).await?;
    let mut catalogue = Catalogue::default();
    let mut items = BTreeMap::new();
    let mut latest = None;
    let mut accepted = false;
    loop {
        let part = reader.next().await?;
        let is_catalogue = matches!(part, Part::Accounts(_) | Part::Tables(_) | Part::Queues(_));
        if !is_catalogue && !std::mem::replace(&mut accepted, true) {
            catalogue.check()?;
            accept(reader.header(), &catalogue)?;
        }
        match part {
            Part::Accounts(accounts) => catalogue.accounts.extend(accounts),
            Part::Tables(tables) => catalogue.tables.extend(tables),
            Part::Queues(queues) => catalogue.queues.extend(queues),
            Part::Entities(entities) => {
                *items.entry(entities.table).or_default() += entities.count;
                let timestamps = entities.iter().map(|(_, record)| record.as_ref().timestamp());
                latest = Latest::later_of(latest, Holder::Table(entities.table), timestamps);
            }
            Part::TableEnd(_) => {}
            Part::Messages(Messages { queue, messages }) => {
                let receipts = messages.iter().map(|message| message.receipt);
                latest = Latest::later_of(latest, Holder::Queue(queue), receipts);
            }
            Part::Changes(changes) => {
                for change in changes {
                    *items.entry(change.table).or_default() += 1;
                    let timestamp = change.record.map(|record| record.as_ref().timestamp());
                    let held_by = Holder::Table(change.table);
                    latest = Latest::later_of(latest, held_by, timestamp.into_iter());
                }
            }
            Part::End(totals) => {
                reader.expect_nothing_more().await?;
                let (header, bytes) = (reader.header().clone(), reader.position());
                return Ok(Survey { header, catalogue, items, totals, bytes, latest });
            }
        }
        progress(reader.progress());
    }
}

/// Reads no more than what a backup says of itself, its accounts, its tables and its queues.
pub async fn beginning<R: AsyncRead + Unpin>(
    source: R,
) -> Result<(Header, Catalogue), BackupError> {
    let mut reader = Reader::begin(source).await?;
    let mut catalogue = Catalogue::default();
    loop {
        match reader.next().await? {
            Part::Accounts(accounts) => catalogue.accounts.extend(accounts),
            Part::Tables(tables) => catalogue.tables.extend(tables),
            Part::Queues(queues) => catalogue.queues.extend(queues),
            _ => {
                catalogue.check()?;
                return Ok((reader.header().clone(), catalogue));
            }
        }
    }
}

/// Whether no Timestamp is later than the clock allows: restored, it would keep all Timestamps of the store ahead.
pub fn check_times(surveys: &[Survey], now: Timestamp) -> Result<(), BackupError> {
    let until = now.plus_seconds(CLOCK_SKEW_SECONDS);
    for Survey { latest, catalogue, .. } in surveys {
        let Some(Latest { timestamp, held_by }) = *latest else { continue };
        if timestamp <= until {
            continue;
        }
        let what = match held_by {
            Holder::Table(id) => {
                let table = catalogue.tables.iter().find(|table| table.id == id);
                let owner = table.and_then(|table| catalogue.owner(table)).unwrap_or("?");
                format!("the table {owner}/{}", table.map_or("?", |table| table.name.as_str()))
            }
            Holder::Queue(id) => {
                let queue = catalogue.queues.iter().find(|queue| queue.id == id);
                let owner = queue.and_then(|queue| {
                    catalogue.accounts.iter().find(|account| account.id == queue.account)
                });
                let owner = owner.map_or("?", |account| account.name.as_str());
                format!("the queue {owner}/{}", queue.map_or("?", |queue| queue.name.as_str()))
            }
        };
        return Err(BackupError::FutureTimestamp { what, timestamp });
    }
    Ok(())
}

/// Whether the first is full and each of the others follows the one before it.
pub fn check_chain(surveys: &[Survey]) -> Result<(), BackupError> {
    for (index, survey) in surveys.iter().enumerate() {
        check_next(index.checked_sub(1).map(|before| &surveys[before]), survey)?;
    }
    Ok(())
}

fn check_next(before: Option<&Survey>, survey: &Survey) -> Result<(), BackupError> {
    check_header(before.map(|before| &before.header), &survey.header)?;
    match before {
        Some(before) if !survey.catalogue.continues(&before.catalogue) => {
            let (id, before) = (survey.header.id, before.header.id);
            Err(BackupError::OtherOrigin { id, before })
        }
        _ => Ok(()),
    }
}

/// Whether a backup says that it follows the one before it, or that it is a full one if it is the first.
pub(crate) fn check_header(before: Option<&Header>, header: &Header) -> Result<(), BackupError> {
    let id = header.id;
    match (before, header.extent) {
        (None, Extent::Full) => Ok(()),
        (None, Extent::Incremental(_)) => Err(BackupError::NotFull { id }),
        (Some(before), Extent::Incremental(base)) if base == before.as_base() => Ok(()),
        (Some(before), _) => Err(BackupError::Chain { id, before: before.id }),
    }
}
