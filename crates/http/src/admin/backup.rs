//! Backups over the admin API: one as the body of an answer, and a table out of one in the body of a request.

use super::answer::{Problem, json};
use super::body::{AdminBody, Received, Response, Stream};
use super::token::Bearer;
use crate::Request;
use http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use rowhouse_service_backup::{
    BackupError, BackupService, Base, Estimate, FileError, RestoredTable, TableChoice, Taking,
    Totals,
};
use rowhouse_types::{AccountName, Guid, TableName, Timestamp};
use serde::Serialize;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

/// Bytes of a backup that wait for the client.
const WAITING_BYTES: usize = 256 * 1024;

/// About how much a full backup will hold: `items=NUMBER` or `bytes=NUMBER` before compression. Absent if nobody knows.
const ESTIMATE: HeaderName = HeaderName::from_static("x-rowhouse-estimate");

/// Begins a backup. It lives as long as the client takes its bytes: who hangs up, or stalls for so long that
/// the listener hangs up, ends it, and what the store keeps for it is let go of.
pub(super) async fn take(
    service: &BackupService,
    bearer: &Bearer,
    uri: &Uri,
) -> Result<Response, Problem> {
    let taking = service.begin(base(uri)?).await.map_err(|error| problem(&error))?;
    let estimate = taking.estimate().map(estimate);
    let (sink, bytes) = tokio::io::duplex(WAITING_BYTES);
    let (finish, finished) = oneshot::channel();
    let token = bearer.fingerprint().to_owned();
    tokio::spawn(async move {
        let written = write(taking, sink, &token).await;
        // Nobody waits for it when the client has hung up.
        let _ = finish.send(written);
    });
    let mut response = Response::new(AdminBody::from(Stream { bytes, finished }));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(Ok(estimate)) = estimate {
        headers.insert(ESTIMATE, estimate);
    }
    Ok(response)
}

fn estimate(estimate: Estimate) -> Result<HeaderValue, header::InvalidHeaderValue> {
    let text = match estimate {
        Estimate::Items(items) => format!("items={items}"),
        Estimate::Bytes(bytes) => format!("bytes={bytes}"),
    };
    HeaderValue::try_from(text)
}

/// Writes it, and tells the log how it ended.
async fn write(taking: Taking, sink: DuplexStream, token: &str) -> bool {
    let action = "backup.end";
    match taking.write(sink).await {
        Ok(Totals { entities, changes, .. }) => {
            tracing::info!(
                target: "audit", action, token, outcome = "ok", entities, changes, "admin action"
            );
            true
        }
        Err(error) => {
            tracing::info!(
                target: "audit", action, token, outcome = problem(&error).code, "admin action"
            );
            tracing::warn!(%error, "a backup was not finished");
            false
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RestoredBody<'a> {
    account: &'a str,
    table: &'a str,
    items: u64,
    changes: u64,
    resumed: bool,
    indexes: u64,
    indexes_left_out: u64,
    ttl_left_off: bool,
}

impl<'a> RestoredBody<'a> {
    fn new(account: &'a AccountName, table: &'a TableName, restored: RestoredTable) -> Self {
        let RestoredTable { items, changes, resumed, indexes, indexes_left_out, ttl_left_off } =
            restored;
        let (account, table) = (account.as_str(), table.as_str());
        Self { account, table, items, changes, resumed, indexes, indexes_left_out, ttl_left_off }
    }
}

/// Restores a table out of the backups in the body, one behind the other.
pub(super) async fn restore(
    service: &BackupService,
    account: &AccountName,
    table: &TableName,
    request: Request,
) -> Result<Response, Problem> {
    let choice = choice(account, table, request.uri())?;
    let source = Received::new(request.into_body());
    let restored = service.restore_table(choice, source).await.map_err(|error| problem(&error))?;
    Ok(json(StatusCode::OK, &RestoredBody::new(account, table, restored)))
}

/// `base=ID&place=NUMBER`, or nothing for a full backup.
fn base(uri: &Uri) -> Result<Option<Base>, Problem> {
    let wrong = || {
        Problem::bad(
            "An incremental backup takes 'base', the id of a backup, and 'place', its place.",
        )
    };
    let [id, place] = parameters(uri, ["base", "place"])?;
    match (id, place) {
        (None, None) => Ok(None),
        (Some(id), Some(place)) => {
            let id = Guid::parse(id).ok_or_else(wrong)?;
            Ok(Some(Base { id, place: place.parse().map_err(|_| wrong())? }))
        }
        _ => Err(wrong()),
    }
}

/// `table=NAME`, `account=NAME` if it was in another account, `allowFutureTimestamps=true` and `keepTtl=true`.
fn choice(
    into_account: &AccountName,
    into_table: &TableName,
    uri: &Uri,
) -> Result<TableChoice, Problem> {
    let wrong =
        "A restore takes 'table', and 'account' if it is another: what it was in the backup.";
    let names = ["account", "table", "allowFutureTimestamps", "keepTtl"];
    let [account, table, future, keep_ttl] = parameters(uri, names)?;
    let is_set = |value: Option<&str>, wrong: &'static str| match value {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::bad(wrong)),
    };
    let any_time = is_set(future, "'allowFutureTimestamps' is 'true' or 'false'.")?;
    let until = any_time.then_some(Timestamp::MAX);
    // Nothing has expired at the beginning of time.
    let keep_ttl = is_set(keep_ttl, "'keepTtl' is 'true' or 'false'.")?;
    let expired_by = keep_ttl.then_some(Timestamp::default());
    let account = account.map_or_else(|| Ok(into_account.clone()), str::parse);
    let table = table.and_then(|table| table.parse().ok());
    let (Ok(from_account), Some(from_table)) = (account, table) else {
        return Err(Problem::bad(wrong));
    };
    let (into_account, into_table) = (into_account.clone(), into_table.clone());
    Ok(TableChoice { from_account, from_table, into_account, into_table, until, expired_by })
}

/// The values of these parameters. None of them needs to be encoded.
fn parameters<'a, const N: usize>(
    uri: &'a Uri,
    names: [&str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    let mut values = [None; N];
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(Problem::bad("This path does not take such a parameter."));
        };
        values[index] = Some(value);
    }
    Ok(values)
}

/// The only place where a backup error becomes an answer of this listener.
fn problem(error: &BackupError) -> Problem {
    use rowhouse_service_backup::BackupError as E;
    let with = |status, code| Problem { status, code, message: sentence(error).into() };
    match error {
        E::Busy => with(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy"),
        E::ChangesNotKept => with(StatusCode::CONFLICT, "ChangesNotKept"),
        E::NoSuchAccount(_) => with(StatusCode::NOT_FOUND, "AccountNotFound"),
        E::NoSuchTable { .. } | E::NotWhole { .. } => with(StatusCode::NOT_FOUND, "TableNotFound"),
        E::TableExists(_) | E::OtherHalf { .. } => with(StatusCode::CONFLICT, "TableExists"),
        E::OtherChain(_) => with(StatusCode::CONFLICT, "OtherBackups"),
        E::TableGone(_) => with(StatusCode::CONFLICT, "TableDeleted"),
        E::TakenOver(_) => with(StatusCode::CONFLICT, "TakenOver"),
        E::NotEmpty | E::OtherRestore { .. } => with(StatusCode::CONFLICT, "NotEmpty"),
        E::File(FileError::Io(_)) => Problem::bad("The body ended early."),
        E::FutureTimestamp { .. } => with(StatusCode::BAD_REQUEST, "FutureTimestamp"),
        E::File(_) | E::NotFull { .. } | E::Chain { .. } | E::OtherOrigin { .. } | E::Changed => {
            with(StatusCode::BAD_REQUEST, "BadBackup")
        }
        E::Sink(_) | E::SlowReader { .. } => with(StatusCode::SERVICE_UNAVAILABLE, "NotTaken"),
        E::Store(_) | E::LeftOver { .. } | E::Halted { .. } => {
            tracing::error!(%error, "backup or restore failed");
            with(StatusCode::SERVICE_UNAVAILABLE, "Unavailable")
        }
    }
}

/// With a capital and a full stop.
fn sentence(error: &BackupError) -> String {
    let text = error.to_string();
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_were_left_out_are_told() {
        let restored = RestoredTable {
            items: 5,
            changes: 2,
            resumed: false,
            indexes: 3,
            indexes_left_out: 1,
            ttl_left_off: true,
        };
        let (account, table) = ("shop".parse().unwrap(), "Old".parse().unwrap());
        let body = serde_json::to_value(RestoredBody::new(&account, &table, restored)).unwrap();
        let expected = serde_json::json!({
            "account": "shop", "table": "Old", "items": 5, "changes": 2, "resumed": false,
            "indexes": 3, "indexesLeftOut": 1, "ttlLeftOff": true,
        });
        assert_eq!(body, expected);
    }

    /// A program can tell a name that is taken from a half that is gone.
    #[test]
    fn tables_that_are_not_restored_have_codes() {
        use rowhouse_service_backup::BackupError as E;
        let table = || -> TableName { "Old".parse().unwrap() };
        let cases = [
            (E::TableExists(table()), "TableExists"),
            (E::OtherHalf { table: table(), id: Guid([0; 16]) }, "TableExists"),
            (E::OtherChain(table()), "OtherBackups"),
            (E::TableGone(table()), "TableDeleted"),
            (E::TakenOver(table()), "TakenOver"),
        ];
        for (error, code) in cases {
            assert_eq!(
                (problem(&error).status, problem(&error).code),
                (StatusCode::CONFLICT, code)
            );
        }
    }
}
