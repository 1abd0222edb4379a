//! Kills a process that puts, takes and deletes messages: what was answered is there, and nothing by half.

use super::common::{put as put_entity, record, table};
use super::runtime;
use crate::{EmbeddedStore, Options, check};
use rowhouse_env::SystemClock;
use rowhouse_store::conformance::queued::{deleting, peek, putting, queue, take};
use rowhouse_store::{Batch, MessageAction, MessageCommand, QueueId, Store, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: u64 = 6;

fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Options::new(directory), Arc::new(SystemClock)).unwrap()
}

/// The table, the queue that is written, and the one that messages move to.
async fn places(store: &EmbeddedStore) -> (TableId, QueueId, QueueId) {
    let things = table(store, "Things").await;
    let account = store.accounts().await.unwrap()[0].id;
    let mut found = Vec::new();
    for name in ["jobs", "results"] {
        let queued = store.queue(account, &name.parse().unwrap()).await.unwrap();
        found.push(match queued {
            Some(queue) => queue.id,
            None => queue(store, account, name).await,
        });
    }
    (things, found[0], found[1])
}

fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// The process that is killed; as a test of its own it does nothing.
///
/// Some put a message with an entity of its name; others take one and, in one batch, delete it and put it into the other queue.
#[test]
fn posting_process() {
    let Ok(directory) = std::env::var("ROWHOUSE_TEST_KILL_QUEUE") else { return };
    let round: u64 = std::env::var("ROWHOUSE_TEST_ROUND").unwrap().parse().unwrap();
    runtime().block_on(async {
        let store = Arc::new(open(&PathBuf::from(directory)));
        let (things, jobs, results) = places(&store).await;
        let mut workers = Vec::new();
        for worker in 0..3 {
            let store = Arc::clone(&store);
            workers.push(tokio::spawn(async move {
                for n in 0.. {
                    let name = format!("{round}-{worker}-{n}");
                    // Every fourth is long.
                    let text = format!("{name} {}", "x".repeat(if n % 4 == 0 { 9000 } else { 9 }));
                    let commands = vec![put_entity(things, "p", &name, record(n, 10))];
                    let action = putting(&text, 0, Some(86_400));
                    let messages = vec![MessageCommand { queue: jobs, action }];
                    store.commit(Batch { commands, messages }).await.unwrap();
                    say(&format!("PUT {name}"));
                }
            }));
        }
        for _ in 0..2 {
            let store = Arc::clone(&store);
            workers.push(tokio::spawn(async move {
                loop {
                    for message in take(&*store, jobs, 2, 3600).await {
                        let messages = vec![
                            MessageCommand { queue: jobs, action: deleting(&message) },
                            MessageCommand {
                                queue: results,
                                action: putting(&message.text, 0, None),
                            },
                        ];
                        let moved = Batch { commands: Vec::new(), messages };
                        store.commit(moved).await.unwrap();
                        say(&format!("MOVED {}", name(&message.text)));
                    }
                }
            }));
        }
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

fn name(text: &str) -> &str {
    text.split(' ').next().unwrap()
}

#[tokio::test]
async fn no_message_is_lost_or_half_there() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    let store = open(&directory);
    places(&store).await;
    store.close().await.unwrap();
    drop(store);
    let (mut put, mut moved) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["tests::kill_queues::posting_process", "--exact", "--nocapture"])
            .env("ROWHOUSE_TEST_KILL_QUEUE", &directory)
            .env("ROWHOUSE_TEST_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.collect::<Vec<_>>()
        });
        std::thread::sleep(Duration::from_millis(150 + 70 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = reader.join().unwrap();
        // The last line may be cut off.
        for line in &lines[..lines.len().saturating_sub(1)] {
            if let Some(name) = line.strip_prefix("PUT ") {
                put.insert(name.to_owned());
            } else if let Some(name) = line.strip_prefix("MOVED ") {
                moved.insert(name.to_owned());
            }
        }

        let report = check(&directory, &mut |_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "round {round}");
        let store = open(&directory);
        let (things, jobs, results) = places(&store).await;
        let view = store.snapshot().await.unwrap();
        let mut found = BTreeMap::new();
        for queue in [jobs, results] {
            let page = view.messages(queue, None, usize::MAX, usize::MAX).await.unwrap();
            for message in page.messages {
                let name = name(&message.text).to_owned();
                let length = message.text.len() - name.len() - 1;
                assert!(length == 9 || length == 9000, "no text is half there");
                let before = found.insert(name, queue);
                assert_eq!(before, None, "round {round}: a message is in one queue");
            }
        }
        for name in &put {
            assert!(found.contains_key(name), "round {round}: {name} was put");
        }
        for name in &moved {
            assert_eq!(found.get(name), Some(&results), "round {round}: {name} was moved");
        }
        for name in found.keys() {
            let key = super::common::key("p", name);
            let entity = store.get(things, &key).await.unwrap();
            assert!(entity.is_some(), "round {round}: {name} has its entity");
        }
        assert_eq!(report.entities, found.len() as u64, "every entity has its message");
        let counted =
            store.message_count(jobs).await.unwrap() + store.message_count(results).await.unwrap();
        assert_eq!(counted, found.len() as u64);
        drop(view);
        // What was taken and not deleted is visible again in an hour; let somebody have it at once.
        let left = peek(&store, jobs, 1).await;
        if let Some(message) = left.first() {
            let taken = MessageAction::Take { limit: 1, hide_seconds: 1 };
            let taken = store.commit(Batch::of_message(jobs, taken)).await.unwrap().messages;
            assert!(message.receipt < taken[0].receipt);
        }
        store.close().await.unwrap();
    }
    println!("{} messages put, {} moved", put.len(), moved.len());
    assert!(!put.is_empty() && !moved.is_empty(), "too little happened to show anything");
}
