//! What the pages of all comparisons have in common.

use super::Plan;
use super::compare::Cell;
use super::machine::Machine;
use crate::measure::Sample;
use crate::server::Kind;
use crate::text::{Table, figure};
use crate::workload::Workload;
use std::fmt::Display;
use std::io;

/// Between these lines of a page a person writes; what is there is kept.
const HAND_BEGIN: &str = "<!-- by hand: begin -->";
const HAND_END: &str = "<!-- by hand: end -->";

const NAMES: [(Kind, &str); 4] = [
    (Kind::Rowhouse, "rowhouse"),
    (Kind::Peer, "peer"),
    (Kind::Bare, "bare"),
    (Kind::Direct, "direct"),
];

/// A line about a cell that has just been measured.
pub(super) fn progress(cell: &Cell<impl Display>) -> String {
    let mut line = format!("{:11} {:>3}", cell.workload, cell.connections);
    for (kind, name) in NAMES {
        if let Some(sample) = cell.median(kind) {
            line += &format!("  {name} {}/s", figure(sample.rate));
            if sample.errors > 0 {
                line += &format!(" ({} ERRORS)", sample.errors);
            }
        }
    }
    line
}

/// Fails if an answer was wrong, or if our own server did not serve a request. A peer that cannot keep a pace is slow and
/// not wrong: the page tells how many requests it did not serve.
pub(super) fn content<'a, W: 'a>(cells: impl Iterator<Item = &'a Cell<W>>) -> io::Result<()> {
    let mut samples = cells.flat_map(|cell| {
        cell.samples.iter().flat_map(|(kind, all)| all.iter().map(move |sample| (*kind, sample)))
    });
    let is_wrong = |(kind, sample): &(Kind, &Sample)| {
        sample.errors > 0 && (*kind != Kind::Peer || sample.fault.is_some())
    };
    let Some((_, wrong)) = samples.find(is_wrong) else { return Ok(()) };
    let words = wrong.fault.as_deref().unwrap_or("requests were refused or late");
    Err(io::Error::other(format!("there were wrong answers: {words}")))
}

/// A figure, if there is one.
pub(super) fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

/// The part that a person has written on the old page, with its marks.
pub(super) fn by_hand(old: &str) -> String {
    let kept = old.split_once(HAND_BEGIN).and_then(|(_, rest)| rest.split_once(HAND_END));
    let text = kept.map_or("\nNot written yet.\n", |(text, _)| text);
    format!("{HAND_BEGIN}{text}{HAND_END}")
}

/// How often and how long everything was measured.
pub(super) fn passes(plan: &Plan) -> String {
    let seconds = figure(plan.seconds);
    match plan.repeats {
        1 => format!("one pass of {seconds} s each"),
        repeats => format!("medians of {repeats} passes of {seconds} s each"),
    }
}

/// What the workloads do.
pub(super) fn meanings(workloads: &[Workload]) -> String {
    let mut table = Table::of_words(&["workload", "an operation is to"]);
    for workload in workloads {
        table.push(vec![format!("`{workload}`"), workload.meaning().to_owned()]);
    }
    table.markdown()
}

/// What was measured on, with one thing more.
pub(super) fn machine(machine: &Machine, (more, what): (&str, &str)) -> String {
    let rowhouse = format!("{}, commit {}", machine.rowhouse, machine.commit);
    let mut table = Table::of_words(&["", ""]);
    for (name, value) in [
        ("processor", &*machine.processor),
        ("memory", &machine.memory),
        ("kernel", &machine.kernel),
        ("disk", &machine.disk),
        ("Rowhouse", &rowhouse),
        (more, what),
    ] {
        table.push(vec![name.to_owned(), value.to_owned()]);
    }
    table.markdown()
}
