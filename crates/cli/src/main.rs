//! The one binary: `rowhouse`.
//!
//! Reads flags, environment and files, calls the server library, the admin API of a running server or
//! the client of the protocol, and tells people what came of it. A failure is one sentence on standard error and exit
//! code 1; wrong usage is exit code 2.

mod account;
mod admin_client;
mod admin_stream;
mod advice;
mod backup;
mod check;
mod cluster;
mod columns;
mod copy;
mod environment;
mod explain;
mod export;
mod health;
mod import;
mod index;
mod output;
mod progress;
mod query;
mod queue;
mod rate;
mod restore;
mod sas;
mod serve;
mod service;
mod signals;
mod table;
mod tail;
mod transfer;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// A durable server that speaks the Azure Table and Queue storage protocols.
#[derive(Debug, Parser)]
#[command(
    name = "rowhouse",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Start with 'rowhouse serve', and paste the connection string that it prints into \
                  your program."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Account(account::AccountCommand),
    Cluster(cluster::ClusterCommand),
    Backup(backup::BackupCommand),
    Restore(restore::RestoreCommand),
    Check(check::Check),
    Health(health::Health),
    Export(export::ExportCommand),
    Import(Box<import::ImportCommand>),
    Copy(copy::CopyCommand),
    Tail(tail::TailCommand),
    Query(query::QueryCommand),
    Table(table::TableCommand),
    Index(index::IndexCommand),
    Explain(explain::ExplainCommand),
    Queue(queue::QueueCommand),
    Sas(sas::SasCommand),
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    let typed: Vec<_> = std::env::args_os().collect();
    let matches = environment::matches(&Cli::command(), &typed);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Serve(serve) => environment::check_names(&Cli::command()).and_then(|()| {
            let links = environment::service_links(&Cli::command(), &matches);
            serve.run(environment::is_typed(&matches, "data"), links)
        }),
        Command::Account(account) => account.run(),
        Command::Cluster(cluster) => cluster.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Check(check) => check.run(),
        Command::Health(health) => health.run(),
        Command::Export(export) => export.run(),
        Command::Import(import) => import.run(),
        Command::Copy(copy) => copy.run(),
        Command::Tail(tail) => tail.run(),
        Command::Query(query) => query.run(),
        Command::Table(table) => table.run(),
        Command::Index(index) => index.run(),
        Command::Explain(explain) => explain.run(),
        Command::Queue(queue) => queue.run(),
        Command::Sas(sas) => sas.run(),
        Command::Version => {
            output::print(&format!("rowhouse {}\n", rowhouse_server::VERSION));
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("rowhouse: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// What went wrong, as one sentence that says what to do next.
type Failure = String;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every option of the server can be set in the environment too, and says so.
    #[test]
    fn every_server_option_has_a_variable() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for argument in serve.get_arguments().filter(|argument| argument.get_id() != "help") {
            let long = argument.get_long().unwrap();
            let expected = format!("ROWHOUSE_{}", long.replace('-', "_").to_uppercase());
            let variable = argument.get_env().and_then(|name| name.to_str());
            assert_eq!(variable, Some(expected.as_str()), "--{long}");
            assert!(argument.get_help().is_some(), "--{long} has a help text");
        }
    }

    /// `docs/operating/server.md` is the reference: what is missing there cannot be looked up.
    #[test]
    fn every_server_option_is_in_the_reference() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/server.md");
        let text = std::fs::read_to_string(page).unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let named: std::collections::BTreeSet<_> = text.split(|c| !is_name(c)).collect();
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        let missing: Vec<_> = serve
            .get_arguments()
            .filter(|argument| argument.get_id() != "help")
            .map(|argument| format!("--{}", argument.get_long().unwrap()))
            .filter(|option| !named.contains(option.as_str()))
            .collect();
        assert!(missing.is_empty(), "{page} does not name {missing:?}");
    }
}
