//! A Citus cluster that tests are given.
//!
//! A test cannot make one, so it is named by `ROWHOUSE_TEST_CITUS`: the URL of a database on the coordinator, with the
//! extension and the nodes that belong to it. Tests remove everything in its schema `rowhouse`.

use crate::client::encode;
use crate::postgres::psql;
use std::fmt::Write as _;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const VARIABLE: &str = "ROWHOUSE_TEST_CITUS";
/// How long a node may take to accept a connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The cluster.
#[derive(Debug)]
pub struct TestCitus {
    url: String,
}

/// A node that holds shards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worker {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Worker {
    /// Whether somebody listens there.
    pub fn answers(&self) -> bool {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let mut addresses = addresses.unwrap_or_else(|error| panic!("{}: {error}", self.host));
        addresses.any(|address| TcpStream::connect_timeout(&address, ANSWERS_WITHIN).is_ok())
    }
}

impl TestCitus {
    /// The cluster of the environment.
    pub fn named() -> Self {
        let url = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("{VARIABLE} names a cluster"));
        Self { url }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its URL for sessions with these settings.
    pub fn url_with(&self, settings: &[(&str, &str)]) -> String {
        let mut options = String::new();
        for (name, value) in settings {
            let _ = write!(options, " -c {name}={value}");
        }
        let between = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{between}options={}", self.url, encode(options.trim_start()))
    }

    /// Removes everything of ours.
    pub fn empty(&self) {
        self.execute("SET client_min_messages = warning; DROP SCHEMA IF EXISTS rowhouse CASCADE");
    }

    /// Runs statements on the coordinator; what they return, a line for each row and `|` between columns.
    pub fn execute(&self, sql: &str) -> String {
        psql(&self.url, sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"))
    }

    /// Runs statements on a worker, likewise.
    pub fn execute_on(&self, Worker { host, port }: &Worker, sql: &str) -> String {
        let (before, database) = self.url.rsplit_once('/').expect("a URL has a path");
        let (user, _) = before.rsplit_once('@').expect("a URL names its user");
        let url = format!("{user}@{host}:{port}/{database}");
        psql(&url, sql).unwrap_or_else(|reason| panic!("{host}:{port}: {sql}: {reason}"))
    }

    /// Every node that may hold shards.
    pub fn workers(&self) -> Vec<Worker> {
        let sql = "SELECT nodename, nodeport FROM pg_dist_node
            WHERE isactive AND noderole = 'primary' AND shouldhaveshards ORDER BY nodeport, nodename";
        let worker = |line: &str| {
            let (host, port) = line.rsplit_once('|').expect("two columns");
            Worker { host: host.to_owned(), port: port.parse().expect("a port") }
        };
        self.execute(sql).lines().map(worker).collect()
    }

    /// The shards of the entities, and the node of each.
    pub fn shards(&self) -> Vec<(i64, Worker)> {
        let sql = "SELECT s.shardid, n.nodename, n.nodeport FROM pg_dist_shard s
            JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node n USING (groupid)
            WHERE s.logicalrelid = 'rowhouse.entities'::regclass AND n.noderole = 'primary' ORDER BY 1";
        let shard = |line: &str| {
            let columns: Vec<_> = line.split('|').collect();
            let [shard, host, port] = columns[..] else { panic!("three columns: {line}") };
            let worker = Worker { host: host.to_owned(), port: port.parse().expect("a port") };
            (shard.parse().expect("a number"), worker)
        };
        self.execute(sql).lines().map(shard).collect()
    }

    /// The shard of each partition in a table that has entities.
    pub fn partitions(&self, table: &str) -> Vec<(String, i64)> {
        let sql = format!(
            "SELECT DISTINCT e.dk, convert_from(substring(e.kp, 1, e.pl), 'UTF8')
             FROM rowhouse.entities e WHERE e.tid =
                 (SELECT t.tid FROM rowhouse.tables t WHERE t.name = '{table}' AND t.dropped IS NULL)"
        );
        let found = self.execute(&sql);
        let homes: Vec<_> = found.lines().filter_map(|line| line.split_once('|')).collect();
        let shard = |(home, partition): &(&str, &str)| {
            let sql = format!(
                "SELECT get_shard_id_for_distribution_column('rowhouse.entities', {home}::bigint)"
            );
            ((*partition).to_owned(), self.execute(&sql).parse().expect("a number"))
        };
        homes.iter().map(shard).collect()
    }

    /// Moves a shard to a node while it is in use.
    pub fn move_shard(&self, shard: i64, from: &Worker, to: &Worker) {
        self.execute(&format!(
            "SELECT citus_move_shard_placement({shard}, '{}', {}, '{}', {}, 'force_logical')",
            from.host, from.port, to.host, to.port
        ));
    }

    /// Lets the cluster move shards until its nodes have equal shares.
    pub fn rebalance(&self) {
        let sql = "SET client_min_messages = warning; SELECT citus_rebalance_start(); SELECT citus_rebalance_wait()";
        self.execute(sql);
    }
}
