//! `rowhouse tail`: the changes of a table, as they are made.

use crate::service::Service;
use crate::signals::stop_requested;
use crate::{Failure, advice, transfer};
use clap::{Args, ValueEnum};
use rowhouse_client::{ChangesPage, Client, ClientError, TransferError};
use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

/// How long the server is asked to wait for a change: as long as it may.
const WAIT: Duration = Duration::from_secs(30);

/// Print the changes of a table as they are made, one JSON object a line.
///
/// A line has "sequence", "change" ("put" or "delete") and "entity": what the entity became, or the
/// keys of the one that is gone. The server must keep changes: rowhouse serve --keep-changes 7d.
///
/// A connection that is lost is made again. At the end (Ctrl-C) the token to go on with is printed on
/// standard error; lines after that token may be printed a second time, but none is left out.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct TailCommand {
    /// The table.
    table: String,

    /// Where to start: beginning (the oldest change that is kept), now, or a token. Default: now; with
    /// --once the beginning.
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,

    /// How to print.
    #[arg(long, default_value = "ndjson")]
    format: LineFormat,

    /// Print what there is, and end.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    service: Service,
}

const EXAMPLES: &str = "Examples:
  rowhouse tail People
  rowhouse tail People --from beginning --once > changes.ndjson";

/// How changes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LineFormat {
    /// A JSON object a line.
    Ndjson,
}

/// Why the printing ended.
enum End {
    /// All is printed, or somebody said stop.
    Stopped,
    /// Nobody reads what is printed.
    Unread,
    /// The server refuses.
    Refused(ClientError),
}

impl TailCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        transfer::check_table(&self.table)?;
        let client = transfer::client(&self.service.target()?)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
        let mut reader = Reader { table: self.table, place: None, client };
        let LineFormat::Ndjson = self.format;
        let default = if self.once { "beginning" } else { "now" };
        let from = self.from.as_deref().unwrap_or(default);
        let end = runtime.block_on(reader.run(from, self.once));
        // A line that cannot be printed must not keep the process.
        runtime.shutdown_background();
        if let Some(place) = &reader.place {
            // In quotes, because shells give the exclamation marks of a token a meaning.
            let table = &reader.table;
            eprintln!("rowhouse: to go on from here: rowhouse tail {table} --from '{place}'");
        }
        match end {
            End::Stopped | End::Unread => Ok(()),
            End::Refused(error) => Err(refused(&reader.client, error)),
        }
    }
}

/// Follows one table.
struct Reader {
    table: String,
    /// Everything up to here is printed; none before the first answer.
    place: Option<String>,
    client: Client,
}

impl Reader {
    async fn run(&mut self, from: &str, once: bool) -> End {
        let mut stop = pin!(stop_requested());
        loop {
            let asked = tokio::select! {
                asked = self.ask(from, once) => asked,
                () = &mut stop => return End::Stopped,
            };
            let page = match asked {
                Ok(page) => page,
                Err(error) if self.place.is_some() && !once && error.is_passing() => {
                    eprintln!("rowhouse: {error}: trying again");
                    continue;
                }
                Err(error) => return End::Refused(error),
            };
            let (next, more) = (page.next.clone(), page.more);
            let printed = tokio::select! {
                printed = tokio::task::spawn_blocking(move || print(&page)) => printed,
                () = &mut stop => return End::Stopped,
            };
            if !matches!(printed, Ok(Ok(()))) {
                return End::Unread;
            }
            self.place = Some(next);
            if once && !more {
                return End::Stopped;
            }
        }
    }

    /// The next page. Where it starts must be known before anything is waited for.
    async fn ask(&self, from: &str, once: bool) -> Result<ChangesPage, ClientError> {
        let wait = if once || self.place.is_none() { Duration::ZERO } else { WAIT };
        let from = self.place.as_deref().unwrap_or(from);
        self.client.changes(&self.table, from, wait, None).await
    }
}

fn print(page: &ChangesPage) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for change in &page.changes {
        writeln!(out, "{}", change.get())?;
    }
    out.flush()
}

/// The refusal as a sentence that says what to do.
fn refused(client: &Client, error: ClientError) -> Failure {
    match error.code() {
        "ChangesExpired" => "the changes after that token are no longer kept: read the table, and start \
                             with --from beginning or --from now"
            .to_owned(),
        "InvalidQueryParameterValue" => "the service does not understand the question: check the token, \
                                         and that it is a Rowhouse, since others have no change feed"
            .to_owned(),
        _ => advice::sentence(client, &TransferError::Client(error)),
    }
}
