//! The command line together with the variables of the environment.
//!
//! A flag wins over every variable that says the same: `--endpoint` also over `ROWHOUSE_CONNECTION`. A variable that
//! is empty counts as unset. The command line is parsed by itself first, so that an error about it does not speak of
//! variables.

use clap::builder::{OsStr, Resettable};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::ffi::OsString;

/// Options that name a service, and those whose variables do not count next to them.
const WINS_OVER: [(&str, &[&str]); 6] = [
    ("connection", &["endpoint", "account", "key", "key_file", "sas"]),
    ("endpoint", &["connection"]),
    ("account", &["connection"]),
    ("key", &["connection", "key_file", "sas"]),
    ("key_file", &["connection", "key", "sas"]),
    ("sas", &["connection", "key", "key_file"]),
];

/// Parses what was typed, and exits with a message if that is wrong.
pub(crate) fn matches(command: &Command, typed: &[OsString]) -> ArgMatches {
    let alone = without_variables(command.clone(), &|_, required, _| !required);
    let given = match alone.try_get_matches_from(typed) {
        Ok(matches) => given(&matches),
        // Help shows the variables.
        Err(error) if is_help(error.kind()) => Vec::new(),
        Err(error) => error.exit(),
    };
    let loses = |id: &str| {
        let wins = |(winner, losers): &(&str, &[&str])| {
            given.iter().any(|other| other == winner) && losers.contains(&id)
        };
        WINS_OVER.iter().any(wins)
    };
    without_variables(command.clone(), &|id, _, is_empty| is_empty || loses(id))
        .get_matches_from(typed)
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// The options of the innermost command that stand on the command line.
fn given(matches: &ArgMatches) -> Vec<String> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let typed =
        |id: &&clap::Id| innermost.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    innermost.ids().filter(typed).map(|id| id.as_str().to_owned()).collect()
}

/// Takes the variables from the options that are chosen: by id, whether the option is required, and whether the
/// variable is empty.
fn without_variables(command: Command, chosen: &dyn Fn(&str, bool, bool) -> bool) -> Command {
    let command = command.mut_args(|argument| {
        let Some(name) = argument.get_env() else { return argument };
        let is_empty = std::env::var_os(name).is_some_and(|value| value.is_empty());
        if chosen(argument.get_id().as_str(), argument.is_required_set(), is_empty) {
            return argument.env(Resettable::<OsStr>::Reset);
        }
        argument
    });
    command.mut_subcommands(|inner| without_variables(inner, chosen))
}
