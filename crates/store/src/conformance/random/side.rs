//! One of the two stores, and its answers in a form to compare.

use super::super::fixture::{account, content, filter, key, number, put, resume_in, table, write};
use super::super::indexed::built;
use super::super::queued::listed;
use super::post::{Posts, Told};
use super::steps::{
    Change, Content, INDEXES, Key, PARTITIONS, QUEUES, Query, ROWS, Step, TABLES, What, When,
};
use crate::{
    AccountId, Batch, Command, Condition, Conflict, Extent, IndexId, IndexState, Lookup,
    MessageCommand, Page, Placement, Scan, Store, StoreError, TableId, Take, Ttl, Walk, WalkPage,
    Write,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use rowhouse_query::index::{IndexKeys, Part, Span, lookups, spans};
use rowhouse_types::{EntityKey, Etag, KeyRange, Row, Rows, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A way through indexes, each by its name: their ids differ between stores.
pub(super) type Way = Vec<Part<usize>>;

/// The answer to a step, without Timestamps.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Nothing,
    Rejected(usize, Conflict),
    Entity(Option<Content>),
    Pages(Vec<Found>),
    Count(u64),
    Names(Vec<String>),
    Index(IndexState),
    Messages(Vec<Told>),
}

/// A page: its rows and where to resume.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    rows: Vec<(String, String, Content)>,
    next: Option<Place>,
}

/// An entry, if it is a place in an index, and a key.
type Place = (Box<[u8]>, String, String);

/// How many entities a table can have.
const KEYS: usize = PARTITIONS.len() * ROWS.len();

/// One of the two stores, with what it must remember of its own Timestamps and ids.
pub(super) struct Side {
    pub(super) store: Arc<dyn Store>,
    account: AccountId,
    /// The latest table of each name, dropped or not.
    tables: [TableId; TABLES.len()],
    /// The latest index of each table and name, dropped or not.
    indexes: BTreeMap<(usize, usize), (IndexId, IndexKeys)>,
    /// Every Timestamp that a key ever had, in order.
    tags: BTreeMap<(TableId, EntityKey), Vec<Timestamp>>,
    /// When it all began.
    began: Timestamp,
    /// A table that no step is about.
    aside: TableId,
    pub(super) posts: Posts,
}

impl Side {
    pub(super) async fn new(store: Arc<dyn Store>, began: Timestamp) -> Self {
        let (first, second) = (account(&*store, "first").await, account(&*store, "second").await);
        let (account, aside) = (first.id, table(&*store, second.id, "Aside").await);
        let tables = [TableId(1 << 40); TABLES.len()];
        let (indexes, tags, posts) = (BTreeMap::new(), BTreeMap::new(), Posts::default());
        Self { store, account, tables, indexes, tags, began, aside, posts }
    }

    /// Writes something that no step asks for: the time of the store is that of the clock, even if it is set back.
    pub(super) async fn note_the_time(&self) {
        write(&*self.store, put(self.aside, &key("p", "r"), number(0))).await;
    }

    /// The way of that number to find what the filter asks for, if there is any; beyond a few, the one of most parts.
    pub(super) async fn way(&self, step: &Step) -> Option<Way> {
        let (Step::Scan { table, query, way, .. } | Step::Weigh { table, query, way }) = step
        else {
            return None;
        };
        let (way, filter) = ((*way)?, filter(&query.filter)?);
        let name = TABLES[*table].parse().expect("a legal table name");
        let found = self.store.table(self.account, &name).await.expect("the lookup succeeds")?;
        let ready = found.indexes.iter().filter(|index| index.state == IndexState::Ready);
        let number = |name: &str| INDEXES.iter().position(|each| *each == name);
        let ready: Vec<_> =
            ready.filter_map(|index| Some((number(index.name.as_str())?, &index.keys))).collect();
        let mut ways = lookups(&filter, &ready);
        if 4 <= way {
            return ways.into_iter().max_by_key(Vec::len);
        }
        let chosen = way.checked_rem(ways.len())?;
        Some(ways.swap_remove(chosen))
    }

    /// What the store answers, through the indexes of the way.
    pub(super) async fn run(
        &mut self,
        step: &Step,
        way: Option<&Way>,
    ) -> Result<Answer, TestCaseError> {
        let done = match step {
            Step::CreateTable(which) => {
                let name = TABLES[*which].parse().expect("a legal table name");
                let created = self.store.create_table(self.account, &name, Placement::default());
                created.await.map(|table| {
                    self.tables[*which] = table.id;
                    Answer::Nothing
                })
            }
            Step::DropTable(which) => {
                let dropped = self.store.drop_table(self.tables[*which]).await;
                dropped.map(|()| Answer::Nothing)
            }
            Step::Commit(changes) => return self.commit(changes, Vec::new()).await,
            Step::Post(changes, actions) => {
                let messages = self.posts.commands(actions);
                return self.commit(changes, messages).await;
            }
            Step::CreateQueue(_)
            | Step::DropQueue(_)
            | Step::Peek(..)
            | Step::CountMessages(_)
            | Step::ViewMessages(_)
            | Step::ListQueues { .. } => return self.run_queue(step).await,
            Step::Get(which, Key(key)) => {
                let table = self.tables[*which];
                match self.store.get(table, key).await {
                    Ok(Some(record)) => {
                        self.check_tag(table, key, record.as_ref().timestamp())?;
                        Ok(Answer::Entity(Some(Content(content(&record)))))
                    }
                    Err(error) if is_gone(&error) => Ok(Answer::Entity(None)),
                    other => other.map(|_| Answer::Entity(None)),
                }
            }
            Step::Scan { table, query, count, .. } => {
                let through = way.map(|way| self.through(*table, way));
                return self.scan(self.tables[*table], query, *count, through).await;
            }
            Step::List { from, limit } => {
                let from = from.map(rowhouse_types::FoldedName::of);
                let listed = self.store.tables(self.account, from.as_ref(), *limit).await;
                listed.map(|tables| {
                    Answer::Names(tables.iter().map(|table| table.name.to_string()).collect())
                })
            }
            Step::CreateIndex { table, name, keys } => {
                let id = self.tables[*table];
                let text = INDEXES[*name].parse().expect("a legal name of an index");
                match self.store.create_index(id, &text, keys.clone()).await {
                    Ok(index) => {
                        self.indexes.insert((*table, *name), (index.id, keys.clone()));
                        Ok(Answer::Index(built(&*self.store, id, index.id).await.state))
                    }
                    Err(error) => Err(error),
                }
            }
            Step::DropIndex { table, name } => {
                let (index, _) = self.index(*table, *name);
                let dropped = self.store.drop_index(self.tables[*table], index).await;
                without_table(dropped.map(|()| Answer::Nothing))
            }
            Step::Walk { table, name, query, whole } => {
                return self.walk(*table, *name, query, *whole).await;
            }
            Step::SetTtl { table, ttl } => {
                // Times of records are counted from the first that there is.
                let since = self.began.ticks() - Timestamp::EDM_MIN.ticks();
                let since = Duration::from_nanos(100 * since);
                let ttl = ttl.map(|(by_property, millis)| {
                    let millis = Duration::from_millis(millis);
                    let after = if by_property { since + millis } else { millis };
                    Ttl { property: by_property.then(|| "e".into()), after }
                });
                let set = self.store.set_ttl(self.tables[*table], ttl).await;
                set.map(|()| Answer::Nothing)
            }
            Step::Weigh { table, query, .. } => {
                let ranges = query.ranges.0.clone();
                let extent = match way {
                    Some(way) => Extent::Entries(self.through(*table, way), ranges),
                    None => Extent::Keys(ranges),
                };
                let bound = query.limit as u64;
                match self.store.weigh(self.tables[*table], extent, bound).await {
                    Err(error) if is_gone(&error) => Ok(Answer::Count(0)),
                    weighed => weighed.map(Answer::Count),
                }
            }
            Step::SetClock { .. } | Step::Reopen => Ok(Answer::Nothing),
        };
        answer(done)
    }

    /// What the store answers to a step that is about queues alone.
    async fn run_queue(&mut self, step: &Step) -> Result<Answer, TestCaseError> {
        let done = match step {
            Step::CreateQueue(which) => {
                let name = QUEUES[*which].parse().expect("a legal name of a queue");
                let created = self.store.create_queue(self.account, &name, Vec::new()).await;
                created.map(|queue| {
                    self.posts.created(*which, queue.id);
                    Answer::Nothing
                })
            }
            Step::DropQueue(which) => {
                let dropped = self.store.drop_queue(self.posts.queue(*which)).await;
                dropped.map(|()| Answer::Nothing)
            }
            Step::Peek(which, limit) => {
                let peeked = self.store.peek(self.posts.queue(*which), *limit).await;
                match peeked {
                    Ok(messages) => return self.posts.seen(&messages).map(Answer::Messages),
                    Err(error) => Err(error),
                }
            }
            Step::CountMessages(which) => {
                self.store.message_count(self.posts.queue(*which)).await.map(Answer::Count)
            }
            Step::ViewMessages(which) => {
                let view = self.store.snapshot().await.expect("a view can be taken");
                let queue = self.posts.queue(*which);
                match view.messages(queue, None, 1, 1).await {
                    Ok(_) => {
                        let mut all = listed(&*view, queue).await;
                        all.retain(|message| message.expires == Timestamp::MAX);
                        return self.posts.seen(&all).map(Answer::Messages);
                    }
                    Err(error) => Err(error),
                }
            }
            Step::ListQueues { from, limit } => {
                let listed = self.store.queues(self.account, from, *limit).await;
                listed.map(|queues| {
                    Answer::Names(queues.iter().map(|queue| queue.name.to_string()).collect())
                })
            }
            other => unreachable!("{other:?} is not about queues"),
        };
        answer(done)
    }

    /// The latest index of one of the names that the table has known, or one that never was.
    fn index(&self, table: usize, number: usize) -> (IndexId, Option<&IndexKeys>) {
        let mut known = self.indexes.range((table, 0)..(table + 1, 0)).map(|(_, index)| index);
        let chosen = number.checked_rem(known.clone().count()).and_then(|at| known.nth(at));
        chosen.map_or((IndexId(1 << 40), None), |(id, keys)| (*id, Some(keys)))
    }

    fn through(&self, table: usize, way: &Way) -> Vec<Lookup> {
        let part = |part: &Part<usize>| Lookup {
            index: self.indexes[&(table, part.index)].0,
            spans: part.spans.clone(),
        };
        way.iter().map(part).collect()
    }

    async fn commit(
        &mut self,
        changes: &[Change],
        messages: Vec<MessageCommand>,
    ) -> Result<Answer, TestCaseError> {
        let commands = changes.iter().map(|change| self.command(change)).collect();
        let committed = match self.store.commit(Batch { commands, messages }).await {
            Ok(committed) => committed,
            Err(error) => return answer(Err(error)),
        };
        prop_assert_eq!(committed.timestamps.len(), changes.len());
        for (change, timestamp) in changes.iter().zip(committed.timestamps) {
            let tags =
                self.tags.entry((self.tables[change.table], change.key.0.clone())).or_default();
            // Twice within one batch may be one moment.
            prop_assert!(tags.last().is_none_or(|last| *last <= timestamp), "Timestamps rise");
            tags.push(timestamp);
        }
        self.posts.told(&committed.messages).map(Answer::Messages)
    }

    fn command(&self, change: &Change) -> Command {
        let table = self.tables[change.table];
        let tags = self.tags.get(&(table, change.key.0.clone()));
        let tag = |back: usize| {
            let known = tags.and_then(|tags| {
                let latest = *tags.last()?;
                let older = tags.iter().rev().find(|tag| **tag < latest).copied();
                if back == 0 { Some(latest) } else { older }
            });
            Condition::Matches(Etag::new(known.unwrap_or_default()))
        };
        let condition = match change.when {
            When::Absent => Condition::Absent,
            When::Exists => Condition::Exists,
            When::Any => Condition::Any,
            When::Latest => tag(0),
            When::Stale => tag(1),
        };
        let write = match &change.what {
            What::Put(record) => Write::Put(record.0.clone()),
            What::Merge(record) => Write::Merge(record.0.clone()),
            What::Delete => Write::Delete,
        };
        Command::Entity { table, key: change.key.0.clone(), condition, write }
    }

    /// Every page of the query.
    async fn scan(
        &self,
        table: TableId,
        query: &Query,
        count: bool,
        through: Option<Vec<Lookup>>,
    ) -> Result<Answer, TestCaseError> {
        let mut scan = Scan {
            ranges: query.ranges.0.clone(),
            through,
            direction: query.direction,
            take: if count { Take::Count } else { Take::Entities },
            filter: filter(&query.filter),
            select: None,
            limit: query.limit,
            max_bytes: query.bytes,
            deadline: Instant::now() + Duration::from_mins(10),
        };
        let (mut pages, mut counted) = (Vec::new(), 0);
        loop {
            let page = match self.store.scan(table, scan.clone()).await {
                Ok(page) => page,
                Err(error) if is_gone(&error) => Page::default(),
                Err(error) => return answer(Err(error)),
            };
            prop_assert!(page.examined >= page.rows.len() as u64, "what is returned was examined");
            counted += page.counted;
            let next = page.next.as_ref();
            let place =
                next.map(|at| (Box::default(), at.partition.to_string(), at.row.to_string()));
            pages.push(Found { rows: self.rows(table, &page.rows)?, next: place });
            match page.next {
                Some(next) => scan.ranges = resume_in(scan.direction, &scan.ranges, &next),
                None if count => return Ok(Answer::Count(counted)),
                None => return Ok(Answer::Pages(pages)),
            }
            prop_assert!(pages.len() <= KEYS, "pages come to an end");
        }
    }

    /// Every page in the order of an index.
    async fn walk(
        &self,
        table: usize,
        name: usize,
        query: &Query,
        whole: bool,
    ) -> Result<Answer, TestCaseError> {
        let (index, keys) = self.index(table, name);
        let filter = filter(&query.filter).filter(|_| !whole);
        let narrowed = filter.as_ref().zip(keys);
        let narrowed = narrowed.and_then(|(filter, keys)| spans(filter, keys));
        let mut walk = Walk {
            index,
            spans: narrowed.unwrap_or_else(|| vec![Span::all()]),
            ranges: query.ranges.0.clone(),
            keys: filter.as_deref().map_or_else(
                || vec![KeyRange::all()],
                |filter| rowhouse_query::plan(Some(filter.clone())).ranges,
            ),
            direction: query.direction,
            from: None,
            filter,
            select: None,
            limit: query.limit,
            max_bytes: query.bytes,
            deadline: Instant::now() + Duration::from_mins(10),
        };
        let table = self.tables[table];
        let mut pages = Vec::new();
        loop {
            let walked = self.store.walk(table, walk.clone()).await;
            let WalkPage { rows, next, examined } = match walked {
                Ok(page) => page,
                Err(error) => return answer(without_table(Err(error))),
            };
            prop_assert!(examined >= rows.len() as u64, "what is returned was examined");
            let place = next
                .as_ref()
                .map(|at| (at.entry.clone(), at.key.partition.to_string(), at.key.row.to_string()));
            pages.push(Found { rows: self.rows(table, &rows)?, next: place });
            match next {
                Some(next) => walk.from = Some(next),
                None => return Ok(Answer::Pages(pages)),
            }
            prop_assert!(pages.len() <= KEYS, "pages come to an end");
        }
    }

    fn rows(
        &self,
        table: TableId,
        rows: &Rows,
    ) -> Result<Vec<(String, String, Content)>, TestCaseError> {
        let mut found = Vec::new();
        for row in rows.iter() {
            let Row { partition, row, record } = row.expect("a page decodes");
            self.check_tag(table, &key(partition, row), record.timestamp())?;
            let content = Content(content(&record.to_owned()));
            found.push((partition.to_owned(), row.to_owned(), content));
        }
        Ok(found)
    }

    fn check_tag(
        &self,
        table: TableId,
        key: &EntityKey,
        found: Timestamp,
    ) -> Result<(), TestCaseError> {
        let wanted = self.tags.get(&(table, key.clone())).and_then(|tags| tags.last());
        prop_assert_eq!(Some(&found), wanted, "the Timestamp is that of the last commit");
        Ok(())
    }
}

/// Reading a dropped table may say so or find nothing: both are taken for nothing.
fn is_gone(error: &StoreError) -> bool {
    matches!(error, StoreError::Rejected { reason: Conflict::TableNotFound, .. })
}

/// Rejections are answers, anything else is a failure.
fn answer(result: Result<Answer, StoreError>) -> Result<Answer, TestCaseError> {
    match result {
        Ok(answer) => Ok(answer),
        Err(StoreError::Rejected { index, reason }) => Ok(Answer::Rejected(index, reason)),
        Err(other) => Err(TestCaseError::fail(other.to_string())),
    }
}

/// Where a table was dropped, so were its indexes: either may be said.
fn without_table<T>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    result.map_err(|error| {
        if is_gone(&error) { StoreError::rejected(Conflict::IndexNotFound) } else { error }
    })
}
