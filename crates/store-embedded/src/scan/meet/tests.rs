use super::*;
use crate::tests::common::{commit, put, record, scan_of, table};
use crate::tuning::Tuning;
use crate::{Durability, EmbeddedStore, Options, schema};
use rowhouse_env::SystemClock;
use rowhouse_store::{IndexKeys, Sort, Store, TableId};
use rowhouse_types::{KeyRange, Rows};
use std::path::Path;

const PARTITIONS: u64 = 6;
const ROWS: u64 = 100;
/// Numbers in records are below this.
const NUMBERS: u64 = 1000;

/// Chance that is the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn key(&mut self) -> (String, String) {
        (format!("p{}", self.below(PARTITIONS)), format!("r{:02}", self.below(ROWS)))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

fn open(directory: &Path, tuning: Tuning) -> EmbeddedStore {
    let options = Options { durability: Durability::Ephemeral, ..Options::new(directory) };
    EmbeddedStore::open_tuned(options, Arc::new(SystemClock), tuning).unwrap()
}

async fn filled(store: &EmbeddedStore, dice: &mut Dice) -> TableId {
    let things = table(store, "Things").await;
    for partition in 0..PARTITIONS {
        let rows = (0..ROWS).map(|row| {
            let number = dice.below(NUMBERS).cast_signed();
            put(things, &format!("p{partition}"), &format!("r{row:02}"), record(number, 20))
        });
        commit(store, rows.collect()).await;
    }
    things
}

/// A scan of everything, or of two ranges of it, that takes numbers below a limit.
fn any_scan(dice: &mut Dice) -> Scan {
    let mut edges: Vec<_> = (0..4)
        .map(|_| dice.key())
        .map(|(partition, row)| Position::before(&partition, &row))
        .collect();
    edges.sort();
    edges.dedup();
    let mut ranges = vec![KeyRange::all()];
    if let [first, second, third, rest @ ..] = &edges[..]
        && dice.below(2) == 0
    {
        ranges = vec![
            KeyRange { start: first.clone(), end: Some(second.clone()) },
            KeyRange { start: third.clone(), end: rest.first().cloned() },
        ];
    }
    let wanted = dice.one_of(&[0, 5, 50, 500, NUMBERS]);
    let filter = rowhouse_query::Filter::parse(&format!("Number lt {wanted}L")).unwrap();
    Scan {
        ranges,
        filter: filter.map(Arc::new),
        limit: dice.one_of(&[1, 2, 20, 1000]),
        max_bytes: dice.one_of(&[1, 500, 5000, usize::MAX]),
        ..scan_of(KeyRange::all())
    }
}

fn assert_same(found: &Page, expected: &Page, scan: &Scan) {
    let rows = |page: &Page| -> Vec<(String, String, Vec<u8>)> {
        let rows = page.rows.iter().map(Result::unwrap);
        rows.map(|row| (row.partition.into(), row.row.into(), row.record.as_bytes().into()))
            .collect()
    };
    assert_eq!(rows(found), rows(expected), "{scan:?}");
    assert_eq!(found.next, expected.next, "{scan:?}");
}

/// Wherever the two meet, and whatever else ends the page, it is what one would have read alone.
#[tokio::test]
async fn the_page_does_not_tell_where_they_met() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let mut dice = Dice(0x5DEE_CE66);
    let things = filled(&store, &mut dice).await;
    let shared = &store.shared;
    let (front, back) = (reader(shared), reader(shared));
    let table = Arc::clone(shared.catalogue.load().table_by_id(things).unwrap());
    let batch = entity::last_batch(&front).unwrap();
    let (now, never) = (shared.now(&table), || false);
    let mut met = 0;
    for _ in 0..3000 {
        let scan = any_scan(&mut dice);
        let meeting = Meeting::default();
        let (partition, row) = dice.key();
        meeting.lock().front.set((&partition, &row));
        let backwards = Scan { direction: Direction::Descending, ..scan.clone() };
        let found = read(&back, &table, &backwards, (now, batch), &meeting, &never).unwrap();
        let found = found.expect("nothing was committed");
        let behind = found.examined;
        meeting.lock().found = Found::Page(found);
        let front_role = Role::Front(Front(Arc::new(meeting)));
        let both = super::super::read(&front, &table, &scan, now, &never, front_role).unwrap();
        let alone = super::super::read(&front, &table, &scan, now, &never, Role::Alone).unwrap();
        assert_same(&both, &alone, &scan);
        met += u64::from(0 < behind && both.examined != alone.examined);
    }
    assert!(1000 < met, "they met in {met} of 3000 pages");
}

/// A back that would read something else than the front reads nothing.
#[tokio::test]
async fn both_read_at_one_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = filled(&store, &mut Dice(1)).await;
    let shared = &store.shared;
    let back = reader(shared);
    let table = Arc::clone(shared.catalogue.load().table_by_id(things).unwrap());
    let before = entity::last_batch(&back).unwrap();
    commit(&store, vec![put(things, "p0", "r00", record(7, 0))]).await;
    let scan = Scan { direction: Direction::Descending, ..scan_of(KeyRange::all()) };
    let (now, meeting) = (shared.now(&table), Meeting::default());
    let read = |batch| read(&back, &table, &scan, (now, batch), &meeting, &|| false).unwrap();
    assert!(read(before).is_none());
    assert!(read(before + 1).is_some());
}

/// With real threads, some pages beside writes and some without: nothing is missing, twice or out of order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_read_from_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let tuning =
        Tuning { back_after_rows: 16, processors: 8, scan_threads: 8, ..Tuning::default() };
    let store = open(directory.path(), tuning);
    let mut dice = Dice(0xB5_29_7A_4D);
    let things = filled(&store, &mut dice).await;
    let other = table(&store, "Other").await;
    let scan = || Scan {
        filter: rowhouse_query::Filter::parse("Number lt 50L").unwrap().map(Arc::new),
        ..scan_of(KeyRange::all())
    };
    let expected = store.scan(things, Scan { direction: Direction::Descending, ..scan() });
    let expected = expected.await.unwrap();
    let keys = |rows: &Rows| -> Vec<String> {
        let rows = rows.iter().map(Result::unwrap);
        rows.map(|row| format!("{} {}", row.partition, row.row)).collect()
    };
    let mut expected = keys(&expected.rows);
    expected.reverse();
    assert!(!expected.is_empty());
    let sort = || Sort {
        keys: IndexKeys { properties: vec!["Number".into()], unique: false },
        direction: Direction::Ascending,
        from: None,
        ranges: scan().ranges,
        through: None,
        filter: scan().filter,
        select: None,
        limit: 1000,
        max_bytes: usize::MAX,
        deadline: scan().deadline,
    };
    let (mut met, mut met_sorting) = (false, false);
    for round in 0..500 {
        if round % 3 == 0 {
            commit(&store, vec![put(other, "p", "r", record(round, 0))]).await;
        }
        let (one, two) = tokio::join!(store.scan(things, scan()), store.scan(things, scan()));
        for page in [one.unwrap(), two.unwrap()] {
            assert_eq!(keys(&page.rows), expected);
            assert_eq!(page.next, None);
            // Two that meet have both looked at a few rows there.
            met |= PARTITIONS * ROWS < page.examined;
        }
        let sorted = store.sort(things, sort()).await.unwrap().unwrap();
        let mut found = keys(&sorted.rows);
        found.sort();
        assert_eq!(found, expected);
        met_sorting |= PARTITIONS * ROWS < sorted.examined;
    }
    assert!(met && met_sorting, "no page was read from both ends: {met}, {met_sorting}");
    store.close().await.unwrap();
}

fn reader(shared: &Shared) -> Connection {
    schema::reader(shared.database(), 1024 * 1024, true).unwrap()
}
