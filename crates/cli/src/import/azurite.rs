//! What Azurite's data file holds beside entities: access policies are set, the rest is told.

use crate::{Failure, output, transfer};
use rowhouse_client::files::Beside;
use rowhouse_client::{Client, OnConflict};

/// Sets the access policies of the tables that have some, unless others are there already: then it is as with entities.
pub(super) fn set_policies(
    client: &Client,
    on_conflict: OnConflict,
    beside: &Beside,
) -> Result<(), Failure> {
    let (mut set, mut wrong) = (0, Vec::new());
    let outcome = transfer::run(async {
        for (table, policies) in &beside.policies {
            let policies = match policies {
                Ok(policies) => policies,
                Err(reason) => {
                    wrong.push(format!("{table}: {reason}"));
                    continue;
                }
            };
            let there = client.acl(table).await?;
            let is_free = there.is_empty() || there == *policies;
            match on_conflict {
                OnConflict::Fail if !is_free => {
                    wrong.push(format!("{table}: it has other ones already"));
                }
                OnConflict::Skip if !is_free => {}
                _ => {
                    client.set_acl(table, policies).await?;
                    set += 1;
                }
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
