//! `rowhouse explain`: how a running server reads a query.

use crate::service::Service;
use crate::{Failure, output, transfer};
use clap::Args;
use rowhouse_client::Asked;

/// Explain a query: its plan, its cost, and how to make it cheaper.
///
/// The first page of the query is read for it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct ExplainCommand {
    /// The table.
    #[arg(required_unless_present = "named", conflicts_with = "named")]
    table: Option<String>,

    /// The table, as earlier versions had it.
    #[arg(long = "table", value_name = "TABLE", hide = true)]
    named: Option<String>,

    /// The filter, such as "Email eq 'ann@example.com'".
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// The order, such as "Age desc".
    #[arg(long, value_name = "ORDER")]
    order: Option<String>,

    /// Most entities of the page.
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

const EXAMPLES: &str = "Examples:
  rowhouse explain People --filter \"Email eq 'ann@example.com'\"
  rowhouse explain People --order \"Age desc\" --top 10 --json";

impl ExplainCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let table = self.table.or(self.named).unwrap_or_default();
        transfer::check_table(&table)?;
        let client = transfer::client(&self.service.target()?)?;
        let asked = Asked { filter: self.filter, order: self.order, top: self.top };
        let answer = transfer::run(&client, async { Ok(client.explain(&table, &asked).await?) })?;
        output::print(&match answer["text"].as_str() {
            Some(text) if !self.json => text.to_owned(),
            _ => format!("{answer:#}\n"),
        });
        Ok(())
    }
}
