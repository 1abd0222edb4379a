//! Tells how far a long command has got: on a terminal in a line of its own that is gone at the end, with a bar where the
//! whole is known; elsewhere in a plain line now and then.

use rowhouse_server::{Estimate, Progress};
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// How often the line on a terminal is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// How often a plain line is written.
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// Characters of the bar.
const BAR_WIDTH: u64 = 20;
/// Nothing is foretold before that much is known.
const FORETELL_AFTER: Duration = Duration::from_secs(2);
/// What is shown, in thousandths, of something that is not at its end but should be by an estimate.
const NEARLY: u64 = 990;

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// In words and figures.
    pub(crate) text: String,
    /// How much of the whole, in thousandths, if that is known.
    pub(crate) share: Option<u64>,
}

/// Writes to standard error.
#[derive(Debug)]
pub(crate) struct Meter {
    on_terminal: bool,
    began: Instant,
    /// How much was there when it was first asked: what earlier runs have done tells nothing about time.
    start: Option<u64>,
    last: Option<Instant>,
    /// The largest share that was shown: estimates fall, what people see does not.
    reached: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self { on_terminal, began: Instant::now(), start: None, last: None, reached: 0 }
    }

    /// Time since it was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether somebody should be told.
    pub(crate) fn is_due(&self) -> bool {
        let every = if self.on_terminal { DRAW_EVERY } else { WRITE_EVERY };
        every <= self.last.unwrap_or(self.began).elapsed()
    }

    pub(crate) fn show(&mut self, status: &Status) {
        self.last = Some(Instant::now());
        let start = *self.start.get_or_insert(status.share.unwrap_or_default());
        let status = self.risen(status);
        let line = line(&status, start, self.elapsed());
        self.write(status.share, &line);
    }

    /// The status with a share that is no less than those before.
    fn risen(&mut self, status: &Status) -> Status {
        let share = status.share.map(|share| share.max(self.reached));
        self.reached = share.unwrap_or(self.reached);
        Status { text: status.text.clone(), share }
    }

    /// For what takes longer than an estimate said: how much is left nobody knows.
    fn show_overdue(&mut self, text: &str) {
        self.last = Some(Instant::now());
        self.write(Some(NEARLY), &format!("{:>3} %, {text}", NEARLY / 10));
    }

    fn write(&self, share: Option<u64>, line: &str) {
        let line = match (self.on_terminal, share) {
            (true, Some(share)) => drawn(&format!("{} {line}", bar(share))),
            (true, None) => drawn(line),
            (false, _) => format!("rowhouse: {line}\n"),
        };
        let mut err = std::io::stderr();
        let _ = err.write_all(line.as_bytes()).and_then(|()| err.flush());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.last.is_some() {
            make_room();
        }
    }
}

/// Removes the line, so that something else can be written.
pub(crate) fn make_room() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = err.write_all(b"\r\x1b[K").and_then(|()| err.flush());
    }
}

/// In place of the line that is there; what does not fit is cut off, since only one line can be replaced.
fn drawn(line: &str) -> String {
    const CUT: &str = "\x1b[?7l";
    const WRAP: &str = "\x1b[?7h";
    format!("\r\x1b[K{CUT}{line}{WRAP}")
}

/// ` 45 %, 2.0 MB (1.0 MB/s), 12 s left`
fn line(status: &Status, start: u64, elapsed: Duration) -> String {
    let Some(share) = status.share else { return status.text.clone() };
    let left = left(share, start, elapsed).map(|left| format!(", {} left", time(left)));
    format!("{:>3} %, {}{}", share / 10, status.text, left.unwrap_or_default())
}

/// Full at the end, and not before.
fn bar(share: u64) -> String {
    let most = if share < 1000 { BAR_WIDTH - 1 } else { BAR_WIDTH };
    let full = (share * BAR_WIDTH).div_ceil(1000).min(most);
    let cells = |count: u64, cell| (0..count).map(|_| cell).collect::<String>();
    format!("[{}{}]", cells(full, '#'), cells(BAR_WIDTH - full, '.'))
}

/// How long the rest takes if it goes on like this.
fn left(share: u64, start: u64, elapsed: Duration) -> Option<Duration> {
    let done = u32::try_from(share.checked_sub(start)?).ok().filter(|done| 0 < *done)?;
    let rest = u32::try_from(1000_u64.saturating_sub(share)).ok()?;
    let left = elapsed * rest / done;
    // What is nearly done is done when it is: nobody is told to wait for 0 seconds.
    (FORETELL_AFTER <= elapsed && Duration::from_secs(1) <= left).then_some(left)
}

/// As people say it: `3 s`, `12 min`, `1 h 5 min`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3600 => format!("{minutes} min"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug)]
enum Whole {
    /// Bytes of all files.
    Bytes(u64),
    /// What a server expected.
    Estimated(Estimate),
}

/// How far it is, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Unknown,
    Known(u64),
    /// It should be at its end.
    Overdue,
}

impl Whole {
    fn share(self, done: Progress) -> Share {
        let (done, whole) = match self {
            Self::Bytes(whole) => (done.bytes, whole),
            Self::Estimated(Estimate::Items(whole)) => (done.items, whole),
            Self::Estimated(Estimate::Bytes(whole)) => (done.content, whole),
        };
        if whole == 0 {
            return Share::Unknown;
        }
        let share = done.min(whole).saturating_mul(1000) / whole;
        match self {
            Self::Estimated(_) if NEARLY < share => Share::Overdue,
            _ => Share::Known(share),
        }
    }
}

/// How far the reading of backups is.
#[derive(Debug)]
pub(crate) struct Line {
    meter: Meter,
    whole: Option<Whole>,
    doing: &'static str,
    /// What files before this one had.
    before: Progress,
    here: Progress,
}

impl Line {
    /// A line for files that have so many bytes, if that is known.
    pub(crate) fn new(whole: Option<u64>) -> Self {
        Self::of(whole.map(Whole::Bytes))
    }

    /// A line for something whose length nobody knows for sure. Only people see the estimate: a plain line has figures that are right.
    pub(crate) fn estimated(whole: Option<Estimate>) -> Self {
        let line = Self::of(whole.map(Whole::Estimated));
        Self { whole: line.whole.filter(|_| line.meter.on_terminal), ..line }
    }

    fn of(whole: Option<Whole>) -> Self {
        Self {
            meter: Meter::new(),
            whole,
            doing: "",
            before: Progress::default(),
            here: Progress::default(),
        }
    }

    /// Shows what was done to how much. Counts that fall are those of another file.
    pub(crate) fn show(&mut self, doing: &'static str, here: Progress) {
        if self.doing != doing {
            *self = Self { doing, ..Self::of(self.whole) };
        }
        if here.bytes < self.here.bytes {
            self.before.bytes += self.here.bytes;
            self.before.content += self.here.content;
            self.before.items += self.here.items;
        }
        self.here = here;
        if !self.meter.is_due() {
            return;
        }
        let done = Progress {
            bytes: self.before.bytes + here.bytes,
            content: self.before.content + here.content,
            items: self.before.items + here.items,
        };
        let text = format!("{doing} {}", describe(done, self.meter.elapsed()));
        match self.whole.map_or(Share::Unknown, |whole| whole.share(done)) {
            Share::Unknown => self.meter.show(&Status { text, share: None }),
            Share::Known(share) => self.meter.show(&Status { text, share: Some(share) }),
            Share::Overdue => self.meter.show_overdue(&text),
        }
    }
}

fn describe(progress: Progress, took: Duration) -> String {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let a_second = |count: u64| count.saturating_mul(1000) / millis;
    format!(
        "{} ({}/s), {} entities ({}/s)",
        bytes(progress.bytes),
        bytes(a_second(progress.bytes)),
        progress.items,
        a_second(progress.items)
    )
}

/// Bytes as people read them.
pub(crate) fn bytes(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000 => return format!("{count} B"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", count / unit, count % unit * 10 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (52_428_800, "52.4 MB"),
            (3_990_000_000, "3.9 GB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
        let progress = Progress { bytes: 2_000_000, content: 0, items: 300 };
        let text = "2.0 MB (1.0 MB/s), 300 entities (150/s)";
        assert_eq!(describe(progress, Duration::from_secs(2)), text);
        for (seconds, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (125, "2 min"),
            (3_700, "1 h 1 min"),
            (90_000, "25 h 0 min"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn bars_fill_up() {
        let cases = [
            (0, "[....................]"),
            (1, "[#...................]"),
            (500, "[##########..........]"),
            (990, "[###################.]"),
            (1000, "[####################]"),
        ];
        for (share, expected) in cases {
            assert_eq!(bar(share), expected, "{share}");
        }
    }

    /// What an estimate says is never the end.
    #[test]
    fn estimates_do_not_end() {
        let done = Progress { bytes: 100, content: 500, items: 7 };
        let cases = [
            (Whole::Bytes(0), Share::Unknown),
            (Whole::Bytes(200), Share::Known(500)),
            (Whole::Bytes(100), Share::Known(1000)),
            (Whole::Estimated(Estimate::Items(0)), Share::Unknown),
            (Whole::Estimated(Estimate::Items(14)), Share::Known(500)),
            (Whole::Estimated(Estimate::Items(7)), Share::Overdue),
            (Whole::Estimated(Estimate::Items(3)), Share::Overdue),
            (Whole::Estimated(Estimate::Bytes(1000)), Share::Known(500)),
            (Whole::Estimated(Estimate::Bytes(504)), Share::Overdue),
            (Whole::Estimated(Estimate::Bytes(u64::MAX)), Share::Known(0)),
        ];
        for (whole, expected) in cases {
            assert_eq!(whole.share(done), expected, "{whole:?}");
        }
    }

    #[test]
    fn shares_only_rise() {
        let mut meter = Meter::new();
        let shown = [Some(840), Some(800), None, Some(839), Some(900)]
            .map(|share| meter.risen(&Status { text: String::new(), share }).share);
        assert_eq!(shown, [Some(840), Some(840), None, Some(840), Some(900)]);
    }

    #[test]
    fn the_rest_is_foretold() {
        let status = |share| Status { text: "7 rows".to_owned(), share };
        let ten = Duration::from_secs(10);
        let cases = [
            (None, 0, ten, "7 rows"),
            (Some(250), 0, ten, " 25 %, 7 rows, 30 s left"),
            (Some(750), 500, ten, " 75 %, 7 rows, 10 s left"),
            (Some(500), 500, ten, " 50 %, 7 rows"),
            (Some(500), 0, Duration::from_secs(1), " 50 %, 7 rows"),
            (Some(950), 0, ten, " 95 %, 7 rows"),
            (Some(1000), 0, ten, "100 %, 7 rows"),
        ];
        for (share, start, elapsed, expected) in cases {
            assert_eq!(line(&status(share), start, elapsed), expected, "{share:?}");
        }
    }
}
