//! The process between a test and its server, which outlives the test for as long as it takes to clean up.

use super::installation::Installation;
use rowhouse_env::{Random, SystemRandom};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("watchdog.sh");

/// Holds a directory and at most one running server in it. Both are gone when it has been dropped, and soon
/// after the end of this process if it never is.
#[derive(Debug)]
pub(super) struct Watchdog {
    directory: PathBuf,
    child: Child,
    /// Closed to say that the test has ended; the system does so when this process dies.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Watchdog {
    /// A watchdog of a new directory inside of `parent`, which belongs to the user that servers run as.
    pub(super) fn start(parent: &Path) -> Self {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        let name = format!("rowhouse-postgres-{:016x}", u64::from_le_bytes(bytes));
        let directory = parent.join(name);
        let mut child = without_settings(Command::new("sh"))
            .args(["-c", SCRIPT, "watchdog"])
            .arg(&directory)
            .args(Installation::get().owner())
            .current_dir("/")
            // Whatever is sent to the group of the test, such as Ctrl-C, does not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { directory, child, orders, answers }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the server keeps its data.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Everything that was printed by what ran here.
    pub(super) fn log(&self) -> String {
        let bytes = fs::read(self.directory.join("postgres.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs a program of PostgreSQL to its end; whether it succeeded.
    pub(super) fn run(&mut self, program: &str, arguments: &[String]) -> bool {
        let command = Installation::get().command_line(program, arguments);
        self.order(&command)
    }

    /// Starts the server, without waiting for anything.
    pub(super) fn start_server(&mut self, arguments: &[String]) {
        let command = Installation::get().command_line("postgres", arguments);
        self.order(&format!("exec {command} & server=$!"));
    }

    /// Whether the server lives.
    pub(super) fn is_running(&mut self) -> bool {
        self.order("running")
    }

    /// Whether the server accepts connections.
    pub(super) fn is_ready(&mut self) -> bool {
        self.order("ready")
    }

    /// Kills the server and its backends.
    pub(super) fn crash(&mut self) {
        self.order("crash");
    }

    /// Asks the server to end without waiting for its clients.
    pub(super) fn ask_to_stop(&mut self) {
        self.order("kill -INT $server");
    }

    /// Whether the server, which has ended, ended well.
    pub(super) fn ended_well(&mut self) -> bool {
        self.order("wait $server")
    }

    fn order(&mut self, command: &str) -> bool {
        assert!(!command.contains('\n'), "an order is a line: {command}");
        let orders = self.orders.as_mut().expect("open until dropped");
        writeln!(orders, "{command}").expect("the watchdog listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the watchdog answers");
        answer == "0\n"
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// The command without what the environment says about other servers, and with messages in English.
pub(super) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C");
    command
}
