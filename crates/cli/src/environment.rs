//! The command line together with the variables of the environment.
//!
//! A flag wins over every variable that says the same: `--endpoint` also over `ROWHOUSE_CONNECTION`. A variable that
//! is empty counts as unset, and so does one that Kubernetes sets for a service. The command line is parsed by itself first, so that an error about it does not speak of
//! variables.
//!
//! A server refuses a variable that no command knows: an option with a misspelled name would be ignored otherwise. Other
//! commands do not look at names.

use crate::Failure;
use crate::advice::similar;
use crate::serve::MASTER_KEY_VARIABLE;
use clap::builder::{OsStr, Resettable};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// What all our variables start with.
const PREFIX: &str = "ROWHOUSE_";

/// Variables of the packages, tests and tools of the repository. Those that start with `ROWHOUSE_TEST_` and those that end
/// in `_ROUNDS` are among them too.
const NOT_OPTIONS: [&str; 12] = [
    "ROWHOUSE_WATCH_POLLS",
    "ROWHOUSE_BIN",
    "ROWHOUSE_NAME",
    "ROWHOUSE_QUEUE_ENDPOINT",
    "ROWHOUSE_PASSWORD_FILE",
    "ROWHOUSE_SEED",
    "ROWHOUSE_CASES",
    "ROWHOUSE_QUESTIONS",
    "ROWHOUSE_RECORDINGS",
    "ROWHOUSE_QUEUE_RECORDINGS",
    "ROWHOUSE_WRITE_DOCS",
    "ROWHOUSE_WRITE_FIXTURE",
];

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
    without_variables(command.clone(), &|id, _, is_unset| is_unset || loses(id))
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

/// Refuses variables with our prefix that no command knows. Empty ones are unset.
pub(crate) fn check_names(command: &Command) -> Result<(), Failure> {
    let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let variables: Vec<_> = variables
        .filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
            Some((name, value.to_string_lossy().into_owned()))
        })
        .collect();
    match unknown(command, &variables) {
        None => Ok(()),
        Some((name, meant)) => {
            let meant = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            Err(format!(
                "there is no variable {name}: {meant}'rowhouse serve --help' lists all; unset it if it is not \
                 for Rowhouse"
            ))
        }
    }
}

/// The first variable that no command knows, and what was probably meant.
fn unknown(command: &Command, variables: &[(String, String)]) -> Option<(String, Option<String>)> {
    let mut options = BTreeSet::from([MASTER_KEY_VARIABLE.to_owned()]);
    collect(command, &mut options);
    let is_known = |name: &str, value: &str| {
        options.contains(name)
            || NOT_OPTIONS.contains(&name)
            || name.starts_with("ROWHOUSE_TEST_")
            || name.ends_with("_ROUNDS")
            || is_service_link(name, value)
    };
    let (name, _) = variables.iter().find(|(name, value)| !is_known(name, value))?;
    Some((name.clone(), similar(name, &options).map(str::to_owned)))
}

/// Kubernetes and `docker --link` set variables such as `ROWHOUSE_SERVICE_HOST` and `ROWHOUSE_PORT_10002_TCP_ADDR` in every
/// container when a service is called `rowhouse`.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
        || ["_TCP_", "_UDP_", "_SCTP_"].iter().any(|protocol| name.contains(protocol))
}

/// The variables of a command and of those below it.
fn collect(command: &Command, known: &mut BTreeSet<String>) {
    let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(names.map(str::to_owned));
    for inner in command.get_subcommands() {
        collect(inner, known);
    }
}

/// Whether an option of `serve` stands on the command line.
pub(crate) fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    let serve = matches.subcommand_matches("serve");
    serve.is_some_and(|serve| serve.value_source(id) == Some(ValueSource::CommandLine))
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

/// Whether a variable is empty, or was set for a service whose name makes it look like an option: with a service
/// `rowhouse-queue` Kubernetes sets `ROWHOUSE_QUEUE_PORT=tcp://10.0.0.1:80` in every container. A number never looks so, but a
/// text may.
fn is_unset(argument: &Arg, name: &str, value: &str) -> bool {
    value.is_empty() || (is_number(argument) && is_service_link(name, value))
}

fn is_number(argument: &Arg) -> bool {
    let parsed = argument.get_value_parser().type_id();
    let numbers =
        [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    numbers.iter().any(|number| parsed == *number)
}

/// The variables of `serve` that were set for a service, and that no flag overrides.
pub(crate) fn service_links(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let serve = command.find_subcommand("serve").expect("it is a command of ours");
    let links = serve.get_arguments().filter_map(|argument| {
        let name = argument.get_env()?.to_str()?;
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        let is_link =
            is_unset(argument, name, &value) && !is_typed(matches, argument.get_id().as_str());
        is_link.then(|| name.to_owned())
    });
    links.collect()
}

/// Takes the variables from the options that are chosen: by id, whether the option is required, and whether the
/// variable counts as unset.
fn without_variables(command: Command, chosen: &dyn Fn(&str, bool, bool) -> bool) -> Command {
    let command = command.mut_args(|argument| {
        let Some(name) = argument.get_env() else { return argument };
        let is_unset = std::env::var_os(name).is_some_and(|value| {
            is_unset(&argument, &name.to_string_lossy(), &value.to_string_lossy())
        });
        if chosen(argument.get_id().as_str(), argument.is_required_set(), is_unset) {
            return argument.env(Resettable::<OsStr>::Reset);
        }
        argument
    });
    command.mut_subcommands(|inner| without_variables(inner, chosen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory as _;

    fn found(name: &str, value: &str) -> Option<(String, Option<String>)> {
        unknown(&Cli::command(), &[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn misspelled_variables_are_found() {
        for (name, meant) in [
            ("ROWHOUSE_TABEL_PORT", Some("ROWHOUSE_TABLE_PORT")),
            ("ROWHOUSE_STOER", Some("ROWHOUSE_STORE")),
            ("ROWHOUSE_MASTERKEY", Some("ROWHOUSE_MASTER_KEY")),
            ("ROWHOUSE_EVERYTHING", None),
        ] {
            let expected = Some((name.to_owned(), meant.map(str::to_owned)));
            assert_eq!(found(name, "1"), expected, "{name}");
        }
    }

    #[test]
    fn links_of_services_are_not_options() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        let unset = |name: &str, value: &str| {
            let mut options = serve.get_arguments();
            let option = options.find(|option| option.get_env().is_some_and(|env| env == name));
            is_unset(option.unwrap(), name, value)
        };
        for name in ["ROWHOUSE_TABLE_PORT", "ROWHOUSE_QUEUE_PORT", "ROWHOUSE_ADMIN_PORT"] {
            assert!(unset(name, "tcp://10.0.0.1:80") && unset(name, "udp://10.0.0.1:80"), "{name}");
            assert!(unset(name, "") && !unset(name, "80") && !unset(name, "http://10.0.0.1"));
        }
        assert!(!unset("ROWHOUSE_DATA", "tcp://10.0.0.1:80"), "a text may begin so");
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        for (name, value) in [
            ("ROWHOUSE_DATA", "d"),
            ("ROWHOUSE_MASTER_KEY", "k"),
            ("ROWHOUSE_CONNECTION", "c"),
            ("ROWHOUSE_ADMIN", "http://127.0.0.1:10003"),
            ("ROWHOUSE_COPY_DEST", "c"),
            ("ROWHOUSE_QUEUE_ENDPOINT", "http://127.0.0.1:10001"),
            ("ROWHOUSE_WATCH_POLLS", "1"),
            ("ROWHOUSE_BIN", "b"),
            ("ROWHOUSE_SEED", "1"),
            ("ROWHOUSE_TEST_CITUS", "x"),
            ("ROWHOUSE_POWER_ROUNDS", "2"),
            ("ROWHOUSE_SERVICE_HOST", "10.0.0.7"),
            ("ROWHOUSE_SERVICE_PORT", "10002"),
            ("ROWHOUSE_SERVICE_PORT_TABLE", "10002"),
            ("ROWHOUSE_PORT", "tcp://10.0.0.7:10002"),
            ("ROWHOUSE_PORT_10002_TCP", "tcp://10.0.0.7:10002"),
            ("ROWHOUSE_PORT_10002_TCP_ADDR", "10.0.0.7"),
            ("ROWHOUSE_PORT_10002_TCP_PROTO", "tcp"),
        ] {
            assert_eq!(found(name, value), None, "{name}");
        }
    }
}
