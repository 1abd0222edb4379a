//! The filters that cost a server the most, each as long as it accepts.

use crate::text::push_encoded;
use rowhouse_types::limits::FILTER_BYTES_MAX;

/// Functions of a filter of tables; `tolower` and `contains` count as one each.
const FUNCTIONS: usize = 120;
/// Comparisons of a filter of tables, beside those of functions.
const COMPARISONS: usize = 900;
/// Properties that are indexed, `P0` and so on.
pub(super) const PROPERTIES: usize = 64;
/// Longest filter in a URL, in bytes: the target of a request has 64 KiB, and a signature needs a
/// part of it.
const ENCODED_BYTES_MAX: usize = 62 * 1024;

/// A filter that no table satisfies and every part of which is evaluated on every table.
pub(super) fn of_tables() -> String {
    let functions = (0..FUNCTIONS / 2).map(|n| format!("contains(tolower(TableName),'q{n}')"));
    let comparisons = (0..COMPARISONS).map(|n| format!("TableName eq 'T000{n}'"));
    functions.chain(comparisons).collect::<Vec<_>>().join(" or ")
}

/// Filters that name as many indexed properties and values as they can, in forms that the planner
/// treats differently.
pub(super) fn of_indexes() -> [String; 4] {
    [
        longest(" or ", |n| format!("P{n} eq {n}")),
        longest(" or ", |n| format!("P{} eq {n}", n % PROPERTIES)),
        longest(" and ", |n| format!("P{} ge {n}", n % PROPERTIES)),
        longest(" or ", |n| format!("(P{} eq {n} and P1 gt {n})", n % PROPERTIES)),
    ]
}

/// The filter as the value of a parameter of a URL.
pub(super) fn encoded(filter: &str) -> String {
    let mut out = Vec::new();
    push_encoded(&mut out, filter.as_bytes());
    String::from_utf8(out).expect("an encoded value is ASCII")
}

/// As many parts as fit, joined by a word.
fn longest(word: &str, part: impl Fn(usize) -> String) -> String {
    let mut filter = part(0);
    let mut bytes = encoded(&filter).len();
    for n in 1.. {
        let next = format!("{word}{}", part(n));
        bytes += encoded(&next).len();
        if filter.len() + next.len() > FILTER_BYTES_MAX || bytes > ENCODED_BYTES_MAX {
            break;
        }
        filter += &next;
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_tables_has_what_it_says() {
        let filter = of_tables();
        assert_eq!(filter.matches("contains(").count() * 2, FUNCTIONS);
        assert_eq!(filter.matches(" eq ").count(), COMPARISONS);
    }

    #[test]
    fn filters_are_long_and_not_too_long() {
        for filter in of_indexes().into_iter().chain([of_tables()]) {
            let (plain, encoded) = (filter.len(), encoded(&filter).len());
            let start = &filter[..40];
            assert!(plain <= FILTER_BYTES_MAX && encoded <= ENCODED_BYTES_MAX, "{start}");
            assert!(plain > FILTER_BYTES_MAX * 7 / 10, "{start}: {plain} bytes");
        }
    }
}
