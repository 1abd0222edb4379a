//! Accounts: keys, settings, versions, removal.

use super::Engine;
use super::fixture::{
    account, commit, content, get, is_unreachable, key, number, open, put, refusal, table, write,
};
use crate::{Account, AccountId, Conflict, NewAccount, Placement, Store};
use std::sync::Arc;

async fn find(store: &dyn Store, name: &str) -> Option<Arc<Account>> {
    let name = name.parse().expect("a legal account name");
    store.account(&name).await.expect("the lookup succeeds")
}

/// Any bytes as keys; listed in order.
pub async fn account_is_kept_as_given(engine: &dyn Engine) {
    let store = engine.open().await;
    assert!(store.accounts().await.expect("the listing succeeds").is_empty());
    let keys: [Box<[u8]>; 2] = [Box::from([0, 255, 10, 0]), Box::from([])];
    for name in ["zed", "abc", "abc1", "0ab", "abcdefghijklmnopqrstuvwx"] {
        let new =
            NewAccount { name: name.parse().expect("a legal account name"), keys: keys.clone() };
        let created = store.create_account(new.clone()).await.expect("created");
        assert_eq!((created.name.as_str(), &created.keys), (name, &keys));
        assert!(created.settings.is_empty());
        let found = find(&*store, name).await.expect("the account is there");
        assert_eq!((found.id, found.created), (created.id, created.created));
        assert_eq!((&found.keys, found.version), (&keys, created.version));
        assert_eq!(refusal(store.create_account(new).await), (0, Conflict::AccountExists));
    }
    assert!(find(&*store, "none").await.is_none());
    let all = store.accounts().await.expect("the listing succeeds");
    let names: Vec<_> = all.iter().map(|account| account.name.as_str()).collect();
    assert_eq!(names, ["0ab", "abc", "abc1", "abcdefghijklmnopqrstuvwx", "zed"]);
}

/// Keys and settings change; each change is visible in the version; other accounts stay.
pub async fn account_version_rises(engine: &dyn Engine) {
    let store = engine.open().await;
    let (changed, other) = (account(&*store, "first").await, account(&*store, "second").await);
    let (id, mut version) = (changed.id, changed.version);
    let mut rose = async || {
        let now = find(&*store, "first").await.expect("the account is there");
        assert!(version < now.version, "{version} then {}", now.version);
        version = now.version;
        now
    };
    let keys: [Box<[u8]>; 2] = [Box::from(*b"new one"), Box::from(*b"new two")];
    store.set_account_keys(id, changed.version, keys.clone()).await.expect("set");
    assert_eq!(rose().await.keys, keys);
    for (name, value) in
        [("table", Some(&b"\0\x01"[..])), ("other", Some(b"")), ("table", Some(b"new"))]
    {
        let value = value.map(Into::into);
        store.set_account_setting(id, None, name, value.clone()).await.expect("set");
        assert_eq!(rose().await.settings.get(name), value.as_ref(), "{name}");
    }
    store.set_account_setting(id, None, "table", None).await.expect("removed");
    let now = rose().await;
    let names: Vec<_> = now.settings.keys().map(AsRef::as_ref).collect::<Vec<&str>>();
    assert_eq!(names, ["other"]);
    assert_eq!(now.keys, keys);
    let absent = store.set_account_setting(id, None, "absent", None).await;
    absent.expect("removing nothing is no error");
    let untouched = find(&*store, "second").await.expect("the account is there");
    assert_eq!((untouched.version, &untouched.keys), (other.version, &other.keys));
    assert!(untouched.settings.is_empty());

    let nobody = AccountId(u32::MAX);
    let refused = store.set_account_keys(nobody, 1, keys).await;
    assert_eq!(refusal(refused), (0, Conflict::AccountNotFound));
    let refused = store.set_account_setting(nobody, None, "x", None).await;
    assert_eq!(refusal(refused), (0, Conflict::AccountNotFound));
    assert_eq!(refusal(store.remove_account(nobody).await), (0, Conflict::AccountNotFound));
}

/// A change that was made for another version leaves everything as it is; of several made for one version, one
/// takes effect.
pub async fn account_change_compares_the_version(engine: &dyn Engine) {
    let store = engine.open().await;
    let (first, other) = (account(&*store, "first").await, account(&*store, "second").await);
    let id = first.id;
    let keys = |number: u8| -> [Box<[u8]>; 2] { [Box::from([number]), Box::from([number, 0])] };
    let value = |number: u8| -> Option<Box<[u8]>> { Some(Box::from([number])) };
    store.set_account_keys(id, first.version, keys(1)).await.expect("it has this version");
    let second = find(&*store, "first").await.expect("the account is there").version;
    store.set_account_setting(id, Some(second), "s", value(1)).await.expect("it has this version");
    let now = find(&*store, "first").await.expect("the account is there");

    for stale in [first.version, second, now.version + 1, 0, u64::MAX] {
        let refused = store.set_account_keys(id, stale, keys(2)).await;
        assert_eq!(refusal(refused), (0, Conflict::AccountChanged), "keys at {stale}");
        for value in [value(2), None] {
            let refused = store.set_account_setting(id, Some(stale), "s", value).await;
            assert_eq!(refusal(refused), (0, Conflict::AccountChanged), "setting at {stale}");
        }
        let found = find(&*store, "first").await.expect("the account is there");
        assert_eq!((found.version, &found.keys), (now.version, &keys(1)));
        assert_eq!(found.settings.get("s"), value(1).as_ref());
    }
    let refused = store.set_account_keys(AccountId(u32::MAX), 1, keys(2)).await;
    assert_eq!(refusal(refused), (0, Conflict::AccountNotFound), "no account has any version");

    for round in 3..7 {
        let version = find(&*store, "first").await.expect("the account is there").version;
        let (a, b, c) = tokio::join!(
            store.set_account_keys(id, version, keys(round)),
            store.set_account_setting(id, Some(version), "s", value(round)),
            store.set_account_keys(id, version, keys(round + 100)),
        );
        let outcomes = [a, b, c];
        let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(done, 1, "round {round}: {outcomes:?}");
        let found = find(&*store, "first").await.expect("the account is there");
        assert_eq!(found.version, version + 1);
        for outcome in outcomes.into_iter().filter(Result::is_err) {
            assert_eq!(refusal(outcome), (0, Conflict::AccountChanged));
        }
    }
    let untouched = find(&*store, "second").await.expect("the account is there");
    assert_eq!((untouched.version, &untouched.keys), (other.version, &other.keys));
}

/// Tables and entities go with it; the name is free, the id is not.
pub async fn removed_account_takes_its_tables_along(engine: &dyn Engine) {
    let (store, kept) = open(engine).await;
    let removed = account(&*store, "second").await.id;
    let (one, two) =
        (table(&*store, removed, "One").await, table(&*store, removed, "Things").await);
    let place = key("p", "r");
    for table in [kept, one, two] {
        write(&*store, put(table, &place, number(1))).await;
    }
    store.set_account_setting(removed, None, "x", Some(Box::from(*b"y"))).await.expect("set");
    store.remove_account(removed).await.expect("removed");
    assert!(find(&*store, "second").await.is_none());
    assert_eq!(refusal(store.remove_account(removed).await), (0, Conflict::AccountNotFound));
    let late =
        store.create_table(removed, &"Late".parse().expect("legal"), Placement::default()).await;
    assert_eq!(refusal(late), (0, Conflict::AccountNotFound));
    assert!(store.tables(removed, None, 10).await.expect("the listing succeeds").is_empty());
    for table in [one, two] {
        assert!(is_unreachable(&*store, table, &place).await);
        let late = commit(&*store, vec![put(table, &place, number(2))]).await;
        assert_eq!(refusal(late), (0, Conflict::TableNotFound));
    }
    assert!(get(&*store, kept, &place).await.is_some(), "others keep theirs");
    let again = account(&*store, "second").await;
    assert_ne!(again.id, removed);
    assert!(again.settings.is_empty());
    assert!(store.tables(again.id, None, 10).await.expect("the listing succeeds").is_empty());
    let fresh = table(&*store, again.id, "Things").await;
    assert_eq!(get(&*store, fresh, &place).await, None);
}

/// One name, two accounts, two tables.
pub async fn accounts_do_not_share_tables(engine: &dyn Engine) {
    let (store, first) = open(engine).await;
    let other = account(&*store, "second").await.id;
    let second = table(&*store, other, "Things").await;
    assert_ne!(first, second);
    let place = key("p", "r");
    write(&*store, put(first, &place, number(1))).await;
    assert_eq!(get(&*store, second, &place).await, None);
    write(&*store, put(second, &place, number(2))).await;
    store.drop_table(second).await.expect("dropped");
    let found = get(&*store, first, &place).await.expect("the entity is there");
    assert_eq!(content(&found), number(1));
}
