//! The primary of a synchronous pair dies under load and its standby is promoted.
//!
//! A server whose address names both finds the new primary by itself: nothing acknowledged is lost, and it
//! writes again soon after the promotion without being started anew.

#![cfg(unix)]

use rowhouse_testkit::history::{Order, Witnesses, check};
use rowhouse_testkit::{Client, Load, TestPostgres, TestServer, seed};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long there is load before the primary dies, and again after the fail-over.
const LOAD: Duration = Duration::from_secs(2);
/// How soon after the promotion writes must succeed.
const WRITES_WITHIN: Duration = Duration::from_secs(30);

/// How long it takes until a write is acknowledged.
fn until_written(client: &mut Client) -> Duration {
    let began = Instant::now();
    for number in 0.. {
        let entity = json!({ "PartitionKey": "p", "RowKey": number.to_string() });
        let answer = client.insert("Afterwards", &entity).expect("the server lives");
        if answer.status == 204 {
            break;
        }
        let (status, text) = (answer.status, answer.text());
        assert!(status >= 500 && began.elapsed() < WRITES_WITHIN, "{status}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

#[test]
fn a_standby_that_is_promoted_has_everything() {
    let seed = seed();
    let mut primary = TestPostgres::start();
    let url = primary.create_database();
    let mut standby = primary.standby();
    primary.make_synchronous(&standby.name());
    let database = url.rsplit('/').next().expect("a path");
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let url = format!("postgres://postgres@{hosts}/{database}?target_session_attrs=read-write");
    let mut server = TestServer::start_with_store(&url);
    let mut client = server.client();
    client.create_table("Afterwards");
    let mut load = Load::new(&mut client, seed, Order::OfEntity);
    let mut witnesses = Witnesses::new(&mut client, seed);
    let servers = [server.address()];

    load.run(&servers, |_| {
        witnesses.run(&servers, |_| {
            std::thread::sleep(LOAD);
            primary.kill();
        });
    });
    let acknowledged = load.tally().writes;
    assert!(acknowledged > 0, "there was load");
    standby.promote();
    let took = until_written(&mut client);
    assert!(took < WRITES_WITHIN, "writes again {took:?} after the promotion");
    witnesses.settle();
    load.verify(&mut client).unwrap_or_else(|losses| panic!("{losses}"));

    load.run(&servers, |writers| {
        witnesses.run(&servers, |clients| {
            std::thread::sleep(LOAD);
            writers.rest();
            clients.rest();
        });
    });
    load.verify(&mut client).unwrap_or_else(|losses| panic!("{losses}"));
    assert!(load.tally().writes > acknowledged, "there was load again");
    let records = witnesses.into_records(&mut client);
    check(&records, Order::OfEntity).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(!server.log().contains("panicked"), "nothing panicked");
    assert!(server.stop().success(), "a clean end after all that");
    println!(
        "standby: {acknowledged} writes acknowledged before the primary died, 0 lost; writes again {} ms after \
         the promotion; {} requests linearizable",
        took.as_millis(),
        records.len(),
    );
}
