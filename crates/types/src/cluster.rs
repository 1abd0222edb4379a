//! What runs behind a server: nodes, servers, shards, how large they are and how busy, and whether that is even.

use serde::{Deserialize, Serialize};

/// A shard that has more than so many times the mean stands out.
const SHARD_STANDS_OUT: f64 = 3.0;
/// A node that has more than so many times the mean stands out: it holds many shards, so less of it is chance.
const NODE_STANDS_OUT: f64 = 1.5;
/// Below so many milliseconds a second nothing is busy enough to be worth a word.
const BUSY_MS: f64 = 100.0;
/// Below so many bytes no shard is large enough to be worth a word.
const LARGE_BYTES: f64 = 256e6;

/// What a server keeps its data in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "engine", rename_all = "lowercase")]
pub enum ClusterStatus {
    /// A directory of its own: there is no cluster.
    Embedded {
        /// Size of its files.
        bytes: u64,
    },
    /// One PostgreSQL database, which is one node with one shard.
    Postgres(Cluster),
    /// A Citus cluster.
    Citus(Cluster),
}

/// What a database runs on, what it holds, and who serves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Every node, whether it can be reached or not.
    pub nodes: Vec<Node>,
    /// Every server whose lease lasts.
    pub servers: Vec<Server>,
    /// Every shard, in the order of the hashes.
    pub shards: Vec<Shard>,
    /// What concerned partitions on several shards, or none in particular.
    pub several: Load,
}

/// A database server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The number that shards name it by.
    pub id: i64,
    /// Its name or address, as the cluster knows it.
    pub host: String,
    /// Where it listens.
    pub port: u16,
    /// What it is there for.
    pub role: Role,
    /// Whether the cluster uses it.
    pub active: bool,
    /// Whether it answered the server that was asked.
    pub reachable: bool,
}

/// What a node is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The only one.
    Database,
    /// Knows who holds what, and keeps the leases of the servers.
    Coordinator,
    /// Holds shards.
    Worker,
    /// A copy of another node.
    Standby,
}

/// A Rowhouse server on the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its number among all, which is part of every ETag that it gives out.
    pub slot: i64,
    /// How long its lease still lasts, in milliseconds.
    pub lease_ms: i64,
    /// When it took the slot, in the time of the database; unknown of a server of an older release.
    pub since: Option<String>,
    /// Whether it is the one that was asked.
    pub asked: bool,
}

/// A part of all entities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// The number that the cluster knows it by; 0 without a cluster.
    pub id: i64,
    /// The node that holds it.
    pub node: Option<i64>,
    /// The least hash of its partitions.
    pub from: i32,
    /// The greatest.
    pub to: i32,
    /// Its size on disk with its indexes; unknown if its node did not answer.
    pub bytes: Option<u64>,
    /// About how many entities it holds.
    pub rows: Option<u64>,
    /// What all servers together asked of it.
    pub load: Load,
}

/// What servers asked for, in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Operations that read.
    pub reads_per_second: f64,
    /// Operations that write; a batch is one.
    pub writes_per_second: f64,
    /// Entities that were read.
    pub rows_read_per_second: f64,
    /// Entities that were written or removed.
    pub rows_written_per_second: f64,
    /// How long servers waited for answers: 1,000 is one operation under way all the time.
    pub busy_ms_per_second: f64,
}

/// How uneven a cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// The largest shard.
    pub shard_size: Option<Peak>,
    /// The busiest shard.
    pub shard_load: Option<Peak>,
    /// The busiest node.
    pub node_load: Option<Peak>,
}

/// Who has most of something.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Which one.
    pub id: i64,
    /// How many times the mean of all.
    pub times: f64,
    /// Which part of the whole.
    pub share: f64,
}

impl Peak {
    /// Of at least two, if there is anything at all.
    fn of(amounts: &[(i64, f64)]) -> Option<Self> {
        let whole: f64 = amounts.iter().map(|(_, amount)| amount).sum();
        let (id, most) = *amounts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let several = amounts.len() > 1 && whole > 0.0;
        several.then(|| Self { id, times: most * real(amounts.len()) / whole, share: most / whole })
    }
}

#[expect(clippy::cast_precision_loss, reason = "compared with a mean, the last digits say nothing")]
fn real(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "compared with a mean, the last digits say nothing")]
fn size(shard: &Shard) -> Option<f64> {
    shard.bytes.map(|bytes| bytes as f64)
}

fn busy(shard: &Shard) -> f64 {
    shard.load.busy_ms_per_second
}

impl Cluster {
    /// The shards that the node holds.
    pub fn shards_of(&self, node: &Node) -> impl Iterator<Item = &Shard> {
        let id = node.id;
        self.shards.iter().filter(move |shard| shard.node == Some(id))
    }

    /// How long servers waited for the node, in milliseconds of a second.
    pub fn busy_of(&self, node: &Node) -> f64 {
        self.shards_of(node).map(busy).sum()
    }

    /// How uneven it is.
    pub fn skew(&self) -> Skew {
        let sizes: Vec<_> =
            self.shards.iter().filter_map(|shard| Some((shard.id, size(shard)?))).collect();
        let loads: Vec<_> = self.shards.iter().map(|shard| (shard.id, busy(shard))).collect();
        let holders = self.nodes.iter().filter(|node| self.shards_of(node).next().is_some());
        let of_nodes: Vec<_> = holders.map(|node| (node.id, self.busy_of(node))).collect();
        Skew {
            shard_size: Peak::of(&sizes),
            shard_load: Peak::of(&loads),
            node_load: Peak::of(&of_nodes),
        }
    }

    /// What to do about what stands out most, as a sentence; nothing if nothing does.
    pub fn hint(&self) -> Option<String> {
        let skew = self.skew();
        self.hint_of_hot_shard(&skew)
            .or_else(|| self.hint_of_hot_node(&skew))
            .or_else(|| self.hint_of_large_shard(&skew))
    }

    fn hint_of_hot_shard(&self, skew: &Skew) -> Option<String> {
        let peak = skew.shard_load.filter(|peak| peak.times >= SHARD_STANDS_OUT)?;
        let shard = self.shards.iter().find(|shard| shard.id == peak.id)?;
        (busy(shard) >= BUSY_MS).then(|| {
            format!(
                "Shard {} takes {:.0} % of the time: if that is one partition, only more PartitionKeys help, \
                 because a partition never spreads over shards; if it is many, split the shard.",
                peak.id,
                peak.share * 100.0
            )
        })
    }

    fn hint_of_hot_node(&self, skew: &Skew) -> Option<String> {
        let peak = skew.node_load.filter(|peak| peak.times >= NODE_STANDS_OUT)?;
        let node = self.nodes.iter().find(|node| node.id == peak.id)?;
        (self.busy_of(node) >= BUSY_MS).then(|| {
            format!(
                "Node {} takes {:.0} % of the time and no shard of it stands out: move some of its busy shards \
                 to other nodes.",
                peak.id,
                peak.share * 100.0
            )
        })
    }

    fn hint_of_large_shard(&self, skew: &Skew) -> Option<String> {
        let peak = skew.shard_size.filter(|peak| peak.times >= SHARD_STANDS_OUT)?;
        let shard = self.shards.iter().find(|shard| shard.id == peak.id)?;
        (size(shard)? >= LARGE_BYTES).then(|| {
            format!(
                "Shard {} has {:.1} times the mean size: split it, unless that is one partition, which never \
                 spreads over shards.",
                peak.id, peak.times
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: i64) -> Node {
        let (host, role) = ("db".to_owned(), Role::Worker);
        Node { id, host, port: 5432, role, active: true, reachable: true }
    }

    /// A shard of a node, with its megabytes and how busy it is.
    fn shard(id: i64, node: i64, megabytes: u64, busy: f64) -> Shard {
        let load = Load { busy_ms_per_second: busy, ..Load::default() };
        let bytes = Some(megabytes * 1_000_000);
        Shard { id, node: Some(node), from: 0, to: 0, bytes, rows: None, load }
    }

    /// A coordinator without shards, and four shards on each of two workers.
    fn cluster(megabytes: [u64; 8], busy: [f64; 8]) -> Cluster {
        let places = [1, 1, 1, 1, 2, 2, 2, 2].into_iter().zip(100..);
        let shards = places.zip(megabytes.into_iter().zip(busy));
        let shards =
            shards.map(|((at, id), (megabytes, busy))| shard(id, at, megabytes, busy)).collect();
        let coordinator = Node { role: Role::Coordinator, ..node(0) };
        Cluster { nodes: vec![coordinator, node(1), node(2)], shards, ..Cluster::default() }
    }

    #[test]
    fn peaks_are_compared_with_the_mean() {
        let peak = |id, times, share| Some(Peak { id, times, share });
        assert_eq!(Peak::of(&[]), None);
        assert_eq!(Peak::of(&[(7, 5.0)]), None);
        assert_eq!(Peak::of(&[(7, 0.0), (8, 0.0)]), None);
        assert_eq!(Peak::of(&[(7, 1.0), (8, 1.0)]), peak(8, 1.0, 0.5));
        assert_eq!(Peak::of(&[(7, 3.0), (8, 1.0)]), peak(7, 1.5, 0.75));
        assert_eq!(Peak::of(&[(7, 0.0), (8, 6.0), (9, 0.0)]), peak(8, 3.0, 1.0));
    }

    #[test]
    fn skew_is_that_of_shards_and_of_nodes_that_hold_some() {
        let one_hot = cluster([10; 8], [10.0, 10.0, 10.0, 10.0, 330.0, 10.0, 10.0, 10.0]);
        let skew = one_hot.skew();
        assert_eq!(skew.shard_size.map(|peak| peak.times), Some(1.0));
        assert_eq!(skew.shard_load, Some(Peak { id: 104, times: 6.6, share: 0.825 }));
        assert_eq!(skew.node_load, Some(Peak { id: 2, times: 1.8, share: 0.9 }));
        assert_eq!(Cluster::default().skew(), Skew::default());
    }

    #[test]
    fn sizes_that_are_not_known_count_for_nothing() {
        let mut half = cluster([10; 8], [0.0; 8]);
        for shard in half.shards.iter_mut().skip(4) {
            shard.bytes = None;
        }
        assert_eq!(half.skew().shard_size.map(|peak| peak.times), Some(1.0));
    }

    #[test]
    fn what_stands_out_is_told_with_what_helps() {
        let even = [100.0; 8];
        let cases = [
            ("even", [300; 8], even, None),
            ("idle", [300; 8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0], None),
            (
                "a hot shard",
                [300; 8],
                [900.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0],
                Some("Shard 100"),
            ),
            ("a hot node", [300; 8], [9.0, 9.0, 9.0, 9.0, 90.0, 90.0, 90.0, 90.0], Some("Node 2")),
            ("a large shard", [9, 9, 9, 9, 9, 9, 900, 9], even, Some("Shard 106")),
            ("a small one", [1, 1, 1, 1, 1, 1, 100, 1], even, None),
        ];
        for (what, megabytes, busy, expected) in cases {
            let hint = cluster(megabytes, busy).hint();
            match expected {
                None => assert_eq!(hint, None, "{what}"),
                Some(start) => {
                    let hint = hint.unwrap_or_default();
                    assert!(hint.starts_with(start) && hint.ends_with('.'), "{what}: {hint}");
                }
            }
        }
    }
}
