//! The results as a drawing: grouped bars on a logarithmic axis.

use super::report::Results;
use crate::server::Kind;
use crate::text::figure;

const WIDTH: f64 = 920.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 92.0;
const BAR: f64 = 13.0;
const GAP: f64 = 15.0;

/// The servers from top to bottom in each group, with their colours.
const SERVERS: [(Kind, &str, &str); 3] = [
    (Kind::Bare, "bare HTTP server (limit)", "#b6bcc4"),
    (Kind::Rowhouse, "Rowhouse", "#1f6feb"),
    (Kind::Peer, "peer", "#d98a29"),
];

/// Draws the rates of all workloads at one number of connections.
pub(super) fn draw(results: &Results, connections: usize) -> String {
    let cells: Vec<_> =
        results.cells.iter().filter(|cell| cell.connections == connections).collect();
    let rates = cells
        .iter()
        .flat_map(|cell| SERVERS.iter().filter_map(|(kind, ..)| Some(cell.median(*kind)?.rate)));
    let rates: Vec<f64> = rates.filter(|rate| *rate > 0.0).collect();
    let lowest = rates.iter().copied().fold(10.0, f64::min).log10().floor();
    let highest = rates.iter().copied().fold(100.0, f64::max).log10().ceil();
    let scale = (WIDTH - LEFT - RIGHT) / (highest - lowest);
    let x = |rate: f64| LEFT + (rate.max(1e-9).log10() - lowest).max(0.0) * scale;

    let peer =
        results.machine.peer.as_deref().and_then(|name| name.split(' ').next()).unwrap_or("peer");
    let mut y = TOP;
    let mut bars = String::new();
    for cell in &cells {
        let shown: Vec<_> = SERVERS
            .iter()
            .filter_map(|(kind, name, colour)| {
                Some((*kind, *name, *colour, cell.median(*kind)?.rate))
            })
            .collect();
        let height = shown.len() as f64 * BAR;
        bars += &text(LEFT - 10.0, y + height / 2.0 + 4.0, "end", "label", cell.workload.name());
        if let Some(ratio) = cell.ratio_to(Kind::Peer) {
            let words = format!("{} x {peer}", figure(ratio));
            bars += &text(WIDTH - 16.0, y + height / 2.0 + 4.0, "end", "ratio", &words);
        }
        for (_, name, colour, rate) in shown {
            let width = (x(rate) - LEFT).max(1.0);
            bars += &format!(
                "<rect class=\"bar\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\" fill=\"{colour}\"><title>{}: {name}, {}/s</title></rect>\n",
                BAR - 1.0,
                cell.workload,
                figure(rate),
            );
            bars += &text(x(rate) + 5.0, y + BAR - 3.0, "start", "value", &figure(rate));
            y += BAR;
        }
        y += GAP;
    }
    let bottom = y - GAP / 2.0;

    let mut grid = String::new();
    for decade in lowest as i32..=highest as i32 {
        let (at, rate) = (x(10_f64.powi(decade)), 10_f64.powi(decade));
        grid += &format!(
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" \
             stroke=\"#e3e6ea\"/>\n",
            TOP - 8.0
        );
        let words = if rate < 1.0 { rate.to_string() } else { crate::text::count(rate as u64) };
        grid += &text(at, bottom + 16.0, "middle", "value", &words);
    }
    let mut legend = String::new();
    let mut at = LEFT;
    for (kind, name, colour) in SERVERS {
        if !cells.iter().any(|cell| cell.samples.contains_key(&kind)) {
            continue;
        }
        let name = match (&results.machine.peer, kind) {
            (Some(version), Kind::Peer) => version.as_str(),
            _ => name,
        };
        legend += &format!(
            "<rect x=\"{at:.1}\" y=\"50\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n"
        );
        legend += &text(at + 18.0, 60.5, "start", "label", name);
        at += 44.0 + 7.2 * name.chars().count() as f64;
    }
    let height = bottom + 40.0;
    let title = format!("Operations per second, {connections} connections");
    let note = "the scale is logarithmic: each step is ten times the one before; longer is better; server and client share the machine";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{STYLE}\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}{legend}{grid}{bars}{}</svg>\n",
        text(LEFT, 30.0, "start", "title", &title),
        text(LEFT, bottom + 33.0, "start", "note", note),
    )
}

const STYLE: &str = "<style>\
    text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f } \
    .title { font-size: 17px; font-weight: 600 } \
    .label { font-size: 13px } \
    .value { font-size: 11px; fill: #57606a } \
    .note { font-size: 11px; fill: #57606a } \
    .ratio { font-size: 13px; font-weight: 600; fill: #1f6feb }\
    </style>";

/// A line of text. Nothing that is written here needs escaping.
fn text(x: f64, y: f64, anchor: &str, class: &str, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>\n"
    )
}
