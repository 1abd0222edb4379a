//! `loadgen`: measures Rowhouse, what users come from, and a server that only answers, side by side.
//!
//! A client that costs little, signs every request and checks every answer. `bench` compares servers, `pair` two builds
//! of one server, `instructions` counts what a request executes. `run` measures one workload, `latency` and `soak` look at answers at a fixed rate, `load` and `scale` at size, `drill` at backup and
//! restore, `index` at what an index saves and costs, `queue` at full and busy queues, `overload` at too many clients, `attack` at hostile ones. The unit is CPU time per operation,
//! and results are ratios within one run: absolute figures belong to the machine. Servers are started by the tool, on
//! fresh directories, and end with it.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are for people, rounded to three digits"
)]
#![expect(
    clippy::format_push_string,
    reason = "reports are written once, and writes that cannot fail would need handling"
)]

mod aims;
mod attack;
mod bare;
mod batch;
mod bench;
mod call;
mod chance;
mod choice;
mod command;
mod connection;
mod database;
mod digits;
mod direct;
mod drill;
mod drive;
mod entity;
mod even;
mod fill;
mod guard;
mod histogram;
mod host;
mod index;
mod instructions;
mod latency;
mod load;
mod measure;
mod overload;
mod process;
mod quartiles;
mod queue;
mod record;
mod request;
mod response;
mod run;
mod sampler;
mod scale;
mod server;
mod signer;
mod soak;
mod steady;
mod text;
mod workload;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure Rowhouse under load.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    Pair(bench::pair::Pair),
    Instructions(instructions::Instructions),
    Run(run::Run),
    Load(load::Load),
    Scale(scale::Scale),
    Drill(drill::Drill),
    Index(index::Measure),
    Queue(queue::Queue),
    Overload(overload::Overload),
    Attack(attack::Attack),
    Latency(latency::Latency),
    Soak(soak::Soak),
    /// Serve fixed answers on 127.0.0.1: the practical limit.
    Bare {
        /// Port to listen on.
        #[arg(long)]
        port: u16,
    },
    /// Become a program that ends with the process that started this.
    #[command(hide = true)]
    Guard {
        parent: u32,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

/// The server that is measured unless the command line names another. Only the profile `dist` has all optimisations.
const SERVER: &str = "target/dist/rowhouse";
/// The directory for data and results, unless the command line names another.
const WORK: &str = ".work/bench";

/// Where the binary of the server is, and where directories of runs go.
#[derive(Clone, Debug, clap::Args)]
struct Places {
    /// The server to measure.
    #[arg(long, value_name = "FILE", default_value = SERVER)]
    server: PathBuf,

    /// Directory for data and results; must be on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = WORK)]
    work: PathBuf,
}

impl Places {
    /// The product, with further arguments of `serve`.
    fn rowhouse(&self, arguments: &[String]) -> server::Recipe {
        server::Recipe::Rowhouse { binary: self.binary(), arguments: arguments.to_vec() }
    }

    /// The binary of the product.
    fn binary(&self) -> PathBuf {
        // Names without a slash would be looked for in the PATH.
        std::path::absolute(&self.server).unwrap_or_else(|_| self.server.clone())
    }

    /// The file that the result of a command is written to.
    fn result(&self, command: &str) -> PathBuf {
        self.work.join(format!("{command}.json"))
    }

    /// Where servers keep their data.
    fn runs(&self) -> &Path {
        &self.work
    }
}

/// What went wrong, as one sentence.
type Failure = String;

fn main() -> ExitCode {
    process::raise_file_limit();
    let outcome = match Cli::parse().command {
        Command::Bench(bench) => bench.run(),
        Command::Pair(pair) => pair.run(),
        Command::Instructions(instructions) => instructions.run(),
        Command::Run(run) => run.run(),
        Command::Load(load) => load.run(),
        Command::Scale(scale) => scale.run(),
        Command::Drill(drill) => drill.run(),
        Command::Index(index) => index.run(),
        Command::Queue(queue) => queue.run(),
        Command::Overload(overload) => overload.run(),
        Command::Attack(attack) => attack.run(),
        Command::Latency(latency) => latency.run(),
        Command::Soak(soak) => soak.run(),
        Command::Bare { port } => bare::serve(port).map_err(|fault| fault.to_string()),
        Command::Guard { parent, command } => {
            Err(guard::become_program(parent, &command).to_string())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("loadgen: {sentence}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
