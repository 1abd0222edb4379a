//! Deleting what satisfies a filter, which Rowhouse has beyond the protocol: the server does a step at a time.

use crate::client::{Call, Client, Place, path_of};
use crate::error::ClientError;
use http::Method;
use serde::Deserialize;

/// What is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// `$filter`; everything if none.
    pub filter: Option<String>,
    /// Only count it.
    pub dry_run: bool,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// So many entities match.
    pub matched: u64,
    /// So many are gone: none if they are only counted.
    pub deleted: u64,
    /// How many entities or entries of indexes were looked at.
    pub examined: u64,
    /// Nothing at the end.
    pub next: Option<Place>,
}

#[derive(Deserialize)]
struct Told {
    matched: u64,
    deleted: u64,
    examined: u64,
}

impl Client {
    /// One step, which the server bounds. What is gone is not found again, so a step may be repeated.
    pub async fn delete_step(
        &self,
        table: &str,
        deletion: &Deletion,
        place: Option<&Place>,
    ) -> Result<Deleted, ClientError> {
        let comp = if deletion.filter.is_some() { "delete" } else { "truncate" };
        let call = Call::new(Method::POST, path_of(table))
            .query("comp", Some(comp))
            .query("$filter", deletion.filter.clone())
            .query("dryrun", deletion.dry_run.then_some("true"));
        let answer = self.ask(call.place(place)).await?;
        let Told { matched, deleted, examined } = self.read(&answer)?;
        Ok(Deleted { matched, deleted, examined, next: Place::after(&answer) })
    }
}
