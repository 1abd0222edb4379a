//! `loadgen scale`: how cost, memory and disk grow with the number of entities, and how space comes back.
//!
//! The store is filled with shapes that differ: partitions of a thousand rows, one partition of many, partitions
//! of one row, many small tables, and at last one large table, which is dropped again while clients are being
//! served. On the way the cost of a point read and of an insert is measured at several sizes. Every step looks at
//! the clock; what there was no time for is said to be missing.

use crate::batch::{Change, OPERATIONS};
use crate::call::{call, create_table, drop_table};
use crate::drive::{Driver, Pace};
use crate::entity::Key;
use crate::fill::{Loaded, Piece, fill, pieces};
use crate::measure::{Sample, Terms, measure};
use crate::process;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::{Table, count, figure, megabytes};
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places};
use std::io;
use std::time::{Duration, Instant};

/// Sizes at which costs are compared with those of the full store.
const SMALL: u64 = 10_000;
const MIDDLE: u64 = 1_000_000;
/// Rows of each small table.
const SMALL_TABLE_ROWS: u64 = 5;
/// Connections that insert single entities.
const SINGLES: usize = 64;
/// How long the space of a dropped table may take to come back.
const SPACE_WITHIN: Duration = Duration::from_mins(5);
/// Share of the size without the dropped table at which its space counts as back.
const SPACE_BACK: f64 = 1.3;
/// Point reads per second while the table is swept.
const READS_MEANWHILE: f64 = 500.0;
/// How often the first rows of the purged partition are asked for.
const TOPS: usize = 20;

/// Measure how cost, memory and disk grow with size.
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// Entities of about 400 bytes in all.
    #[arg(short, long, value_name = "N", default_value_t = 1_000_000)]
    entities: u64,

    /// Stop starting new steps after so many minutes.
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    minutes: f64,

    /// Seconds for each measurement.
    #[arg(short, long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server, such as --cache-mib.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// How many entities each part of the store has.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// In partitions of a thousand rows.
    wide: u64,
    /// In one partition.
    deep: u64,
    /// In partitions of one row.
    singles: u64,
    /// Tables of a few rows.
    tables: u64,
    /// In the table that is dropped.
    dropped: u64,
}

impl Shape {
    fn of(entities: u64) -> Self {
        let (deep, singles) = ((entities / 10).min(1_000_000), (entities / 100).min(100_000));
        let (tables, dropped) = ((entities / 1000).min(3000), entities / 2);
        let wide = entities - deep - singles - tables * SMALL_TABLE_ROWS - dropped;
        Self { wide, deep, singles, tables, dropped }
    }
}

impl Scale {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.grow().map_err(|fault| fault.to_string())
    }

    fn grow(&self) -> io::Result<()> {
        let server = Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?;
        let mut trial = Trial {
            terms: self,
            sampler: Sampler::watch(server.pid()),
            server,
            deadline: Instant::now() + Duration::from_secs_f64(60.0 * self.minutes),
            loaded: Loaded::default(),
            wide: 0,
            inserted: 0,
            costs: Table::new(&[
                "cost at",
                "point us",
                "p50 ms",
                "p99 ms",
                "insert us",
                "p50 ms",
                "p99 ms",
                "errors",
            ]),
            facts: Table::of_words(&["what", "figure"]),
        };
        let outcome = trial.all_steps();
        print!("{}\n{}", trial.costs.plain(), trial.facts.plain());
        outcome
    }
}

struct Trial<'a> {
    terms: &'a Scale,
    server: Server,
    sampler: Sampler,
    deadline: Instant,
    loaded: Loaded,
    /// Entities in the table that is read.
    wide: u64,
    /// Rows that measurements have inserted.
    inserted: u64,
    costs: Table,
    facts: Table,
}

impl Trial<'_> {
    fn all_steps(&mut self) -> io::Result<()> {
        let shape = Shape::of(self.terms.entities);
        create_table(self.server.address(), DATA)?;
        self.grow_wide(SMALL.min(shape.wide))?;
        self.measure_costs()?;
        if shape.wide > MIDDLE {
            self.grow_wide(MIDDLE)?;
            self.measure_costs()?;
        }
        self.grow_wide(shape.wide)?;
        self.load_deep(shape.deep)?;
        self.load_singles(shape.singles)?;
        self.load_tables(shape.tables)?;
        let without = self.disk();
        self.load_dropped(shape.dropped)?;
        self.fact("loading, entities/s", figure(self.loaded.rate()));
        let disk = self.disk();
        let each = disk as f64 / self.loaded.bytes.max(1) as f64;
        self.fact("disk bytes per byte of JSON", figure(each));
        self.measure_costs()?;
        let grown = self.disk().saturating_sub(disk);
        self.restart()?;
        self.drop_and_watch(without + grown)?;
        self.purge(shape.deep)?;
        let most = self.sampler.take();
        self.fact("anonymous memory after all, most", megabytes(most));
        Ok(())
    }

    fn fact(&mut self, what: &str, figure: String) {
        eprintln!("{what}: {figure}");
        self.facts.push(vec![what.to_owned(), figure]);
    }

    fn disk(&self) -> u64 {
        process::disk_bytes(&self.server.data())
    }

    /// True if there is time for another step; says so if not.
    fn has_time(&mut self, step: &str) -> bool {
        let has = Instant::now() < self.deadline;
        if !has {
            self.fact(step, "no time left".to_owned());
        }
        has
    }

    fn load(
        &mut self,
        what: &str,
        connections: usize,
        pieces: impl Iterator<Item = Piece>,
    ) -> io::Result<()> {
        let deadline = self.deadline;
        let mut told = Instant::now();
        let pieces = pieces.take_while(|_| Instant::now() < deadline);
        let loaded = fill(self.server.address(), connections, Change::Upsert, pieces, |so_far| {
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!(
                    "{what}: {} entities, {}/s",
                    count(so_far.entities),
                    figure(so_far.rate())
                );
            }
        })?;
        self.loaded.add(loaded);
        let most = self.sampler.take();
        let (entities, rate) = (count(loaded.entities), figure(loaded.rate()));
        let memory = megabytes(most);
        self.fact(what, format!("{entities} at {rate}/s, anonymous memory at most {memory}"));
        Ok(())
    }

    fn grow_wide(&mut self, to: u64) -> io::Result<()> {
        if self.wide >= to || !self.has_time("partitions of 1,000 rows") {
            return Ok(());
        }
        let before = self.loaded.entities;
        let connections = self.terms.connections;
        self.load("partitions of 1,000 rows", connections, pieces(DATA, self.wide, to))?;
        // If time ran out, the last batches under way may have left gaps; whole partitions are safe.
        self.wide += self.loaded.entities - before;
        Ok(())
    }

    fn load_deep(&mut self, rows: u64) -> io::Result<()> {
        if rows == 0 || !self.has_time("one deep partition") {
            return Ok(());
        }
        create_table(self.server.address(), "deep")?;
        self.load("one deep partition", self.terms.connections, deep_pieces(rows))
    }

    fn load_singles(&mut self, partitions: u64) -> io::Result<()> {
        if partitions == 0 || !self.has_time("partitions of one row") {
            return Ok(());
        }
        create_table(self.server.address(), "singles")?;
        let all = (0..partitions).map(|partition| Piece {
            table: "singles".into(),
            first: Key { partition, row: 0 },
            count: 1,
        });
        self.load("partitions of one row", SINGLES, all)
    }

    fn load_tables(&mut self, tables: u64) -> io::Result<()> {
        if tables == 0 || !self.has_time("small tables") {
            return Ok(());
        }
        let began = Instant::now();
        for table in 0..tables {
            create_table(self.server.address(), &format!("small{table}"))?;
        }
        let rate = tables as f64 / began.elapsed().as_secs_f64();
        self.fact("tables created, one after the other", format!("{tables} at {}/s", figure(rate)));
        let all = (0..tables).map(|table| Piece {
            table: format!("small{table}").into(),
            first: Key { partition: 0, row: 0 },
            count: SMALL_TABLE_ROWS,
        });
        self.load("small tables", self.terms.connections, all)
    }

    fn load_dropped(&mut self, entities: u64) -> io::Result<()> {
        if entities == 0 || !self.has_time("the table to drop") {
            return Ok(());
        }
        create_table(self.server.address(), "dropped")?;
        let all = pieces("dropped", 0, entities);
        self.load("the table to drop", self.terms.connections, all)
    }

    /// Point reads over all of the table that is read, and inserts into its partitions.
    fn measure_costs(&mut self) -> io::Result<()> {
        let size = self.loaded.entities;
        let mut row = vec![count(size)];
        let mut errors = 0;
        for workload in [Workload::Point, Workload::Spread] {
            let operations = Operations::new(workload, false, self.wide, DATA);
            let mut operations = operations.starting_at(self.inserted);
            let terms = Terms {
                address: self.server.address(),
                pid: Some(self.server.pid()),
                connections: self.terms.connections,
                warm_up: Duration::from_secs(1),
                length: Duration::from_secs_f64(self.terms.seconds),
                pace: Pace::Closed,
            };
            let (_, sample) = measure(&terms, &mut operations)?;
            self.inserted = operations.inserted();
            let Sample { server_cpu_us, p50_ms, p99_ms, .. } = sample;
            row.extend([server_cpu_us, p50_ms, p99_ms].map(figure));
            errors += sample.errors;
            if let Some(fault) = sample.fault {
                eprintln!("{fault}");
            }
        }
        row.push(count(errors));
        self.costs.push(row);
        let most = self.sampler.take();
        self.fact(
            &format!("anonymous memory while measuring at {}, most", count(size)),
            megabytes(most),
        );
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        for (gently, what) in [(true, "ready after a stop, ms"), (false, "ready after kill -9, ms")]
        {
            self.server.restart(gently)?;
            self.fact(what, figure(self.server.started_in().as_secs_f64() * 1e3));
        }
        self.sampler = Sampler::watch(self.server.pid());
        Ok(())
    }

    /// Drops the largest table and watches its space come back while clients read.
    fn drop_and_watch(&mut self, without: u64) -> io::Result<()> {
        if !self.has_time("dropping a table") {
            return Ok(());
        }
        let before = self.disk();
        let began = Instant::now();
        drop_table(self.server.address(), "dropped")?;
        let took = began.elapsed();
        self.fact("dropping it was answered within, ms", figure(took.as_secs_f64() * 1e3));
        let mut driver = Driver::open(self.server.address(), self.terms.connections)?;
        let mut reads = Operations::new(Workload::Point, false, self.wide, DATA);
        let mut meanwhile =
            driver.run(&mut reads, Duration::from_secs(1), Pace::Rate(READS_MEANWHILE))?;
        let goal = (without as f64 * SPACE_BACK) as u64;
        let end = self.deadline.min(began + SPACE_WITHIN);
        while self.disk() > goal && Instant::now() < end {
            let second = Duration::from_secs(1);
            meanwhile.add(&driver.run(&mut reads, second, Pace::Rate(READS_MEANWHILE))?);
        }
        let (now, seconds) = (self.disk(), figure(began.elapsed().as_secs_f64()));
        let sizes = [before, now, without].map(megabytes);
        let ratio = figure(now as f64 / without.max(1) as f64);
        let [before, now, without] = sizes;
        self.fact(
            "disk before the drop, after it, and without that table",
            format!("{before}, {now} after {seconds} s, {without} (ratio {ratio})"),
        );
        let sample = Sample::new(&meanwhile, Duration::ZERO, Duration::ZERO);
        self.fact(
            "point reads meanwhile, ms",
            format!(
                "p50 {}, p99 {}, max {}, errors {}",
                figure(sample.p50_ms),
                figure(sample.p99_ms),
                figure(sample.max_ms),
                sample.errors
            ),
        );
        Ok(())
    }

    /// Deletes the first half of the deep partition, then asks for its first rows.
    fn purge(&mut self, rows: u64) -> io::Result<()> {
        let half = rows / 2;
        if half == 0 || !self.has_time("purging half a partition") {
            return Ok(());
        }
        let deadline = self.deadline;
        let doomed = deep_pieces(half).take_while(|_| Instant::now() < deadline);
        let address = self.server.address();
        let purged = fill(address, self.terms.connections, Change::Delete, doomed, |_| {})?;
        let (entities, rate) = (count(purged.entities), figure(purged.rate()));
        self.fact("rows purged from the deep partition", format!("{entities} at {rate}/s"));
        let query = "?$filter=PartitionKey%20eq%20%27p0000000%27&$top=10";
        let mut times = Vec::with_capacity(TOPS);
        for _ in 0..TOPS {
            let reply = call(address, "GET", "/deep()", query, "", b"")?;
            let rows = memchr::memmem::find_iter(&reply.body, b"\"RowKey\":").count();
            if reply.status != 200 || rows == 0 {
                let status = reply.status;
                return Err(io::Error::other(format!("$top=10: status {status}, {rows} rows")));
            }
            times.push(reply.took);
        }
        let first = times[0].as_secs_f64() * 1e3;
        times.sort();
        let median = times[TOPS / 2].as_secs_f64() * 1e3;
        let words = format!("first {}, median {}", figure(first), figure(median));
        self.fact("$top=10 from the start of the purged partition, ms", words);
        Ok(())
    }
}

/// Rows of a single partition, from its start.
fn deep_pieces(rows: u64) -> impl Iterator<Item = Piece> {
    (0..rows.div_ceil(OPERATIONS)).map(move |index| {
        let row = index * OPERATIONS;
        let first = Key { partition: 0, row };
        Piece { table: "deep".into(), first, count: OPERATIONS.min(rows - row) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_add_up() {
        for entities in [0, 1, 999, 10_000, 1_000_000, 10_000_000, 100_000_000] {
            let shape = Shape::of(entities);
            let small = shape.tables * SMALL_TABLE_ROWS;
            let sum = shape.wide + shape.deep + shape.singles + small + shape.dropped;
            assert_eq!(sum, entities);
            assert_eq!(deep_pieces(shape.deep).map(|piece| piece.count).sum::<u64>(), shape.deep);
        }
    }
}
