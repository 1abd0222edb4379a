//! The shape of a filter: what it asks, without the values that it asks for.
//!
//! Values are user data, and queries that differ in them alone are the same query to whoever looks for the costly ones.

use rowhouse_query::{Call, Comparison, Expr, Filter, Test, Text};
use rowhouse_types::Value;
use std::collections::HashSet;

/// Longest shape, in bytes; what is longer is cut.
const BYTES_MAX: usize = 512;

/// The filter with `?` in place of every literal. Conditions that differ in literals alone are told once.
pub(crate) fn shape(filter: &Filter) -> String {
    let mut text = written(filter.root(), false);
    if text.len() > BYTES_MAX {
        text.truncate(text.floor_char_boundary(BYTES_MAX));
        text.push_str("...");
    }
    text
}

fn written(expr: &Expr, nested: bool) -> String {
    match expr {
        Expr::And(parts) => joined(parts, " and ", nested),
        Expr::Or(parts) => joined(parts, " or ", nested),
        Expr::Not(part) => format!("not ({})", written(part, false)),
        Expr::Compare { property, comparison, .. } => format!("{property} {} ?", word(*comparison)),
        Expr::Call { call: test @ Call::Test { .. }, comparison, literal }
            if *comparison == Comparison::Equal && *literal == Value::Boolean(true) =>
        {
            called(test)
        }
        Expr::Call { call, comparison, .. } => format!("{} {} ?", called(call), word(*comparison)),
        Expr::Property(name) => name.to_string(),
        Expr::Constant(value) => value.to_string(),
    }
}

fn joined(parts: &[Expr], by: &str, nested: bool) -> String {
    let all: Vec<String> = parts.iter().map(|part| written(part, true)).collect();
    let (mut seen, mut repeated) = (HashSet::new(), HashSet::new());
    for text in &all {
        if !seen.insert(text.as_str()) {
            repeated.insert(text.as_str());
        }
    }
    let mut told = HashSet::new();
    let texts: Vec<String> = all
        .iter()
        .filter(|text| told.insert(text.as_str()))
        .map(|text| match text.strip_suffix(" eq ?") {
            Some(side) if by == " or " && repeated.contains(text.as_str()) => {
                format!("{side} in (?)")
            }
            _ => text.clone(),
        })
        .collect();
    let text = texts.join(by);
    if nested && texts.len() > 1 { format!("({text})") } else { text }
}

fn called(call: &Call) -> String {
    match call {
        Call::Text(text) => argument(text),
        Call::Length(text) => format!("length({})", argument(text)),
        Call::Test { test, text, part } => {
            let name = match test {
                Test::StartsWith => "startswith",
                Test::EndsWith => "endswith",
                Test::Contains => "contains",
            };
            format!("{name}({},{})", argument(text), argument(part))
        }
    }
}

fn argument(text: &Text) -> String {
    match text {
        Text::Property(name) => name.to_string(),
        Text::Literal(_) => "?".to_owned(),
        Text::Lower(inner) => format!("tolower({})", argument(inner)),
        Text::Upper(inner) => format!("toupper({})", argument(inner)),
    }
}

fn word(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "eq",
        Comparison::NotEqual => "ne",
        Comparison::LessThan => "lt",
        Comparison::LessThanOrEqual => "le",
        Comparison::GreaterThan => "gt",
        Comparison::GreaterThanOrEqual => "ge",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(filter: &str) -> String {
        shape(&Filter::parse(filter).unwrap().unwrap())
    }

    #[test]
    fn shapes_have_no_literals() {
        let cases = [
            ("Email eq 'secret'", "Email eq ?"),
            ("Age gt 5 and (City eq 'a' or Zip eq 'b')", "Age gt ? and (City eq ? or Zip eq ?)"),
            ("City in ('a','b','c')", "City in (?)"),
            ("Age gt 5 and City in ('a','b')", "Age gt ? and City in (?)"),
            ("Age gt 5 and Age gt 6", "Age gt ?"),
            ("not (startswith(Name,'x'))", "not (startswith(Name,?))"),
            ("contains(tolower(Name),'x') eq false", "contains(tolower(Name),?) eq ?"),
            ("length(Name) ge 3 or Active", "length(Name) ge ? or Active"),
        ];
        for (filter, expected) in cases {
            assert_eq!(of(filter), expected);
        }
    }

    #[test]
    fn long_shapes_are_cut() {
        let parts: Vec<String> = (0..100).map(|n| format!("Größe{n} eq 'secret'")).collect();
        let text = of(&parts.join(" or "));
        assert!(text.len() <= BYTES_MAX + 3 && text.ends_with("...") && !text.contains("secret"));
    }
}
