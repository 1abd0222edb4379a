//! `rowhouse index`: secondary indexes of a table, at a running server.

use crate::progress::Status;
use crate::service::Service;
use crate::signals::stop_requested;
use crate::transfer::{self, Shown};
use crate::{Failure, advice, output};
use clap::{Args, Subcommand};
use rowhouse_client::{
    Client, ClientError, Entity, Index, IndexState, NewIndex, Query, TransferError,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Declare, list and drop secondary indexes, with which entities are found by other properties than
/// their keys.
///
/// The server must run; it uses an index by itself wherever that helps. A key of the account is needed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IndexCommand {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse index create People Email --unique
  rowhouse index create People City,Age
  rowhouse index list People
  rowhouse index drop People City-Age";

#[derive(Debug, Subcommand)]
enum Action {
    Create(Create),
    List(List),
    Drop(Drop),
}

/// Declare an index, and wait until the server has built it.
///
/// Every write keeps it from the start, and it survives a restart of the server. Ctrl-C ends the waiting,
/// not the building.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Create {
    /// The table.
    table: String,

    /// One to four properties, with commas between them.
    #[arg(value_name = "PROPERTY,...", value_delimiter = ',', required = true)]
    properties: Vec<String>,

    /// Refuse writes that would give two entities the same values.
    #[arg(long)]
    unique: bool,

    /// Its name. Default: the properties, joined by hyphens.
    #[arg(long)]
    name: Option<String>,

    /// Do not wait until it is built.
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    service: Service,
}

/// List the indexes of a table, and how far they are.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct List {
    /// The table.
    table: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Drop an index. Nothing uses it any more; the entities stay as they are.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Drop {
    /// The table.
    table: String,

    /// The name of the index.
    name: String,

    #[command(flatten)]
    service: Service,
}

impl IndexCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Create(create) => create.run(),
            Action::List(list) => list.run(),
            Action::Drop(drop) => drop.run(),
        }
    }
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let Self { table, properties, unique, name, no_wait, .. } = self;
        let new = NewIndex { name, properties, unique };
        let began = Instant::now();
        let index = transfer::run(&client, async {
            let index = client.create_index(&table, &new).await?;
            if no_wait || index.state != IndexState::Building {
                return Ok(index);
            }
            wait(&client, &table, index).await
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let name = &index.name;
        match index.state {
            IndexState::Ready => {
                let looked = output::counted(index.examined, "entity", "entities");
                output::print(&format!(
                    "Built the index {name} of {table}: looked at {looked} in {seconds:.1} s.\n"
                ));
                // The index is there, whatever comes of this.
                let empty =
                    transfer::run(&client, async { Ok(emptiness(&client, &table, &index).await?) });
                if let Ok(Some(sentence)) = empty {
                    output::print(&sentence);
                }
            }
            IndexState::Building => output::print(&format!(
                "The index {name} of {table} is being built. How far it is: rowhouse index list {table}\n"
            )),
            IndexState::NotUnique => {
                return Err(format!(
                    "the index {name} of {table} cannot be unique: some entities have the same values. It is not \
                     used and refuses nothing; drop it with 'rowhouse index drop {table} {name}', and declare it \
                     again when they differ or without --unique"
                ));
            }
        }
        Ok(())
    }
}

/// What to say of an index that no entity is in: the name of its first property is probably misspelled.
async fn emptiness(
    client: &Client,
    table: &str,
    index: &Index,
) -> Result<Option<String>, ClientError> {
    let Some(property) = index.properties.first().filter(|_| 0 < index.examined) else {
        return Ok(None);
    };
    // An index of several properties is in no order of the first one if it is unique: that would be a sort.
    let is_ordered = !index.unique || index.properties.len() == 1;
    if !is_ordered || matches!(property.as_str(), "PartitionKey" | "RowKey" | "Timestamp") {
        return Ok(None);
    }
    // In an order, entities without the property are left out.
    let order = Some(property.clone());
    let first = Query {
        order,
        top: Some(1),
        select: Some("PartitionKey,RowKey".to_owned()),
        ..Query::default()
    };
    let page = client.page(table, &first, None).await?;
    if !page.entities.is_empty() || page.next.is_some() {
        return Ok(None);
    }
    let any = client.page(table, &Query { top: Some(1), ..Query::default() }, None).await?;
    let names: Vec<String> = any.entities.iter().flat_map(Entity::names).collect();
    let meant = advice::similar(property, &names);
    let meant = meant.map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
    let name = &index.name;
    Ok(Some(format!(
        "No entity of {table} has the property {property}.{meant} 'rowhouse index drop {table} {name}' removes the \
         index.\n"
    )))
}

/// Shows how far an index is until it is done or somebody says stop.
async fn wait(client: &Client, table: &str, index: Index) -> Result<Index, TransferError> {
    let latest = Arc::new(Mutex::new(index.clone()));
    let seen = Arc::clone(&latest);
    let _shown = Shown::with(move |_| status(&seen.lock().unwrap_or_else(PoisonError::into_inner)));
    let mut index = index;
    let mut stop = std::pin::pin!(stop_requested());
    loop {
        tokio::select! {
            () = &mut stop => return Ok(index),
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
        let indexes = client.indexes(table).await?;
        let found = indexes.into_iter().find(|other| other.name == index.name);
        let dropped = || TransferError::Refused(format!("the index {} was dropped", index.name));
        index = found.ok_or_else(dropped)?;
        if index.state != IndexState::Building {
            return Ok(index);
        }
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = index.clone();
    }
}

/// `12000 of about 40000 entities`
fn status(index: &Index) -> Status {
    let Index { examined, of, .. } = index;
    match of.filter(|of| 0 < *of) {
        Some(of) => Status {
            text: format!("{examined} of about {of} entities"),
            // The last thousandth is for what nobody counted.
            share: Some((examined.saturating_mul(1000) / of).min(999)),
        },
        None => Status { text: output::counted(*examined, "entity", "entities"), share: None },
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let indexes = transfer::run(&client, async { Ok(client.indexes(&self.table).await?) })?;
        if self.json {
            output::print(&format!("{}\n", serde_json::json!(indexes)));
            return Ok(());
        }
        let rows: Vec<Vec<String>> = indexes.iter().map(row).collect();
        output::print(&output::table(&["NAME", "PROPERTIES", "UNIQUE", "STATE"], &rows));
        Ok(())
    }
}

fn row(index: &Index) -> Vec<String> {
    let state = match index.state {
        IndexState::Building => format!("building: {}", status(index).text),
        IndexState::Ready => "ready".to_owned(),
        IndexState::NotUnique => "not unique: values repeat".to_owned(),
    };
    let unique = if index.unique { "yes" } else { "no" };
    vec![index.name.clone(), index.properties.join(","), unique.to_owned(), state]
}

impl Drop {
    fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let Self { table, name, .. } = self;
        let dropped = transfer::run(&client, async {
            let dropped: Result<bool, ClientError> = client.drop_index(&table, &name).await;
            Ok(dropped?)
        })?;
        if !dropped {
            return Err(format!(
                "{table} has no index {name}: 'rowhouse index list {table}' tells which there are"
            ));
        }
        output::print(&format!("Dropped the index {name} of {table}.\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_told() {
        let index = |state, examined, of| Index {
            name: "City-Age".to_owned(),
            properties: vec!["City".to_owned(), "Age".to_owned()],
            unique: false,
            state,
            examined,
            of,
        };
        let building = index(IndexState::Building, 250, Some(1000));
        assert_eq!(
            row(&building).join("|"),
            "City-Age|City,Age|no|building: 250 of about 1000 entities"
        );
        assert_eq!(status(&building).share, Some(250));
        assert_eq!(status(&index(IndexState::Building, 9, Some(8))).share, Some(999));
        let unknown = status(&index(IndexState::Building, 1, None));
        assert_eq!((unknown.text.as_str(), unknown.share), ("1 entity", None));
        assert_eq!(row(&index(IndexState::Ready, 8, None))[3], "ready");
    }
}
