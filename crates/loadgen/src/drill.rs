//! `loadgen drill`: backup and restore at size, beside a plain copy of the same bytes.
//!
//! A server is filled with a tenth of the entities and goes through the drill, then with all of them and goes through it
//! again: a backup is taken while clients read single entities at a fixed rate, verified, and restored into an empty
//! directory, and a server on what was restored must show the same. The backup of the tenth is also restored
//! into PostgreSQL. Rates are told as shares of the rate at which the data file is copied and synced on the same disk, and
//! memory at the full size as a multiple of that at the tenth.

mod contents;
mod plain;
mod round;

use crate::aims::{Bound, Report};
use crate::call::create_table;
use crate::command::Running;
use crate::database::Database;
use crate::server::Server;
use crate::text::count;
use crate::workload::DATA;
use crate::{Failure, Places};
use round::{Round, Site};
use std::io;

/// Times the memory at a tenth of the entities that counts as the same.
const FLAT: f64 = 1.25;

/// Measure backup and restore while clients read, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Drill {
    /// Entities of about 400 bytes.
    #[arg(short, long, value_name = "N", default_value_t = 10_000_000)]
    entities: u64,

    /// Point reads per second, with and without a backup.
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    rate: f64,

    /// Seconds of reading before each backup, and again after it.
    #[arg(short, long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Cache of the server, in MiB; its memory must stay below this and 150 MB.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    cache_mib: u64,

    /// Leave out the restore into PostgreSQL.
    #[arg(long)]
    without_postgres: bool,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Drill {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.drill().map_err(|fault| fault.to_string())
    }

    fn drill(&self) -> io::Result<()> {
        let mut report = Report::default();
        let mut site = Site::start(self)?;
        create_table(site.server.address(), DATA)?;
        let tenth = site.round(self.entities.div_ceil(10), false, &mut report)?;
        if !self.without_postgres {
            self.restore_to_postgres(&tenth, &mut report)?;
        }
        drop(tenth.backup);
        let whole = site.round(self.entities, true, &mut report)?;
        for (what, small, large) in [
            ("the server during a backup", tenth.memory.server, whole.memory.server),
            ("a backup", tenth.memory.backup, whole.memory.backup),
            ("a verification", tenth.memory.verify, whole.memory.verify),
            ("a restore", tenth.memory.restore, whole.memory.restore),
        ] {
            let ratio = large as f64 / small.max(1) as f64;
            let what = format!("memory of {what}, of that at a tenth");
            report.aim(what, ratio, "x", Bound::AtMost(FLAT));
        }
        report.conclude(&self.places.result("drill"))
    }

    /// Restores a backup into a database that is made for it, and compares.
    fn restore_to_postgres(&self, round: &Round, report: &mut Report) -> io::Result<()> {
        let database = Database::start(self.places.runs())?;
        let store = ["--store", database.url()];
        let arguments = ["restore".as_ref(), round.backup.as_os_str(), "--json".as_ref()];
        let restore = arguments.into_iter().chain(store.map(AsRef::as_ref));
        let done = Running::start(&self.places.binary(), restore)?.finish()?;
        let what = format!("{}, into PostgreSQL", count(round.contents.entities));
        let entities = round.contents.entities as f64;
        report.fact(format!("{what}: restore"), entities / done.took.as_secs_f64(), "/s");
        report.fact(format!("{what}: memory of the restore"), done.memory as f64 / 1e6, "MB");
        let recipe = self.places.rowhouse(&store.map(str::to_owned));
        let server = Server::start(recipe, self.places.runs())?;
        round.contents.compare(server.address(), &what, report)
    }
}
