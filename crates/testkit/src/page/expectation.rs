//! Whether a command printed what a page shows.
//!
//! Times and rates differ from run to run, so any does where one is shown. `...` stands for anything.

/// Whether the lines are what is shown: all of them, or so far, if more may follow.
pub fn fits(shown: &[String], lines: &[&str], more: bool) -> bool {
    let Some((pattern, rest)) = shown.split_first() else {
        return more || lines.is_empty();
    };
    if pattern == "..." {
        return (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..], more));
    }
    match lines.split_first() {
        Some((line, lines)) => line_fits(pattern, line) && fits(rest, lines, more),
        None => false,
    }
}

/// Whether the parts between `...` are in the line, in order, and nothing else is at its ends.
fn line_fits(pattern: &str, line: &str) -> bool {
    let (pattern, line) = (settled(pattern), settled(line));
    let parts: Vec<&str> = pattern.split("...").collect();
    let (first, parts) = parts.split_first().expect("there is one at least");
    let Some((last, parts)) = parts.split_last() else { return pattern == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The line without what differs from run to run: times and rates.
fn settled(line: &str) -> String {
    // CSV has line ends of its own.
    let line = line.trim_end_matches('\r');
    let words = line.split_inclusive(|c: char| ",\" ".contains(c)).map(|word| {
        let bare = word.trim_end_matches([',', '"', ' ']);
        if is_time(bare) { word.replace(bare, "TIME") } else { word.to_owned() }
    });
    let text: String = words.collect();
    let pieces: Vec<_> = text.split(" a second").collect();
    let (last, rates) = pieces.split_last().expect("there is one at least");
    let rates = rates.iter().map(|piece| piece.trim_end_matches(|c: char| c.is_ascii_digit()));
    rates.map(|piece| format!("{piece}N a second")).chain([(*last).to_owned()]).collect()
}

fn is_time(word: &str) -> bool {
    word.starts_with("20") && word.contains('T') && word.ends_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_lines() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("a ... b", "a x b", true),
            ("a ...", "a x", true),
            ("a ... b", "a x c", false),
            ("a ... b ...", "a x b y", true),
            ("...", "", true),
            ("at 2020-01-02T03:04:05Z, all", "at 2026-11-12T13:14:15.1234567Z, all", true),
            ("at 2020-01-02T03:04:05Z", "at noon", false),
            ("214 a second.", "9 a second.", true),
            ("214 a second", "many a second", false),
        ];
        for (pattern, line, expected) in cases {
            assert_eq!(line_fits(pattern, line), expected, "{pattern:?} {line:?}");
        }
    }

    #[test]
    fn dots_on_a_line_of_their_own_are_any_lines() {
        let shown: Vec<String> = ["a", "...", "d"].map(str::to_owned).to_vec();
        assert!(fits(&shown, &["a", "d"], false));
        assert!(fits(&shown, &["a", "b", "c", "d"], false));
        assert!(!fits(&shown, &["a", "b", "c"], false));
        assert!(!fits(&shown, &["a", "d", "e"], false));
        assert!(fits(&shown, &["a", "d", "e"], true), "more may follow");
        assert!(fits(&[], &[], false) && !fits(&[], &["a"], false));
    }
}
