//! `loadgen load`: bulk loading, with its rate and what it does to the server's memory.

use crate::batch::Change;
use crate::call::create_table;
use crate::fill::{fill, pieces};
use crate::process;
use crate::server::Server;
use crate::text::{Table, count, figure, megabytes};
use crate::workload::DATA;
use crate::{Failure, Places};
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Load entities in batches of 100 and tell about rate, memory and disk.
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// How many entities of about 400 bytes, in partitions of 1000.
    #[arg(short, long, value_name = "N", default_value_t = 1_000_000)]
    entities: u64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Stop after so many minutes, loaded or not.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    minutes: f64,

    /// Table to load into.
    #[arg(long, value_name = "NAME", default_value = DATA)]
    table: String,

    /// Load into a server that runs already, with the development account, instead of starting one.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<SocketAddrV4>,

    /// Process of that server, for its memory.
    #[arg(long, value_name = "PID", requires = "address")]
    pid: Option<u32>,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Load {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.load().map_err(|fault| fault.to_string())
    }

    fn load(&self) -> io::Result<()> {
        let server = match self.address {
            Some(_) => None,
            None => Some(Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?),
        };
        let address = self.address.or(server.as_ref().map(Server::address));
        let address = address.expect("there is an address or a server");
        let pid = self.pid.or(server.as_ref().map(Server::pid));
        create_table(address, &self.table)?;
        let deadline = Instant::now() + Duration::from_secs_f64(60.0 * self.minutes);
        let cpu = pid.map(process::cpu);
        let (mut most, mut told) = (0, Instant::now());
        let wanted = pieces(&self.table, 0, self.entities);
        let wanted = wanted.take_while(|_| Instant::now() < deadline);
        let loaded = fill(address, self.connections, Change::Upsert, wanted, |so_far| {
            let memory = pid.map_or(0, process::anonymous_memory);
            most = most.max(memory);
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                let (entities, rate) = (count(so_far.entities), figure(so_far.rate()));
                eprintln!("{entities} entities, {rate}/s, memory {}", megabytes(memory));
            }
        })?;
        let mut table = Table::of_words(&["what", "figure"]);
        let mut row = |what: &str, figure: String| table.push(vec![what.to_owned(), figure]);
        row("entities", count(loaded.entities));
        row("entities/s", figure(loaded.rate()));
        if let (Some(pid), Some(before)) = (pid, cpu) {
            let spent = process::cpu(pid).saturating_sub(before).as_secs_f64() * 1e6;
            row("server CPU per entity, us", figure(spent / loaded.entities.max(1) as f64));
            row("anonymous memory, most", megabytes(most));
        }
        row("JSON of the entities", megabytes(loaded.bytes));
        if let Some(server) = &server {
            let disk = process::disk_bytes(&server.data());
            row("disk", megabytes(disk));
            row("disk bytes per byte of JSON", figure(disk as f64 / loaded.bytes.max(1) as f64));
        }
        print!("{}", table.plain());
        if loaded.entities < self.entities {
            return Err(io::Error::other("time is up, not everything is loaded"));
        }
        Ok(())
    }
}
