//! Tables for people: aligned, and cut to the width of the terminal.

use std::io::IsTerminal as _;

/// Stands for what was cut off.
const CUT: char = '…';
/// Between two columns.
const GAP: usize = 2;
/// A column is not cut below that.
const WIDTH_MIN: usize = 8;

/// The width of the terminal that standard output is, in characters; none if it is no terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(&out)
        && 0 < size.ws_col
    {
        return Some(size.ws_col.into());
    }
    Some(80)
}

/// A table, and how many columns at the end do not fit into the width.
pub(crate) fn fitted(
    head: &[String],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> (String, usize) {
    let natural = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| shown(cell));
        cells.chain([shown(&head[column])]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..head.len()).map(natural).collect();
    let mut left_out = 0;
    if let Some(width) = width {
        loop {
            let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            if total <= width {
                break;
            }
            // The widest one gives way, until all are narrow.
            let widest = widths.iter_mut().max().filter(|widest| WIDTH_MIN < **widest);
            if let Some(widest) = widest {
                *widest -= (total - width).min(*widest - WIDTH_MIN).div_ceil(2).max(1);
            } else if 1 < widths.len() {
                widths.pop();
                left_out += 1;
            } else {
                break;
            }
        }
    }
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(head);
    for row in rows {
        text.push_str(&line(row));
    }
    (text, left_out)
}

fn shown(cell: &str) -> usize {
    cell.chars().count()
}

fn pad(cell: &str, width: usize) -> String {
    let long = shown(cell);
    if long <= width {
        return format!("{cell:width$}");
    }
    cell.chars().take(width.saturating_sub(1)).chain([CUT]).collect()
}

/// A text in which nothing moves the cursor or breaks the line.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Also marks that change the direction of what follows.
        if c.is_control()
            || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn columns_are_cut_to_the_terminal() {
        let head = texts(&["Key", "Text", "Number"]);
        let rows =
            [texts(&["a", &"x".repeat(50), "1"]), texts(&["b", "short", "2"]), texts(&["c"])];
        let (whole, left_out) = fitted(&head, &rows, None);
        assert!(whole.contains(&"x".repeat(50)) && left_out == 0, "{whole}");
        let (cut, left_out) = fitted(&head, &rows, Some(40));
        assert!(cut.lines().all(|line| line.chars().count() <= 40), "{cut}");
        assert!(cut.contains("x…") && cut.contains("short") && left_out == 0, "{cut}");
        assert_eq!(cut.lines().next().unwrap().find("Text"), Some(5));
        let many = vec!["column".to_owned(); 20];
        let (cut, left_out) = fitted(&many, &[], Some(40));
        assert_eq!((cut.lines().next().unwrap().len(), left_out), (38, 15));
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202E}é"), "a\\u{1b}[2Jb\\nc\\u{202e}é");
    }
}
