//! The server that is measured, and the database below it if there is one.

use super::{Engine, Measure};
use crate::aims::Report;
use crate::batch::Change;
use crate::call::create_table;
use crate::command::{Done, Running};
use crate::database::Database;
use crate::fill::{fill, pieces};
use crate::measure::settle;
use crate::server::Server;
use crate::signer::{ACCOUNT, KEY};
use crate::text::{count, figure};
use crate::workload::DATA;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, Instant};

/// Connections that load the data.
const LOADERS: usize = 8;

/// Fields are dropped in their order: the server before its database.
pub(super) struct Site<'a> {
    pub(super) terms: &'a Measure,
    pub(super) server: Server,
    database: Option<Database>,
}

impl<'a> Site<'a> {
    /// Starts a server on nothing.
    pub(super) fn start(terms: &'a Measure) -> io::Result<Self> {
        let mut arguments = Vec::new();
        let mut database = None;
        if terms.store == Engine::Postgres {
            let made = Database::start(terms.places.runs())?;
            arguments = vec!["--store".to_owned(), made.url().to_owned()];
            database = Some(made);
        }
        arguments.extend_from_slice(&terms.arguments);
        let server = Server::start(terms.places.rowhouse(&arguments), terms.places.runs())?;
        Ok(Self { terms, server, database })
    }

    /// The process of the database.
    pub(super) fn database(&self) -> Option<u32> {
        self.database.as_ref().map(Database::pid)
    }

    /// The address of the account, as SDKs and the product's commands take it.
    pub(super) fn endpoint(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.server.address())
    }

    /// Makes the table that is read, and fills it.
    pub(super) fn fill(&self, report: &mut Report) -> io::Result<()> {
        let address = self.server.address();
        create_table(address, DATA)?;
        let mut told = Instant::now();
        let all = pieces(DATA, 0, self.terms.entities);
        let loaded = fill(address, LOADERS, Change::Upsert, all, |so_far| {
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let (entities, rate) = (count(so_far.entities), figure(so_far.rate()));
                eprintln!("loading: {entities} entities, {rate}/s");
            }
        })?;
        report.fact(format!("loading {} entities", count(loaded.entities)), loaded.rate(), "/s");
        Ok(())
    }

    /// Waits until the server, and its database, have nothing left to do of what came before.
    pub(super) fn settle(&self) {
        settle(self.server.pid(), self.database());
    }

    /// Begins to make an index with the product's own command, which ends when it can be read.
    pub(super) fn begin_index(&self, table: &str, property: &str) -> io::Result<Running> {
        let endpoint = self.endpoint();
        let what = ["index", "create", table, property];
        let service = ["--endpoint", &endpoint, "--account", ACCOUNT, "--key", KEY];
        let arguments = what.into_iter().chain(service).map(OsStr::new);
        Running::start(&self.terms.places.binary(), arguments)
    }

    /// Makes an index.
    pub(super) fn index(&self, table: &str, property: &str) -> io::Result<Done> {
        self.begin_index(table, property)?.finish()
    }
}
