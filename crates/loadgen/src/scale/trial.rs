//! A server that is filled and measured, and the report that it goes into.

use super::Scale;
use crate::aims::{Bound, Report};
use crate::batch::{Change, OPERATIONS};
use crate::call::{call, create_table};
use crate::drive::Pace;
use crate::entity::Key;
use crate::fill::{Loaded, Piece, fill};
use crate::measure::{Sample, Terms, measure};
use crate::process;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::{count, figure};
use crate::workload::Operations;
use std::io;
use std::time::{Duration, Instant};

/// How often the first rows of a partition are asked for.
const TOPS: usize = 20;
/// What is written right before the server is killed: more than the log holds before it is copied.
const KILLED: &str = "killed";
const LAST_ROWS: u64 = 20_000;

/// One part of the measurement.
pub(super) struct Trial<'a> {
    pub(super) terms: &'a Scale,
    pub(super) report: &'a mut Report,
    pub(super) server: Server,
    memory: Sampler,
}

impl<'a> Trial<'a> {
    pub(super) fn start(terms: &'a Scale, report: &'a mut Report) -> io::Result<Self> {
        let mut arguments = vec!["--cache-mib".to_owned(), terms.cache_mib.to_string()];
        arguments.extend_from_slice(&terms.arguments);
        let server = Server::start(terms.places.rowhouse(&arguments), terms.places.runs())?;
        let memory = Sampler::watch(server.pid());
        Ok(Self { terms, report, server, memory })
    }

    pub(super) fn disk(&self) -> u64 {
        process::disk_bytes(&self.server.data())
    }

    /// Changes all pieces, and tells the rate.
    pub(super) fn fill(
        &mut self,
        what: &str,
        connections: usize,
        change: Change,
        pieces: impl Iterator<Item = Piece>,
    ) -> io::Result<Loaded> {
        let mut told = Instant::now();
        let loaded = fill(self.server.address(), connections, change, pieces, |so_far| {
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let (entities, rate) = (count(so_far.entities), figure(so_far.rate()));
                eprintln!("{what}: {entities} entities, {rate}/s");
            }
        })?;
        let words = format!("{what}: {} entities", count(loaded.entities));
        self.report.fact(words, loaded.rate(), "/s");
        Ok(loaded)
    }

    /// Tells the most memory since the last call, which must stay near the size of the cache.
    pub(super) fn tell_memory(&mut self, when: &str) {
        let bound = Bound::memory(self.terms.cache_mib);
        let memory = self.memory.take() as f64 / 1e6;
        self.report.aim(format!("anonymous memory {when}, most"), memory, "MB", bound);
    }

    /// Runs operations as fast as the server takes them, and tells what each costs.
    pub(super) fn cost(&mut self, what: &str, operations: &mut Operations) -> io::Result<Sample> {
        let terms = Terms {
            address: self.server.address(),
            pid: Some(self.server.pid()),
            database: None,
            connections: self.terms.connections,
            warm_up: Duration::from_secs_f64(self.terms.seconds.min(1.0)),
            length: Duration::from_secs_f64(self.terms.seconds),
            pace: Pace::Closed,
        };
        let (_, sample) = measure(&terms, operations)?;
        self.report.fact(format!("{what}: server CPU"), sample.server_cpu_us, "us");
        self.report.fact(format!("{what}: p99"), sample.p99_ms, "ms");
        self.tell_errors(what, &sample);
        Ok(sample)
    }

    pub(super) fn tell_errors(&mut self, what: &str, sample: &Sample) {
        if let Some(fault) = &sample.fault {
            eprintln!("{what}: {fault}");
        }
        let errors = sample.errors as f64;
        self.report.aim(format!("{what}: errors"), errors, "", Bound::AtMost(0.0));
    }

    /// Starts the server again, killed and then asked to stop, and tells how long it takes to be ready. Right before it is
    /// killed it is written to, so that it finds a log to recover from.
    pub(super) fn restart(&mut self, what: &str, bound: Bound) -> io::Result<()> {
        create_table(self.server.address(), KILLED)?;
        let rows = deep_pieces(KILLED, LAST_ROWS);
        fill(self.server.address(), self.terms.connections, Change::Upsert, rows, |_| {})?;
        self.start_again(what, "kill -9", bound)?;
        let last = format!("{what}: $top=10 of what was written last");
        self.top(&last, KILLED, 0, [Bound::None; 2])?;
        self.start_again(what, "a stop", bound)?;
        self.memory = Sampler::watch(self.server.pid());
        Ok(())
    }

    fn start_again(&mut self, what: &str, how: &str, bound: Bound) -> io::Result<()> {
        self.server.restart(how == "a stop")?;
        let took = self.server.started_in().as_secs_f64() * 1e3;
        self.report.aim(format!("{what}: ready after {how}"), took, "ms", bound);
        Ok(())
    }

    /// Asks for the first ten rows of the first partition of a table, of which the first is known. Tells the
    /// first and the median time, which have a bound each.
    pub(super) fn top(
        &mut self,
        what: &str,
        table: &str,
        first: u64,
        [first_bound, median_bound]: [Bound; 2],
    ) -> io::Result<()> {
        let path = format!("/{table}()");
        let query = "?$filter=PartitionKey%20eq%20%27p0000000%27&$top=10";
        let mut mark = Vec::new();
        Key { partition: 0, row: first }.push_mark(&mut mark);
        let mut times = Vec::with_capacity(TOPS);
        for _ in 0..TOPS {
            let reply = call(self.server.address(), "GET", &path, query, "", b"")?;
            let rows = memchr::memmem::find_iter(&reply.body, b"\"RowKey\":").count();
            let right = memchr::memmem::find(&reply.body, &mark).is_some();
            if reply.status != 200 || rows != 10 || !right {
                let words = format!("{what}: status {}, {rows} rows", reply.status);
                return Err(io::Error::other(words));
            }
            times.push(reply.took.as_secs_f64() * 1e3);
        }
        self.report.aim(format!("{what}: first time"), times[0], "ms", first_bound);
        times.sort_by(f64::total_cmp);
        self.report.aim(format!("{what}: median"), times[TOPS / 2], "ms", median_bound);
        Ok(())
    }
}

/// Rows of a single partition, from its start.
pub(super) fn deep_pieces(table: &str, rows: u64) -> impl Iterator<Item = Piece> {
    (0..rows.div_ceil(OPERATIONS)).map(move |index| {
        let row = index * OPERATIONS;
        let first = Key { partition: 0, row };
        Piece { table: table.into(), first, count: OPERATIONS.min(rows - row) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_partition_is_covered_once() {
        for rows in [0, 1, 100, 101, 2350] {
            let mut next = 0;
            for piece in deep_pieces("deep", rows) {
                assert_eq!(piece.first, Key { partition: 0, row: next });
                next += piece.count;
            }
            assert_eq!(next, rows);
        }
    }
}
