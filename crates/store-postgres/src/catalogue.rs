//! Accounts and tables in the database.
//!
//! A change locks the one row of the catalogue first, so changes happen one after the other.

use crate::cache::Known;
use crate::fault::Fault;
use crate::index;
use crate::pool::Session;
use crate::queue;
use crate::quota::Quota;
use rowhouse_store::{
    Account, AccountId, Conflict, Index, IndexId, NewAccount, Placement, Table, TableId, Ttl,
};
use rowhouse_types::{AccountName, FoldedName, IndexName, StoredPolicy, TableName, Timestamp};
use std::sync::Arc;
use tokio_postgres::Row;

const LOCK: &str = "UPDATE rowhouse.catalogue SET version = version + 1 RETURNING version";
const ACCOUNT: &str = "SELECT a.id, a.name, a.created, a.key1, a.key2, a.version,
        ARRAY(SELECT s.name FROM rowhouse.account_settings s WHERE s.account = a.id ORDER BY s.name),
        ARRAY(SELECT s.value FROM rowhouse.account_settings s WHERE s.account = a.id ORDER BY s.name)
    FROM rowhouse.accounts a";
const TABLE: &str = "SELECT t.tid, t.account, t.name, t.created, t.placement_group, t.route_chars,
        t.policy_ids, t.policy_starts, t.policy_expiries, t.policy_permissions,
        (SELECT json_agg(json_build_array(i.iid, i.name, i.properties, i.is_unique, i.state) ORDER BY i.iid)::text
         FROM rowhouse.indexes i WHERE i.tid = t.tid AND i.dropped IS NULL), t.indexing,
        t.ttl, t.ttl_property
    FROM rowhouse.tables t WHERE t.dropped IS NULL";

/// Changes accounts and tables, all or none: what the change gives, or why it was refused, and the version of the
/// catalogue that this is true of.
pub(crate) async fn change<T, F>(
    session: Arc<Session>,
    work: impl FnOnce(Arc<Session>) -> F,
) -> Result<(i64, Result<T, Fault>), Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let result = async {
        session.begin("BEGIN").await?;
        let row = session.row(LOCK, &[]).await?;
        let version: i64 = row.map_or(0, |row| row.get(0));
        Ok((version, work(Arc::clone(&session)).await))
    };
    match result.await {
        Ok((version, Ok(done))) => {
            session.end("COMMIT").await?;
            Ok((version, Ok(done)))
        }
        Ok((version, Err(fault))) => {
            session.roll_back().await;
            Ok((version - 1, Err(fault.before_commit())))
        }
        Err(fault) => {
            session.roll_back().await;
            Err(Fault::before_commit(fault))
        }
    }
}

pub(crate) async fn account(
    session: &Session,
    name: &AccountName,
) -> Result<Option<Account>, Fault> {
    let row = session.row(&format!("{ACCOUNT} WHERE a.name = $1"), &[&name.as_str()]).await?;
    row.map(|row| read_account(&row)).transpose()
}

/// Ids and names of the accounts after an id, in the order of their ids.
pub(crate) async fn account_names(
    session: &Session,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, AccountName)>, Fault> {
    let sql = "SELECT id, name FROM rowhouse.accounts WHERE id > $1 ORDER BY id LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.rows(sql, &[&after, &limit]).await?;
    let read = |row: &Row| {
        let name: &str = row.get(1);
        let name = name.parse().map_err(|_| corrupt("the name of an account is none"))?;
        Ok((row.get(0), name))
    };
    rows.iter().map(read).collect()
}

pub(crate) async fn accounts(session: &Session) -> Result<Vec<Arc<Account>>, Fault> {
    let rows = session.rows(&format!("{ACCOUNT} ORDER BY a.name"), &[]).await?;
    rows.iter().map(|row| read_account(row).map(Arc::new)).collect()
}

pub(crate) async fn table(
    session: &Session,
    account: AccountId,
    name: &FoldedName,
) -> Result<Option<Known>, Fault> {
    let sql = format!("{TABLE} AND t.account = $1 AND t.folded = $2");
    let row = session.row(&sql, &[&i64::from(account.0), &name.as_str()]).await?;
    row.map(|row| read_known(&row)).transpose()
}

pub(crate) async fn table_of(session: &Session, id: TableId) -> Result<Option<Known>, Fault> {
    let Some(id) = number(id) else { return Ok(None) };
    let row = session.row(&format!("{TABLE} AND t.tid = $1"), &[&id]).await?;
    row.map(|row| read_known(&row)).transpose()
}

pub(crate) async fn tables(
    session: &Session,
    account: AccountId,
    from: Option<&FoldedName>,
    limit: usize,
) -> Result<Vec<Arc<Table>>, Fault> {
    let sql = format!("{TABLE} AND t.account = $1 AND t.folded >= $2 ORDER BY t.folded LIMIT $3");
    // A place that a client made up may hold what no name and no text of the database does.
    let from = from.map_or(String::new(), |from| from.as_str().replace('\0', "\u{1}"));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.rows(&sql, &[&i64::from(account.0), &from, &limit]).await?;
    rows.iter().map(|row| read_table(row).map(Arc::new)).collect()
}

pub(crate) async fn create_account(
    session: &Session,
    new: &NewAccount,
    now: Timestamp,
) -> Result<(), Fault> {
    let sql =
        "UPDATE rowhouse.catalogue SET last_account = last_account + 1 RETURNING last_account";
    let row = session.row(sql, &[]).await?;
    let id: i64 = row.map_or(0, |row| row.get(0));
    let sql = "INSERT INTO rowhouse.accounts (id, name, created, key1, key2, version, keys_digest)
        VALUES ($1, $2, $3, $4, $5, 1, sha256($4::bytea || $5::bytea)) ON CONFLICT (name) DO NOTHING";
    let [key1, key2] = &new.keys;
    let created = ticks(now);
    let done =
        session.execute(sql, &[&id, &new.name.as_str(), &created, &&**key1, &&**key2]).await?;
    if done == 0 { Err(Conflict::AccountExists.into()) } else { Ok(()) }
}

/// Gives the account its next version. Everything that changes an account goes through here, under the lock of the
/// catalogue: between the comparison and the end of the transaction no other server changes it.
async fn next_version(
    session: &Session,
    account: AccountId,
    expected: Option<u64>,
) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.accounts SET version = version + 1 WHERE id = $1
        RETURNING version - 1";
    let row = session.row(sql, &[&i64::from(account.0)]).await?;
    let found: i64 = row.ok_or(Conflict::AccountNotFound)?.get(0);
    match expected {
        Some(expected) if expected != found.unsigned_abs() => Err(Conflict::AccountChanged.into()),
        Some(_) | None => Ok(()),
    }
}

pub(crate) async fn set_account_keys(
    session: &Session,
    account: AccountId,
    version: u64,
    [key1, key2]: &[Box<[u8]>; 2],
) -> Result<(), Fault> {
    next_version(session, account, Some(version)).await?;
    // The digest says that this server has compared: without it the database refuses other keys.
    let sql = "UPDATE rowhouse.accounts SET key1 = $2, key2 = $3,
            keys_digest = sha256($2::bytea || $3::bytea)
        WHERE id = $1";
    session.execute(sql, &[&i64::from(account.0), &&**key1, &&**key2]).await?;
    Ok(())
}

pub(crate) async fn set_account_setting(
    session: &Session,
    account: AccountId,
    version: Option<u64>,
    name: &str,
    value: Option<&[u8]>,
) -> Result<(), Fault> {
    next_version(session, account, version).await?;
    let id = i64::from(account.0);
    if let Some(value) = value {
        let sql = "INSERT INTO rowhouse.account_settings VALUES ($1, $2, $3)
            ON CONFLICT (account, name) DO UPDATE SET value = excluded.value";
        session.execute(sql, &[&id, &name, &value]).await?;
    } else {
        let sql = "DELETE FROM rowhouse.account_settings WHERE account = $1 AND name = $2";
        session.execute(sql, &[&id, &name]).await?;
    }
    Ok(())
}

pub(crate) async fn remove_account(session: &Session, account: AccountId) -> Result<(), Fault> {
    let id = i64::from(account.0);
    let sql = "DELETE FROM rowhouse.accounts WHERE id = $1";
    if session.execute(sql, &[&id]).await? == 0 {
        return Err(Conflict::AccountNotFound.into());
    }
    let sql = "DELETE FROM rowhouse.account_settings WHERE account = $1";
    session.execute(sql, &[&id]).await?;
    let sql = "UPDATE rowhouse.indexes SET dropped = now(), name = '!' || iid
        WHERE dropped IS NULL AND tid IN (SELECT t.tid FROM rowhouse.tables t WHERE t.account = $1)";
    session.execute(sql, &[&id]).await?;
    let sql = "UPDATE rowhouse.tables SET dropped = now(), folded = '!' || tid WHERE account = $1 AND dropped IS NULL";
    session.execute(sql, &[&id]).await?;
    queue::catalogue::drop_all(session, account).await
}

pub(crate) async fn create_table(
    session: &Session,
    account: AccountId,
    name: &TableName,
    placement: &Placement,
    policies: Vec<StoredPolicy>,
    now: Timestamp,
) -> Result<Table, Fault> {
    let owner = i64::from(account.0);
    if session.row("SELECT FROM rowhouse.accounts WHERE id = $1", &[&owner]).await?.is_none() {
        return Err(Conflict::AccountNotFound.into());
    }
    let sql = "UPDATE rowhouse.catalogue SET last_table = last_table + 1 RETURNING last_table";
    let row = session.row(sql, &[]).await?;
    let id: i64 = row.map_or(0, |row| row.get(0));
    let sql = "INSERT INTO rowhouse.tables
            (tid, account, folded, name, created, placement_group, route_chars,
             policy_ids, policy_starts, policy_expiries, policy_permissions)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (account, folded) DO NOTHING";
    let folded = name.folded();
    let route = placement.route_chars.map(i64::from);
    let group = placement.group.as_deref();
    let Policies { ids, starts, expiries, permissions } = Policies::of(&policies);
    let values: crate::pool::Values<'_> = &[
        &id,
        &owner,
        &folded.as_str(),
        &name.as_str(),
        &ticks(now),
        &group,
        &route,
        &ids,
        &starts,
        &expiries,
        &permissions,
    ];
    if session.execute(sql, values).await? == 0 {
        return Err(Conflict::TableExists.into());
    }
    Ok(Table {
        id: TableId(id.unsigned_abs()),
        account,
        name: name.clone(),
        created: now,
        placement: placement.clone(),
        policies,
        indexes: Vec::new(),
        ttl: None,
    })
}

/// Refuses the table that was created last if the account has more than it may have now. Under the lock of the catalogue
/// nobody else creates one meanwhile; the transaction takes the table back.
pub(crate) async fn check_tables(
    session: &Session,
    created: &Table,
    most: u64,
    quota: &Quota,
) -> Result<(), Fault> {
    let (account, latest) = (created.account, created.id.0);
    if most == u64::MAX || quota.is_met(account, latest, most) {
        return Ok(());
    }
    let sql = "SELECT count(*) FROM rowhouse.tables WHERE account = $1 AND dropped IS NULL";
    let row = session.row(sql, &[&i64::from(account.0)]).await?;
    let count = row.map_or(0, |row| row.get::<_, i64>(0).unsigned_abs());
    quota.note(account, latest, count);
    if count <= most { Ok(()) } else { Err(Conflict::TooManyTables.into()) }
}

pub(crate) async fn drop_table(session: &Session, table: TableId) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.tables SET dropped = now(), folded = '!' || tid WHERE tid = $1 AND dropped IS NULL";
    let id = number(table).ok_or(Conflict::TableNotFound)?;
    if session.execute(sql, &[&id]).await? == 0 {
        return Err(Conflict::TableNotFound.into());
    }
    let sql = "UPDATE rowhouse.indexes SET dropped = now(), name = '!' || iid
        WHERE tid = $1 AND dropped IS NULL";
    session.execute(sql, &[&id]).await?;
    Ok(())
}

pub(crate) async fn set_policies(
    session: &Session,
    table: TableId,
    policies: &[StoredPolicy],
) -> Result<(), Fault> {
    let id = number(table).ok_or(Conflict::TableNotFound)?;
    let Policies { ids, starts, expiries, permissions } = Policies::of(policies);
    let sql = "UPDATE rowhouse.tables
        SET policy_ids = $2, policy_starts = $3, policy_expiries = $4, policy_permissions = $5
        WHERE tid = $1 AND dropped IS NULL";
    let done = session.execute(sql, &[&id, &ids, &starts, &expiries, &permissions]).await?;
    if done == 0 { Err(Conflict::TableNotFound.into()) } else { Ok(()) }
}

/// Access policies in columns.
pub(crate) struct Policies<'a> {
    pub(crate) ids: Vec<&'a str>,
    pub(crate) starts: Vec<Option<i64>>,
    pub(crate) expiries: Vec<Option<i64>>,
    pub(crate) permissions: Vec<Option<&'a str>>,
}

impl<'a> Policies<'a> {
    pub(crate) fn of(policies: &'a [StoredPolicy]) -> Self {
        Self {
            ids: policies.iter().map(|policy| &*policy.id).collect(),
            starts: policies.iter().map(|policy| policy.start.map(ticks)).collect(),
            expiries: policies.iter().map(|policy| policy.expiry.map(ticks)).collect(),
            permissions: policies.iter().map(|policy| policy.permission.as_deref()).collect(),
        }
    }
}

/// The id as the database has it; none if no table can have it.
pub(crate) fn number(table: TableId) -> Option<i64> {
    i64::try_from(table.0).ok()
}

fn ticks(time: Timestamp) -> i64 {
    i64::try_from(time.ticks()).unwrap_or(i64::MAX)
}

fn instant(ticks: i64) -> Result<Timestamp, Fault> {
    let found = u64::try_from(ticks).ok().and_then(Timestamp::from_ticks);
    found.ok_or_else(|| corrupt("a time is out of range"))
}

fn corrupt(what: &str) -> Fault {
    rowhouse_store::StoreError::Corrupt(what.to_owned()).into()
}

pub(crate) fn account_id(id: i64) -> Result<AccountId, Fault> {
    u32::try_from(id).map(AccountId).map_err(|_| corrupt("an id of an account is out of range"))
}

fn read_account(row: &Row) -> Result<Account, Fault> {
    let name: &str = row.get(1);
    let name = name.parse().map_err(|_| corrupt("the name of an account is none"))?;
    let (names, values): (Vec<&str>, Vec<&[u8]>) = (row.get(6), row.get(7));
    let settings = names.into_iter().zip(values);
    Ok(Account {
        id: account_id(row.get(0))?,
        name,
        created: instant(row.get(2))?,
        keys: [row.get::<_, &[u8]>(3).into(), row.get::<_, &[u8]>(4).into()],
        settings: settings.map(|(name, value)| (name.into(), value.into())).collect(),
        version: row.get::<_, i64>(5).unsigned_abs(),
    })
}

fn read_known(row: &Row) -> Result<Known, Fault> {
    Ok(Known { table: Arc::new(read_table(row)?), indexing: row.get(11) })
}

fn read_table(row: &Row) -> Result<Table, Fault> {
    let name: &str = row.get(2);
    let name = name.parse().map_err(|_| corrupt("the name of a table is none"))?;
    let route: Option<i64> = row.get(5);
    let route_chars = route.map(u32::try_from).transpose();
    Ok(Table {
        id: TableId(row.get::<_, i64>(0).unsigned_abs()),
        account: account_id(row.get(1))?,
        name,
        created: instant(row.get(3))?,
        placement: Placement {
            group: row.get::<_, Option<&str>>(4).map(Into::into),
            route_chars: route_chars.map_err(|_| corrupt("a route is out of range"))?,
        },
        policies: read_policies(row)?,
        indexes: read_indexes(row)?,
        ttl: read_ttl(row, 12),
    })
}

/// When entities expire, from the columns `ttl, ttl_property`.
pub(crate) fn read_ttl(row: &Row, at: usize) -> Option<Ttl> {
    let ticks: Option<i64> = row.get(at);
    let property: Option<&str> = row.get(at + 1);
    ticks.map(|ticks| Ttl::of_ticks(property.map(Into::into), ticks.unsigned_abs()))
}

fn read_indexes(row: &Row) -> Result<Vec<Index>, Fault> {
    type Columns = (u64, Box<str>, Vec<String>, bool, i16);
    let text: Option<&str> = row.get(10);
    let found: Vec<Columns> = match text {
        Some(text) => {
            serde_json::from_str(text).map_err(|_| corrupt("the indexes of a table are none"))?
        }
        None => Vec::new(),
    };
    let read = |(id, name, properties, unique, state): Columns| {
        Ok(Index {
            id: IndexId(id),
            name: IndexName::new(name).map_err(|_| corrupt("the name of an index is none"))?,
            keys: index::keys(properties, unique),
            state: index::state(state),
        })
    };
    found.into_iter().map(read).collect()
}

/// Of a row that has [`Policies`] from the seventh column on.
pub(crate) fn read_policies(row: &Row) -> Result<Vec<StoredPolicy>, Fault> {
    let ids: Vec<&str> = row.get(6);
    let (starts, expiries): (Vec<Option<i64>>, Vec<Option<i64>>) = (row.get(7), row.get(8));
    let permissions: Vec<Option<&str>> = row.get(9);
    if [starts.len(), expiries.len(), permissions.len()] != [ids.len(); 3] {
        return Err(corrupt("access policies do not agree"));
    }
    let policies = ids.into_iter().zip(starts).zip(expiries).zip(permissions);
    policies
        .map(|(((id, start), expiry), permission)| {
            Ok(StoredPolicy {
                id: id.into(),
                start: start.map(instant).transpose()?,
                expiry: expiry.map(instant).transpose()?,
                permission: permission.map(Into::into),
            })
        })
        .collect()
}
