//! The line that every action of the API leaves in the log.

use super::Call;
use super::token::Bearer;
use crate::Peer;
use rowhouse_types::{AccountName, TableName};

/// What a line says of an action that nobody was told of, because the client left or the server stopped: it may have been done
/// all the same.
const ABANDONED: &str = "Abandoned";
/// And of one that failed in a way that nobody had thought of.
const PANICKED: &str = "InternalError";

/// Who does what. Writes its line when it goes, also where the client has gone and nobody waits for the outcome.
pub(super) struct Audit<'a> {
    call: &'a Call,
    bearer: Option<&'a Bearer>,
    peer: Peer,
    /// The account that it is about.
    pub(super) subject: Option<AccountName>,
    /// What came of it, once that is known.
    pub(super) outcome: Option<&'static str>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(call: &'a Call, bearer: Option<&'a Bearer>, peer: Peer) -> Self {
        Self { call, bearer, peer, subject: call.account().cloned(), outcome: None }
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        let unknown = if std::thread::panicking() { PANICKED } else { ABANDONED };
        tracing::info!(
            target: "audit",
            action = self.call.name(),
            account = self.subject.as_ref().map(AccountName::as_str),
            slot = self.call.slot(),
            table = self.call.table().map(TableName::as_str),
            token = self.bearer.map(Bearer::fingerprint),
            peer = %self.peer.addr,
            outcome = self.outcome.unwrap_or(unknown),
            "admin action"
        );
    }
}
