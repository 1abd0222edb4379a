//! `comp=changes`: waits for changes of a table, then reads them.
//!
//! A request that waits is not worked on: it has no place among the requests and queries while it does, only one among
//! a limited number that wait. Who may not read any more afterwards is told nothing.

use super::TableHandler;
use super::dispatch::{Context, corrupt, on_thread};
use super::error::Failure;
use super::router::{self, ReadChanges};
use crate::front::Visit;
use crate::front::refusal::Refusal;
use crate::front::reply::Reply;
use http::StatusCode;
use rowhouse_service_table::{Bookmark, ChangeItem, ChangesFrom, ChangesPage, ChangesQuery};
use rowhouse_types::{Record, TableName, limits};
use rowhouse_wire::changes::{Change, Feed, Token};
use rowhouse_wire::entity::Context as Encoding;
use std::time::Instant;

impl TableHandler {
    /// Answers a request for the changes of the table of that name.
    pub(super) async fn changes(
        &self,
        cx: Context<'_>,
        table: String,
        visit: &Visit<'_>,
    ) -> Result<Reply, Failure> {
        if cx.secondary {
            return Err(Failure::ParameterValue);
        }
        let mut wanted = router::changes(table, &visit.head)?;
        if wanted.wait.is_zero() {
            let _ticket = self.config.front.admission.enter(cx.account.id, true).await?;
            return reply(cx, &wanted.table, read(cx, &wanted).await?).await;
        }
        let place = self.waiting.take(cx.account.id, 1).ok_or(Refusal::Busy)?;
        let page = {
            let _ticket = self.config.front.admission.enter_with(cx.account.id, &place).await?;
            let page = read(cx, &wanted).await?;
            if page.more || !page.items.is_empty() {
                return reply(cx, &wanted.table, page).await;
            }
            page
        };
        wanted.from = self.wait_for_changes(cx, &wanted, page.next).await?;
        let (account, grant, now) = self.config.front.enter_again(self, visit).await?;
        let cx = Context { account: &account, grant: &grant, now, ..cx };
        let _ticket = self.config.front.admission.enter_with(account.id, &place).await?;
        reply(cx, &wanted.table, read(cx, &wanted).await?).await
    }

    /// Waits until there is a change, the time is over or the server stops; says where to read from then.
    async fn wait_for_changes(
        &self,
        cx: Context<'_>,
        wanted: &ReadChanges,
        place: Bookmark,
    ) -> Result<ChangesFrom, Failure> {
        let from = ChangesFrom::After(place);
        let query = ChangesQuery { from, limit: 1, wait_until: Instant::now() + wanted.wait };
        let mut stopping = self.config.stopping.clone();
        tokio::select! {
            page = cx.tables.changes(cx.caller(), &wanted.table, query) => {
                let page = page?;
                let first = page.items.first().map(|item| item.before);
                Ok(ChangesFrom::After(first.unwrap_or(page.next)))
            }
            _ = stopping.wait_for(|stop| *stop) => Ok(from),
        }
    }
}

/// What is there.
async fn read(cx: Context<'_>, wanted: &ReadChanges) -> Result<ChangesPage, Failure> {
    let ReadChanges { table, from, top, .. } = wanted;
    let query = ChangesQuery { from: *from, limit: *top, wait_until: Instant::now() };
    Ok(cx.tables.changes(cx.caller(), table, query).await?)
}

/// Megabytes of changes are written on another thread.
async fn reply(cx: Context<'_>, table: &TableName, page: ChangesPage) -> Result<Reply, Failure> {
    let bytes = page.items.iter().map(|item| size(item) * 2 + 128).sum::<usize>();
    let (base, account) = (cx.base.to_owned(), cx.account.name.as_str().to_owned());
    let (table, level) = (table.as_str().to_owned(), cx.level);
    let work = move || {
        let (base, account, table) = (&*base, &*account, &*table);
        let encoding = Encoding { base, account, table, level, select: None };
        let feed = Feed::new(encoding, bytes.min(limits::PAGE_REPLY_BYTES_MAX) + 512);
        write(feed, &page, limits::PAGE_REPLY_BYTES_MAX)
    };
    let is_long = limits::PAGE_WHOLE_BYTES_MAX < bytes;
    let body = if is_long { on_thread(work).await?? } else { work()? };
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_store::TableId;
    use rowhouse_types::{EntityKey, Timestamp};
    use rowhouse_wire::media::Metadata;
    use serde_json::Value;

    const START: Bookmark = Bookmark { table: 1, created: Timestamp::MAX, place: 0, told: 0 };

    /// Deletes in batches of the given sizes, told from `told` of the first one on.
    fn page(sizes: &[usize], told: usize) -> ChangesPage {
        let mut items = Vec::new();
        for (place, size) in (1..).zip(sizes) {
            let batch = (0..*size).map(|index| {
                let key = EntityKey::new(&format!("{place}"), &format!("{index}")).unwrap();
                let (table, at) = (TableId(1), Timestamp::default());
                let change = rowhouse_store::Change { place, table, key, at, record: None };
                let before = Bookmark { place: place - 1, told: index, ..START };
                ChangeItem { change, before }
            });
            items.extend(batch);
        }
        items.drain(..told);
        let place = sizes.len() as u64;
        ChangesPage { items, next: Bookmark { place, ..START }, more: false }
    }

    /// The keys that an answer of about so many bytes holds, and where it ends.
    fn answer(page: &ChangesPage, limit: usize) -> (Vec<(u64, u64)>, Token, bool) {
        let encoding =
            Encoding { base: "", account: "", table: "", level: Metadata::None, select: None };
        let body = write(Feed::new(encoding, 0), page, limit).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        let told = body["value"].as_array().unwrap().iter().map(|change| {
            assert_eq!(change["sequence"], change["entity"]["PartitionKey"]);
            (number(&change["sequence"]), number(&change["entity"]["RowKey"]))
        });
        let next = Token::decode(body["next"].as_str().unwrap()).unwrap();
        (told.collect(), next, body["more"].as_bool().unwrap())
    }

    proptest! {
        /// Answer by answer everything is told once and in order, and a batch is cut only if it is alone.
        #[test]
        fn answers_join(sizes in prop::collection::vec(1_usize..6, 1..6), limit in 0_usize..1500) {
            let whole: Vec<_> = page(&sizes, 0).items.iter().map(|item| {
                (item.change.place, item.change.key.row.as_str().parse().unwrap())
            }).collect();
            let mut joined: Vec<(u64, u64)> = Vec::new();
            loop {
                let (told, next, more) = answer(&page(&sizes, joined.len()), limit);
                prop_assert!(!told.is_empty());
                if next.told > 0 {
                    prop_assert!(told.iter().all(|(place, _)| *place == next.place + 1));
                }
                joined.extend(told);
                if !more {
                    prop_assert_eq!((next.place, next.told), (sizes.len() as u64, 0));
                    break;
                }
                prop_assert!(joined.len() < whole.len());
                let (place, index) = whole[joined.len()];
                prop_assert_eq!((next.place, next.told), (place - 1, index));
            }
            prop_assert_eq!(joined, whole);
        }
    }
}
