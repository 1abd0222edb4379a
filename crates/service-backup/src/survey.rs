//! Reads a backup to its end, and tells what is in it.

use crate::catalogue::Catalogue;
use crate::error::BackupError;
use crate::items::{Extent, Header, Totals};
use crate::read::{Part, Reader};
use rowhouse_store::TableId;
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
            }
            Part::TableEnd(_) | Part::Messages(_) => {}
            Part::Changes(changes) => {
                for change in changes {
                    *items.entry(change.table).or_default() += 1;
                }
            }
            Part::End(totals) => {
                reader.expect_nothing_more().await?;
                let (header, bytes) = (reader.header().clone(), reader.position());
                return Ok(Survey { header, catalogue, items, totals, bytes });
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
