//! Power cuts under load: what was acknowledged was synced.
//!
//! Each way of cutting (see `Disk`) is tried on the product, which must lose nothing, and then on the same
//! binary with fsync turned into nothing, which must lose entities: only then did the test look. A server that
//! does not start again on what is left shows nothing of that, so as many more are cut off as it takes.
//! `ROWHOUSE_POWER_ROUNDS` says how many cuts; `make crash CUTS=n` sets it.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::Order;
use rowhouse_testkit::{Disk, HeldBack, Image, Liar, Load, Tally, TestServer, count_from, seed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 6;
/// Times as many controls at most as there should be, until one has lost entities.
const CONTROLS_MAX: usize = 4;
/// After so many cuts a new file system begins, so that creating a database is also cut short.
const CUTS_PER_DISK: usize = 4;
/// A round lasts up to this long, and not much less than a third of it: a file system writes by itself only
/// after seconds.
const ROUND_MAX: Duration = Duration::from_millis(600);

/// What a number of cuts came to.
#[derive(Default)]
struct Outcome {
    tally: Tally,
    cuts: usize,
    /// Cuts after which entities were missing, and how many.
    cuts_with_loss: usize,
    entities: u64,
    /// Cuts after which the server did not even start: nobody knows what was missing.
    broken: usize,
}

fn moment(chance: &SeededRandom) -> Duration {
    let mut bytes = [0; 2];
    chance.fill(&mut bytes);
    let share = u32::from(u16::from_le_bytes(bytes)) * 2 / 3 + u32::from(u16::MAX) / 3;
    ROUND_MAX * share / u32::from(u16::MAX)
}

/// The product on a new disk: nothing may be missing, however often the power goes.
fn product(disk: &mut dyn Disk, cuts: usize, chance: &SeededRandom, outcome: &mut Outcome) {
    let mut server = TestServer::start_in_with(disk.directory(), &disk.variables());
    let mut load = Load::new(&mut server.client(), chance.guid().0[0].into(), Order::OfStore);
    for _ in 0..cuts {
        load.run(&[server.address()], |cutoff| {
            std::thread::sleep(moment(chance));
            disk.cut(&mut server, cutoff);
        });
        outcome.cuts += 1;
        server.restart();
        if let Err(losses) = load.verify(&mut server.client()) {
            panic!("cut {}: {losses}", outcome.cuts);
        }
    }
    assert!(!server.log().contains("panicked"), "nothing panicked");
    server.kill();
    server.check().unwrap_or_else(|problems| panic!("{problems}"));
    outcome.tally += load.tally();
}

/// The same with an fsync that does nothing once the table is there, and a single cut.
fn control(disk: &mut dyn Disk, liar: &Liar, chance: &SeededRandom, outcome: &mut Outcome) {
    let mut variables = disk.variables();
    variables.extend(liar.variables());
    let mut server = TestServer::start_in_with(disk.directory(), &variables);
    let mut load = Load::new(&mut server.client(), chance.guid().0[0].into(), Order::OfStore);
    liar.begin();
    load.run(&[server.address()], |cutoff| {
        std::thread::sleep(moment(chance));
        disk.cut(&mut server, cutoff);
    });
    liar.end();
    outcome.cuts += 1;
    outcome.tally += load.tally();
    match server.try_restart() {
        Err(_) => outcome.broken += 1,
        Ok(()) => {
            if let Err(losses) = load.verify(&mut server.client()) {
                outcome.cuts_with_loss += usize::from(losses.entities > 0);
                outcome.entities += losses.entities;
            }
        }
    }
}

/// Runs both on as many disks as it takes.
fn both<D: Disk>(name: &str, new_disk: impl Fn(u64) -> Result<D, String>) {
    let rounds = count_from("ROWHOUSE_POWER_ROUNDS", ROUNDS);
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let tools = new_disk(seed).and_then(|disk| Ok((disk, Liar::new()?)));
    let (first, liar) = match tools {
        Ok(tools) => tools,
        Err(reason) => {
            println!("power cut, {name}: NOT VERIFIED ({reason})");
            return;
        }
    };
    let method = first.method();
    drop(first);
    let disk = |number: usize| {
        new_disk(seed.wrapping_add(number as u64)).expect("what worked once works again")
    };
    let began = Instant::now();
    let mut kept = Outcome::default();
    while kept.cuts < rounds {
        let cuts = CUTS_PER_DISK.min(rounds - kept.cuts);
        product(&mut disk(kept.cuts), cuts, &chance, &mut kept);
    }
    let mut lost = Outcome::default();
    let controls = rounds.div_ceil(2);
    while lost.cuts < controls || (lost.entities == 0 && lost.cuts < CONTROLS_MAX * controls) {
        control(&mut disk(lost.cuts), &liar, &chance, &mut lost);
    }
    println!(
        "power: {} cuts ({method}), {}, 0 lost, 0 half batches; control without fsync: {} of {} cuts \
         lost {} entities, {} did not start again; {:.0} s",
        kept.cuts,
        kept.tally,
        lost.cuts_with_loss,
        lost.cuts,
        lost.entities,
        lost.broken,
        began.elapsed().as_secs_f64(),
    );
    assert!(kept.tally.writes > rounds as u64, "there was load");
    assert!(lost.tally.writes > 0, "there was load on the control");
    assert!(
        lost.entities > 0,
        "the control lost no entity: this test does not see a missing fsync"
    );
}

#[test]
fn file_system_shut_down_without_flushing() {
    both("file system", |_| Image::new());
}

#[test]
fn unsynced_writes_taken_back() {
    both("library", HeldBack::new);
}
