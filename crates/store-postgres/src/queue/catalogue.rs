//! Queues in the catalogue: made, changed and dropped as tables are.

use super::{corrupt, instant, number, ticks};
use crate::catalogue::{Policies, account_id, read_policies};
use crate::fault::Fault;
use crate::pool::Session;
use crate::props::{escaped, unescaped};
use crate::quota::Quota;
use rowhouse_store::{AccountId, Conflict, Metadata, Queue, QueueId};
use rowhouse_types::{QueueName, StoredPolicy, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;
use tokio_postgres::Row;

const QUEUE: &str =
    "SELECT q.qid, q.account, q.name, q.created, q.metadata_names, q.metadata_values,
        q.policy_ids, q.policy_starts, q.policy_expiries, q.policy_permissions
    FROM rowhouse.queues q WHERE q.dropped IS NULL";

pub(crate) async fn queue(
    session: &Session,
    account: AccountId,
    name: &QueueName,
) -> Result<Option<Queue>, Fault> {
    let sql = format!("{QUEUE} AND q.account = $1 AND q.name = $2");
    let row = session.row(&sql, &[&i64::from(account.0), &name.as_str()]).await?;
    row.map(|row| read(&row)).transpose()
}

pub(crate) async fn queues(
    session: &Session,
    account: AccountId,
    from: &str,
    limit: usize,
) -> Result<Vec<Arc<Queue>>, Fault> {
    let sql = format!("{QUEUE} AND q.account = $1 AND q.name >= $2 ORDER BY q.name LIMIT $3");
    // What a client made up may hold what no name and no text of the database does.
    let from = from.replace('\0', "\u{1}");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.rows(&sql, &[&i64::from(account.0), &from, &limit]).await?;
    rows.iter().map(|row| read(row).map(Arc::new)).collect()
}

pub(crate) async fn create(
    session: &Session,
    account: AccountId,
    name: &QueueName,
    metadata: Metadata,
    now: Timestamp,
) -> Result<Queue, Fault> {
    let owner = i64::from(account.0);
    if session.row("SELECT FROM rowhouse.accounts WHERE id = $1", &[&owner]).await?.is_none() {
        return Err(Conflict::AccountNotFound.into());
    }
    let sql = "UPDATE rowhouse.catalogue SET last_queue = last_queue + 1 RETURNING last_queue";
    let row = session.row(sql, &[]).await?;
    let id: i64 = row.map_or(0, |row| row.get(0));
    let sql =
        "INSERT INTO rowhouse.queues (qid, account, name, created, metadata_names, metadata_values)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, name) DO NOTHING";
    let (names, values) = columns(&metadata);
    let values: crate::pool::Values<'_> =
        &[&id, &owner, &name.as_str(), &ticks(now), &names, &values];
    if session.execute(sql, values).await? == 0 {
        return Err(Conflict::QueueExists.into());
    }
    let (id, name, policies) = (QueueId(id.unsigned_abs()), name.clone(), Vec::new());
    Ok(Queue { id, account, name, created: now, metadata, policies })
}

/// Refuses the queue that was created last if the account has more than it may have now, as `catalogue::check_tables` does.
pub(crate) async fn check_queues(
    session: &Session,
    created: &Queue,
    most: u64,
    quota: &Quota,
) -> Result<(), Fault> {
    let (account, latest) = (created.account, created.id.0);
    if most == u64::MAX || quota.is_met(account, latest, most) {
        return Ok(());
    }
    let sql = "SELECT count(*) FROM rowhouse.queues WHERE account = $1 AND dropped IS NULL";
    let row = session.row(sql, &[&i64::from(account.0)]).await?;
    let count = row.map_or(0, |row| row.get::<_, i64>(0).unsigned_abs());
    quota.note(account, latest, count);
    if count <= most { Ok(()) } else { Err(Conflict::TooManyQueues.into()) }
}

pub(crate) async fn drop(session: &Session, queue: QueueId) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.queues SET dropped = now(), name = '!' || qid
        WHERE qid = $1 AND dropped IS NULL";
    found(session.execute(sql, &[&number(queue)]).await?)
}

/// All queues of an account.
pub(crate) async fn drop_all(session: &Session, account: AccountId) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.queues SET dropped = now(), name = '!' || qid
        WHERE account = $1 AND dropped IS NULL";
    session.execute(sql, &[&i64::from(account.0)]).await.map(std::mem::drop)
}

pub(crate) async fn set_metadata(
    session: &Session,
    queue: QueueId,
    metadata: &Metadata,
) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.queues SET metadata_names = $2, metadata_values = $3
        WHERE qid = $1 AND dropped IS NULL";
    let (names, values) = columns(metadata);
    found(session.execute(sql, &[&number(queue), &names, &values]).await?)
}

pub(crate) async fn set_policies(
    session: &Session,
    queue: QueueId,
    policies: &[StoredPolicy],
) -> Result<(), Fault> {
    let sql = "UPDATE rowhouse.queues
        SET policy_ids = $2, policy_starts = $3, policy_expiries = $4, policy_permissions = $5
        WHERE qid = $1 AND dropped IS NULL";
    let Policies { ids, starts, expiries, permissions } = Policies::of(policies);
    let values: crate::pool::Values<'_> = &[&number(queue), &ids, &starts, &expiries, &permissions];
    found(session.execute(sql, values).await?)
}

fn found(changed: u64) -> Result<(), Fault> {
    if changed == 0 { Err(Conflict::QueueNotFound.into()) } else { Ok(()) }
}

/// Names and values, as the database can hold them.
fn columns(metadata: &Metadata) -> (Vec<Cow<'_, str>>, Vec<Cow<'_, str>>) {
    metadata.iter().map(|(name, value)| (escaped(name), escaped(value))).unzip()
}

fn read(row: &Row) -> Result<Queue, Fault> {
    let name: &str = row.get(2);
    Ok(Queue {
        id: QueueId(row.get::<_, i64>(0).unsigned_abs()),
        account: account_id(row.get(1))?,
        name: name.parse().map_err(|_| corrupt("the name of a queue is none"))?,
        created: instant(row.get(3))?,
        metadata: read_metadata(row)?,
        policies: read_policies(row)?,
    })
}

fn read_metadata(row: &Row) -> Result<Metadata, Fault> {
    let (names, values): (Vec<&str>, Vec<&str>) = (row.get(4), row.get(5));
    if names.len() != values.len() {
        return Err(corrupt("the metadata of a queue do not agree"));
    }
    let text = |text| -> Result<Box<str>, Fault> {
        let text = unescaped(Cow::Borrowed(text));
        Ok(text.ok_or_else(|| corrupt("the metadata of a queue are none"))?.into())
    };
    names.into_iter().zip(values).map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}
