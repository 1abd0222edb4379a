//! Failed authentication: counted by reason, and logged a few times a second.

use super::authenticate::NOT_ACCEPTABLE;
use super::refusal::Refusal;
use crate::Peer;
use rowhouse_auth::AuthError;
use rowhouse_types::{Timestamp, limits};
use std::sync::{Mutex, PoisonError};

/// Why a caller was not authenticated. The caller learns less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    NoCredentials,
    BearerToken,
    Malformed,
    Signature,
    Date,
    TimeFrame,
    SourceIp,
    Protocol,
    UnknownAccount,
    PublicKey,
    ForeignHost,
    Other,
}

impl Denial {
    pub(crate) const ALL: [Self; 12] = [
        Self::NoCredentials,
        Self::BearerToken,
        Self::Malformed,
        Self::Signature,
        Self::Date,
        Self::TimeFrame,
        Self::SourceIp,
        Self::Protocol,
        Self::UnknownAccount,
        Self::PublicKey,
        Self::ForeignHost,
        Self::Other,
    ];

    /// The label of the metric and the word in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoCredentials => "no_credentials",
            Self::BearerToken => "bearer_token",
            Self::Malformed => "malformed",
            Self::Signature => "signature",
            Self::Date => "date",
            Self::TimeFrame => "time_frame",
            Self::SourceIp => "source_ip",
            Self::Protocol => "protocol",
            Self::UnknownAccount => "unknown_account",
            Self::PublicKey => "public_key",
            Self::ForeignHost => "foreign_host",
            Self::Other => "other",
        }
    }

    /// The reason of a refusal that is one of authentication.
    pub(crate) fn of(refusal: &Refusal) -> Option<Self> {
        Some(match refusal {
            Refusal::Anonymous => Self::NoCredentials,
            Refusal::UnknownAccount => Self::UnknownAccount,
            Refusal::ForeignHost => Self::ForeignHost,
            Refusal::SourceIp(_) => Self::SourceIp,
            Refusal::Auth { error, .. } => match error {
                AuthError::NoCredentials | AuthError::Failed(NOT_ACCEPTABLE) => Self::NoCredentials,
                AuthError::BearerNotSupported => Self::BearerToken,
                AuthError::MalformedHeader | AuthError::RepeatedHeader => Self::Malformed,
                AuthError::Signature => Self::Signature,
                AuthError::Date => Self::Date,
                AuthError::TimeFrame => Self::TimeFrame,
                AuthError::SourceIp => Self::SourceIp,
                AuthError::Protocol => Self::Protocol,
                AuthError::Failed(_) => Self::Other,
            },
            Refusal::Account(_)
            | Refusal::Uri
            | Refusal::Version(_)
            | Refusal::SecondaryWrite
            | Refusal::PreflightHeader
            | Refusal::PreflightRefused
            | Refusal::LengthRequired
            | Refusal::BodyTooLarge
            | Refusal::BodyAborted
            | Refusal::Busy => return None,
        })
    }
}

/// Lets a few lines a second into the log, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Sampler(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Sampler {
    /// How many lines were left out since the last one, if there may be another now.
    fn admit(&self, now: Timestamp) -> Option<u64> {
        let second = now.ticks() / 10_000_000;
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.second != second {
            (window.second, window.lines) = (second, 0);
        }
        if window.lines >= limits::AUTHENTICATION_LINES_PER_SECOND_MAX {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }

    /// Logs a failed authentication, unless there were too many in this second.
    pub(crate) fn log(
        &self,
        denial: Denial,
        service: &str,
        account: &str,
        peer: Peer,
        request_id: &str,
        now: Timestamp,
    ) {
        let Some(left_out) = self.admit(now) else { return };
        let reason = denial.as_str();
        let account = shown(account);
        let peer = peer.addr.ip();
        tracing::warn!(reason, service, account, %peer, request_id, left_out, "authentication failed");
    }
}

/// What a stranger has sent, so that it cannot pass for another line or fill the log.
fn shown(account: &str) -> String {
    let most = limits::LOGGED_ACCOUNT_CHARS_MAX;
    let mut shown = account.chars().take(most).collect::<String>().escape_default().to_string();
    if account.chars().nth(most).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines() {
        let sampler = Sampler::default();
        let at = |ticks: u64| Timestamp::from_ticks(Timestamp::EDM_MIN.ticks() + ticks).unwrap();
        let most = u64::from(limits::AUTHENTICATION_LINES_PER_SECOND_MAX);
        for _ in 0..most {
            assert_eq!(sampler.admit(at(5)), Some(0));
        }
        for _ in 0..70 {
            assert_eq!(sampler.admit(at(6)), None);
        }
        assert_eq!(sampler.admit(at(10_000_006)), Some(70), "the next line says how many");
        assert_eq!(sampler.admit(at(10_000_007)), Some(0));
    }

    #[test]
    fn names_are_escaped_and_cut() {
        assert_eq!(shown("shop"), "shop");
        assert_eq!(shown("a\nb\"\u{1b}é"), "a\\nb\\\"\\u{1b}\\u{e9}");
        let long = shown(&"x".repeat(5000));
        assert_eq!(long, format!("{}...", "x".repeat(limits::LOGGED_ACCOUNT_CHARS_MAX)));
    }

    #[test]
    fn reasons_are_told_apart() {
        let mut names: Vec<_> = Denial::ALL.into_iter().map(Denial::as_str).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Denial::ALL.len());
    }
}
