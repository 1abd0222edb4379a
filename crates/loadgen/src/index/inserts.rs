//! What an insert costs with none, one and three indexes, in tables of their own.

use super::site::Site;
use crate::aims::{Bound, Report};
use crate::call::create_table;
use crate::drive::Pace;
use crate::measure::{Sample, Terms, measure as run};
use crate::workload::{Operations, Workload};
use std::io;
use std::time::Duration;

/// The properties of the indexes: a text and a number that differ for each entity, and a text of a few.
const PROPERTIES: [&str; 3] = ["Name", "City", "Number"];
/// How many indexes, and how many times the cost without any an insert may have.
const KINDS: [(usize, Bound); 3] =
    [(0, Bound::None), (1, Bound::AtMost(1.6)), (3, Bound::AtMost(2.8))];
/// How often each is measured.
const PASSES: usize = 3;
const CONNECTIONS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(1);

pub(super) fn measure(site: &Site<'_>, report: &mut Report) -> io::Result<()> {
    let mut samples: [Vec<Sample>; KINDS.len()] = Default::default();
    for pass in 0..PASSES {
        for (&(indexes, _), samples) in KINDS.iter().zip(&mut samples) {
            let sample = insert(site, &format!("inserts{pass}with{indexes}"), indexes)?;
            let (rate, cost) = (sample.rate, cost(&sample));
            eprintln!("inserts with {}: {rate:.0}/s, CPU {cost:.1} us", words(indexes));
            samples.push(sample);
        }
    }
    let without = median(&samples[0]);
    for (&(indexes, bound), samples) in KINDS.iter().zip(&samples) {
        let (what, middle) = (format!("insert with {}", words(indexes)), Sample::median(samples));
        let with = median(samples);
        report.fact(format!("{what}: rate"), middle.rate, "/s");
        report.fact(format!("{what}: CPU"), with, "us");
        if let Some(fault) = &middle.fault {
            eprintln!("{what}: {fault}");
        }
        report.aim(format!("{what}: errors"), middle.errors as f64, "", Bound::AtMost(0.0));
        if indexes > 0 {
            report.aim(format!("{what}: CPU, of that without"), with / without, "x", bound);
        }
    }
    Ok(())
}

/// Inserts into a new table for a while.
fn insert(site: &Site<'_>, table: &str, indexes: usize) -> io::Result<Sample> {
    let address = site.server.address();
    create_table(address, table)?;
    for property in &PROPERTIES[..indexes] {
        site.index(table, property)?;
    }
    site.settle();
    let terms = Terms {
        address,
        pid: Some(site.server.pid()),
        database: site.database(),
        connections: CONNECTIONS,
        warm_up: WARM_UP,
        length: Duration::from_secs_f64(site.terms.insert_seconds),
        pace: Pace::Closed,
    };
    let mut inserts = Operations::new(Workload::Insert, false, 1, table);
    run(&terms, &mut inserts).map(|(_, sample)| sample)
}

/// CPU time of the server and of its database for an insert, in microseconds.
fn cost(sample: &Sample) -> f64 {
    sample.server_cpu_us + sample.database_cpu_us
}

/// The median cost of an odd number of samples.
fn median(samples: &[Sample]) -> f64 {
    let mut costs: Vec<f64> = samples.iter().map(cost).collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN)
}

fn words(indexes: usize) -> String {
    match indexes {
        0 => "no index".to_owned(),
        1 => "1 index".to_owned(),
        more => format!("{more} indexes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Tally;
    use crate::entity::Key;
    use crate::measure::Spent;

    #[test]
    fn a_cost_is_that_of_server_and_database() {
        let sample = |server, database| {
            let tally = Tally { operations: 1_000_000, ..Tally::default() };
            let of = Duration::from_secs;
            Sample::new(&tally, Spent { server: of(server), database: of(database), client: of(9) })
        };
        let samples = [sample(30, 40), sample(10, 30), sample(20, 0)];
        assert!((median(&samples) - 40.0).abs() < 1e-6);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn entities_have_what_is_indexed() {
        let mut json = Vec::new();
        Key::nth(5).push_entity(&mut json, 0);
        let entity: serde_json::Value = serde_json::from_slice(&json).unwrap();
        for property in PROPERTIES {
            assert!(!entity[property].is_null(), "{property}");
        }
        assert!(KINDS.iter().all(|&(indexes, _)| indexes <= PROPERTIES.len()));
    }
}
