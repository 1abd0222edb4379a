//! The servers that are measured, as child processes with directories of their own.
//!
//! Each ends when its handle is dropped, and with this process whatever happens. A server can be paused, so that
//! what it does in the background does not count against another.

use crate::guard;
use crate::process;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The file that a server writes when it is ready.
const READY: &str = "ready.json";
/// What a server has said.
const LOG: &str = "server.log";
/// How much of that is told when it has ended by itself.
const LAST_LINES: usize = 30;
/// How long a server may take to be ready.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// How long a server may take to end when asked.
const END_WITHIN: Duration = Duration::from_mins(1);

/// Which server it is, if it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The product.
    Rowhouse,
    /// What users come from.
    Peer,
    /// A server that only answers.
    Bare,
    /// None: the load client sends the statements to the database itself.
    Direct,
}

/// A service of the peer, which is a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Table,
    Queue,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    /// The binary of the product, and further arguments of `serve`.
    Rowhouse { binary: PathBuf, arguments: Vec<String> },
    /// The same, run by a program that counts its instructions. The command line of that program comes first.
    Counted { by: Vec<OsString>, binary: PathBuf, arguments: Vec<String> },
    /// The directory in which the peer is installed, and which of its services.
    Peer { installed: PathBuf, service: Service },
    /// This program.
    Bare,
}

impl Recipe {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Rowhouse { .. } | Self::Counted { .. } => Kind::Rowhouse,
            Self::Peer { .. } => Kind::Peer,
            Self::Bare => Kind::Bare,
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    recipe: Recipe,
    child: Child,
    address: SocketAddrV4,
    directory: TempDir,
    started_in: Duration,
}

impl Server {
    /// Starts a server on an empty directory below `parent`, and waits until it is ready.
    pub(crate) fn start(recipe: Recipe, parent: &Path) -> io::Result<Self> {
        Self::start_in(recipe, Self::directory(parent)?)
    }

    /// An empty directory below `parent` for a server, which keeps its data in `data` there.
    pub(crate) fn directory(parent: &Path) -> io::Result<TempDir> {
        fs::create_dir_all(parent)?;
        tempfile::Builder::new().prefix("run-").tempdir_in(parent)
    }

    /// Starts a server in a directory that may hold data, and waits until it is ready.
    pub(crate) fn start_in(recipe: Recipe, directory: TempDir) -> io::Result<Self> {
        let (child, address, started_in) = launch(&recipe, directory.path())?;
        Ok(Self { recipe, child, address, directory, started_in })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.recipe.kind()
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From the start of the process to being ready, the last time.
    pub(crate) fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Where it answers requests to queues.
    pub(crate) fn queue_address(&self) -> io::Result<SocketAddrV4> {
        if let Recipe::Peer { service: Service::Queue, .. } = self.recipe {
            return Ok(self.address);
        }
        let address = read_ready_file(&self.directory.path().join(READY), "queue");
        address.ok_or_else(|| io::Error::other("the server does not say where its queues are"))
    }

    /// The URL of its admin listener, if it has one.
    pub(crate) fn admin(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory.path().join(READY)).ok()?;
        let value: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some(value.get("admin")?.as_str()?.to_owned())
    }

    /// Where it keeps its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Keeps it from running until it is resumed.
    pub(crate) fn pause(&self) {
        process::signal(self.pid(), Signal::STOP);
    }

    /// Lets it run again.
    pub(crate) fn resume(&self) {
        process::signal(self.pid(), Signal::CONT);
    }

    /// Why a call failed: if it has ended by itself meanwhile, that, and what it said last.
    pub(crate) fn explain(&mut self, fault: io::Error) -> io::Error {
        let Ok(Some(status)) = self.child.try_wait() else { return fault };
        let said = fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        let name = name(&self.recipe);
        io::Error::other(format!("{name} ended by itself ({status}): {fault}\n{last}"))
    }

    /// Ends it, by request (SIGTERM) or at once (SIGKILL), and starts it again on the same data.
    pub(crate) fn restart(&mut self, gently: bool) -> io::Result<()> {
        process::signal(self.pid(), if gently { Signal::TERM } else { Signal::KILL });
        let asked = Instant::now();
        while self.child.try_wait()?.is_none() {
            if asked.elapsed() > END_WITHIN {
                return Err(io::Error::other("the server does not end when it is asked to"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let started = launch(&self.recipe, self.directory.path())?;
        (self.child, self.address, self.started_in) = started;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing of it is kept, so there is no reason to be gentle.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(recipe: &Recipe, directory: &Path) -> io::Result<(Child, SocketAddrV4, Duration)> {
    let data = directory.join("data");
    let ready = directory.join(READY);
    let _ = fs::remove_file(&ready);
    let (mut command, address) = match recipe {
        Recipe::Rowhouse { binary, arguments } => {
            let mut command = guard::guarded(binary)?;
            serve(&mut command, &data, &ready, arguments);
            (command, None)
        }
        Recipe::Counted { by, binary, arguments } => {
            let (program, options) = by.split_first().expect("a program does the counting");
            let mut command = guard::guarded(program)?;
            // One worker, so that requests do not move between threads by chance.
            command.env("TOKIO_WORKER_THREADS", "1").args(options).arg(binary);
            serve(&mut command, &data, &ready, arguments);
            (command, None)
        }
        Recipe::Peer { installed, service } => {
            let name = service.name();
            fs::create_dir_all(&data)?;
            let port = free_port()?;
            let mut command = guard::guarded("node")?;
            command.arg(installed.join(format!("node_modules/azurite/dist/src/{name}/main.js")));
            command.args([format!("--{name}Host"), "127.0.0.1".to_owned()]);
            command.args([format!("--{name}Port"), port.to_string()]);
            command.arg("--location").arg(&data);
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
            (command, Some(port))
        }
        Recipe::Bare => {
            let port = free_port()?;
            let mut command = guard::guarded(std::env::current_exe()?)?;
            command.arg("bare").arg("--port").arg(port.to_string());
            (command, Some(port))
        }
    };
    let log = directory.join(LOG);
    let output = File::options().create(true).append(true).open(&log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let began = Instant::now();
    let mut child = spawn(&mut command)?;
    match wait_until_ready(&mut child, address, &ready, began) {
        Ok(address) => Ok((child, address, began.elapsed())),
        Err(fault) => {
            let _ = child.kill();
            let _ = child.wait();
            let said = fs::read_to_string(&log).unwrap_or_default();
            Err(io::Error::other(format!("{} did not start: {fault}\n{said}", name(recipe))))
        }
    }
}

/// Adds the arguments of a server of the product, on free ports.
fn serve(command: &mut Command, data: &Path, ready: &Path, arguments: &[String]) {
    command.arg("serve").arg("--data").arg(data).args(["--table-port", "0"]);
    command.args(["--queue-port", "0", "--admin-port", "0", "--quiet", "--ready-file"]).arg(ready);
    command.args(arguments);
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    command.spawn().map_err(|fault| {
        let program: Vec<OsString> = command.get_args().map(Into::into).collect();
        io::Error::other(format!("{program:?} cannot be started: {fault}"))
    })
}

fn name(recipe: &Recipe) -> String {
    match recipe {
        Recipe::Rowhouse { binary, .. } | Recipe::Counted { binary, .. } => {
            binary.display().to_string()
        }
        Recipe::Peer { installed, .. } => format!("the peer in {}", installed.display()),
        Recipe::Bare => "the bare server".to_owned(),
    }
}

fn wait_until_ready(
    child: &mut Child,
    port: Option<u16>,
    ready: &Path,
    began: Instant,
) -> io::Result<SocketAddrV4> {
    loop {
        if let Some(port) = port {
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            if TcpStream::connect(address).is_ok() {
                return Ok(address);
            }
        } else if let Some(address) = read_ready_file(ready, "table") {
            return Ok(address);
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(status.to_string()));
        }
        if began.elapsed() > READY_WITHIN {
            return Err(io::Error::other("it took too long"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The address of a service, once the file is complete.
fn read_ready_file(path: &Path, service: &str) -> Option<SocketAddrV4> {
    let text = fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    let url = value.get(service)?.as_str()?;
    url.strip_prefix("http://")?.trim_end_matches('/').parse().ok()
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
