//! The rules of the service on the naive model: what HTTP and engines cannot change.

use rowhouse_env::{SeededRandom, SimulatedClock};
use rowhouse_service_queue::{
    Caller, Created, Message, MessageOperation, Metadata, QueueError, QueueService, Receipt,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{AccountId, Batch, NewAccount, Store};
use rowhouse_types::grant::{Letters, ResourceTypes, Services};
use rowhouse_types::{Denied, FoldedName, Grant, KeyRange, QueueName, StoredPolicy, Timestamp};
use std::sync::Arc;
use std::time::Duration;

struct Fixture {
    clock: Arc<SimulatedClock>,
    store: Arc<ModelStore>,
    service: QueueService,
    account: AccountId,
}

impl Fixture {
    /// A service with a queue `orders`.
    async fn new() -> Self {
        let start = Timestamp::parse_iso("2022-06-27T15:25:14Z").unwrap();
        let clock = Arc::new(SimulatedClock::new(start));
        let store = Arc::new(ModelStore::new(Arc::<SimulatedClock>::clone(&clock)));
        let keys = [Box::from(&b"1"[..]), Box::from(&b"2"[..])];
        let new = NewAccount { name: "acct".parse().unwrap(), keys };
        let account = store.create_account(new).await.unwrap().id;
        let random = Arc::new(SeededRandom::new(7));
        let service = QueueService::new(Arc::<ModelStore>::clone(&store), random);
        let this = Self { clock, store, service, account };
        let made =
            this.service.create_queue(this.owner(), &orders(), Metadata::new(), u64::MAX).await;
        assert_eq!(made.unwrap(), Created::New);
        this
    }

    fn owner(&self) -> Caller<'static> {
        self.with(&Grant::AccountKey)
    }

    fn with<'a>(&self, grant: &'a Grant) -> Caller<'a> {
        Caller { account: self.account, grant }
    }

    fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    async fn put(&self, text: &str) -> Message {
        self.service.put(self.owner(), &orders(), text.into(), 0, None).await.unwrap()
    }

    async fn take(&self, limit: usize) -> Vec<Message> {
        self.service.take(self.owner(), &orders(), limit, 30).await.unwrap()
    }

    async fn delete(&self, message: &Message) -> Result<(), QueueError> {
        self.service.delete(self.owner(), &orders(), Some(receipt(message))).await
    }
}

fn orders() -> QueueName {
    "orders".parse().unwrap()
}

fn receipt(message: &Message) -> Receipt {
    Receipt { id: message.id, receipt: message.receipt }
}

fn pairs(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
}

/// Its name, to be compared.
#[expect(clippy::needless_pass_by_value, reason = "it is asked of what a call has just returned")]
fn said<T>(outcome: Result<T, QueueError>) -> &'static str {
    match outcome {
        Ok(_) => "done",
        Err(QueueError::QueueNotFound) => "no queue",
        Err(QueueError::QueueExists) => "queue exists",
        Err(QueueError::MessageNotFound) => "no message",
        Err(QueueError::Denied(Denied::Permission)) => "no permission",
        Err(QueueError::Denied(_)) => "denied",
        Err(_) => "failed",
    }
}

#[tokio::test]
async fn a_queue_is_created_once_unless_it_is_the_same() {
    let f = Fixture::new().await;
    let create = async |metadata| {
        f.service.create_queue(f.owner(), &orders(), pairs(metadata), u64::MAX).await
    };
    assert_eq!(create(&[]).await.unwrap(), Created::Same);
    assert_eq!(said(create(&[("a", "1")]).await), "queue exists");
    f.service.set_metadata(f.owner(), &orders(), pairs(&[("a", "1"), ("b", "")])).await.unwrap();
    assert_eq!(create(&[("B", ""), ("A", "1")]).await.unwrap(), Created::Same, "in any order");
    assert_eq!(said(create(&[("a", "1")]).await), "queue exists");
    assert_eq!(said(create(&[("a", "2"), ("b", "")]).await), "queue exists");
    let (queue, _) = f.service.metadata(f.owner(), &orders()).await.unwrap();
    assert_eq!(queue.metadata, pairs(&[("a", "1"), ("b", "")]), "nothing was changed");
    assert_eq!(f.store.queue_creations(), 1, "an engine is not asked to make what is there");
}

#[tokio::test]
async fn pages_of_queues_join() {
    let f = Fixture::new().await;
    let mut names: Vec<String> = (0..7).map(|n| format!("list{n}")).collect();
    for name in names.iter().rev() {
        let name = name.parse().unwrap();
        f.service.create_queue(f.owner(), &name, Metadata::new(), u64::MAX).await.unwrap();
    }
    for (prefix, all) in [("list", 7), ("", 8), ("list3", 1), ("zzz", 0)] {
        for limit in 1..9 {
            let (mut joined, mut from) = (Vec::new(), String::new());
            loop {
                let page = f.service.list_queues(f.owner(), prefix, &from, limit).await.unwrap();
                assert!(page.queues.len() <= limit);
                joined.extend(page.queues.iter().map(|queue| queue.name.as_str().to_owned()));
                match page.next {
                    Some(next) => from = next.name.as_str().to_owned(),
                    None => break,
                }
                assert!(joined.len() < 20);
            }
            assert_eq!(joined.len(), all, "{prefix} {limit}");
            assert!(joined.is_sorted() && joined.iter().all(|name| name.starts_with(prefix)));
        }
    }
    names.sort();
    let page = f.service.list_queues(f.owner(), "list", "list5", 9).await.unwrap();
    assert_eq!(page.queues[0].name.as_str(), "list5", "a marker is inclusive");
}

#[tokio::test]
async fn receipts_are_good_until_somebody_else_has_the_message() {
    let f = Fixture::new().await;
    let put = f.put("a").await;
    assert_eq!(f.service.peek(f.owner(), &orders(), 9).await.unwrap().len(), 1);
    let taken = f.take(9).await.remove(0);
    assert_eq!((taken.id, taken.taken), (put.id, 1));
    assert!(f.take(9).await.is_empty());
    assert_eq!(said(f.delete(&put).await), "no message", "the receipt of before");
    f.wait(31);
    assert_eq!(said(f.delete(&taken).await), "done", "late, and nobody else has it");

    let put = f.put("b").await;
    let update = async |message: &Message, text: Option<&str>| {
        let (receipt, text) = (Some(receipt(message)), text.map(Into::into));
        f.service.update(f.owner(), &orders(), receipt, 0, text).await
    };
    let updated = update(&put, Some("c")).await.unwrap();
    assert_eq!((&*updated.text, updated.taken), ("c", 0));
    assert_eq!(said(update(&put, None).await), "no message");
    let kept = update(&updated, None).await.unwrap();
    assert_eq!(&*kept.text, "c");
    assert_eq!(said(f.service.delete(f.owner(), &orders(), None).await), "no message");
    assert_eq!(said(f.delete(&kept).await), "done");
    assert_eq!(said(f.delete(&kept).await), "no message");
}

#[tokio::test]
async fn what_is_gone_is_gone() {
    let f = Fixture::new().await;
    let short = f.service.put(f.owner(), &orders(), "x".into(), 0, Some(5)).await.unwrap();
    f.wait(5);
    assert_eq!(said(f.delete(&short).await), "no message");
    let hidden = f.service.put(f.owner(), &orders(), "x".into(), 100, None).await.unwrap();
    assert_eq!(hidden.expires, Timestamp::MAX);
    f.service.clear(f.owner(), &orders()).await.unwrap();
    assert_eq!(said(f.delete(&hidden).await), "no message");
    f.service.delete_queue(f.owner(), &orders()).await.unwrap();
    assert_eq!(said(f.service.delete_queue(f.owner(), &orders()).await), "no queue");
    assert_eq!(said(f.delete(&hidden).await), "no queue", "before the message");
    assert_eq!(said(f.service.delete(f.owner(), &orders(), None).await), "no queue");
    assert_eq!(said(f.service.peek(f.owner(), &orders(), 1).await), "no queue");
}

#[tokio::test]
async fn every_operation_asks_the_grant() {
    let f = Fixture::new().await;
    let table = Grant::TableSignature {
        table: FoldedName::of("orders"),
        permissions: Letters::new("raud"),
        range: KeyRange::partition("p"),
    };
    let other = Grant::QueueSignature {
        queue: "others".parse().unwrap(),
        permissions: Letters::new("raup"),
    };
    for grant in [&table, &other] {
        let (s, caller, queue) = (&f.service, f.with(grant), orders());
        let text = || Box::from("x");
        assert_eq!(said(s.list_queues(caller, "", "", 1).await), "denied");
        assert_eq!(said(s.create_queue(caller, &queue, Metadata::new(), u64::MAX).await), "denied");
        assert_eq!(said(s.delete_queue(caller, &queue).await), "denied");
        assert_eq!(said(s.metadata(caller, &queue).await), "denied");
        assert_eq!(said(s.set_metadata(caller, &queue, Metadata::new()).await), "denied");
        assert_eq!(said(s.policies(caller, &queue).await), "denied");
        assert_eq!(said(s.set_policies(caller, &queue, Vec::new()).await), "denied");
        assert_eq!(said(s.put(caller, &queue, text(), 0, None).await), "denied");
        assert_eq!(said(s.take(caller, &queue, 1, 1).await), "denied");
        assert_eq!(said(s.peek(caller, &queue, 1).await), "denied");
        assert_eq!(said(s.update(caller, &queue, None, 0, None).await), "denied");
        assert_eq!(said(s.delete(caller, &queue, None).await), "denied");
        assert_eq!(said(s.clear(caller, &queue).await), "denied");
    }
    let reader = Grant::QueueSignature { queue: orders(), permissions: Letters::new("r") };
    assert_eq!(said(f.service.peek(f.with(&reader), &orders(), 1).await), "done");
    assert_eq!(said(f.service.take(f.with(&reader), &orders(), 1, 1).await), "no permission");
}

#[tokio::test]
async fn policies_are_found_by_their_ids() {
    let f = Fixture::new().await;
    let policy =
        StoredPolicy { id: "one".into(), start: None, expiry: None, permission: Some("r".into()) };
    f.service.set_policies(f.owner(), &orders(), vec![policy.clone()]).await.unwrap();
    let find = async |name: &str, id| {
        f.service.stored_policy(f.account, &name.parse().unwrap(), id).await.unwrap()
    };
    assert_eq!(find("orders", "one").await, Some(policy));
    assert_eq!(find("orders", "One").await, None);
    assert_eq!(find("others", "one").await, None);
}

/// What is prepared is committed by somebody else; nothing happens before.
#[tokio::test]
async fn prepared_messages_wait_for_their_commit() {
    let f = Fixture::new().await;
    let old = f.put("old").await;
    let operations = |queue: &str| {
        let queue: QueueName = queue.parse().unwrap();
        let (text, hide_seconds, live_seconds) = ("new".into(), 0, None);
        vec![
            MessageOperation::Delete { queue: orders(), receipt: Some(receipt(&old)) },
            MessageOperation::Put { queue, text, hide_seconds, live_seconds },
        ]
    };
    let texts = async || -> Vec<String> {
        let seen = f.service.peek(f.owner(), &orders(), 9).await.unwrap();
        seen.iter().map(|message| message.text.to_string()).collect()
    };
    let failed = f.service.prepare(f.owner(), operations("missing")).await.unwrap_err();
    let QueueError::Operation { index: 1, source } = failed else { panic!("{failed:?}") };
    assert_eq!(said::<()>(Err(*source)), "no queue");
    let account = |queue, letters| Grant::AccountSignature {
        services: Services { table: true, queue },
        resource_types: ResourceTypes { object: true, ..ResourceTypes::default() },
        permissions: Letters::new(letters),
    };
    for (grant, at) in [(account(true, "a"), 0), (account(true, "p"), 1), (account(false, "ap"), 0)]
    {
        let denied = f.service.prepare(f.with(&grant), operations("orders")).await.unwrap_err();
        assert!(matches!(denied, QueueError::Operation { index, .. } if index == at), "{denied:?}");
    }
    let grant = account(true, "ap");
    let messages = f.service.prepare(f.with(&grant), operations("orders")).await.unwrap();
    assert_eq!(texts().await, ["old"]);
    f.store.commit(Batch { commands: Vec::new(), messages }).await.unwrap();
    assert_eq!(texts().await, ["new"]);
}
