//! The account service over the naive store.

use rowhouse_env::{SeededRandom, SimulatedClock};
use rowhouse_service_account::{
    AccountError, AccountKey, AccountService, AccountView, DEVELOPMENT_KEY, KeyForm, KeySlot,
    Resealed, Sealer,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{Store, StoreError};
use rowhouse_types::grant::{Denied, Grant, Letters, ResourceTypes, Service, Services};
use rowhouse_types::{
    AccountName, CorsRule, Logging, Metrics, ServiceProperties, ServicePropertiesUpdate, Timestamp,
};
use std::sync::Arc;
use std::time::Duration;

/// A key of 32 bytes.
const LONG: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn store() -> Arc<dyn Store> {
    Arc::new(ModelStore::new(Arc::new(SimulatedClock::new(Timestamp::EDM_MIN))))
}

fn service(store: &Arc<dyn Store>, sealer: Sealer) -> AccountService {
    AccountService::new(Arc::clone(store), sealer, Arc::new(SeededRandom::new(7)))
}

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

fn cors(origin: &str) -> ServicePropertiesUpdate {
    let rule = CorsRule {
        allowed_origins: vec![origin.to_owned()],
        allowed_methods: vec!["GET".to_owned()],
        allowed_headers: Vec::new(),
        exposed_headers: Vec::new(),
        max_age_seconds: 5,
    };
    ServicePropertiesUpdate { cors: Some(vec![rule]), ..ServicePropertiesUpdate::default() }
}

#[tokio::test]
async fn life_of_an_account() {
    let store = store();
    let service = service(&store, Sealer::unsealed());
    let acct = name("acct");
    assert!(service.find(&acct).await.unwrap().is_none());

    let created = service.create(&acct, None).await.unwrap();
    assert_eq!(created.name, acct);
    assert_eq!(created.table_properties, ServiceProperties::default());
    assert_ne!(bytes(&created, 0), bytes(&created, 1));
    assert!(matches!(service.create(&acct, None).await, Err(AccountError::Exists)));
    let found = service.find(&acct).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&created, &found), "an unchanged account is not opened again");

    let imported = || AccountKey::from_base64(DEVELOPMENT_KEY).unwrap();
    service.create(&name("aaa"), Some([imported(), imported()])).await.unwrap();
    let names: Vec<_> =
        service.list().await.unwrap().iter().map(|account| account.name.to_string()).collect();
    assert_eq!(names, ["aaa", "acct"]);
    let aaa = service.find(&name("aaa")).await.unwrap().unwrap();
    assert_eq!(aaa.keys[1].as_ref().unwrap().to_base64(), DEVELOPMENT_KEY);

    service.remove(&acct).await.unwrap();
    assert!(service.find(&acct).await.unwrap().is_none());
    assert!(matches!(service.remove(&acct).await, Err(AccountError::NotFound)));
    let again = service.create(&acct, None).await.unwrap();
    assert_ne!(again.id, created.id);
    let found = service.find(&acct).await.unwrap().unwrap();
    assert_eq!(bytes(&found, 0), bytes(&again, 0));
}

#[tokio::test]
async fn rotation_replaces_one_key() {
    let store = store();
    let service = service(&store, Sealer::with_master_key([1; 32]));
    let acct = name("acct");
    for slot in KeySlot::ALL {
        let answer = service.rotate(&acct, slot, None).await;
        assert!(matches!(answer, Err(AccountError::NotFound)));
    }
    let before = service.create(&acct, None).await.unwrap();
    for slot in KeySlot::ALL {
        let before = service.find(&acct).await.unwrap().unwrap();
        let new = service.rotate(&acct, slot, None).await.unwrap();
        let after = service.find(&acct).await.unwrap().unwrap();
        let (this, other) = (slot.index(), 1 - slot.index());
        assert_eq!(bytes(&after, this), new.as_bytes());
        assert_ne!(bytes(&after, this), bytes(&before, this));
        assert_eq!(bytes(&after, other), bytes(&before, other));
    }
    let given = AccountKey::from_base64(LONG).unwrap();
    service.rotate(&acct, KeySlot::First, Some(given)).await.unwrap();
    let after = service.find(&acct).await.unwrap().unwrap();
    assert_eq!(after.keys[0].as_ref().unwrap().to_base64(), LONG);
    assert_ne!(bytes(&before, 1), bytes(&after, 1));
}

fn bytes(account: &AccountView, slot: usize) -> &[u8] {
    account.keys[slot].as_ref().unwrap().as_bytes()
}

/// What a backup left out is renewed one by one; until then there is nothing to sign with.
#[tokio::test]
async fn absent_keys_are_renewed() {
    let store = store();
    for sealer in [Sealer::unsealed(), Sealer::with_master_key([1; 32])] {
        let service = service(&store, sealer);
        let acct = name("acct");
        let account = service.create(&acct, None).await.unwrap();
        let stored = store.account(&acct).await.unwrap().unwrap();
        let from = [Box::from([2]), Box::from([2])];
        store.set_account_keys(account.id, 1, from.clone()).await.unwrap();
        let found = service.find(&acct).await.unwrap().unwrap();
        assert!(found.keys.iter().all(Option::is_none));
        let again = store.account(&acct).await.unwrap().unwrap();
        assert_eq!(service.keys_for_backup(&again), from, "absent in the next backup too");
        let new = service.rotate(&acct, KeySlot::Second, None).await.unwrap();
        let found = service.find(&acct).await.unwrap().unwrap();
        assert!(found.keys[0].is_none(), "the other stays absent");
        assert_eq!(bytes(&found, 1), new.as_bytes());
        service.rotate(&acct, KeySlot::First, None).await.unwrap();
        let found = service.find(&acct).await.unwrap().unwrap();
        assert!(found.keys.iter().all(Option::is_some));
        assert_ne!(stored.keys, store.account(&acct).await.unwrap().unwrap().keys);
        service.remove(&acct).await.unwrap();
    }
}

/// The keys are only as safe as what reaches the store.
#[tokio::test]
async fn a_master_key_seals_and_is_needed() {
    let store = store();
    let acct = name("acct");
    let created = service(&store, Sealer::unsealed()).create(&acct, None).await.unwrap();
    let holds = |stored: &[u8], key: &AccountKey| {
        stored.windows(key.as_bytes().len()).any(|part| part == key.as_bytes())
    };
    let stored = store.account(&acct).await.unwrap().unwrap();
    assert!(
        holds(&stored.keys[0], created.keys[0].as_ref().unwrap()),
        "no master key: stored as they are"
    );

    // A master key that comes later opens what is there and seals both keys with the next change.
    let sealing = service(&store, Sealer::with_master_key([1; 32]));
    let view = sealing.find(&acct).await.unwrap().unwrap();
    assert_eq!(view.stored, [KeyForm::Readable; 2]);
    sealing.rotate(&acct, KeySlot::First, None).await.unwrap();
    let view = sealing.find(&acct).await.unwrap().unwrap();
    assert_eq!(view.stored, [KeyForm::Sealed; 2]);
    assert_eq!(bytes(&view, 1), bytes(&created, 1));
    let stored = store.account(&acct).await.unwrap().unwrap();
    for (stored, key) in stored.keys.iter().zip(view.keys.iter().flatten()) {
        assert!(!holds(stored, key));
    }

    for wrong in [Sealer::unsealed(), Sealer::with_master_key([2; 32])] {
        let service = service(&store, wrong);
        assert!(matches!(service.find(&acct).await, Err(AccountError::Sealed(_))));
        assert!(matches!(service.list().await, Err(AccountError::Sealed(_))));
        let rotated = service.rotate(&acct, KeySlot::First, None).await;
        assert!(matches!(rotated, Err(AccountError::Sealed(_))));
    }
    service(&store, Sealer::unsealed()).remove(&acct).await.unwrap();
}

/// Every state of a rotation of the master key, also one that was interrupted, opens on servers that have both.
#[tokio::test]
async fn the_master_key_is_replaced_step_by_step() {
    let (old, new) = ([1; 32], [2; 32]);
    let store = store();
    let before = service(&store, Sealer::with_master_key(old));
    let names: Vec<_> = (0..5).map(|number| name(&format!("account{number}"))).collect();
    let mut keys = Vec::new();
    for name in &names {
        keys.push(
            before
                .create(name, None)
                .await
                .unwrap()
                .keys
                .clone()
                .map(|key| key.unwrap().to_base64()),
        );
    }
    let open = async |sealer: Sealer| {
        let service = service(&store, sealer);
        let mut opened = Vec::new();
        for name in &names {
            let view = service.find(name).await.ok().flatten();
            opened.push(view.map(|view| view.keys.clone().map(|key| key.unwrap().to_base64())));
        }
        opened
    };
    let all: Vec<_> = keys.into_iter().map(Some).collect();
    let nobody = service(&store, Sealer::unsealed());
    assert!(matches!(nobody.reseal(Duration::ZERO).await, Err(AccountError::NoMasterKey)));
    let same = before.reseal(Duration::ZERO).await.unwrap();
    assert_eq!(same, Resealed { resealed: 0, remaining: 0 }, "nothing has to be done");

    for done in 1..=5 {
        // One account each time, by a server that was started anew.
        let after = service(&store, Sealer::with_master_keys(&new, &[old]));
        let resealed = after.reseal(Duration::ZERO).await.unwrap();
        assert_eq!(resealed, Resealed { resealed: 1, remaining: 5 - done });
        assert_eq!(open(Sealer::with_master_keys(&old, &[new])).await, all);
        assert_eq!(open(Sealer::with_master_keys(&new, &[old])).await, all);
        let only_new = open(Sealer::with_master_key(new)).await;
        assert_eq!(only_new.iter().flatten().count(), done);
        assert_eq!(open(Sealer::with_master_key(old)).await.iter().flatten().count(), 5 - done);
    }
    let after = service(&store, Sealer::with_master_keys(&new, &[old]));
    let again = after.reseal(Duration::MAX).await.unwrap();
    assert_eq!(again, Resealed { resealed: 0, remaining: 0 });
    assert_eq!(open(Sealer::with_master_key(new)).await, all, "the old one is of no use any more");
}

#[tokio::test]
async fn properties_keep_what_an_update_leaves_out() {
    let store = store();
    let service = service(&store, Sealer::unsealed());
    let created = service.create(&name("acct"), None).await.unwrap();
    let key = Grant::AccountKey;
    assert_eq!(
        *service.properties(&key, &created, Service::Table).unwrap(),
        ServiceProperties::default()
    );

    service.set_properties(&key, &created, Service::Table, cors("http://a.example")).await.unwrap();
    let metrics = Metrics { enabled: false, ..ServiceProperties::default().hour_metrics };
    let update = ServicePropertiesUpdate {
        hour_metrics: Some(metrics.clone()),
        ..ServicePropertiesUpdate::default()
    };
    // From the view of before the first change: it must not be undone.
    service.set_properties(&key, &created, Service::Table, update).await.unwrap();
    let found = service.find(&name("acct")).await.unwrap().unwrap();
    let properties = service.properties(&key, &found, Service::Table).unwrap();
    assert_eq!(properties.cors[0].allowed_origins, ["http://a.example"]);
    assert_eq!(properties.hour_metrics, metrics);
    assert_eq!(created.table_properties, ServiceProperties::default(), "a view never changes");

    service.remove(&name("acct")).await.unwrap();
    let gone = service.set_properties(&key, &created, Service::Table, cors("*")).await;
    assert!(matches!(gone, Err(AccountError::NotFound)));
    service.create(&name("acct"), None).await.unwrap();
    let other = service.set_properties(&key, &created, Service::Table, cors("*")).await;
    assert!(matches!(other, Err(AccountError::NotFound)), "another account of the same name");
}

#[tokio::test]
async fn properties_need_a_grant() {
    let store = store();
    let service = service(&store, Sealer::unsealed());
    let account = service.create(&name("acct"), None).await.unwrap();
    let grant = |service, letters| Grant::AccountSignature {
        services: Services { table: true, queue: false },
        resource_types: ResourceTypes { service, container: true, object: true },
        permissions: Letters::new(letters),
    };
    let cases = [
        (grant(true, "rw"), Ok(()), Ok(())),
        (grant(true, "r"), Ok(()), Err(Denied::Permission)),
        (grant(true, "w"), Err(Denied::Permission), Ok(())),
        (grant(false, "rw"), Err(Denied::ResourceType), Err(Denied::ResourceType)),
    ];
    let denied = |error| match error {
        AccountError::Denied(denied) => denied,
        other => panic!("{other}"),
    };
    for (grant, read, write) in cases {
        let answer = service.properties(&grant, &account, Service::Table).map(drop);
        assert_eq!(answer.map_err(denied), read, "{grant:?}");
        let answer = service.set_properties(&grant, &account, Service::Table, cors("*")).await;
        assert_eq!(answer.map_err(denied), write, "{grant:?}");
    }
}

/// Writers of different settings and keys at the same time: nothing of any of them is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_do_not_undo_each_other() {
    let store = store();
    let service = Arc::new(service(&store, Sealer::with_master_key([1; 32])));
    let acct = name("acct");
    let account = service.create(&acct, None).await.unwrap();
    for round in 0..50 {
        let set = |update| {
            let (service, account) = (Arc::clone(&service), Arc::clone(&account));
            tokio::spawn(async move {
                service
                    .set_properties(&Grant::AccountKey, &account, Service::Table, update)
                    .await
                    .unwrap();
            })
        };
        let rotate = |slot| {
            let (service, acct) = (Arc::clone(&service), acct.clone());
            tokio::spawn(async move { service.rotate(&acct, slot, None).await.unwrap() })
        };
        let origin = format!("http://{round}.example");
        let logging =
            Logging { retention_days: Some(round + 1), ..ServiceProperties::default().logging };
        let update = ServicePropertiesUpdate {
            logging: Some(logging.clone()),
            ..ServicePropertiesUpdate::default()
        };
        let (a, b) = (set(cors(&origin)), set(update));
        let (first, second) = (rotate(KeySlot::First), rotate(KeySlot::Second));
        a.await.unwrap();
        b.await.unwrap();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let found = service.find(&acct).await.unwrap().unwrap();
        assert_eq!(found.table_properties.cors[0].allowed_origins, [origin]);
        assert_eq!(found.table_properties.logging, logging);
        assert_eq!(bytes(&found, 0), first.as_bytes());
        assert_eq!(bytes(&found, 1), second.as_bytes());
    }
}

/// Services of several servers on one store, each with a lock of its own: nothing of any of them is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_by_several_servers_do_not_undo_each_other() {
    let store = store();
    let server = || Arc::new(service(&store, Sealer::with_master_key([1; 32])));
    let servers = [server(), server(), server(), server()];
    let acct = name("acct");
    let account = servers[0].create(&acct, None).await.unwrap();
    for round in 0..50 {
        let rotate = |server: usize, slot| {
            let (service, acct) = (Arc::clone(&servers[server]), acct.clone());
            let key =
                AccountKey::generate(&SeededRandom::new(u64::from(round) * 2 + server as u64));
            tokio::spawn(async move { service.rotate(&acct, slot, Some(key)).await.unwrap() })
        };
        let set = |server: usize, update| {
            let (service, account) = (Arc::clone(&servers[server]), Arc::clone(&account));
            tokio::spawn(async move {
                let grant = Grant::AccountKey;
                service.set_properties(&grant, &account, Service::Table, update).await.unwrap();
            })
        };
        let origin = format!("http://{round}.example");
        let logging =
            Logging { retention_days: Some(round + 1), ..ServiceProperties::default().logging };
        let update = ServicePropertiesUpdate {
            logging: Some(logging.clone()),
            ..ServicePropertiesUpdate::default()
        };
        let (first, second) = (rotate(0, KeySlot::First), rotate(1, KeySlot::Second));
        let (third, fourth) = (set(2, cors(&origin)), set(3, update));
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        third.await.unwrap();
        fourth.await.unwrap();
        for service in &servers {
            let found = service.find(&acct).await.unwrap().unwrap();
            assert_eq!(bytes(&found, 0), first.as_bytes(), "round {round}");
            assert_eq!(bytes(&found, 1), second.as_bytes(), "round {round}");
            assert_eq!(found.table_properties.cors[0].allowed_origins, [origin.as_str()]);
            assert_eq!(found.table_properties.logging, logging);
        }
    }
}

#[tokio::test]
async fn damaged_data_and_a_closed_store_are_told_apart() {
    let store = store();
    let service = service(&store, Sealer::unsealed());
    let acct = name("acct");
    let account = service.create(&acct, None).await.unwrap();
    for (keys, expected) in
        [([&b""[..], b"\0k"], false), ([b"\0k", b"\x09k"], false), ([b"\0k", b"\0l"], true)]
    {
        let version = store.account(&acct).await.unwrap().unwrap().version;
        store.set_account_keys(account.id, version, keys.map(Into::into)).await.unwrap();
        let found = service.find(&acct).await;
        match found {
            Ok(_) => assert!(expected),
            Err(AccountError::Corrupt(_)) => assert!(!expected),
            Err(other) => panic!("{other}"),
        }
    }
    let setting = Some(b"{".to_vec().into());
    store.set_account_setting(account.id, None, "table-properties", setting).await.unwrap();
    assert!(matches!(service.find(&acct).await, Err(AccountError::Corrupt(_))));
    store.set_account_setting(account.id, None, "table-properties", None).await.unwrap();
    assert!(service.find(&acct).await.is_ok());

    store.close().await.unwrap();
    let refused = service.create(&name("other"), None).await;
    assert!(matches!(refused, Err(AccountError::Unavailable(_))));
    assert!(matches!(AccountError::from(StoreError::Busy), AccountError::Busy));
    let unknown = AccountError::from(StoreError::outcome_unknown("lost"));
    assert!(matches!(unknown, AccountError::OutcomeUnknown(_)));
}
