//! What the store runs on: nodes, servers and shards, with their sizes and what is asked of them.
//!
//! Each node is asked for the sizes of its shards on a connection of its own and within a bounded time: one that is
//! down is shown as that, and holds nobody up. A role that may use the schema may ask for all of it.

use crate::fault::Fault;
use crate::load::{self, SEVERAL};
use crate::nodes::Nodes;
use crate::pool::{Pool, Session};
use futures_util::future::join_all;
use rowhouse_types::cluster::{Cluster, ClusterStatus, Load, Node, Role, Server, Shard};
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Row;

/// How long a node may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// The number of the only node without a cluster.
const ONLY_NODE: i64 = 1;

const SERVERS: &str = "SELECT slot::bigint,
        floor(extract(epoch FROM expires - now()) * 1000)::bigint,
        CASE WHEN isfinite(since) THEN to_char(since, 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') END,
        holder = $1
    FROM rowhouse.servers WHERE expires > now() ORDER BY slot";
const ITSELF: &str =
    "SELECT coalesce(host(inet_server_addr()), 'this machine'), coalesce(inet_server_port(), 0)";
const NODES: &str = "SELECT nodeid::bigint, groupid, nodename, nodeport, noderole::text, isactive
    FROM pg_catalog.pg_dist_node ORDER BY groupid, nodeid";
const SHARDS: &str = "SELECT DISTINCT ON (s.shardid)
        s.shardid, p.groupid, s.shardminvalue::integer, s.shardmaxvalue::integer
    FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_dist_placement p USING (shardid)
    WHERE s.logicalrelid = 'rowhouse.entities'::regclass ORDER BY s.shardid, p.placementid";
/// Nothing where the relation is not there. On the nodes of a cluster shards do not show up among the relations, but
/// can be named.
const SIZES: &str = "SELECT s.id, pg_total_relation_size(s.place), pg_stat_get_live_tuples(s.place)
    FROM (SELECT id, to_regclass(name) AS place FROM unnest($1::bigint[], $2::text[]) AS m(id, name)) AS s";

/// A relation that holds entities: the number of its shard, and its name.
type Relation = (i64, String);
/// Bytes and about how many entities, by shard.
type Sizes = HashMap<i64, (Option<i64>, Option<i64>)>;

/// What the store runs on, asked by the server with that number.
pub(crate) async fn of(nodes: &Nodes, holder: i64) -> Result<ClusterStatus, Fault> {
    let session = nodes.first().session().await?;
    let servers = servers(&session, holder).await?;
    let loads = load::sum(&session).await?;
    if nodes.is_cluster() {
        let cluster = Found::read(&session).await?;
        drop(session);
        return Ok(ClusterStatus::Citus(cluster.describe(nodes, servers, &loads).await));
    }
    Ok(ClusterStatus::Postgres(database(&session, servers, &loads).await?))
}

async fn servers(session: &Session, holder: i64) -> Result<Vec<Server>, Fault> {
    let rows = session.rows(SERVERS, &[&holder]).await?;
    let server = |row: &Row| Server {
        slot: row.get(0),
        lease_ms: row.get(1),
        since: row.get(2),
        asked: row.get(3),
    };
    Ok(rows.iter().map(server).collect())
}

/// A database that is no cluster.
async fn database(
    session: &Session,
    servers: Vec<Server>,
    loads: &HashMap<i64, Load>,
) -> Result<Cluster, Fault> {
    let itself = session.row(ITSELF, &[]).await?.ok_or(Fault::Unmet)?;
    let sizes = sizes(session, &[(SEVERAL, "rowhouse.entities".to_owned())]).await?;
    let node = Node {
        id: ONLY_NODE,
        host: itself.get(0),
        port: u16::try_from(itself.get::<_, i32>(1)).unwrap_or(0),
        role: Role::Database,
        active: true,
        reachable: true,
    };
    let place = Place { id: SEVERAL, group: 0, from: i32::MIN, to: i32::MAX };
    let shards = vec![place.describe(Some(ONLY_NODE), &sizes, loads)];
    Ok(Cluster { nodes: vec![node], servers, shards, several: Load::default() })
}

async fn sizes(session: &Session, relations: &[Relation]) -> Result<Sizes, Fault> {
    let (ids, names): (Vec<i64>, Vec<&str>) =
        relations.iter().map(|(id, name)| (*id, name.as_str())).unzip();
    let rows = session.rows(SIZES, &[&ids, &names]).await?;
    Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
}

/// A cluster as its coordinator knows it.
struct Found {
    /// Each with the group whose shards it holds.
    nodes: Vec<(i32, Node)>,
    shards: Vec<Place>,
}

/// A shard, and the group of nodes that holds it.
struct Place {
    id: i64,
    group: i32,
    from: i32,
    to: i32,
}

impl Found {
    async fn read(session: &Session) -> Result<Self, Fault> {
        let nodes = session.rows(NODES, &[]).await?.iter().map(node).collect();
        let place = |row: &Row| Place {
            id: row.get(0),
            group: row.get(1),
            from: row.get(2),
            to: row.get(3),
        };
        let mut shards: Vec<_> = session.rows(SHARDS, &[]).await?.iter().map(place).collect();
        shards.sort_by_key(|shard| shard.from);
        Ok(Self { nodes, shards })
    }

    /// Asks every node at once.
    async fn describe(
        self,
        nodes: &Nodes,
        servers: Vec<Server>,
        loads: &HashMap<i64, Load>,
    ) -> Cluster {
        let asked = self.nodes.iter().map(|(group, node)| self.ask(nodes, *group, node));
        let answers = join_all(asked).await;
        let mut known = Sizes::new();
        let mut described = Vec::new();
        for ((_, node), answer) in self.nodes.iter().zip(answers) {
            described.push(Node { reachable: answer.is_some(), ..node.clone() });
            known.extend(answer.into_iter().flatten());
        }
        let holder = |group| {
            let holds = |(of, node): &&(i32, Node)| *of == group && node.role != Role::Standby;
            self.nodes.iter().find(holds).map(|(_, node)| node.id)
        };
        let shards = self.shards.iter();
        let shards =
            shards.map(|place| place.describe(holder(place.group), &known, loads)).collect();
        let several = loads.get(&SEVERAL).copied().unwrap_or_default();
        Cluster { nodes: described, servers, shards, several }
    }

    /// The sizes of the shards that a node holds; nothing if it does not answer.
    async fn ask(&self, nodes: &Nodes, group: i32, node: &Node) -> Option<Sizes> {
        let held = self.shards.iter().filter(|place| place.group == group);
        let relations: Vec<Relation> =
            held.map(|place| (place.id, format!("rowhouse.entities_{}", place.id))).collect();
        let asked = async {
            let pool = match node.role {
                Role::Coordinator => nodes.first().clone(),
                // Not one that requests wait for: a busy node would seem to be down.
                _ => Pool::at(nodes.options(), &node.host, node.port).ok()?,
            };
            let session = pool.reach().await.ok()??;
            sizes(&session, &relations).await.ok()
        };
        tokio::time::timeout(ANSWERS_WITHIN, asked).await.ok()?
    }
}

/// A node and its group, as the coordinator knows them; whether it answers is not known yet.
fn node(row: &Row) -> (i32, Node) {
    let (group, kind): (i32, &str) = (row.get(1), row.get(4));
    let role = match (group, kind) {
        (_, "secondary") => Role::Standby,
        (0, _) => Role::Coordinator,
        _ => Role::Worker,
    };
    let node = Node {
        id: row.get(0),
        host: row.get(2),
        port: u16::try_from(row.get::<_, i32>(3)).unwrap_or(0),
        role,
        active: row.get(5),
        reachable: false,
    };
    (group, node)
}

impl Place {
    fn describe(&self, node: Option<i64>, sizes: &Sizes, loads: &HashMap<i64, Load>) -> Shard {
        let (bytes, rows) = sizes.get(&self.id).copied().unwrap_or_default();
        Shard {
            id: self.id,
            node,
            from: self.from,
            to: self.to,
            bytes: bytes.map(i64::unsigned_abs),
            rows: rows.map(i64::unsigned_abs),
            load: loads.get(&self.id).copied().unwrap_or_default(),
        }
    }
}
