//! A PostgreSQL to measure on: durable, and set as the documentation advises.
//!
//! It is made for the run, on the disk that is measured, and leaves nothing behind. It syncs every commit, has a
//! quarter of the memory for its buffers and room for the connections of the server and of the client; all
//! else is as Debian's package has it.

use rowhouse_testkit::TestPostgres;
use std::path::Path;
use std::{fs, io};

/// Connections that it takes: those of the server, and as many as clients are simulated.
const CONNECTIONS: &str = "200";

/// A running PostgreSQL with an empty database.
#[derive(Debug)]
pub(crate) struct Database {
    server: TestPostgres,
    url: String,
    pid: u32,
    buffers: String,
}

impl Database {
    /// Makes one in a directory of its own below `parent`.
    pub(crate) fn start(parent: &Path) -> io::Result<Self> {
        let parent = std::path::absolute(parent)?;
        fs::create_dir_all(&parent)?;
        let buffers = format!("{}MB", (memory_mib() / 4).max(32));
        let settings = [
            ("shared_buffers", &*buffers),
            ("max_connections", CONNECTIONS),
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
        ];
        let server = TestPostgres::start_in(&parent, &settings);
        let url = server.create_database();
        let pid = server.pid();
        Ok(Self { server, url, pid, buffers })
    }

    /// The address of the database, as `--store` takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The process that all others of the server are children of.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it is, for people.
    pub(crate) fn describe(&self) -> String {
        let version = self.server.execute("postgres", "SHOW server_version");
        let buffers = &self.buffers;
        format!(
            "PostgreSQL {version}, on the same disk; shared_buffers {buffers}, every commit synced"
        )
    }
}

fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}
