//! What a copy does with what tables have beside entities: stored access policies are copied where both services allow
//! it, and what only Rowhouse has is told.

use crate::client::Client;
use crate::copy::Job;
use crate::error::{ClientError, TransferError};
use rowhouse_types::StoredPolicy;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Whether stored access policies are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policies {
    /// Where both services allow it and the destination has none of its own; otherwise those of the destination stay, which is
    /// noted if the source has some.
    Possible,
    /// They become those of the source, whatever they were; a refusal ends the copy.
    Required,
    /// Nobody asks for them.
    LeftOut,
}

/// What was not copied of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Its access policies, because one of the services refused, or the destination has others.
    Policies {
        /// The table.
        table: String,
        /// What the service said or has, and what to do.
        reason: String,
    },
    /// What only Rowhouse has.
    Extensions {
        /// The table.
        table: String,
        /// How many secondary indexes it has.
        indexes: usize,
        /// Whether its entities expire.
        expires: bool,
    },
}

impl Note {
    /// A service did not give or take the policies of a table.
    pub(crate) fn refused(table: &str, error: &ClientError) -> Self {
        Self::Policies { table: table.to_owned(), reason: told(error) }
    }

    /// The destination has policies that were not copied to it.
    fn others(table: &str) -> Self {
        let reason = "there are others at the destination, which --acls would replace".to_owned();
        Self::Policies { table: table.to_owned(), reason }
    }
}

/// The policies of the source that the destination has because of a copy.
#[derive(Debug, Default)]
pub(crate) struct Brought(Mutex<BTreeMap<String, Vec<StoredPolicy>>>);

impl Brought {
    pub(crate) fn get(&self, table: &str) -> Option<Vec<StoredPolicy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(table).cloned()
    }

    fn put(&self, table: &str, policies: Vec<StoredPolicy>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table.to_owned(), policies);
    }
}

/// Notes of a copy, until somebody tells them.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<Note>>);

impl Notes {
    pub(crate) fn add(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Those that nobody has taken yet.
    pub(crate) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Policies {
    /// Copies those of one table, which is at the destination. Those that are there already are not set again.
    pub(crate) async fn copy(self, job: &Job, table: &str) -> Result<(), TransferError> {
        if self == Self::LeftOut {
            return Ok(());
        }
        match self.try_copy(job, table).await {
            // Whoever reads the table will notice.
            Err(error) if error.status() == Some(404) => Ok(()),
            Err(error) if self.bears(&error) => {
                job.notes.add(Note::refused(table, &error));
                Ok(())
            }
            Err(error) if is_refusal(&error) => Err(TransferError::Refused(format!(
                "the access policies of {table} cannot be copied: {}; --no-acls leaves them out",
                told(&error)
            ))),
            outcome => outcome.map_err(Into::into),
        }
    }

    async fn try_copy(self, job: &Job, table: &str) -> Result<(), ClientError> {
        let policies = job.source.acl(table).await?;
        if policies.is_empty() && self == Self::Possible {
            job.brought.put(table, policies);
            return Ok(());
        }
        self.replace(job, table, policies).await
    }

    /// Sets policies at the destination. Unless they are required, others stay there that were not copied to it.
    pub(crate) async fn replace(
        self,
        job: &Job,
        table: &str,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), ClientError> {
        let destination = &job.loader.client;
        let there = destination.acl(table).await?;
        if !is_same(&there, &policies) {
            let brought = job.brought.get(table);
            let are_ours = there.is_empty() || brought.is_some_and(|ours| is_same(&ours, &there));
            if self == Self::Possible && !are_ours {
                job.notes.add(Note::others(table));
                return Ok(());
            }
            destination.set_acl(table, &policies).await?;
        }
        job.brought.put(table, policies);
        Ok(())
    }

    /// Whether the rest is copied although one of the services did not give or take policies.
    pub(crate) fn bears(self, error: &ClientError) -> bool {
        self == Self::Possible && is_refusal(error)
    }

    /// Whether both services have the same for a table; nobody knows if they are left out or one of the services refuses.
    pub(crate) async fn compare(
        self,
        source: &Client,
        destination: &Client,
        table: &str,
    ) -> Result<Option<bool>, TransferError> {
        if self == Self::LeftOut {
            return Ok(None);
        }
        match tokio::try_join!(source.acl(table), destination.acl(table)) {
            Ok((source, destination)) => Ok(Some(is_same(&source, &destination))),
            Err(error) if self.bears(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a service does not give or take policies, and does everything else.
fn is_refusal(error: &ClientError) -> bool {
    match error {
        ClientError::Service(refused) => matches!(refused.status, 400 | 401 | 403 | 405 | 501),
        ClientError::Foreign { .. } => true,
        _ => false,
    }
}

/// A refusal as somebody understands it who has not asked for policies.
fn told(error: &ClientError) -> String {
    match error.status() {
        Some(401 | 403) => format!("{error}: they need the key of the account on both sides"),
        _ => error.to_string(),
    }
}

/// In whatever order they are listed.
fn is_same(one: &[StoredPolicy], other: &[StoredPolicy]) -> bool {
    one.len() == other.len() && one.iter().all(|policy| other.contains(policy))
}

/// Notes what a table of a Rowhouse has that is not copied. What nobody may know is not told.
pub(crate) async fn note_extensions(job: &Job, table: &str) {
    if !job.source.is_rowhouse() {
        return;
    }
    let indexes = job.source.indexes(table).await.map_or(0, |indexes| indexes.len());
    let expires = job.source.ttl(table).await.is_ok_and(|ttl| ttl.is_some());
    if indexes > 0 || expires {
        job.notes.add(Note::Extensions { table: table.to_owned(), indexes, expires });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_policies_does_not_matter() {
        let policy = |id: &str, permission: &str| StoredPolicy {
            id: id.into(),
            start: None,
            expiry: None,
            permission: Some(permission.into()),
        };
        let (readers, writers) = (policy("readers", "r"), policy("writers", "au"));
        let both = [readers.clone(), writers.clone()];
        assert!(is_same(&both, &[writers.clone(), readers.clone()]));
        assert!(is_same(&[], &[]));
        assert!(!is_same(&both, std::slice::from_ref(&readers)));
        assert!(!is_same(&both, &[readers, policy("writers", "raud")]));
    }
}
