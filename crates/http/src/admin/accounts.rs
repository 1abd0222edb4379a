//! Accounts over the admin API: JSON in, a call of the account service, JSON out.

use super::Endpoints;
use super::answer::{Problem, empty, json};
use super::body::Response;
use http::StatusCode;
use rowhouse_service_account::{
    AccountError, AccountKey, AccountService, AccountView, DEVELOPMENT_KEY, KeySlot, Resealed,
};
use rowhouse_types::{AccountName, limits};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// An account as the API shows it. Keys, and the endpoints that belong beside them in a connection
/// string, appear only where a call is about keys; how many there are is no secret. A key that a backup left out is `null`.
#[derive(Debug, Serialize)]
struct AccountBody<'a> {
    name: &'a str,
    created: String,
    key_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<[Option<String>; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_endpoint: Option<String>,
}

#[derive(Debug, Serialize)]
struct ListBody<'a> {
    accounts: Vec<AccountBody<'a>>,
}

#[derive(Debug, Serialize)]
struct KeyBody<'a> {
    name: &'a str,
    slot: u8,
    key: String,
}

/// An account that somebody wants, with keys of its own or with new ones.
#[derive(Debug)]
pub(super) struct NewAccount {
    pub(super) name: AccountName,
    keys: Option<[AccountKey; 2]>,
}

impl NewAccount {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            name: String,
            keys: Option<[String; 2]>,
        }
        let Form { name, keys } = parse(body)?;
        let name = name.parse().map_err(|error| {
            Problem::bad(format!(
                "An account name has 3 to 24 lower-case letters and digits: {error}."
            ))
        })?;
        let keys = match keys {
            None => None,
            Some([first, second]) => Some([parse_key(&first)?, parse_key(&second)?]),
        };
        Ok(Self { name, keys })
    }
}

pub(super) async fn list(service: &AccountService) -> Result<Response, Problem> {
    let accounts = service.list().await.map_err(problem)?;
    let accounts = accounts.iter().map(|account| view(account, None)).collect();
    Ok(json(StatusCode::OK, &ListBody { accounts }))
}

pub(super) async fn show(
    service: &AccountService,
    name: &AccountName,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &view(&*find(service, name).await?, None)))
}

pub(super) async fn keys(
    service: &AccountService,
    name: &AccountName,
    endpoints: &Endpoints,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &view(&*find(service, name).await?, Some(endpoints))))
}

/// Creates an account. Its keys are told to, and can be chosen by, only who may handle keys: then
/// there are endpoints to tell with them.
pub(super) async fn create(
    service: &AccountService,
    new: NewAccount,
    endpoints: Option<&Endpoints>,
) -> Result<Response, Problem> {
    if new.keys.is_some() && endpoints.is_none() {
        return Err(Problem::scope(super::Scope::Keys));
    }
    let account = service.create(&new.name, new.keys).await.map_err(problem)?;
    Ok(json(StatusCode::CREATED, &view(&account, endpoints)))
}

pub(super) async fn remove(
    service: &AccountService,
    name: &AccountName,
) -> Result<Response, Problem> {
    service.remove(name).await.map_err(problem)?;
    Ok(empty())
}

/// Replaces one key by the one in the body, or by a new one if the body is empty. The other stays
/// valid.
pub(super) async fn rotate(
    service: &AccountService,
    name: &AccountName,
    slot: KeySlot,
    body: &[u8],
) -> Result<Response, Problem> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Form {
        key: Option<String>,
    }
    let form: Form = if body.is_empty() { Form::default() } else { parse(body)? };
    let key = form.key.as_deref().map(parse_key).transpose()?;
    let key = service.rotate(name, slot, key).await.map_err(problem)?;
    let body = KeyBody { name: name.as_str(), slot: slot_number(slot), key: key.to_base64() };
    Ok(json(StatusCode::OK, &body))
}

/// How many tables and queues an account may have. What was not set for it alone is `default`.
#[derive(Debug, Serialize)]
struct LimitsBody<'a> {
    name: &'a str,
    tables: LimitBody,
    queues: LimitBody,
}

#[derive(Debug, Serialize)]
struct LimitBody {
    limit: u64,
    default: bool,
}

fn limits_body(account: &AccountView) -> LimitsBody<'_> {
    let limit = |limit, own: Option<u64>| LimitBody { limit, default: own.is_none() };
    LimitsBody {
        name: account.name.as_str(),
        tables: limit(account.limits.tables, account.own_limits.tables),
        queues: limit(account.limits.queues, account.own_limits.queues),
    }
}

pub(super) async fn limits(
    service: &AccountService,
    name: &AccountName,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &limits_body(&*find(service, name).await?)))
}

/// Changes the limits that the body names: to a number, or with `null` to what the server allows every account.
pub(super) async fn set_limits(
    service: &AccountService,
    name: &AccountName,
    body: &[u8],
) -> Result<Response, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(clippy::option_option, reason = "`null` is not the same as nothing")]
    struct Form {
        #[serde(default, deserialize_with = "named")]
        tables: Option<Option<u64>>,
        #[serde(default, deserialize_with = "named")]
        queues: Option<Option<u64>>,
    }
    /// Tells `null` from nothing.
    #[expect(clippy::option_option, reason = "`null` is not the same as nothing")]
    fn named<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
        Option::deserialize(from).map(Some)
    }
    let Form { tables, queues } = parse(body)?;
    let account = service.set_limits(name, tables, queues).await.map_err(problem)?;
    Ok(json(StatusCode::OK, &limits_body(&account)))
}

/// Seals keys under the current master key for a while, and tells how many accounts are left.
pub(super) async fn reseal(service: &AccountService) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Body {
        resealed: usize,
        remaining: usize,
    }
    let within = Duration::from_secs(limits::RESEAL_SECONDS_MAX);
    let Resealed { resealed, remaining } = service.reseal(within).await.map_err(problem)?;
    Ok(json(StatusCode::OK, &Body { resealed, remaining }))
}

/// Keys are counted from 1, as people do.
pub(super) fn parse_slot(text: &str) -> Option<KeySlot> {
    match text {
        "1" => Some(KeySlot::First),
        "2" => Some(KeySlot::Second),
        _ => None,
    }
}

pub(super) fn slot_number(slot: KeySlot) -> u8 {
    match slot {
        KeySlot::First => 1,
        KeySlot::Second => 2,
    }
}

fn view<'a>(account: &'a AccountView, endpoints: Option<&Endpoints>) -> AccountBody<'a> {
    let name = account.name.as_str();
    AccountBody {
        name,
        created: account.created.iso7(),
        key_count: account.keys.iter().flatten().count(),
        keys: endpoints.map(|_| shown(account)),
        endpoint: endpoints.map(|endpoints| format!("{}/{name}", endpoints.table)),
        queue_endpoint: endpoints.map(|endpoints| format!("{}/{name}", endpoints.queue)),
    }
}

fn shown(account: &AccountView) -> [Option<String>; 2] {
    account.keys.each_ref().map(|key| key.as_ref().map(AccountKey::to_base64))
}

async fn find(service: &AccountService, name: &AccountName) -> Result<Arc<AccountView>, Problem> {
    service.find(name).await.map_err(problem)?.ok_or(Problem::NO_ACCOUNT)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    // The library's message may quote the body, and the body may hold a key.
    serde_json::from_slice(body).map_err(|error| {
        Problem::bad(format!(
            "The body is not the JSON that this path takes (line {}, column {}).",
            error.line(),
            error.column()
        ))
    })
}

fn parse_key(text: &str) -> Result<AccountKey, Problem> {
    if text == DEVELOPMENT_KEY {
        return Err(Problem::bad("This key is public: everybody has it. Choose another."));
    }
    AccountKey::from_base64(text).map_err(|_| {
        let least = limits::ACCOUNT_KEY_BYTES_MIN;
        Problem::bad(format!("A key is text in Base64 of at least {least} bytes."))
    })
}

/// The only place where an account error becomes an answer of this listener.
#[expect(clippy::needless_pass_by_value, reason = "this is what map_err passes")]
fn problem(error: AccountError) -> Problem {
    match error {
        AccountError::NotFound => Problem::NO_ACCOUNT,
        AccountError::Exists => Problem::ACCOUNT_EXISTS,
        AccountError::Busy => Problem::BUSY,
        AccountError::NoMasterKey => Problem::NO_MASTER_KEY,
        // The admin API asks without a grant, so nothing of it can be denied.
        AccountError::Denied(_) => Problem::unavailable("The account service denied the request."),
        AccountError::Sealed(_) | AccountError::Unavailable(_) | AccountError::Corrupt(_) => {
            tracing::error!(%error, "account service failed");
            Problem::unavailable(error.to_string())
        }
        AccountError::OutcomeUnknown(_) => {
            tracing::error!(%error, "account service failed");
            Problem::OUTCOME_UNKNOWN
        }
    }
}
