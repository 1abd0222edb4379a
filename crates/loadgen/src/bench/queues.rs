//! The queues of the product and of the peer, in turn on the same work.

use super::compare::{self, Cell};
use super::page::{progress, shown};
use super::{MANY, Plan};
use crate::measure::Sample;
use crate::queue::messages::Work;
use crate::queue::site::Site;
use crate::server::{Kind, Recipe, Server};
use crate::text::Table;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Queues over which the work on one account is spread.
const QUEUES: usize = 8;
/// Sixteen who get and delete, and as many as the connections of the results in short have room for.
const CONSUMERS: [usize; 2] = [16, MANY / 2];
/// Work whose rates the original has published.
const THROUGH_ONE: Load = Load { work: Work::Consumers(CONSUMERS[0]), queues: 1 };
const THROUGH_ACCOUNT: Load = Load { work: Work::Consumers(CONSUMERS[1]), queues: QUEUES };
const GOT: Load = Load { work: Work::Get32, queues: QUEUES };

/// Work, and on how many queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Load {
    pub(super) work: Work,
    pub(super) queues: usize,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.work.fmt(f)
    }
}

/// A server with queues, paused whenever it is not its turn.
struct Contestant {
    server: Server,
    made: usize,
}

impl Contestant {
    fn prepare(recipe: Recipe, parent: &Path) -> io::Result<Self> {
        let server = Server::start(recipe, parent)?;
        server.pause();
        Ok(Self { server, made: 0 })
    }

    /// Works on new queues.
    fn measure(&mut self, plan: &Plan, load: Load, connections: usize) -> io::Result<Sample> {
        self.server.resume();
        self.made += 1;
        let site = Site { address: self.server.queue_address()?, pid: self.server.pid() };
        let queues = site.create(&format!("bench-{}", self.made), load.queues)?;
        let length = Duration::from_secs_f64(plan.seconds);
        let count = match load.work {
            // What is got has to be there; when nothing is left, the time ends.
            Work::Getdelete | Work::Get32 => {
                let peer = self.server.kind() == Kind::Peer;
                let stock = if peer { plan.peer_messages } else { plan.messages };
                site.fill(&queues, 0, stock)?;
                stock
            }
            _ => u64::MAX,
        };
        let sample = site.work(load.work, &queues, (0, count), connections, length)?;
        self.server.pause();
        Ok(sample)
    }
}

/// Measures all work on all servers in turn.
pub(super) fn compare(
    plan: &Plan,
    recipes: Vec<Recipe>,
    parent: &Path,
) -> io::Result<Vec<Cell<Load>>> {
    let mut contestants = Vec::new();
    for recipe in recipes {
        contestants.push(Contestant::prepare(recipe, parent)?);
    }
    let kinds: Vec<_> = contestants.iter().map(|one| one.server.kind()).collect();
    let one = |work| Load { work, queues: 1 };
    let singles = [one(Work::Put), one(Work::Getdelete)].into_iter();
    let singles =
        singles.flat_map(|load| plan.connections.iter().map(move |&number| (load, number)));
    let spread = Load { work: Work::Consumers(CONSUMERS[0]), queues: QUEUES };
    let many = [
        (THROUGH_ONE, 2 * CONSUMERS[0]),
        (spread, 2 * CONSUMERS[0]),
        (THROUGH_ACCOUNT, 2 * CONSUMERS[1]),
        (GOT, MANY),
    ];
    let mut cells = Vec::new();
    for (load, connections) in singles.chain(many) {
        let cell = compare::in_turn(plan, Cell::new(load, connections), &kinds, |kind| {
            let mut all = contestants.iter_mut();
            let one = all.find(|one| one.server.kind() == kind).expect("it is one of them");
            one.measure(plan, load, connections)
        })?;
        eprintln!("{}", progress(&cell));
        cells.push(cell);
    }
    Ok(cells)
}

/// Messages per second that go through one queue, that are got from those of one account, and that go through them.
pub(super) fn rates(cells: &[Cell<Load>]) -> [Option<f64>; 3] {
    [THROUGH_ONE, GOT, THROUGH_ACCOUNT].map(|wanted| {
        let cell = cells.iter().find(|cell| cell.workload == wanted)?;
        cell.median(Kind::Rowhouse).map(|sample| sample.rate)
    })
}

/// What was found, for people.
pub(super) fn table(cells: &[Cell<Load>]) -> Table {
    let mut table = Table::new(&[
        "work", "queues", "conn", "msgs/s", "x peer", "CPU us", "peer CPU", "p50 ms", "p99 ms",
        "peer p50", "peer p99",
    ]);
    for cell in cells {
        let of = |kind: Kind, field: fn(&Sample) -> f64| {
            shown(cell.median(kind).map(|sample| field(&sample)))
        };
        table.push(vec![
            cell.workload.to_string(),
            cell.workload.queues.to_string(),
            cell.connections.to_string(),
            of(Kind::Rowhouse, |sample| sample.rate),
            shown(cell.ratio_to(Kind::Peer)),
            of(Kind::Rowhouse, |sample| sample.server_cpu_us),
            of(Kind::Peer, |sample| sample.server_cpu_us),
            of(Kind::Rowhouse, |sample| sample.p50_ms),
            of(Kind::Rowhouse, |sample| sample.p99_ms),
            of(Kind::Peer, |sample| sample.p50_ms),
            of(Kind::Peer, |sample| sample.p99_ms),
        ]);
    }
    table
}

/// What each kind of work is.
pub(super) fn meanings() -> String {
    let mut table = Table::of_words(&["work", "a message is counted for"]);
    for (name, work) in [
        ("put", Work::Put),
        ("getdelete", Work::Getdelete),
        ("consumersN", Work::Consumers(0)),
        ("get32", Work::Get32),
    ] {
        table.push(vec![name.to_owned(), work.meaning().to_owned()]);
    }
    table.markdown()
}
