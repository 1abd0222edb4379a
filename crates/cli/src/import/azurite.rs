//! What Azurite's data file holds beside entities: access policies are set, the rest is told.

use crate::{Failure, advice, output, transfer};
use rowhouse_client::files::Beside;
use rowhouse_client::{Client, ClientError, OnConflict};
use rowhouse_types::StoredPolicy;

/// Sets the access policies of the tables that have some, unless others are there already: then it is as with entities.
/// What is wrong with those of one table does not keep the others from theirs.
pub(super) fn set_policies(
    client: &Client,
    on_conflict: OnConflict,
    beside: &Beside,
) -> Result<(), Failure> {
    let (mut set, mut wrong) = (0, Vec::new());
    let outcome = transfer::run(client, async {
        for (table, policies) in &beside.policies {
            let outcome = match policies {
                Ok(policies) => set_one(client, on_conflict, table, policies).await,
                Err(reason) => Err(reason.clone()),
            };
            match outcome {
                Ok(is_set) => set += u64::from(is_set),
                Err(reason) => wrong.push(format!("{table}: {reason}")),
            }
        }
        Ok(())
    });
    if set > 0 {
        let tables = output::counted(set, "table", "tables");
        output::print(&format!("Set the access policies of {tables}.\n"));
    }
    outcome?;
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("access policies were not set: {}", wrong.join("; ")))
}

/// Whether they are set now; not if others are to be left alone.
async fn set_one(
    client: &Client,
    on_conflict: OnConflict,
    table: &str,
    policies: &[StoredPolicy],
) -> Result<bool, Failure> {
    let told = |error: ClientError| advice::sentence(client, &error.into());
    let there = client.acl(table).await.map_err(told)?;
    let is_free = there.is_empty() || there == policies;
    match on_conflict {
        OnConflict::Fail if !is_free => Err("it has other ones already".to_owned()),
        OnConflict::Skip if !is_free => Ok(false),
        _ => client.set_acl(table, policies).await.map(|()| true).map_err(told),
    }
}

/// What nobody can see from the file.
pub(super) fn warn() {
    eprintln!(
        "Note: Azurite completes this file only when it is stopped with Ctrl-C (SIGINT). If it was stopped \
         otherwise (kill, docker stop), rows may be missing, and nothing here shows which: compare the counts, or \
         copy from a running Azurite with 'rowhouse copy'"
    );
}

/// Says what of the file was not taken over.
pub(super) fn tell_left_out(beside: &Beside) {
    if beside.has_properties {
        output::print(
            "Left out: the service properties of the account (CORS rules, logging, metrics).\n",
        );
    }
    if !beside.accounts.is_empty() {
        let names: Vec<&str> = beside.accounts.iter().map(String::as_str).collect();
        output::print(&format!(
            "Left out: the tables of {}, to be named with --from-account.\n",
            names.join(", ")
        ));
    }
}
