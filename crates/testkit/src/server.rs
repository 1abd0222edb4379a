//! The built binary as a child process.

use crate::client::Client;
use crate::connection::Connection;
use rowhouse_env::{Random, SystemRandom, polls};
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to be ready, even on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running server with a directory of its own. Killed when dropped; the test fails then if a task of the server held its
/// thread for too long at any time, unless the test has called [`TestServer::allow_long_polls`].
#[derive(Debug)]
pub struct TestServer {
    directory: TempDir,
    data: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, OsString)>,
    child: Child,
    table: SocketAddr,
    queue: SocketAddr,
    admin: SocketAddr,
    started_in: Duration,
    allows_long_polls: bool,
}

impl TestServer {
    /// A server on an empty directory.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server on an empty directory, with further arguments of `serve`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let data = directory.path().join("data");
        Self::launch_in(directory, data, arguments, &[])
    }

    /// A server with its data below an existing directory, which is left alone when the server is dropped.
    pub fn start_in(parent: &Path, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self::launch_in(directory, parent.join("data"), arguments, &[])
    }

    /// As [`TestServer::start_in`], with variables of the environment.
    pub fn start_in_with(parent: &Path, variables: &[(&str, OsString)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self::launch_in(directory, parent.join("data"), &[], variables)
    }

    /// A server on the PostgreSQL database of that URL; its directory holds only files of its own.
    pub fn start_with_store(url: &str) -> Self {
        Self::start_with_store_and(url, &[])
    }

    /// As [`TestServer::start_with_store`], with further arguments of `serve`.
    pub fn start_with_store_and(url: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let data = directory.path().join("data");
        // Not an argument, which everybody on the machine could read.
        Self::launch_in(directory, data, arguments, &[("ROWHOUSE_STORE", url.into())])
    }

    fn launch_in(
        directory: TempDir,
        data: PathBuf,
        arguments: &[&str],
        variables: &[(&str, OsString)],
    ) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|&text| text.to_owned()).collect();
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let started = launch(directory.path(), &data, &arguments, &variables)
            .unwrap_or_else(|reason| panic!("{reason}"));
        Self {
            directory,
            data,
            arguments,
            variables,
            child: started.child,
            table: started.table,
            queue: started.queue,
            admin: started.admin,
            started_in: started.took,
            allows_long_polls: false,
        }
    }

    /// Lets tasks of this server hold their threads for long. The test says why it does not matter there.
    pub fn allow_long_polls(&mut self) {
        self.allows_long_polls = true;
    }

    /// Where the Table service listens.
    pub fn address(&self) -> SocketAddr {
        self.table
    }

    /// Where the Queue service listens.
    pub fn queue_address(&self) -> SocketAddr {
        self.queue
    }

    /// Where health, metrics and the admin API are.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// From starting the process to being ready, the last time.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// A client of the development account, with a connection of its own.
    pub fn client(&self) -> Client {
        Client::new(self.table)
    }

    /// A client of the queues of the development account, with a connection of its own.
    pub fn queue_client(&self) -> Client {
        Client::of_queues(self.queue)
    }

    /// Ends the process at once, as a crash would (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server can be waited for");
    }

    /// Starts it again on the same directory; ports may change.
    pub fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// As [`TestServer::restart`], or why it did not start.
    pub fn try_restart(&mut self) -> Result<(), String> {
        self.must_have_ended();
        let started = launch(self.directory.path(), &self.data, &self.arguments, &self.variables)?;
        (self.child, self.table) = (started.child, started.table);
        (self.queue, self.admin) = (started.queue, started.admin);
        self.started_in = started.took;
        Ok(())
    }

    /// Starts it again and kills it after that time, wherever it has got to.
    pub fn restart_and_kill(&mut self, after: Duration) {
        self.must_have_ended();
        self.child = spawn(self.directory.path(), &self.data, &self.arguments, &self.variables);
        std::thread::sleep(after);
        self.kill();
    }

    fn must_have_ended(&mut self) {
        let ended = self.child.try_wait().expect("the server can be asked");
        assert!(ended.is_some(), "stop or kill the server before it is started again");
    }

    /// What `rowhouse check` finds wrong with the data of a server that has ended.
    pub fn check(&mut self) -> Result<(), String> {
        self.must_have_ended();
        let output = Command::new(binary()).arg("check").arg(&self.data).output();
        let output = output.expect("the check can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(()) } else { Err(text) }
    }

    /// Asks it to end (SIGTERM) and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        wait(&mut self.child, READY_WITHIN).expect("the server ends when asked")
    }

    /// Lets it do nothing at all (SIGSTOP), as a machine that is suspended would.
    pub fn pause(&mut self) {
        self.signal("STOP");
    }

    /// Lets it go on where it was (SIGCONT).
    pub fn resume(&mut self) {
        self.signal("CONT");
    }

    fn signal(&mut self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the server can be signalled");
    }

    /// Whether it says that it takes writes.
    pub fn is_ready(&self) -> bool {
        let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = Connection::open(self.admin).and_then(|mut connection| {
            connection.send(request)?;
            connection.receive("GET")
        });
        answer.is_ok_and(|response| response.status == 200)
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Everything it has printed since its first start.
    pub fn log(&self) -> String {
        let bytes = fs::read(log_path(self.directory.path())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The lines of its log that tell of a task which held a thread, and with it all who waited for that, for too long.
    pub fn long_polls(&self) -> Vec<String> {
        let log = self.log();
        log.lines().filter(|line| line.contains(polls::LONG_POLL)).map(str::to_owned).collect()
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, in bytes.
    pub fn rss(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("the server is running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("the kernel says how much") * 1024
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail = log.lines().rev().take(30).collect::<Vec<_>>();
            eprintln!("last lines of the server's log:");
            for line in tail.iter().rev() {
                eprintln!("  {line}");
            }
        } else if !self.allows_long_polls {
            // The log has the lines of all processes that this server was.
            let long = self.long_polls();
            assert!(long.is_empty(), "the server's tasks held their threads: {long:#?}");
        }
    }
}

struct Started {
    child: Child,
    table: SocketAddr,
    queue: SocketAddr,
    admin: SocketAddr,
    took: Duration,
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

fn ready_path(directory: &Path) -> PathBuf {
    directory.join("ready.json")
}

fn spawn(
    directory: &Path,
    data: &Path,
    arguments: &[String],
    variables: &[(String, OsString)],
) -> Child {
    let program = binary();
    let ready = ready_path(directory);
    let _ = fs::remove_file(&ready);
    let log = fs::File::options().create(true).append(true).open(log_path(directory));
    let log = log.expect("a log file can be made");
    Command::new(program)
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--table-port", "0", "--queue-port", "0", "--admin-port", "0", "--ready-file"])
        .arg(&ready)
        .args(arguments)
        .env(polls::WATCH_POLLS, "1")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be copied"))
        .stderr(log)
        .spawn()
        .expect("the server can be started")
}

fn launch(
    directory: &Path,
    data: &Path,
    arguments: &[String],
    variables: &[(String, OsString)],
) -> Result<Started, String> {
    let began = Instant::now();
    let mut child = spawn(directory, data, arguments, variables);
    loop {
        let text = fs::read_to_string(ready_path(directory)).unwrap_or_default();
        // The line is complete when its end is there.
        if text.ends_with('\n') {
            let took = began.elapsed();
            let value: serde_json::Value = serde_json::from_str(&text).expect("a line of JSON");
            let address = |name: &str| {
                let url = value[name].as_str().unwrap_or_default();
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                rest.trim_end_matches('/').parse().expect("an address with its port")
            };
            let (table, queue, admin) = (address("table"), address("queue"), address("admin"));
            return Ok(Started { child, table, queue, admin, took });
        }
        let ended = child.try_wait().expect("the server can be asked");
        let late = READY_WITHIN < began.elapsed();
        if ended.is_some() || late {
            let _ = child.kill();
            let _ = child.wait();
            let log = fs::read_to_string(log_path(directory)).unwrap_or_default();
            return Err(format!("the server did not become ready ({ended:?}):\n{log}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the end of a process, but not for ever.
fn wait(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < within {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The binary under test: `ROWHOUSE_BIN`, or that of the profile of this test, built if it is missing.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let found = BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("ROWHOUSE_BIN") {
            // Cargo runs tests in the folder of their crate; a relative path is meant from the workspace.
            return Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        }
        // Test executables are in `<target>/<profile>/deps`.
        let this = std::env::current_exe().expect("a process knows its executable");
        let profile = this.ancestors().nth(2).expect("it is two folders deep");
        let path = profile.join("rowhouse");
        if !path.exists() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build.args(["build", "-p", "rowhouse-cli"]);
            if profile.ends_with("release") {
                build.arg("--release");
            }
            let status = build.status().expect("cargo can be run");
            assert!(status.success(), "the server cannot be built");
        }
        path
    });
    found.clone()
}

/// Whether the binary was built for speed, as far as its path tells.
pub fn is_release() -> bool {
    binary().components().any(|part| part.as_os_str() == "release" || part.as_os_str() == "dist")
}

/// The seed of a random test: `ROWHOUSE_SEED`, or a new one. Printed either way.
pub fn seed() -> u64 {
    let given = std::env::var("ROWHOUSE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    println!("ROWHOUSE_SEED={seed}");
    seed
}

/// A number from the environment, such as how many rounds to run; at least one.
pub fn count_from(variable: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(variable) else { return default };
    let count = text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}"));
    std::cmp::max(count, 1)
}
