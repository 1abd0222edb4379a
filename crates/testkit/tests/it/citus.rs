//! Two servers on a Citus cluster, while shards move under load and while a worker is dead.
//!
//! While shards move and the cluster is rebalanced, no error reaches a writer that asks again as the SDKs do, nothing
//! acknowledged is lost, no batch is half there, no ETag is given twice. While a worker is dead, partitions on the others
//! are answered as before; its own are refused within a bounded time, and answered again by themselves once it is back.
//!
//! Needs a cluster in `ROWHOUSE_TEST_CITUS` with two workers or more; everything in the schema `rowhouse` of that database
//! is removed. Killing a worker is left to the shell commands `ROWHOUSE_TEST_CITUS_KILL`, which returns when it is
//! dead, and `ROWHOUSE_TEST_CITUS_START`, which starts it again. Run one test at a time.

#![cfg(unix)]

use rowhouse_testkit::history::{Order, Witnesses, check};
use rowhouse_testkit::{
    Client, Load, Retries, TestCitus, TestServer, Turnover, Worker, count_from, entity_path, seed,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// As the SDKs do it, with a shorter pause.
const RETRIES: Retries = Retries { most: 4, pause: Duration::from_millis(200) };
/// Rounds of moving, and shards that are moved in each before the cluster is rebalanced.
const ROUNDS: usize = 2;
const MOVES: usize = 4;
/// How long there is load before and after.
const MOMENT: Duration = Duration::from_secs(1);
/// How long a worker is dead.
const DEAD: Duration = Duration::from_secs(8);
/// How long a request may take while a worker is dead, on a busy machine: to a partition of the others, and to one of
/// its own.
const OTHERS_WITHIN: Duration = Duration::from_secs(3);
const REFUSED_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take until all partitions are answered again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// The table of the probes, and how many partitions are tried until every worker has one.
const TABLE: &str = "Probes";
const PARTITIONS: usize = 64;
/// Between two requests of a probe.
const PAUSE: Duration = Duration::from_millis(5);

fn two_servers(cluster: &TestCitus) -> Vec<TestServer> {
    cluster.empty();
    (0..2).map(|_| TestServer::start_with_store(cluster.url())).collect()
}

fn end(servers: &mut [TestServer]) {
    for server in servers {
        assert!(!server.log().contains("panicked"), "nothing panicked");
        assert!(server.stop().success(), "a clean end after all that");
    }
}

/// Moves shards that hold what is written, each to the next worker, and then lets the cluster set it right.
fn move_about(cluster: &TestCitus, round: usize) -> usize {
    let workers = cluster.workers();
    assert!(workers.len() > 1, "a cluster of one worker has nowhere to move shards to");
    let in_use: BTreeSet<i64> = ["Owed", "History", "Turnover"]
        .iter()
        .flat_map(|table| cluster.partitions(table))
        .map(|(_, shard)| shard)
        .collect();
    // All to one worker, so that it has too many of them.
    let to = &workers[round % workers.len()];
    let elsewhere = cluster.shards().into_iter().filter(|(_, holder)| holder != to);
    let mut moved = 0;
    for (shard, from) in elsewhere.filter(|(shard, _)| in_use.contains(shard)).take(MOVES) {
        cluster.move_shard(shard, &from, to);
        moved += 1;
    }
    let before = cluster.shards();
    cluster.rebalance();
    let after = cluster.shards();
    moved + before.iter().zip(&after).filter(|(before, after)| before != after).count()
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn shards_move_under_load() {
    let seed = seed();
    let rounds = count_from("ROWHOUSE_CITUS_ROUNDS", ROUNDS);
    let cluster = TestCitus::named();
    let mut servers = two_servers(&cluster);
    let addresses: Vec<_> = servers.iter().map(TestServer::address).collect();
    let load = Load::new(&mut servers[0].client(), seed, Order::OfEntity);
    let mut load = load.with_retries(RETRIES);
    let mut witnesses = Witnesses::new(&mut servers[1].client(), seed);
    let mut turnover = Turnover::default();
    let mut moved = 0;
    for round in 1..=rounds {
        turnover.prepare(&mut servers[round % 2].client());
        load.run(&addresses, |writers| {
            witnesses.run(&addresses, |clients| {
                turnover.run(&addresses, |owners| {
                    std::thread::sleep(MOMENT);
                    moved += move_about(&cluster, round);
                    std::thread::sleep(MOMENT);
                    writers.rest();
                    clients.rest();
                    owners.rest();
                });
            });
        });
        witnesses.settle();
        let mut client = servers[round % 2].client();
        load.verify(&mut client).unwrap_or_else(|losses| panic!("round {round}: {losses}"));
        turnover.verify(&mut client).unwrap_or_else(|reason| panic!("round {round}: {reason}"));
        println!("round {round}: {}, {turnover}, {moved} shards moved", load.tally());
    }
    let tally = load.tally();
    assert_eq!(tally.failures, 0, "no error reaches a writer that asks again");
    assert!(tally.writes > 0 && moved > 0, "there was load, and shards moved");
    let without_retries = witnesses.failures();
    let records = witnesses.into_records(&mut servers[0].client());
    check(&records, Order::OfEntity).unwrap_or_else(|violation| panic!("{violation}"));
    end(&mut servers);
    println!(
        "citus moves: {moved} shards moved under load of two servers, {tally}, {} requests repeated, none in vain, the \
         slowest {} ms; {turnover}; 0 lost, 0 half batches, no ETag twice; {} requests linearizable, {without_retries} of \
         clients that do not ask again failed",
        tally.repeated,
        tally.slowest.as_millis(),
        records.len(),
    );
}

/// Writes and reads a partition of its own, without asking again, and keeps what it was told.
#[derive(Debug)]
struct Probe {
    partition: String,
    answers: Vec<Answer>,
    acknowledged: BTreeSet<String>,
    tried: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    took: Duration,
    status: u16,
}

impl Answer {
    fn is_good(self) -> bool {
        self.status < 300
    }
}

impl Probe {
    fn new(partition: &str) -> Self {
        let (acknowledged, tried) = (BTreeSet::new(), BTreeSet::new());
        Self { partition: partition.to_owned(), answers: Vec::new(), acknowledged, tried }
    }

    fn run(&mut self, mut client: Client, rest: &AtomicBool) {
        for number in 0.. {
            if rest.load(Ordering::SeqCst) {
                break;
            }
            let row = number.to_string();
            let entity = json!({ "PartitionKey": self.partition, "RowKey": row });
            let status =
                self.ask(|| client.insert(TABLE, &entity).expect("the server lives").status);
            assert!(matches!(status, 204 | 500 | 503), "insert: {status}");
            if status == 204 {
                self.acknowledged.insert(row.clone());
            }
            self.tried.insert(row);
            let first = entity_path(TABLE, &self.partition, "first");
            let status = self.ask(|| client.request("GET", &first, &[], b"").status);
            assert!(matches!(status, 200 | 503), "get: {status}");
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&mut self, request: impl FnOnce() -> u16) -> u16 {
        let at = Instant::now();
        let status = request();
        self.answers.push(Answer { at, took: at.elapsed(), status });
        status
    }

    fn slowest(&self, of: impl Fn(&Answer) -> bool) -> Duration {
        let matching = self.answers.iter().filter(|answer| of(answer));
        matching.map(|answer| answer.took).max().unwrap_or_default()
    }

    /// What was acknowledged is there, and nothing that was never asked for.
    fn verify(&self, client: &mut Client) {
        let found = client.query(TABLE, &format!("PartitionKey eq '{}'", self.partition));
        let rows = found.iter().filter_map(|entity| entity["RowKey"].as_str());
        let rows: BTreeSet<String> =
            rows.filter(|row| *row != "first").map(str::to_owned).collect();
        assert!(self.acknowledged.is_subset(&rows), "{} has lost rows", self.partition);
        assert!(rows.is_subset(&self.tried), "{} has strange rows", self.partition);
    }
}

/// A partition on each worker, with an entity in it.
fn a_partition_each(cluster: &TestCitus, client: &mut Client) -> BTreeMap<Worker, String> {
    client.create_table(TABLE);
    for number in 0..PARTITIONS {
        let entity = json!({ "PartitionKey": format!("p{number:02}"), "RowKey": "first" });
        assert_eq!(client.insert(TABLE, &entity).expect("answered").status, 204);
    }
    let holders: BTreeMap<i64, Worker> = cluster.shards().into_iter().collect();
    let partitions = cluster.partitions(TABLE).into_iter();
    let held: BTreeMap<_, _> =
        partitions.map(|(partition, shard)| (holders[&shard].clone(), partition)).collect();
    assert_eq!(held.len(), cluster.workers().len(), "every worker has a partition");
    held
}

fn shell(variable: &str) {
    let command = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is a command"));
    let status = Command::new("sh").args(["-c", &command]).status().expect("there is a shell");
    assert!(status.success(), "{variable}: {command}");
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster, ROWHOUSE_TEST_CITUS_KILL and _START end and start a worker"]
fn a_worker_dies_and_comes_back() {
    let seed = seed();
    let cluster = TestCitus::named();
    let mut servers = two_servers(&cluster);
    let addresses: Vec<_> = servers.iter().map(TestServer::address).collect();
    let held = a_partition_each(&cluster, &mut servers[0].client());
    let mut load = Load::new(&mut servers[0].client(), seed, Order::OfEntity);
    let mut probes: Vec<(&Worker, Probe)> =
        held.iter().map(|(worker, partition)| (worker, Probe::new(partition))).collect();
    let rest = AtomicBool::new(false);
    let (mut dead, mut killed, mut started) = (None, Instant::now(), Instant::now());
    std::thread::scope(|scope| {
        for (place, (_, probe)) in probes.iter_mut().enumerate() {
            let (client, rest) = (Client::new(addresses[place % 2]), &rest);
            scope.spawn(move || probe.run(client, rest));
        }
        load.run(&addresses, |writers| {
            std::thread::sleep(MOMENT);
            killed = Instant::now();
            shell("ROWHOUSE_TEST_CITUS_KILL");
            dead = cluster.workers().into_iter().find(|worker| !worker.answers());
            std::thread::sleep(DEAD);
            shell("ROWHOUSE_TEST_CITUS_START");
            started = Instant::now();
            std::thread::sleep(2 * MOMENT);
            writers.rest();
        });
        std::thread::sleep(MOMENT);
        rest.store(true, Ordering::SeqCst);
    });
    let dead = dead.expect("ROWHOUSE_TEST_CITUS_KILL ends a worker");
    let (mut others, mut during) = (Duration::ZERO, 0);
    for (worker, probe) in &probes {
        probe.verify(&mut servers[0].client());
        if **worker != dead {
            let bad = probe.answers.iter().find(|answer| !answer.is_good());
            assert!(bad.is_none(), "{} on a living worker: {bad:?}", probe.partition);
            let within = |answer: &Answer| killed <= answer.at && answer.at < started;
            others = others.max(probe.slowest(within));
            during += probe.answers.iter().filter(|answer| within(answer)).count();
        }
    }
    assert!(others < OTHERS_WITHIN, "the others took {others:?}");
    let (_, own) = probes.iter().find(|(worker, _)| **worker == dead).expect("each has one");
    let refused = own.answers.iter().filter(|answer| !answer.is_good());
    let longest = own.slowest(|answer| !answer.is_good());
    assert!(longest < REFUSED_WITHIN, "a refusal took {longest:?}");
    let last = refused.clone().map(|answer| answer.at).max().expect("it was dead");
    let recovered = last.saturating_duration_since(started);
    assert!(recovered < RECOVERY_MAX && own.answers.last().is_some_and(|last| last.is_good()));
    load.verify(&mut servers[1].client()).unwrap_or_else(|losses| panic!("{losses}"));
    println!(
        "citus worker: dead for {:.1} s; {during} requests to partitions of the others meanwhile, all answered, the slowest \
         after {} ms; {} of its own refused, the slowest after {} ms, the last {} ms after it was back; {}, 0 lost",
        (started - killed).as_secs_f64(),
        others.as_millis(),
        refused.count(),
        longest.as_millis(),
        recovered.as_millis(),
        load.tally(),
    );
    end(&mut servers);
}
