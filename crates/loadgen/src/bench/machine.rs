//! What the figures were measured on, as far as the system tells.

use crate::Places;
use crate::host;
use crate::text::figure;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes whose median tells how fast the disk keeps a promise.
const SYNCS: usize = 64;

/// A machine and the versions of what ran on it.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Machine {
    pub(super) processor: String,
    pub(super) memory: String,
    pub(super) kernel: String,
    pub(super) disk: String,
    pub(super) rowhouse: String,
    pub(super) peer: Option<String>,
    pub(super) commit: String,
}

impl Machine {
    pub(super) fn describe(places: &Places, peer: Option<&Path>) -> Self {
        let unknown = || "unknown".to_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let model = field("/proc/cpuinfo", "model name").unwrap_or_else(unknown);
        let kib: f64 = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        let changed = said(Command::new("git").args(["status", "--porcelain"]))
            .map_or("", |text| if text.is_empty() { "" } else { ", with changes" });
        let commit = said(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
        Self {
            processor: format!("{cores} cores, {model}{}", describe_idle()),
            memory: format!("{:.0} GiB", kib / 1024.0 / 1024.0),
            kernel: said(Command::new("uname").args(["-s", "-r", "-m"])).unwrap_or_else(unknown),
            disk: describe_disk(&places.work),
            rowhouse: said(Command::new(&places.server).arg("version")).unwrap_or_else(unknown),
            peer: peer.map(describe_peer),
            commit: commit.map_or_else(unknown, |commit| commit + changed),
        }
    }
}

#[cfg(test)]
impl Machine {
    /// One that nothing was measured on.
    pub(super) fn some() -> Self {
        Self {
            processor: "2 cores".to_owned(),
            memory: "4 GiB".to_owned(),
            kernel: "Linux".to_owned(),
            disk: "ext4".to_owned(),
            rowhouse: "rowhouse 0".to_owned(),
            peer: None,
            commit: "abc".to_owned(),
        }
    }
}

/// When the host of a virtual machine gets its processors, if they have no work.
fn describe_idle() -> String {
    match host::idle_kept() {
        None => String::new(),
        Some(Duration::ZERO) => "; the host has idle ones at once".to_owned(),
        Some(kept) => {
            format!(
                "; the host has idle ones after {} us at most",
                figure(kept.as_secs_f64() * 1e6)
            )
        }
    }
}

fn describe_peer(installed: &Path) -> String {
    let package = installed.join("node_modules/azurite/package.json");
    let text = fs::read_to_string(package).unwrap_or_default();
    let version = serde_json::from_str::<serde_json::Value>(&text).ok();
    let version = version.and_then(|value| value.get("version")?.as_str().map(str::to_owned));
    let node = said(Command::new("node").arg("--version")).unwrap_or_default();
    format!("Azurite {} on Node.js {node}", version.unwrap_or_default())
}

/// File system and device below a directory, and the time of a small write that is made durable.
fn describe_disk(directory: &Path) -> String {
    let shown = said(Command::new("df").args(["--output=fstype,source"]).arg(directory));
    let line = shown.as_deref().and_then(|text| text.lines().last()).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let system = words.first().copied().unwrap_or("unknown file system");
    let device = words.last().copied().unwrap_or_default();
    let base = device.trim_start_matches("/dev/");
    let spins = fs::read_to_string(format!("/sys/block/{base}/queue/rotational"));
    let spins = match spins.as_deref().map(str::trim) {
        Ok("0") => ", solid state",
        Ok("1") => ", rotating or unknown to the kernel",
        _ => "",
    };
    let sync = sync_time(directory).map_or_else(String::new, |time| {
        let microseconds = figure(time.as_secs_f64() * 1e6);
        format!("; a write of 4 KiB with fdatasync takes {microseconds} us (median)")
    });
    format!("{system} on {device}{spins}{sync}")
}

fn sync_time(directory: &Path) -> Option<Duration> {
    let path = directory.join("sync-probe");
    let mut file = File::create(&path).ok()?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&[7; 4096]).ok()?;
        file.sync_data().ok()?;
        times.push(began.elapsed());
    }
    let _ = fs::remove_file(path);
    times.sort();
    times.get(SYNCS / 2).copied()
}

/// The value after a name and a colon in a file of the kernel.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// What a command prints, without the end of its last line.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
