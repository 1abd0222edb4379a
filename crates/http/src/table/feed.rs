//! `comp=changes`: waits for changes of a table, then reads them.
//!
//! A request that waits is not worked on: it takes its place among the requests and queries only when there is
//! something to read, or nothing came. Who may not read any more by then is told nothing.

use super::TableHandler;
use super::dispatch::{Context, corrupt, dispatch};
use super::error::Failure;
use super::reply::Reply;
use super::router::{Operation, ReadChanges};
use http::StatusCode;
use rowhouse_service_table::{Bookmark, ChangeItem, ChangesFrom, ChangesPage, ChangesQuery};
use rowhouse_types::{Record, limits};
use rowhouse_wire::changes::{Change, Feed, Token};
use std::time::{Duration, Instant};

impl TableHandler {
    /// Waits until there is a change, the time is over or the server stops; says where to read from then.
    pub(super) async fn wait_for_changes(
        &self,
        cx: Context<'_>,
        wanted: &ReadChanges,
    ) -> Result<ChangesFrom, Failure> {
        let _place = self.waiting.take(cx.account.id, 1).ok_or(Failure::Busy)?;
        let look = |from, wait: Duration| {
            let query = ChangesQuery { from, limit: 1, wait_until: Instant::now() + wait };
            cx.tables.changes(cx.caller(), &wanted.table, query)
        };
        let page = look(wanted.from, Duration::ZERO).await?;
        let from = start_of(&page);
        if !page.items.is_empty() {
            return Ok(from);
        }
        let mut stopping = self.config.stopping.clone();
        tokio::select! {
            page = look(from, wanted.wait) => Ok(start_of(&page?)),
            _ = stopping.wait_for(|stop| *stop) => Ok(from),
        }
    }

    /// Reads what is there, as a request among others.
    pub(super) async fn read_changes(
        &self,
        cx: Context<'_>,
        wanted: ReadChanges,
    ) -> Result<Reply, Failure> {
        let _ticket = self.admission.enter(cx.account.id, true).await?;
        dispatch(cx, Operation::Changes(wanted)).await
    }
}

/// Where its first change is, or would be.
fn start_of(page: &ChangesPage) -> ChangesFrom {
    ChangesFrom::After(page.items.first().map_or(page.next, |item| item.before))
}

/// Reads what is there.
pub(crate) async fn read(cx: Context<'_>, wanted: ReadChanges) -> Result<Reply, Failure> {
    let ReadChanges { table, from, top, .. } = wanted;
    let query = ChangesQuery { from, limit: top, wait_until: Instant::now() };
    let page = cx.tables.changes(cx.caller(), &table, query).await?;
    let bytes = page.items.iter().map(|item| size(item) * 2 + 128).sum::<usize>();
    let feed = Feed::new(cx.encoding(&table, None), bytes.min(limits::PAGE_REPLY_BYTES_MAX) + 512);
    let body = write(feed, &page, limits::PAGE_REPLY_BYTES_MAX)?;
    Ok(Reply::json(StatusCode::OK, cx.level, body))
}

fn size(item: &ChangeItem) -> usize {
    let record = item.change.record.as_ref().map_or(0, |record| record.as_bytes().len());
    item.change.key.partition.as_str().len() + item.change.key.row.as_str().len() + record
}

/// Writes a page up to the change that reaches the limit. The answer ends with a batch, unless the first does
/// not fit by itself.
fn write(mut feed: Feed<'_>, page: &ChangesPage, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut batch: Option<(&ChangeItem, usize)> = None;
    for (index, item) in page.items.iter().enumerate() {
        let length = feed.byte_len();
        let begins = batch.is_none_or(|(first, _)| first.change.place != item.change.place);
        if 0 < index && limit <= length {
            let next = match batch {
                Some((first, start)) if !begins && first.before != page.items[0].before => {
                    feed.cut(start);
                    first.before
                }
                _ => item.before,
            };
            return Ok(feed.finish(&token(next), true));
        }
        if begins {
            batch = Some((item, length));
        }
        feed.push(&change(item)).map_err(corrupt)?;
    }
    Ok(feed.finish(&token(page.next), page.more))
}

fn change(item: &ChangeItem) -> Change<'_> {
    let change = &item.change;
    Change {
        sequence: change.place,
        partition: change.key.partition.as_str(),
        row: change.key.row.as_str(),
        at: change.at,
        record: change.record.as_ref().map(Record::as_ref),
    }
}

fn token(bookmark: Bookmark) -> Token {
    let Bookmark { table, created, place, told } = bookmark;
    let told = u64::try_from(told).unwrap_or(u64::MAX);
    Token { table, created: created.ticks(), place, told }
}
