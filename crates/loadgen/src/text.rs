//! Figures and tables for people.

/// A table of text: the first line is the heading, columns are aligned.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The columns that hold words, and so start at the left.
    words: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with one column of words, and figures in the others.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { words: vec![0], rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// A table of words only.
    pub(crate) fn of_words(heading: &[&str]) -> Self {
        Self { words: (0..heading.len()).collect(), ..Self::new(heading) }
    }

    /// The same table with words in these columns too.
    pub(crate) fn with_words(mut self, columns: &[usize]) -> Self {
        self.words.extend_from_slice(columns);
        self
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// For a terminal: words to the left, figures to the right.
    pub(crate) fn plain(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                let left = self.words.contains(&column);
                let parts = if left { [gap, cell, &pad] } else { [gap, &pad, cell] };
                line.extend(parts);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// As a table of Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                let line = |column| if self.words.contains(&column) { "|---" } else { "|--:" };
                out.extend((0..row.len()).map(line));
                out.push_str("|\n");
            }
        }
        out
    }
}

/// Three significant digits, with commas in large numbers: `0.0123`, `4.56`, `78.9`, `12,300`.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor();
    if exponent < 2.0 {
        let decimals = (2.0 - exponent).clamp(0.0, 6.0) as usize;
        let text = format!("{value:.decimals$}");
        // 9.999 rounds to a number with one digit more before the point.
        return text;
    }
    let unit = 10_f64.powf(exponent - 2.0);
    count(((value / unit).round() * unit).round().max(0.0) as u64)
}

/// A whole number with commas.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in MB, as reports give memory and disks.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{} MB", figure(bytes as f64 / 1e6))
}

/// Appends text as the value of a parameter of a URL.
pub(crate) fn push_encoded(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let cases = [
            (0.0, "0"),
            (0.012_34, "0.0123"),
            (4.561, "4.56"),
            (78.94, "78.9"),
            (999.9, "1,000"),
            (1000.0, "1,000"),
            (12_345.6, "12,300"),
            (1_234_567.0, "1,230,000"),
            (f64::NAN, "-"),
        ];
        for (value, expected) in cases {
            assert_eq!(figure(value), expected, "{value}");
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(0), "0");
    }

    #[test]
    fn tables() {
        let mut table = Table::new(&["what", "n"]);
        table.push(vec!["a".to_owned(), "10".to_owned()]);
        assert_eq!(table.plain(), "what   n\na     10\n");
        assert_eq!(table.markdown(), "| what | n |\n|---|--:|\n| a | 10 |\n");
    }
}
