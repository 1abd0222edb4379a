//! The administration: health, readiness, metrics, and the admin API under `/v1`.
//!
//! On a loopback address the three probes are open to whoever is on the machine, and every request
//! must name the machine itself as its host, so that a web page cannot reach in by rebinding a
//! name. On any other address everything takes a token and an encrypted connection. The API takes a
//! token always; what the token's scopes do not cover is refused. Every action of the API leaves
//! one line in the log under the target `audit` ([`audit`]): who, what, on which account, with what outcome,
//! never a key. A backup, which goes on after its answer has begun, leaves another at its end.

mod accounts;
mod answer;
mod audit;
mod backup;
mod body;
mod cluster;
mod token;

pub use body::AdminBody;
pub use cluster::{ClusterAnswer, ClusterSource};
pub use token::{Scope, TokenError, Tokens};

use crate::listener::admission;
use crate::telemetry::Metrics;
use crate::{Handler, Peer, Request};
use answer::{Problem, text};
use audit::Audit;
use body::Response;
use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rowhouse_service_account::{AccountService, KeySlot};
use rowhouse_service_backup::BackupService;
use rowhouse_types::{AccountName, TableName, limits};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use token::Bearer;

/// Whether the store takes writes; if not, a sentence that says why. If so, perhaps a sentence about what is wrong all the same.
pub type Readiness = Arc<dyn Fn() -> Result<Option<String>, String> + Send + Sync>;

/// URLs of the services; an account follows as a segment of the path.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Of the Table service.
    pub table: String,
    /// Of the Queue service.
    pub queue: String,
}

/// Answers on the admin listener.
pub struct Admin {
    /// Accounts, which the API manages.
    pub accounts: Arc<AccountService>,
    /// Takes backups and restores tables.
    pub backups: Arc<BackupService>,
    /// Asked by `/readyz`.
    pub readiness: Readiness,
    /// Asked by `/v1/cluster`.
    pub cluster: ClusterSource,
    /// Shown by `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Who may do what.
    pub tokens: Arc<Tokens>,
    /// Whether the listener can only be reached from this machine.
    pub loopback: bool,
    /// Where the services are, for connection strings.
    pub endpoints: Endpoints,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("loopback", &self.loopback).finish_non_exhaustive()
    }
}

impl Handler for Admin {
    type Body = AdminBody;

    async fn handle(&self, request: Request, peer: Peer) -> Response {
        match self.answer(request, peer).await {
            Ok(response) => response,
            Err(problem) => problem.into_response(),
        }
    }

    fn busy(&self, _: &http::request::Parts) -> Response {
        Problem::BUSY.into_response()
    }
}

/// What a request asks for.
#[derive(Clone, Debug)]
enum Action {
    Health,
    Ready,
    Metrics,
    Api(Call),
}

/// What a request asks of the API.
#[derive(Clone, Debug)]
enum Call {
    ListAccounts,
    CreateAccount,
    ShowAccount(AccountName),
    RemoveAccount(AccountName),
    ShowLimits(AccountName),
    SetLimits(AccountName),
    ShowKeys(AccountName),
    RotateKey(AccountName, KeySlot),
    Reseal,
    ShowCluster,
    TakeBackup,
    RestoreTable(AccountName, TableName),
}

impl Call {
    /// What a token needs for it.
    fn scope(&self) -> Scope {
        match self {
            Self::ListAccounts | Self::ShowAccount(_) | Self::ShowLimits(_) | Self::ShowCluster => {
                Scope::Read
            }
            Self::CreateAccount
            | Self::RemoveAccount(_)
            | Self::SetLimits(_)
            | Self::RestoreTable(..) => Scope::Operate,
            Self::ShowKeys(_) | Self::RotateKey(..) | Self::Reseal => Scope::Keys,
            Self::TakeBackup => Scope::Backup,
        }
    }

    /// What the log calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::ListAccounts => "account.list",
            Self::CreateAccount => "account.create",
            Self::ShowAccount(_) => "account.show",
            Self::RemoveAccount(_) => "account.remove",
            Self::ShowLimits(_) => "account.limits",
            Self::SetLimits(_) => "account.set-limits",
            Self::ShowKeys(_) => "account.keys",
            Self::RotateKey(..) => "account.rotate",
            Self::Reseal => "account.reseal",
            Self::ShowCluster => "cluster.show",
            Self::TakeBackup => "backup.take",
            Self::RestoreTable(..) => "table.restore",
        }
    }

    /// The key that the target names.
    fn slot(&self) -> Option<u8> {
        match self {
            Self::RotateKey(_, slot) => Some(accounts::slot_number(*slot)),
            _ => None,
        }
    }

    /// The account that the target names.
    fn account(&self) -> Option<&AccountName> {
        match self {
            Self::ListAccounts
            | Self::CreateAccount
            | Self::Reseal
            | Self::ShowCluster
            | Self::TakeBackup => None,
            Self::ShowAccount(name)
            | Self::RemoveAccount(name)
            | Self::ShowLimits(name)
            | Self::SetLimits(name)
            | Self::ShowKeys(name)
            | Self::RotateKey(name, _)
            | Self::RestoreTable(name, _) => Some(name),
        }
    }

    /// The table that the target names.
    fn table(&self) -> Option<&TableName> {
        match self {
            Self::RestoreTable(_, table) => Some(table),
            _ => None,
        }
    }
}

impl Admin {
    async fn answer(&self, request: Request, peer: Peer) -> Result<Response, Problem> {
        self.check_way_in(&request, peer)?;
        let action = route(request.method(), request.uri().path());
        let bearer = self.bearer(&request);
        let bearer = bearer.as_deref();
        if bearer.is_some() {
            admission::authenticated(request.extensions());
        }
        match action {
            // What is asked for is nobody's business who may not ask.
            Err(problem) if self.loopback || bearer.is_some() => Err(problem),
            Ok(Action::Api(call)) => self.call(call, bearer, request, peer).await,
            Ok(probe) if self.loopback => Ok(self.probe(&probe)),
            Ok(probe) if bearer.is_some_and(|bearer| bearer.may(Scope::Read)) => {
                Ok(self.probe(&probe))
            }
            Ok(_) if bearer.is_some() => Err(Problem::scope(Scope::Read)),
            Ok(_) | Err(_) => Err(Problem::TOKEN),
        }
    }

    /// Where a request comes from, before what it asks for.
    fn check_way_in(&self, request: &Request, peer: Peer) -> Result<(), Problem> {
        if self.loopback {
            let host = match request.uri().authority() {
                Some(authority) => Some(authority.as_str()),
                None => match request.headers().get(header::HOST) {
                    Some(host) => Some(host.to_str().unwrap_or("?")),
                    None => None,
                },
            };
            return if host.is_none_or(names_this_machine) { Ok(()) } else { Err(Problem::HOST) };
        }
        if peer.tls { Ok(()) } else { Err(Problem::TLS) }
    }

    fn bearer(&self, request: &Request) -> Option<Arc<Bearer>> {
        let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.tokens.find(token.trim())
    }

    fn probe(&self, probe: &Action) -> Response {
        match probe {
            Action::Metrics => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                text(StatusCode::OK, kind, self.metrics.render())
            }
            Action::Ready => match (self.readiness)() {
                Ok(None) => text(StatusCode::OK, answer::PLAIN, "ready\n".to_owned()),
                Ok(Some(warning)) => {
                    text(StatusCode::OK, answer::PLAIN, format!("ready\nwarning: {warning}\n"))
                }
                Err(reason) => {
                    text(StatusCode::SERVICE_UNAVAILABLE, answer::PLAIN, format!("{reason}\n"))
                }
            },
            Action::Health | Action::Api(_) => {
                text(StatusCode::OK, answer::PLAIN, "ok\n".to_owned())
            }
        }
    }

    /// Checks the token, does it, and writes the audit line whatever comes of it.
    async fn call(
        &self,
        call: Call,
        bearer: Option<&Bearer>,
        request: Request,
        peer: Peer,
    ) -> Result<Response, Problem> {
        let mut audit = Audit::new(&call, bearer, peer);
        let result = match bearer {
            None => Err(Problem::TOKEN),
            Some(bearer) if !bearer.may(call.scope()) => Err(Problem::scope(call.scope())),
            Some(bearer) => self.run(&call, bearer, request, &mut audit.subject).await,
        };
        audit.outcome = Some(result.as_ref().map_or_else(|problem| problem.code, |_| "ok"));
        result
    }

    async fn run(
        &self,
        call: &Call,
        bearer: &Bearer,
        request: Request,
        subject: &mut Option<AccountName>,
    ) -> Result<Response, Problem> {
        match call {
            Call::TakeBackup => backup::take(&self.backups, bearer, request.uri()).await,
            Call::RestoreTable(account, table) => {
                backup::restore(&self.backups, account, table, request).await
            }
            Call::ListAccounts => accounts::list(&self.accounts).await,
            Call::ShowAccount(name) => accounts::show(&self.accounts, name).await,
            Call::ShowKeys(name) => accounts::keys(&self.accounts, name, &self.endpoints).await,
            Call::RemoveAccount(name) => accounts::remove(&self.accounts, name).await,
            Call::ShowLimits(name) => accounts::limits(&self.accounts, name).await,
            Call::SetLimits(name) => {
                let body = body(request).await?;
                accounts::set_limits(&self.accounts, name, &body).await
            }
            Call::Reseal => accounts::reseal(&self.accounts).await,
            Call::ShowCluster => cluster::show(&self.cluster).await,
            Call::RotateKey(name, slot) => {
                let body = body(request).await?;
                accounts::rotate(&self.accounts, name, *slot, &body).await
            }
            Call::CreateAccount => {
                let body = body(request).await?;
                let new = accounts::NewAccount::parse(&body)?;
                *subject = Some(new.name.clone());
                let endpoints = bearer.may(Scope::Keys).then_some(&self.endpoints);
                accounts::create(&self.accounts, new, endpoints).await
            }
        }
    }
}

/// Finds the action; the only place that knows the paths.
fn route(method: &Method, path: &str) -> Result<Action, Problem> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let account = |text: &str| text.parse::<AccountName>().map_err(|_| Problem::NO_ACCOUNT);
    let get = matches!(*method, Method::GET | Method::HEAD);
    let action = match segments.as_slice() {
        ["healthz"] if get => Action::Health,
        ["readyz"] if get => Action::Ready,
        ["metrics"] if get => Action::Metrics,
        ["v1", "accounts"] if get => Action::Api(Call::ListAccounts),
        ["v1", "accounts"] if method == Method::POST => Action::Api(Call::CreateAccount),
        ["v1", "accounts", name] if get => Action::Api(Call::ShowAccount(account(name)?)),
        ["v1", "accounts", name] if method == Method::DELETE => {
            Action::Api(Call::RemoveAccount(account(name)?))
        }
        ["v1", "accounts", name, "limits"] if get => Action::Api(Call::ShowLimits(account(name)?)),
        ["v1", "accounts", name, "limits"] if method == Method::PATCH => {
            Action::Api(Call::SetLimits(account(name)?))
        }
        ["v1", "accounts", name, "keys"] if get => Action::Api(Call::ShowKeys(account(name)?)),
        ["v1", "accounts", name, "keys", slot, "rotate"] if method == Method::POST => {
            let slot = accounts::parse_slot(slot).ok_or(Problem::NOT_FOUND)?;
            Action::Api(Call::RotateKey(account(name)?, slot))
        }
        ["v1", "master-key", "reseal"] if method == Method::POST => Action::Api(Call::Reseal),
        ["v1", "cluster"] if get => Action::Api(Call::ShowCluster),
        ["v1", "accounts", name, "tables", table, "restore"] if method == Method::POST => {
            let table =
                table.parse().map_err(|_| Problem::bad("This is not the name of a table."))?;
            Action::Api(Call::RestoreTable(account(name)?, table))
        }
        ["v1", "backup"] if method == Method::GET => Action::Api(Call::TakeBackup),
        ["healthz" | "readyz" | "metrics"]
        | ["v1", "accounts" | "backup" | "cluster"]
        | ["v1", "accounts", _]
        | ["v1", "master-key", "reseal"]
        | ["v1", "accounts", _, "keys" | "limits"]
        | ["v1", "accounts", _, "keys", _, "rotate"]
        | ["v1", "accounts", _, "tables", _, "restore"] => return Err(Problem::METHOD),
        _ => return Err(Problem::NOT_FOUND),
    };
    Ok(action)
}

/// Reads a body within bounds of size and time.
async fn body(request: Request) -> Result<Bytes, Problem> {
    let body = Limited::new(request.into_body(), limits::ADMIN_BODY_BYTES_MAX).collect();
    match tokio::time::timeout(Duration::from_secs(limits::ADMIN_BODY_SECONDS_MAX), body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::BODY_TOO_LARGE),
        Ok(Err(_)) => Err(Problem::bad("the body ended early")),
        Err(_) => Err(Problem::BODY_TOO_SLOW),
    }
}

/// Whether a Host header names the loopback interface, with or without a port.
///
/// A page that makes its own name resolve to 127.0.0.1 still sends that name.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
