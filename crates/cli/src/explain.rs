//! `rowhouse explain`: how a running server reads a query.

use crate::service::Service;
use crate::{Failure, output, transfer};
use clap::Args;
use rowhouse_client::Asked;

/// Tell how the server reads a query: by which plan, how many entities it looks at and returns, and what
/// would make it cheap.
///
/// The first page of the query is read for it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct ExplainCommand {
    /// The table.
    #[arg(long)]
    table: String,

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
  rowhouse explain --table People --filter \"Email eq 'ann@example.com'\"
  rowhouse explain --table People --order \"Age desc\" --top 10 --json";

impl ExplainCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let asked = Asked { filter: self.filter, order: self.order, top: self.top };
        let answer = transfer::run(async { Ok(client.explain(&self.table, &asked).await?) })?;
        output::print(&match answer["text"].as_str() {
            Some(text) if !self.json => text.to_owned(),
            _ => format!("{answer:#}\n"),
        });
        Ok(())
    }
}
