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
    store.set_account_keys(id, keys.clone()).await.expect("set");
    assert_eq!(rose().await.keys, keys);
    for (name, value) in
        [("table", Some(&b"\0\x01"[..])), ("other", Some(b"")), ("table", Some(b"new"))]
    {
        store.set_account_setting(id, name, value.map(Into::into)).await.expect("set");
        assert_eq!(rose().await.settings.get(name).map(AsRef::as_ref), value, "{name}");
    }
    store.set_account_setting(id, "table", None).await.expect("removed");
    let now = rose().await;
    let names: Vec<_> = now.settings.keys().map(AsRef::as_ref).collect::<Vec<&str>>();
    assert_eq!(names, ["other"]);
    assert_eq!(now.keys, keys);
    store.set_account_setting(id, "absent", None).await.expect("removing nothing is no error");
    let untouched = find(&*store, "second").await.expect("the account is there");
    assert_eq!((untouched.version, &untouched.keys), (other.version, &other.keys));
    assert!(untouched.settings.is_empty());

    let nobody = AccountId(u32::MAX);
    let refused = store.set_account_keys(nobody, keys).await;
    assert_eq!(refusal(refused), (0, Conflict::AccountNotFound));
    let refused = store.set_account_setting(nobody, "x", None).await;
    assert_eq!(refusal(refused), (0, Conflict::AccountNotFound));
    assert_eq!(refusal(store.remove_account(nobody).await), (0, Conflict::AccountNotFound));
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
    store.set_account_setting(removed, "x", Some(Box::from(*b"y"))).await.expect("set");
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
