//! The load client without a server: the statements of the engine, sent to the database by this process.
//!
//! One thread keeps all connections, as it does for requests, with the driver that the server uses. Each connection
//! asks as soon as its last answer is there, and every answer is checked.

use crate::batch::OPERATIONS;
use crate::choice::{Choice, Operation, Wanted};
use crate::drive::Tally;
use crate::entity::Key;
use crate::record;
use crate::signer::ACCOUNT;
use rowhouse_env::SystemClock;
use rowhouse_store::{Batch, Command, Condition, Scan, StoreError, Table, Take, Write};
use rowhouse_store_postgres::Options;
use rowhouse_store_postgres::direct::{Connection, Direct};
use rowhouse_types::{Direction, EntityKey, KeyRange, Position, limits};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// How long a page may take, as the server has it.
const PAGE_WITHIN: Duration = Duration::from_secs(5);

/// Connections to a database, on one thread.
#[derive(Debug)]
pub(crate) struct DirectClient {
    runtime: Runtime,
    connections: Vec<Arc<Connection>>,
}

/// What a measurement asks for: operations, on a table that is read and one for inserts.
#[derive(Debug)]
pub(crate) struct Load {
    choice: Mutex<Choice>,
    data: Table,
    inserts: Table,
}

impl DirectClient {
    /// Opens so many connections.
    pub(crate) fn open(url: &str, count: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = Options { connections: count, ..Options::new(url) };
        let connections = async {
            let direct = Direct::new(&options, Arc::new(SystemClock))?;
            let mut connections = Vec::with_capacity(count);
            for _ in 0..count {
                connections.push(Arc::new(direct.connect().await?));
            }
            Ok::<_, StoreError>(connections)
        };
        let connections = runtime.block_on(connections).map_err(io::Error::other)?;
        Ok(Self { runtime, connections })
    }

    /// Operations on the tables of these names.
    pub(crate) fn load(&self, choice: Choice, data: &str, inserts: &str) -> io::Result<Arc<Load>> {
        let (data, inserts) = (self.table(data)?, self.table(inserts)?);
        Ok(Arc::new(Load { choice: Mutex::new(choice), data, inserts }))
    }

    fn table(&self, name: &str) -> io::Result<Table> {
        let account = ACCOUNT.parse().map_err(io::Error::other)?;
        let name = name.parse().map_err(io::Error::other)?;
        let first = self.connections.first().expect("there is a connection");
        self.runtime.block_on(first.table(&account, &name)).map_err(io::Error::other)
    }

    /// Asks on so many connections for the given time, then waits for the answers that are missing.
    pub(crate) fn run(
        &self,
        load: &Arc<Load>,
        connections: usize,
        length: Duration,
    ) -> io::Result<Tally> {
        let start = Instant::now();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let asking = async {
            let mut tasks = JoinSet::new();
            for connection in &self.connections[..connections] {
                let (connection, load) = (Arc::clone(connection), Arc::clone(load));
                tasks.spawn(ask(connection, load, start + length, Arc::clone(&tally)));
            }
            while let Some(ended) = tasks.join_next().await {
                ended?;
            }
            Ok::<_, io::Error>(())
        };
        self.runtime.block_on(asking)?;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        tally.elapsed = start.elapsed();
        Ok(tally)
    }
}

/// One operation after the other on a connection.
async fn ask(connection: Arc<Connection>, load: Arc<Load>, end: Instant, tally: Arc<Mutex<Tally>>) {
    loop {
        let began = Instant::now();
        if end <= began {
            return;
        }
        let operation = load.choice.lock().unwrap_or_else(PoisonError::into_inner).next();
        let reads = matches!(operation, Operation::Get(_) | Operation::Query(_));
        let result = load.perform(&connection, &operation).await;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(true) => {
                tally.operations += 1;
                let latency = if reads { &mut tally.reads } else { &mut tally.writes };
                latency.record(began.elapsed());
            }
            Err(StoreError::Busy) => tally.refused += 1,
            Ok(false) | Err(_) => {
                tally.wrong += 1;
                tally.fault.get_or_insert_with(|| format!("{operation:?} got {result:?}"));
            }
        }
    }
}

impl Load {
    /// Whether the answer is right.
    async fn perform(
        &self,
        connection: &Connection,
        operation: &Operation,
    ) -> Result<bool, StoreError> {
        match *operation {
            Operation::Get(key) => {
                let found = connection.get(&self.data, &record::key(key)).await?;
                return Ok(found.is_some_and(|found| record::is(&found, key)));
            }
            Operation::Query(ref query) => {
                let page = connection.scan(&self.data, &scan(&query.wanted)).await?;
                return Ok(page.rows.len() as u64 == query.rows && page.next.is_none());
            }
            Operation::Insert(key) => {
                let batch = Batch::of(insert(&self.inserts, key));
                connection.commit(&self.inserts, batch).await?;
            }
            Operation::Batch(first) => {
                let keys = (0..OPERATIONS).map(|row| Key { row: first.row + row, ..first });
                let commands = keys.map(|key| insert(&self.inserts, key)).collect();
                connection.commit(&self.inserts, Batch::new(commands)).await?;
            }
            Operation::Replace(key, revision) => {
                let write = Write::Put(record::entity(key, revision));
                let commands = vec![command(&self.data, record::key(key), Condition::Any, write)];
                connection.commit(&self.data, Batch::new(commands)).await?;
            }
            Operation::Merge(key, revision) => {
                let (key, write) = (record::key(key), Write::Merge(record::change(revision)));
                let commands = vec![command(&self.data, key, Condition::Exists, write)];
                connection.commit(&self.data, Batch::new(commands)).await?;
            }
        }
        Ok(true)
    }
}

fn command(table: &Table, key: EntityKey, condition: Condition, write: Write) -> Command {
    Command::Entity { table: table.id, key, condition, write }
}

fn insert(table: &Table, key: Key) -> Command {
    let write = Write::Put(record::entity(key, 0));
    command(table, record::key(key), Condition::Absent, write)
}

/// What the service asks the store for such a query.
fn scan(wanted: &Wanted) -> Scan {
    let key = |partition: u64, row: u64| record::key(Key { partition, row });
    let range = match *wanted {
        Wanted::Partition(partition) => KeyRange::partition(key(partition, 0).partition.as_str()),
        Wanted::Rows(partition, ref rows) => {
            let (first, end) = (key(partition, rows.start), key(partition, rows.end));
            let before = |at: &EntityKey| Position::before(at.partition.as_str(), at.row.as_str());
            KeyRange { start: before(&first), end: Some(before(&end)) }
        }
        Wanted::Buckets(..) | Wanted::Everywhere(_) => {
            unreachable!("queries with a filter are not sent as statements")
        }
    };
    Scan {
        ranges: vec![range],
        through: None,
        direction: Direction::Ascending,
        take: Take::Entities,
        filter: None,
        select: None,
        limit: limits::PAGE_ITEMS_MAX,
        max_bytes: limits::PAGE_BYTES_MAX,
        deadline: Instant::now() + PAGE_WITHIN,
    }
}
