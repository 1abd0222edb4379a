//! Which tree of the database a damaged page belongs to, and where in it.
//!
//! SQLite cannot say: it stops at the page. So the trees are walked here, from the pages that are
//! intact, in SQLite's own format (<https://sqlite.org/fileformat2.html>). Nothing here is trusted:
//! numbers that lead nowhere end a walk.

use super::{PAGE_BYTES, SUM_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a page that SQLite uses.
const USABLE: usize = PAGE_BYTES - SUM_BYTES;

/// Where a page is in its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The tree: a table or an index of the schema.
    pub(crate) tree: String,
    /// The first number of a key that everything on the page is at or behind, if there is one.
    pub(crate) from: Option<i64>,
    /// Likewise, the number that everything is at or before.
    pub(crate) to: Option<i64>,
}

/// A kind of page in a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    InteriorIndex = 2,
    InteriorTable = 5,
    LeafIndex = 10,
    LeafTable = 13,
}

/// Finds the damaged pages in the trees, given by name and root. `read` returns a page of the file.
pub(crate) fn places(
    trees: &[(String, u32)],
    damaged: &BTreeSet<u32>,
    read: &mut dyn FnMut(u32) -> Option<Vec<u8>>,
) -> BTreeMap<u32, Place> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (tree, root) in trees {
        let mut left = vec![(*root, None, None)];
        while let Some((number, from, to)) = left.pop() {
            if damaged.contains(&number) {
                found.insert(number, Place { tree: tree.clone(), from, to });
                continue;
            }
            if !seen.insert(number) {
                continue;
            }
            let Some(page) = read(number) else { continue };
            let Some((kind, cells, last)) = cells(number, &page) else { continue };
            let mut lower = from;
            for cell in cells {
                let Some(cell) = parse(kind, &page, cell) else { continue };
                if let Some(child) = cell.child {
                    left.push((child, lower, cell.key));
                    lower = cell.key;
                }
                if let Some(first) = cell.overflow {
                    let place = Place { tree: tree.clone(), from: cell.key, to: cell.key };
                    chain(first, damaged, &mut seen, read, place, &mut found);
                }
            }
            if let Some(last) = last {
                left.push((last, lower, to));
            }
        }
    }
    found
}

/// Follows the pages of a cell that is too long for its own.
fn chain(
    first: u32,
    damaged: &BTreeSet<u32>,
    seen: &mut BTreeSet<u32>,
    read: &mut dyn FnMut(u32) -> Option<Vec<u8>>,
    place: Place,
    found: &mut BTreeMap<u32, Place>,
) {
    let mut number = first;
    while number != 0 && seen.insert(number) {
        if damaged.contains(&number) {
            found.insert(number, place);
            return;
        }
        let Some(next) = read(number).as_deref().and_then(|page| u32_at(page, 0)) else { return };
        number = next;
    }
}

/// The kind of a page, where its cells begin, and the page behind the last of them.
fn cells(number: u32, page: &[u8]) -> Option<(Kind, Vec<usize>, Option<u32>)> {
    let header = if number == 1 { 100 } else { 0 };
    let kind = match *page.get(header)? {
        2 => Kind::InteriorIndex,
        5 => Kind::InteriorTable,
        10 => Kind::LeafIndex,
        13 => Kind::LeafTable,
        _ => return None,
    };
    let is_interior = matches!(kind, Kind::InteriorIndex | Kind::InteriorTable);
    let count = usize::from(u16_at(page, header + 3)?);
    let pointers = header + if is_interior { 12 } else { 8 };
    let cells = (0..count).filter_map(|n| u16_at(page, pointers + 2 * n)).map(usize::from);
    let last = if is_interior { u32_at(page, header + 8) } else { None };
    Some((kind, cells.collect(), last))
}

struct Cell {
    /// The page before this cell.
    child: Option<u32>,
    /// The number that its key begins with: of a table the whole key.
    key: Option<i64>,
    /// The first of the pages with what does not fit here.
    overflow: Option<u32>,
}

fn parse(kind: Kind, page: &[u8], cell: usize) -> Option<Cell> {
    let mut at = cell;
    let child = match kind {
        Kind::InteriorIndex | Kind::InteriorTable => {
            at += 4;
            Some(u32_at(page, cell)?)
        }
        Kind::LeafIndex | Kind::LeafTable => None,
    };
    if kind == Kind::InteriorTable {
        let key = varint(page, &mut at)?.cast_signed();
        return Some(Cell { child, key: Some(key), overflow: None });
    }
    let length = usize::try_from(varint(page, &mut at)?).ok()?;
    let row =
        if kind == Kind::LeafTable { Some(varint(page, &mut at)?.cast_signed()) } else { None };
    let most = if kind == Kind::LeafTable { USABLE - 35 } else { (USABLE - 12) * 64 / 255 - 23 };
    let least = (USABLE - 12) * 32 / 255 - 23;
    let local = if length <= most {
        length
    } else {
        let fits = least + (length - least) % (USABLE - 4);
        if fits <= most { fits } else { least }
    };
    let overflow = if length > most { u32_at(page, at + local) } else { None };
    let key = row.or_else(|| first_number(page, at));
    Some(Cell { child, key, overflow })
}

/// The first column of a record, if it is a whole number.
fn first_number(page: &[u8], record: usize) -> Option<i64> {
    let mut at = record;
    let header = usize::try_from(varint(page, &mut at)?).ok()?;
    let bytes = match varint(page, &mut at)? {
        8 => return Some(0),
        9 => return Some(1),
        kind @ 1..=4 => usize::try_from(kind).ok()?,
        5 => 6,
        6 => 8,
        _ => return None,
    };
    let value = page.get(record + header..record + header + bytes)?;
    let negative = value.first().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if negative { -1 } else { 0 };
    Some(value.iter().fold(sign, |number: i64, byte| number << 8 | i64::from(*byte)))
}

/// SQLite's numbers of one to nine bytes.
fn varint(page: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for nth in 0..9 {
        let byte = *page.get(*at)?;
        *at += 1;
        if nth == 8 {
            return Some(number << 8 | u64::from(byte));
        }
        number = number << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn u16_at(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(page.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(page.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever stands in a page, looking at it ends.
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES), kind in 0_usize..4, number in 1_u32..4) {
            let mut page = bytes;
            page.resize(PAGE_BYTES, 0);
            let header = if number == 1 { 100 } else { 0 };
            page[header] = [2, 5, 10, 13][kind];
            let trees = [("t".to_owned(), number)];
            let damaged = BTreeSet::from([7]);
            let found = places(&trees, &damaged, &mut |n| (n < 20).then(|| page.clone()));
            prop_assert!(found.len() <= 1);
        }
    }
}
