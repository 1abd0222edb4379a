//! What may happen in a sequence, and how it is drawn.

use super::super::fixture::key;
use super::super::indexed::{index_of, unique_of};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rowhouse_query::index::IndexKeys;
use rowhouse_types::{
    Direction, EntityKey, KeyRange, Position, Record, RecordBuilder, Timestamp, Value,
};
use std::fmt;

pub(super) const TABLES: [&str; 3] = ["One", "Two", "Three"];
pub(super) const PARTITIONS: [&str; 3] = ["", "a", "ab"];
pub(super) const ROWS: [&str; 4] = ["", "a", "b", "😀"];
const FILTERS: [&str; 14] = [
    "",
    "n eq 1",
    "n gt 0 and m lt 2",
    "not (n eq 1)",
    "n ne 2 or m eq 0",
    "s ge 'a'",
    "PartitionKey eq 'a'",
    "RowKey gt 'a' and n ge 0",
    "PartitionKey gt 'a' or RowKey le 'a'",
    "missing eq true",
    "startswith(RowKey,'a') and not (length(s) gt 1)",
    "toupper(s) ge 'A'",
    "n in (1,2) or contains(s,'a') ne true",
    "endswith(tolower(PartitionKey),'a') or contains(s,RowKey)",
];
/// Names of indexes: few, so that one is declared, dropped and declared again.
pub(super) const INDEXES: [&str; 3] = ["one", "two", "three"];
pub(super) const QUEUES: [&str; 2] = ["one", "two"];

#[derive(Clone, Debug)]
pub(super) enum Step {
    CreateTable(usize),
    DropTable(usize),
    Commit(Vec<Change>),
    Get(usize, Key),
    /// Every page, through indexes if a way is chosen and there is one.
    Scan {
        table: usize,
        query: Query,
        count: bool,
        way: Option<usize>,
    },
    List {
        from: Option<&'static str>,
        limit: usize,
    },
    CreateIndex {
        table: usize,
        name: usize,
        keys: IndexKeys,
    },
    DropIndex {
        table: usize,
        name: usize,
    },
    /// Every page in the order of an index: of all entries, or of those that the filter asks for. Indexes are counted
    /// among those that the table has had.
    Walk {
        table: usize,
        name: usize,
        query: Query,
        whole: bool,
    },
    /// Entities expire so long after their Timestamp, or after `e` says; or no longer.
    SetTtl {
        table: usize,
        ttl: Option<(bool, u64)>,
    },
    /// How much a scan would examine.
    Weigh {
        table: usize,
        query: Query,
        way: Option<usize>,
    },
    CreateQueue(usize),
    DropQueue(usize),
    /// Changes of entities and then of messages.
    Post(Vec<Change>, Vec<(usize, Action)>),
    Peek(usize, usize),
    CountMessages(usize),
    /// All messages in a view of the store that never expire.
    ViewMessages(usize),
    ListQueues {
        from: &'static str,
        limit: usize,
    },
    SetClock {
        millis: i64,
    },
    Reopen,
}

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) ranges: Ranges,
    pub(super) filter: String,
    pub(super) direction: Direction,
    pub(super) limit: usize,
    pub(super) bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) table: usize,
    pub(super) key: Key,
    pub(super) when: When,
    pub(super) what: What,
}

/// A change of messages, in words that mean the same on both sides. Messages are counted among those that the queue has had.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Put {
        text: &'static str,
        hide: u64,
        live: Option<u64>,
    },
    Take {
        limit: usize,
        hide: u64,
    },
    Update {
        which: usize,
        stale: bool,
        hide: u64,
        text: Option<&'static str>,
    },
    Delete {
        which: usize,
        stale: bool,
    },
    Clear,
    /// The message as it was told last.
    Restore(usize),
}

/// A condition, in words that mean the same on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Absent,
    Exists,
    Any,
    /// Has the tag that the key last had.
    Latest,
    /// Has the tag that it had before.
    Stale,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Put(Content),
    Merge(Content),
    Delete,
}

/// A sequence, a line per step when printed.
#[derive(Clone)]
pub(super) struct Steps(pub(super) Vec<Step>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}

/// Keys, ranges and records that print their content: a failure is to be read by people.
#[derive(Clone)]
pub(super) struct Key(pub(super) EntityKey);

#[derive(Clone)]
pub(super) struct Ranges(pub(super) Vec<KeyRange>);

/// A record without its Timestamp.
#[derive(Clone, PartialEq)]
pub(super) struct Content(pub(super) Record);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, {:?})", self.0.partition.as_str(), self.0.row.as_str())
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: &Position| (at.partition.clone(), at.row.clone());
        let range = |range: &KeyRange| (place(&range.start), range.end.as_ref().map(place));
        f.debug_list().entries(self.0.iter().map(range)).finish()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties = self.0.as_ref().iter().flatten();
        f.debug_map().entries(properties.map(|each| (each.name, each.value))).finish()
    }
}

/// So many milliseconds later.
pub(super) fn later(time: Timestamp, millis: u64) -> Timestamp {
    Timestamp::from_ticks(time.ticks() + millis * 10_000).unwrap_or(Timestamp::MAX)
}

pub(super) fn record() -> impl Strategy<Value = Content> {
    let value = prop_oneof![
        (0..3).prop_map(Value::Int32),
        (0..3i64).prop_map(Value::Int64),
        select(vec!["", "a", "b"]).prop_map(|text| Value::String(text.into())),
        any::<f64>().prop_map(Value::Double),
    ];
    let time = (0..20u64).prop_map(|n| Value::DateTime(later(Timestamp::EDM_MIN, 200 * n)));
    let int = (0..3).prop_map(Value::Int32);
    let property = prop_oneof![
        3 => (select(vec!["n", "m"]), int),
        1 => (select(vec!["n", "m", "s", "x", "e"]), value),
        1 => (Just("e"), time),
    ];
    vec(property, 0..6).prop_map(|properties| {
        let mut builder = RecordBuilder::new();
        for (name, value) in properties {
            // A name drawn twice stays with its first value.
            let _ = builder.push(name, value.as_ref());
        }
        Content(builder.finish(Timestamp::default()))
    })
}

/// One of them most of the time, so that something comes together in it.
pub(super) fn table() -> impl Strategy<Value = usize> + Clone {
    select(vec![0, 0, 0, 1, 2])
}

pub(super) fn any_key() -> impl Strategy<Value = Key> {
    (select(&PARTITIONS[..]), select(&ROWS[..])).prop_map(|(p, r)| Key(key(p, r)))
}

fn change() -> impl Strategy<Value = Change> {
    // Mostly conditions that hold: a batch of which every command may fail never does anything.
    let when = prop_oneof![
        10 => Just(When::Any),
        2 => Just(When::Absent),
        2 => Just(When::Exists),
        2 => Just(When::Latest),
        1 => Just(When::Stale),
    ];
    let what = prop_oneof![
        3 => record().prop_map(What::Put),
        2 => record().prop_map(What::Merge),
        1 => Just(What::Delete),
    ];
    (table(), any_key(), when, what).prop_map(|(table, key, when, what)| Change {
        table,
        key,
        when,
        what,
    })
}

fn position() -> impl Strategy<Value = Position> {
    (any_key(), 0..4).prop_map(|(Key(key), kind)| {
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        match kind {
            0 => Position::before(partition, row),
            1 => Position::after(partition, row),
            2 => Position::before_partition(partition),
            _ => Position::after_partition(partition),
        }
    })
}

/// Disjoint ranges in order; the last may be open.
fn ranges() -> impl Strategy<Value = Ranges> {
    let some = (vec(position(), 0..7), any::<bool>()).prop_map(|(mut positions, open)| {
        positions.sort();
        let pairs = positions.chunks(2).filter_map(|pair| match pair {
            [start, end] => Some(KeyRange { start: start.clone(), end: Some(end.clone()) }),
            [start] if open => Some(KeyRange { start: start.clone(), end: None }),
            _ => None,
        });
        Ranges(pairs.filter(|range| !range.is_empty()).collect())
    });
    prop_oneof![3 => Just(Ranges(vec![KeyRange::all()])), 2 => some]
}

/// Comparisons of what is indexed with values of every type, and combinations of them.
fn filter() -> impl Strategy<Value = String> {
    let name = select(vec!["n", "n", "m", "s", "x", "PartitionKey", "RowKey"]);
    let operator = select(vec!["eq", "eq", "eq", "ne", "lt", "le", "gt", "ge"]);
    let literal =
        select(vec!["0", "1", "2", "1", "0L", "2L", "'a'", "'b'", "''", "0.0", "1.5", "true"]);
    let compared = (name.clone(), operator, literal.clone())
        .prop_map(|(name, operator, literal)| format!("{name} {operator} {literal}"));
    let listed = (name.clone(), literal.clone(), literal)
        .prop_map(|(name, one, other)| format!("{name} in ({one},{other})"));
    let begun = (name, select(vec!["", "a", "b"]))
        .prop_map(|(name, beginning)| format!("startswith({name},'{beginning}')"));
    let known = select(&FILTERS[..]).prop_map(str::to_owned);
    // What is looked up in one index or in the other.
    let name = || select(vec!["n", "n", "m", "m", "s"]);
    let operator = || select(vec!["eq", "ge"]);
    let either = (name(), operator(), 0..3, name(), operator(), 0..3)
        .prop_map(|(a, how, one, b, so, other)| format!("{a} {how} {one} or {b} {so} {other}"));
    let leaf = prop_oneof![6 => compared, 1 => listed, 1 => begun];
    let nested = leaf.prop_recursive(2, 6, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            2 => two.clone().prop_map(|(one, other)| format!("({one}) and ({other})")),
            2 => two.prop_map(|(one, other)| format!("({one}) or ({other})")),
            1 => inner.prop_map(|one| format!("not ({one})")),
        ]
    });
    prop_oneof![1 => known, 3 => nested, 2 => either]
}

fn query() -> impl Strategy<Value = Query> {
    let direction = select(vec![Direction::Ascending, Direction::Descending]);
    let limit = select(vec![1, 1, 2, 3, 5, 1000]);
    let bytes = select(vec![1, 60, 200, usize::MAX, usize::MAX]);
    (ranges(), filter(), direction, limit, bytes).prop_map(
        |(ranges, filter, direction, limit, bytes)| Query {
            ranges,
            filter,
            direction,
            limit,
            bytes,
        },
    )
}

pub(super) fn create_index() -> impl Strategy<Value = Step> {
    let properties: Vec<&[&str]> = vec![
        &["n"],
        &["n"],
        &["m"],
        &["m"],
        &["s"],
        &["x"],
        &["n", "m"],
        &["s", "n", "m"],
        &["RowKey", "n"],
        &["PartitionKey"],
    ];
    // Those with PartitionKey can be kept by engines of several nodes too.
    let unique: Vec<&[&str]> = vec![
        &["n", "m"],
        &["x"],
        &["PartitionKey", "n"],
        &["PartitionKey", "m", "n"],
        &["s", "PartitionKey"],
        &["PartitionKey", "RowKey"],
    ];
    let keys = prop_oneof![
        2 => select(properties).prop_map(index_of),
        1 => select(unique).prop_map(unique_of),
    ];
    (table(), 0..INDEXES.len(), keys).prop_map(|(table, name, keys)| Step::CreateIndex {
        table,
        name,
        keys,
    })
}

/// Never what the clock moves by, which is whole hundredths: what depends on single ticks is not asked for.
pub(super) fn set_ttl() -> impl Strategy<Value = Step> {
    let millis = (0..200u64).prop_map(|n| 10 * n + 5);
    let ttl = prop_oneof![1 => Just(None), 5 => (any::<bool>(), millis).prop_map(Some)];
    (table(), ttl).prop_map(|(table, ttl)| Step::SetTtl { table, ttl })
}

fn action() -> impl Strategy<Value = Action> {
    let hide = || select(vec![0, 0, 1, 2]);
    let live = select(vec![None, None, Some(1), Some(2), Some(3), Some(1000)]);
    let which = || 0..6usize;
    let stale = || prop::bool::weighted(0.2);
    prop_oneof![
        8 => (select(vec!["", "a", "b"]), hide(), live)
            .prop_map(|(text, hide, live)| Action::Put { text, hide, live }),
        6 => (select(vec![1, 1, 2, 9]), hide()).prop_map(|(limit, hide)| Action::Take { limit, hide }),
        4 => (which(), stale(), hide(), select(vec![None, Some("c")]))
            .prop_map(|(which, stale, hide, text)| Action::Update { which, stale, hide, text }),
        3 => (which(), stale()).prop_map(|(which, stale)| Action::Delete { which, stale }),
        1 => Just(Action::Clear),
        1 => which().prop_map(Action::Restore),
    ]
}

/// One of them most of the time.
fn queue() -> impl Strategy<Value = usize> + Clone {
    select(vec![0, 0, 0, 1])
}

/// Mostly messages alone, one at a time: of many that may fail one often does.
fn post() -> impl Strategy<Value = Step> {
    let changes = prop_oneof![4 => Just(Vec::new()), 1 => vec(change(), 1..3)];
    let few = select(vec![1..2usize, 1..2, 1..4]);
    let actions = few.prop_flat_map(|few| vec((queue(), action()), few));
    (changes, actions).prop_map(|(changes, mut actions)| {
        // A message comes back as it was told last, so nothing may happen to it in the same batch.
        if let Some(at) = actions.iter().position(|(_, it)| matches!(it, Action::Restore(_))) {
            actions = vec![actions.swap_remove(at)];
        }
        Step::Post(changes, actions)
    })
}

fn queue_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => queue().prop_map(Step::CreateQueue),
        1 => queue().prop_map(Step::DropQueue),
        24 => post(),
        6 => (queue(), select(vec![1, 2, 1000])).prop_map(|(queue, limit)| Step::Peek(queue, limit)),
        1 => queue().prop_map(Step::CountMessages),
        1 => queue().prop_map(Step::ViewMessages),
        1 => (select(vec!["", "one", "onf", "zzz"]), select(vec![1, 1000]))
            .prop_map(|(from, limit)| Step::ListQueues { from, limit }),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let table = table();
    let name = 0..INDEXES.len();
    let way = || prop_oneof![1 => Just(None), 2 => (0..8usize).prop_map(Some)];
    prop_oneof![
        2 => table.clone().prop_map(Step::CreateTable),
        1 => table.clone().prop_map(Step::DropTable),
        14 => vec(change(), 1..5).prop_map(Step::Commit),
        4 => (table.clone(), any_key()).prop_map(|(table, key)| Step::Get(table, key)),
        12 => (table.clone(), query(), prop::bool::weighted(0.1), way())
            .prop_map(|(table, query, count, way)| Step::Scan { table, query, count, way }),
        1 => (select(vec![None, Some("P"), Some("three"), Some("z")]), select(vec![1, 2, 1000]))
            .prop_map(|(from, limit)| Step::List { from, limit }),
        3 => create_index(),
        1 => (table.clone(), name.clone()).prop_map(|(table, name)| Step::DropIndex { table, name }),
        5 => (table.clone(), name, query(), any::<bool>())
            .prop_map(|(table, name, query, whole)| Step::Walk { table, name, query, whole }),
        6 => (table, query(), way()).prop_map(|(table, query, way)| Step::Weigh { table, query, way }),
        1 => set_ttl(),
        2 => (-2000..2000i64).prop_map(|millis| Step::SetClock { millis }),
        1 => Just(Step::Reopen),
        24 => queue_step(),
    ]
}
