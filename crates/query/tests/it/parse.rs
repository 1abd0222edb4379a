//! Parsing, for every text and every tree.

use crate::common;
use proptest::prelude::*;
use rowhouse_query::{Filter, FilterError, plan};
use rowhouse_types::limits;

/// Texts made of the pieces of the language, nearly right and not.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "eq",
        "ne",
        "lt",
        "and",
        "or",
        "not",
        "(",
        ")",
        "'x'",
        "'",
        "''",
        "1",
        "-1",
        "1.5e3",
        "5L",
        "-",
        "/",
        ",",
        "true",
        "null",
        "NaN",
        "-INF",
        "X'00'",
        "X'0'",
        "datetime'x'",
        "guid",
        " ",
        "  ",
        "é",
        "😀",
        "\u{0}",
        ".",
        "=",
        "in",
        "in ('x',1)",
        "add",
        "contains(",
        "contains(a,'x')",
        "substringof(",
        "tolower(",
        "length(a)",
        "startswith(PartitionKey,'x')",
    ]);
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.join(" ").replace("  ", ""))
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match Filter::parse(text) {
        Ok(filter) => {
            prop_assert_eq!(filter.is_none(), text.trim().is_empty());
            let ranges = plan(filter).ranges;
            prop_assert!(ranges.len() <= limits::PLAN_RANGES_MAX);
        }
        Err(FilterError::Syntax { position, text: quoted }) => {
            prop_assert!(position <= text.encode_utf16().count());
            prop_assert_eq!(quoted, text);
        }
        Err(_) => {}
    }
    // What the original understands means the same with the extensions; NaN is not even equal to itself.
    if !text.contains("NaN")
        && let Ok(original) = Filter::parse_original(text)
    {
        prop_assert_eq!(Filter::parse(text), Ok(original));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_pieces_are_answered(text in pieces()) {
        check(&text)?;
    }
}

proptest! {
    #[test]
    fn printed_and_parsed_again_it_is_the_same(expr in common::expr()) {
        let text = common::print(&expr);
        let parsed = Filter::parse(&text).unwrap().unwrap();
        prop_assert_eq!(parsed.root(), &expr, "{}", text);
    }
}
