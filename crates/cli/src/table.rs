//! `rowhouse table`: the tables of an account at a running server.

mod delete;
mod ttl;

use self::delete::{DeleteWhere, Truncate};
use self::ttl::TtlCommand;
use crate::service::Service;
use crate::{Failure, output, transfer};
use clap::{Args, Subcommand};
use rowhouse_client::CostlyQuery;

/// List, create and delete tables, delete many entities of one, have them expire, and see which queries cost much.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TableCommand {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse table create People
  rowhouse table list
  rowhouse table queries People
  rowhouse table ttl Logs --after 30d
  rowhouse table delete-where Logs --filter \"Level eq 'debug'\" --dry-run";

#[derive(Debug, Subcommand)]
enum Action {
    List(List),
    Create(Named),
    Delete(Delete),
    Queries(Queries),
    Ttl(TtlCommand),
    DeleteWhere(DeleteWhere),
    Truncate(Truncate),
}

/// List the tables of the account.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Create a table.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Named {
    /// The table.
    table: String,

    #[command(flatten)]
    service: Service,
}

/// Delete a table with everything in it.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Delete {
    /// The table.
    table: String,

    /// Needed, since it cannot be undone.
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    service: Service,
}

/// List the queries that looked at far more entities than they returned, by shape.
///
/// What is told is since the server started and by that server alone; the values in filters are not kept.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Queries {
    /// The table.
    table: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

impl TableCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Create(named) => named.create(),
            Action::Delete(delete) => delete.run(),
            Action::Queries(queries) => queries.run(),
            Action::Ttl(ttl) => ttl.run(),
            Action::DeleteWhere(delete) => delete.run(),
            Action::Truncate(truncate) => truncate.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let client = transfer::client(&self.service.target()?)?;
        let names = transfer::run(&client, async { Ok(client.tables().await?) })?;
        if self.json {
            output::print(&format!("{}\n", serde_json::json!(names)));
        } else if !names.is_empty() {
            output::print(&format!("{}\n", names.join("\n")));
        }
        Ok(())
    }
}

impl Named {
    fn create(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let table = self.table;
        if !transfer::run(&client, async { Ok(client.create_table(&table).await?) })? {
            return Err(format!("there is a table {table} already"));
        }
        output::print(&format!("Created the table {table}.\n"));
        Ok(())
    }
}

impl Delete {
    fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let table = self.table;
        if !self.yes {
            return Err(format!("this deletes {table} with everything in it: say so with --yes"));
        }
        let client = transfer::client(&self.service.target()?)?;
        if !transfer::run(&client, async { Ok(client.delete_table(&table).await?) })? {
            return Err(format!(
                "there is no table {table}: 'rowhouse table list' tells which there are"
            ));
        }
        output::print(&format!("Deleted the table {table}.\n"));
        Ok(())
    }
}

impl Queries {
    fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let queries =
            transfer::run(&client, async { Ok(client.costly_queries(&self.table).await?) })?;
        if self.json {
            output::print(&format!("{}\n", serde_json::json!(queries)));
            return Ok(());
        }
        if queries.is_empty() {
            output::print(
                "No query has looked at far more than it returned, since the server started.\n",
            );
            return Ok(());
        }
        let rows: Vec<Vec<String>> = queries.iter().map(row).collect();
        let head = [" COUNT", " EXAMINED", " RETURNED", "PLAN", "QUERY"];
        output::print(&output::table(&head, &rows));
        output::print(&advice(&queries));
        Ok(())
    }
}

fn row(query: &CostlyQuery) -> Vec<String> {
    let asked = match (&*query.filter, &query.order) {
        ("", None) => "(everything)".to_owned(),
        ("", Some(order)) => format!("order by {order}"),
        (filter, None) => filter.to_owned(),
        (filter, Some(order)) => format!("{filter} order by {order}"),
    };
    let numbers = [query.count, query.examined, query.returned].map(|number| number.to_string());
    numbers.into_iter().chain([query.plan.clone(), asked]).collect()
}

/// What would help, each command once.
fn advice(queries: &[CostlyQuery]) -> String {
    let mut commands: Vec<&str> = Vec::new();
    for command in queries.iter().flat_map(|query| &query.commands) {
        if !commands.contains(&command.as_str()) {
            commands.push(command);
        }
    }
    if commands.is_empty() {
        return String::new();
    }
    format!("\nThese would help:\n  {}\n", commands.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_told() {
        let query = |filter: &str, order: Option<&str>, commands: &[&str]| CostlyQuery {
            filter: filter.to_owned(),
            order: order.map(str::to_owned),
            plan: "table-scan".to_owned(),
            count: 2,
            examined: 900,
            returned: 1,
            commands: commands.iter().map(|&command| command.to_owned()).collect(),
        };
        let first = query("Email eq ?", None, &["rowhouse index create People Email"]);
        assert_eq!(row(&first).join("|"), "2|900|1|table-scan|Email eq ?");
        let second = query("", Some("Age desc"), &["rowhouse index create People Age"]);
        assert_eq!(row(&second)[4], "order by Age desc");
        let told = advice(&[first.clone(), second, first]);
        assert_eq!(
            told,
            "\nThese would help:\n  rowhouse index create People Email\n  rowhouse index create People Age\n"
        );
        assert_eq!(advice(&[query("contains(a,?)", None, &[])]), "");
    }
}
