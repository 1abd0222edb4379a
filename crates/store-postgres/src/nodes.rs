//! The nodes of a Citus cluster: a pool for each, and which of them holds a partition.
//!
//! Every node can do every statement, so what is known here decides how far a statement travels and never what it
//! answers: a map that is old, a node that is gone or one that this server cannot reach only costs time. Without a
//! cluster there is one pool. What is asked of each shard is counted on the way.

use crate::fault::Fault;
use crate::lanes::Shared;
use crate::load::{Counters, Kind, Meter, SEVERAL, Totals};
use crate::options::Options;
use crate::pool::{Pool, Session};
use rowhouse_store::StoreError;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often the map is read anew.
const READ_EVERY: Duration = Duration::from_secs(10);
/// How long a node that could not be reached is left alone.
const AVOID_FOR: Duration = Duration::from_secs(5);
const NODES: &str = "SELECT groupid, nodename, nodeport FROM pg_catalog.pg_dist_node
    WHERE isactive AND hasmetadata AND metadatasynced AND noderole = 'primary' AND groupid <> 0";
const SHARDS: &str = "SELECT s.shardmaxvalue::integer, p.groupid, s.shardid
    FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_dist_placement p USING (shardid)
    WHERE s.logicalrelid = 'rowhouse.entities'::regclass ORDER BY s.shardmaxvalue::integer";

/// Connections to the database, and to the nodes of the cluster that it coordinates.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The database that was named.
    first: Pool,
    options: Options,
    map: RwLock<Arc<Map>>,
    turn: AtomicUsize,
    /// What concerns several shards, or a database without any.
    several: Arc<Counters>,
}

/// Who holds what.
#[derive(Debug, Default)]
struct Map {
    nodes: Vec<Arc<Node>>,
    /// In the order of their hashes.
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    id: i64,
    /// The greatest hash of its partitions.
    greatest: i32,
    node: Option<usize>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Node {
    group: i32,
    host: String,
    port: u16,
    pool: Pool,
    avoid_until: Mutex<Option<Instant>>,
}

impl Node {
    fn is_usable(&self) -> bool {
        let until = *self.avoid_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| until <= Instant::now())
    }

    fn avoid(&self) {
        let until = Some(Instant::now() + AVOID_FOR);
        *self.avoid_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Nodes {
    /// The database alone; its nodes are found later.
    pub(crate) fn new(first: Pool, options: Options) -> Self {
        let (map, turn) = (RwLock::default(), AtomicUsize::new(0));
        Self { first, options, map, turn, several: Arc::default() }
    }

    /// The database that was named: for what is kept there alone.
    pub(crate) fn first(&self) -> &Pool {
        &self.first
    }

    /// Those of all nodes.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let map = self.map();
        let nodes = map.nodes.iter().map(|node| node.pool.clone());
        std::iter::once(self.first.clone()).chain(nodes).collect()
    }

    /// How all of them are connected to.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether entities are spread over shards.
    pub(crate) fn is_cluster(&self) -> bool {
        self.shards() > 0
    }

    /// How many shards they are spread over; none without a cluster.
    pub(crate) fn shards(&self) -> usize {
        self.map().shards.len()
    }

    /// A connection for a partition that lives there: to the node that holds it, if it is known and can be reached.
    pub(crate) async fn session_at(
        &self,
        home: i64,
        kind: Kind,
    ) -> Result<(Session, Meter), StoreError> {
        let map = self.map();
        let shard = map.shard(home);
        let session = self.session_on(shard.and_then(|shard| map.holder(shard))).await?;
        let counters = shard.map_or(&self.several, |shard| &shard.counters);
        Ok((session, Meter::start(counters, kind)))
    }

    /// As [`Nodes::session_at`], for what is counted already.
    pub(crate) async fn session_again_at(&self, home: i64) -> Result<Session, StoreError> {
        let map = self.map();
        self.session_on(map.shard(home).and_then(|shard| map.holder(shard))).await
    }

    /// As [`Nodes::session_at`], beside others: for reading one entity. None if there is no such connection at the moment.
    pub(crate) fn shared_at(&self, home: i64) -> Option<(Shared, Meter)> {
        let map = self.map();
        let shard = map.shard(home);
        let node = shard.and_then(|shard| map.holder(shard)).filter(|node| node.is_usable());
        let lane = node.map_or(&self.first, |node| &node.pool).shared()?;
        let counters = shard.map_or(&self.several, |shard| &shard.counters);
        Some((lane, Meter::start(counters, Kind::Read)))
    }

    /// A connection for reading many partitions: to one node after the other.
    pub(crate) async fn session(&self) -> Result<(Session, Meter), StoreError> {
        let map = self.map();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // The one that was named has its turn too.
        let session = self.session_on(map.nodes.get(turn % (map.nodes.len() + 1))).await?;
        Ok((session, Meter::start(&self.several, Kind::Read)))
    }

    async fn session_on(&self, node: Option<&Arc<Node>>) -> Result<Session, StoreError> {
        if let Some(node) = node.filter(|node| node.is_usable()) {
            match node.pool.reach().await? {
                Some(session) => return Ok(session),
                None => node.avoid(),
            }
        }
        self.first.session().await
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the map anew for as long as the store is open.
    pub(crate) async fn keep_reading(self: Arc<Self>) {
        loop {
            if let Err(fault) = self.read().await {
                tracing::debug!(?fault, "the nodes of the cluster could not be read");
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// Reads who holds what.
    pub(crate) async fn read(&self) -> Result<(), Fault> {
        let session = self.first.session().await?;
        let (nodes, shards) = (session.rows(NODES, &[]).await?, session.rows(SHARDS, &[]).await?);
        drop(session);
        let old = self.map();
        let mut map = Map::default();
        let mut places = HashMap::new();
        for row in &nodes {
            let (group, host, port): (i32, String, i32) = (row.get(0), row.get(1), row.get(2));
            let Ok(port) = u16::try_from(port) else { continue };
            places.insert(group, map.nodes.len());
            let known = old.nodes.iter().find(|node| node.host == host && node.port == port);
            map.nodes.push(match known {
                Some(node) if node.group == group => Arc::clone(node),
                _ => Arc::new(self.node(group, host, port)?),
            });
        }
        let counted: HashMap<i64, &Arc<Counters>> =
            old.shards.iter().map(|shard| (shard.id, &shard.counters)).collect();
        for row in &shards {
            let (greatest, group, id): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
            let counters =
                counted.get(&id).map_or_else(Arc::default, |&counted| Arc::clone(counted));
            map.shards.push(Shard { id, greatest, node: places.get(&group).copied(), counters });
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        Ok(())
    }

    fn node(&self, group: i32, host: String, port: u16) -> Result<Node, Fault> {
        let pool = Pool::at(&self.options, &host, port);
        let pool = pool.map_err(StoreError::unavailable)?;
        Ok(Node { group, host, port, pool, avoid_until: Mutex::new(None) })
    }

    /// What this server has asked of each shard so far.
    pub(crate) fn totals(&self) -> BTreeMap<i64, Totals> {
        let map = self.map();
        let of_shards = map.shards.iter().map(|shard| (shard.id, shard.counters.totals()));
        of_shards.chain([(SEVERAL, self.several.totals())]).collect()
    }

    /// Connections that are open, idle, and requests that wait for one, over all nodes.
    pub(crate) fn usage(&self) -> (usize, usize, usize) {
        let map = self.map();
        let pools = map.nodes.iter().map(|node| &node.pool).chain([&self.first]);
        pools
            .map(Pool::usage)
            .fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2))
    }

    /// Lends no more connections.
    pub(crate) fn close(&self) {
        for node in &self.map().nodes {
            node.pool.close();
        }
        self.first.close();
    }
}

impl Map {
    /// Where a partition that lives there is.
    fn shard(&self, home: i64) -> Option<&Shard> {
        let hash = hash(home);
        self.shards.get(self.shards.partition_point(|shard| shard.greatest < hash))
    }

    fn holder(&self, shard: &Shard) -> Option<&Arc<Node>> {
        self.nodes.get(shard.node?)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the halves of a number are what is hashed"
)]
/// The hash by which Citus finds the shard of a number: PostgreSQL's own of a bigint.
fn hash(number: i64) -> i32 {
    let low = number as u32;
    let high = (number >> 32) as u32;
    let folded = low ^ if number >= 0 { high } else { !high };
    let start = 0x9E37_79B9u32.wrapping_add(4).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start.wrapping_add(folded), start, start);
    let mix = |x: &mut u32, y: u32, by: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(by));
    mix(&mut c, b, 14);
    mix(&mut a, c, 11);
    mix(&mut b, a, 25);
    mix(&mut c, b, 16);
    mix(&mut a, c, 4);
    mix(&mut b, a, 14);
    mix(&mut c, b, 24);
    c.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `SELECT hashint8(n)` answers.
    #[test]
    fn hashes_are_those_of_the_database() {
        let numbers = [0, 1, -1, 42, i64::MAX, i64::MIN, 4_549_668_764_635_936_712];
        let hashes = numbers.map(hash);
        assert_eq!(
            hashes,
            [
                -272_711_505,
                -1_905_060_026,
                385_747_274,
                1_509_752_520,
                -1_524_351_049,
                -96_758_253,
                -1_932_652_267
            ]
        );
    }

    #[test]
    fn a_map_finds_the_shard_of_every_hash() {
        let shard = |id, greatest| Shard { id, greatest, node: None, counters: Arc::default() };
        let map = Map { nodes: Vec::new(), shards: vec![shard(7, -1), shard(8, i32::MAX)] };
        // The hash of 0 is below 0, that of 42 above.
        assert_eq!([0, 42].map(|home| map.shard(home).map(|shard| shard.id)), [Some(7), Some(8)]);
        assert!(map.holder(&map.shards[0]).is_none());
        assert!(Map::default().shard(0).is_none());
    }
}
