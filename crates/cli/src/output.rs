//! What goes to standard output: text for people, JSON for programs.

use std::io::Write as _;

/// Prints, and does not mind if nobody reads: `rowhouse account list | head` is no error.
pub(crate) fn print(text: &str) {
    let _ = try_print(text);
}

/// Prints, and says whether somebody reads.
pub(crate) fn try_print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// `1 table`, `2 tables`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Lines of columns, each as wide as its longest cell. Columns whose head begins with a space hold numbers, which stand
/// to the right.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let right: Vec<bool> = head.iter().map(|name| name.starts_with(' ')).collect();
    let head: Vec<&str> = head.iter().map(|name| name.trim_start()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let pad = |(column, cell): (usize, &&str)| {
            let width = widths[column];
            if right[column] { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        };
        let padded: Vec<String> = cells.iter().enumerate().map(pad).collect();
        format!("{}\n", padded.join("   ").trim_end())
    };
    let mut text = line(head.clone());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows =
            [vec!["shop".to_owned(), "today".to_owned()], vec!["a".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["NAME", "CREATED"], &rows), "NAME   CREATED\nshop   today\na      b\n");
        assert_eq!(table(&["NAME"], &[]), "NAME\n");
        let rows = [vec!["5".to_owned(), "x".to_owned()], vec!["12".to_owned(), "y".to_owned()]];
        assert_eq!(table(&[" N", "NAME"], &rows), " N   NAME\n 5   x\n12   y\n");
    }
}
