//! How long it takes from starting the process to serving.
//!
//! The figures are promises of the release build; another one is started too, to see that it works, and
//! only printed.

use rowhouse_testkit::{Client, Operation, TestServer, is_release};
use serde_json::json;
use std::time::{Duration, Instant};

const EMPTY_MAX: Duration = Duration::from_millis(100);
const MILLION_MAX: Duration = Duration::from_millis(300);

const LOADERS: usize = 4;
const PARTITIONS: usize = 100;
/// Of a partition, each of 100 entities.
const BATCHES: usize = 100;

/// The best of five starts on the directory of the server, which is stopped in an orderly way in between.
fn best_restart(server: &mut TestServer) -> Duration {
    let restarts = (0..5).map(|_| {
        assert!(server.stop().success());
        server.restart();
        server.started_in()
    });
    restarts.min().expect("five times")
}

#[test]
fn on_an_empty_directory() {
    let best = (0..5).map(|_| TestServer::start().started_in()).min().expect("five times");
    println!("ready on an empty directory after {:.1} ms", best.as_secs_f64() * 1000.0);
    if is_release() {
        assert!(best < EMPTY_MAX, "{best:?}");
    } else {
        println!("NOT VERIFIED: not a release build");
    }
}

#[test]
fn with_a_million_entities() {
    if !is_release() {
        println!("NOT VERIFIED: a million entities are loaded into a release build only");
        return;
    }
    let mut server = TestServer::start();
    server.client().create_table("Million");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for loader in 0..LOADERS {
            let client = server.client();
            scope.spawn(move || {
                let partitions = (0..PARTITIONS).filter(|number| number % LOADERS == loader);
                load(client, partitions);
            });
        }
    });
    let count = PARTITIONS * BATCHES * 100;
    let took = began.elapsed().as_secs_f64();
    println!("{count} entities loaded in {took:.0} s");
    let found = server.client().get("Million", "p099", "009999");
    assert_eq!(found.status, 200, "{}", found.text());
    let best = best_restart(&mut server);
    println!("ready with {count} entities after {:.1} ms", best.as_secs_f64() * 1000.0);
    assert!(best < MILLION_MAX, "{best:?}");
    server.kill();
    server.restart();
    let crashed = server.started_in();
    println!("ready after a crash after {:.1} ms", crashed.as_secs_f64() * 1000.0);
    let found = server.client().get("Million", "p099", "009999");
    assert_eq!(found.status, 200, "{}", found.text());
}

fn load(mut client: Client, partitions: impl Iterator<Item = usize>) {
    for partition in partitions {
        let partition = format!("p{partition:03}");
        for batch in 0..BATCHES {
            let inserts: Vec<_> = (0..100)
                .map(|n| {
                    let row = format!("{:06}", batch * 100 + n);
                    let entity = json!({
                        "PartitionKey": partition, "RowKey": row, "n": n, "text": "some words",
                    });
                    Operation::insert("Million", entity)
                })
                .collect();
            let answer = client.batch(&inserts).expect("answered");
            assert!(answer.succeeded(), "{}", answer.response.text());
        }
    }
}
