//! What the kernel knows about a process: CPU time, memory, and the disk space of its files.

use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// CPU time of a process and of everything that it has started, since their start.
pub(crate) fn cpu(root: u32) -> Duration {
    let mut parents = HashMap::new();
    let mut ticks = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((parent, spent)) = parse_stat(&stat, pid == root) {
            parents.insert(pid, parent);
            ticks.insert(pid, spent);
        }
    }
    let belongs = |mut pid: u32| {
        while pid != root {
            match parents.get(&pid) {
                Some(&parent) if parent != pid => pid = parent,
                _ => return false,
            }
        }
        true
    };
    let spent: u64 = ticks.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, spent)| spent).sum();
    seconds(spent)
}

/// CPU time of this process alone.
pub(crate) fn own_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = parse_stat(&stat, false).map_or(0, |(_, ticks)| ticks);
    seconds(ticks)
}

/// CPU time of all processes that this one has started and that have ended.
pub(crate) fn ended_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |with_ended| parse_stat(&stat, with_ended).map_or(0, |(_, ticks)| ticks);
    seconds(ticks(true) - ticks(false))
}

/// Bytes that this process has had read from a disk, and not from memory.
pub(crate) fn read_from_disk() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

fn seconds(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Parent and ticks of CPU from `/proc/PID/stat`, with those of children that have ended if asked for.
fn parse_stat(stat: &str, with_ended: bool) -> Option<(u32, u64)> {
    // The name is in parentheses and may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let own = ticks(11)? + ticks(12)?;
    let ended = if with_ended { ticks(13)? + ticks(14)? } else { 0 };
    Some((fields.get(1)?.parse().ok()?, own + ended))
}

/// Anonymous memory of a process, in bytes: what it has allocated, without pages of files.
pub(crate) fn anonymous_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

/// How many files, sockets included, a process has open.
pub(crate) fn open_files(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// Length of a file in bytes; nothing if it is missing.
pub(crate) fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Space that the files of a directory take on the disk, in bytes.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Sends a signal. That the process is gone already is no fault.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Lets this process and those that it starts open as many files as the system allows. Returns how many.
pub(crate) fn raise_file_limit() -> u64 {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Fails if this process, or one that it starts, may not open so many files. `otherwise` is what a user can do who cannot
/// raise the limit.
pub(crate) fn need_files(needed: u64, otherwise: &str) -> io::Result<()> {
    let allowed = raise_file_limit();
    if needed <= allowed {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{needed} open files are needed, and the system allows this process {allowed} at most (ulimit -Hn): \
         raise that limit, or {otherwise}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 5 0 1 2 3";
        assert_eq!(parse_stat(line, false), Some((7, 120)));
        assert_eq!(parse_stat(line, true), Some((7, 127)));
        assert_eq!(parse_stat("42 (a", true), None);
        assert_eq!(parse_stat("", true), None);
    }

    #[test]
    fn this_process_has_figures() {
        let this = std::process::id();
        let began = std::time::Instant::now();
        while cpu(this).min(own_cpu()) < Duration::from_millis(20) {
            assert!(began.elapsed() < Duration::from_mins(1), "CPU time passes");
        }
        assert!(anonymous_memory(this) > 100_000);
        assert!(open_files(this) >= 3);
    }

    #[test]
    fn too_many_files_are_refused() {
        need_files(3, "nothing").unwrap();
        let words = need_files(u64::MAX, "ask for less").unwrap_err().to_string();
        assert!(words.ends_with("raise that limit, or ask for less"), "{words}");
    }

    #[test]
    fn the_size_of_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        fs::write(directory.path().join("inner/file"), vec![1; 100_000]).unwrap();
        let bytes = disk_bytes(directory.path());
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(file_bytes(&directory.path().join("inner/file")), 100_000);
        assert_eq!(file_bytes(&directory.path().join("missing")), 0);
        assert_eq!(disk_bytes(&directory.path().join("missing")), 0);
    }
}
