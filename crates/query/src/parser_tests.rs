//! Tables of filters and what becomes of them.

use super::*;
use crate::call::{Test, Text};
use FilterError::{NotImplemented, NullLiteral, NullOrder, TooDeep, TooLong};
use rowhouse_types::EdmType;

fn parse(text: &str) -> Result<Option<Expr>, FilterError> {
    super::parse(text, Dialect::Extended)
}

fn parse_original(text: &str) -> Result<Option<Expr>, FilterError> {
    super::parse(text, Dialect::Original)
}

fn compare(property: &str, comparison: Comparison, literal: Value) -> Expr {
    Expr::Compare { property: property.into(), comparison, literal }
}

fn eq(property: &str, n: i32) -> Expr {
    compare(property, Comparison::Equal, Value::Int32(n))
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn bare(name: &str) -> Expr {
    Expr::Property(name.into())
}

fn not(part: Expr) -> Expr {
    Expr::Not(Box::new(part))
}

fn check(cases: Vec<(&str, Expr)>) {
    for (filter, expected) in cases {
        let parsed = parse(filter).unwrap_or_else(|e| panic!("{filter}: {e}"));
        assert_eq!(parsed, Some(expected), "{filter}");
        assert_eq!(parse_original(filter), Ok(parsed), "{filter}");
    }
}

#[test]
fn blank_is_no_filter() {
    for filter in ["", " ", "\t\r\n  "] {
        assert_eq!(parse(filter), Ok(None), "{filter:?}");
    }
}

#[test]
fn comparisons() {
    use Comparison::{Equal, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, NotEqual};
    check(vec![
        ("a eq 1", compare("a", Equal, Value::Int32(1))),
        ("a ne 1", compare("a", NotEqual, Value::Int32(1))),
        ("a lt 1L", compare("a", LessThan, Value::Int64(1))),
        ("a le 1.5", compare("a", LessThanOrEqual, Value::Double(1.5))),
        ("a gt 'x'", compare("a", GreaterThan, text("x"))),
        ("a ge true", compare("a", GreaterThanOrEqual, Value::Boolean(true))),
        ("'x' eq PartitionKey", compare("PartitionKey", Equal, text("x"))),
        ("1 ne a", compare("a", NotEqual, Value::Int32(1))),
        ("5 lt age", compare("age", GreaterThan, Value::Int32(5))),
        ("5 le age", compare("age", GreaterThanOrEqual, Value::Int32(5))),
        ("5 gt age", compare("age", LessThan, Value::Int32(5))),
        ("5 ge age", compare("age", LessThanOrEqual, Value::Int32(5))),
        ("true eq a", compare("a", Equal, Value::Boolean(true))),
        ("a eq ''", compare("a", Equal, text(""))),
        ("a eq 'O''Brien'", compare("a", Equal, text("O'Brien"))),
        ("a eq ' and ('", compare("a", Equal, text(" and ("))),
        ("a eq '日本 😀'", compare("a", Equal, text("日本 😀"))),
        ("größe eq 1", eq("größe", 1)),
        ("_x1 eq 1", eq("_x1", 1)),
        ("a eq X'00ff'", compare("a", Equal, Value::Binary([0, 255].into()))),
        ("a eq -INF", compare("a", Equal, Value::Double(f64::NEG_INFINITY))),
        ("a eq INF", compare("a", Equal, Value::Double(f64::INFINITY))),
        ("INF eq a", compare("a", Equal, Value::Double(f64::INFINITY))),
        ("a eq True", compare("a", Equal, Value::Boolean(true))),
        ("FALSE ne a", compare("a", NotEqual, Value::Boolean(false))),
    ]);
    let Ok(Some(Expr::Compare { literal: Value::Double(n), .. })) = parse("a lt NaN") else {
        panic!("NaN is a Double");
    };
    assert!(n.is_nan());
}

#[test]
fn connectives() {
    let (a, b, c) = (|| eq("a", 1), || eq("b", 2), || eq("c", 3));
    check(vec![
        ("a eq 1 or b eq 2 and c eq 3", Expr::Or(vec![a(), Expr::And(vec![b(), c()])])),
        ("a eq 1 and b eq 2 or c eq 3", Expr::Or(vec![Expr::And(vec![a(), b()]), c()])),
        ("(a eq 1 or b eq 2) and c eq 3", Expr::And(vec![Expr::Or(vec![a(), b()]), c()])),
        ("((a eq 1) or (b eq 2)) or (c eq 3)", Expr::Or(vec![a(), b(), c()])),
        ("a eq 1 and (b eq 2 and c eq 3)", Expr::And(vec![a(), b(), c()])),
        ("(a eq 1)or(b eq 2)", Expr::Or(vec![a(), b()])),
        ("a eq 1 and(b eq 2)", Expr::And(vec![a(), b()])),
        ("a eq '1'or b eq 2", { Expr::Or(vec![compare("a", Comparison::Equal, text("1")), b()]) }),
        ("not(a eq 1)", not(a())),
        ("not a eq 1", not(a())),
        ("not a eq 1 and b eq 2", Expr::And(vec![not(a()), b()])),
        ("not (a eq 1 and b eq 2)", not(Expr::And(vec![a(), b()]))),
        ("not not (a eq 1)", not(not(a()))),
        ("  ( ( a eq 1 ) )  ", a()),
        ("Flag", bare("Flag")),
        ("not Flag", not(bare("Flag"))),
        ("(Flag) and a eq 1", Expr::And(vec![bare("Flag"), a()])),
        ("true", Expr::Constant(true)),
        ("false or a eq 1", Expr::Or(vec![Expr::Constant(false), a()])),
        ("not (False)", not(Expr::Constant(false))),
    ]);
}

#[test]
fn names_that_look_like_something_else() {
    check(vec![
        ("eq eq 1", eq("eq", 1)),
        ("and eq 1 and or eq 2", Expr::And(vec![eq("and", 1), eq("or", 2)])),
        ("not eq 1", eq("not", 1)),
        ("not not eq 1", not(eq("not", 1))),
        ("not eq eq 1", not(eq("eq", 1))),
        ("not eq true", compare("not", Comparison::Equal, Value::Boolean(true))),
        ("datetime eq 1", eq("datetime", 1)),
        ("X eq X'00'", compare("X", Comparison::Equal, Value::Binary([0].into()))),
        ("guid and binary", Expr::And(vec![bare("guid"), bare("binary")])),
        ("add eq 1 or in eq 2", Expr::Or(vec![eq("add", 1), eq("in", 2)])),
        ("True eq 1", eq("True", 1)),
        ("NaN eq 1", eq("NaN", 1)),
        ("INF", bare("INF")),
        ("AND eq 1", eq("AND", 1)),
        ("startswith eq 1", eq("startswith", 1)),
        ("startswith", bare("startswith")),
    ]);
}

#[test]
fn syntax_errors_name_the_end_of_the_offending_token() {
    let cases = [
        ("aaa bbb ccc", 7),
        ("property1 eq 1'invalid'", 23),
        ("a eq", 4),
        ("a eq ", 5),
        ("eq 1", 2),
        ("a eq 1 b", 8),
        ("a eq 1 and", 10),
        ("a eq 1 and and b", 14),
        ("a eq and b eq 1", 8),
        ("(a eq 1", 7),
        ("a eq 1)", 7),
        ("()", 2),
        ("a eq 'open", 10),
        ("a eq 'é😀' 'x'", 14),
        ("a = 1", 3),
        ("a EQ 1", 4),
        ("a eq 1 AND b eq 2", 10),
        ("a eq 5or b eq 6", 8),
        ("a eq 99999999999999999999", 25),
        ("a eq guid'x'", 12),
        ("5", 1),
        ("'a' and b", 3),
        ("not", 3),
        ("a😀 eq 1", 3),
        ("\"a\" eq 1", 1),
    ];
    for (filter, position) in cases {
        let expected = FilterError::Syntax { position, text: filter.to_owned() };
        assert_eq!(parse(filter), Err(expected.clone()), "{filter}");
        assert_eq!(parse_original(filter), Err(expected), "{filter}");
    }
    let message = parse("aaa bbb ccc").unwrap_err().to_string();
    assert_eq!(message, "Syntax error at position 7 in 'aaa bbb ccc'.");
    let message = parse("property1 eq 1'invalid'").unwrap_err().to_string();
    assert_eq!(message, "Syntax error at position 23 in 'property1 eq 1'invalid''.");
}

#[test]
fn what_is_not_offered() {
    let cases = [
        "1 eq 2",
        "'a' eq 'a'",
        "true eq true",
        "a eq b",
        "PartitionKey eq abc",
        "null eq null",
        "null eq 1",
        "a add 1 eq 2",
        "1 add a eq 2",
        "a eq 1 add 2",
        "-a eq 1",
        "a-b eq 1",
        "a eq datetime 'x'",
        "a/b eq 1",
        "a/any(x: x eq 1)",
        "a eq (1)",
        "(a) eq 1",
        "(a eq 1) eq true",
        "a eq 1 eq true",
        "a eq 1, b eq 2",
        "a, b",
        "a eq length(b)",
        "length(a) eq length(b)",
        "length(a) add 1 eq 2",
        "tolower(a/b) eq 'x'",
        "tolower(-a) eq 'x'",
        "indexof(a,'x') eq 1",
        "concat(tolower(a),'x') eq 'ax'",
        "StartsWith(a,'x')",
        "contains(trim(a),'x')",
        "contains((a),'x')",
        "contains(a,'x') eq b",
        "contains(a,'x') eq true eq true",
        "length('abc') eq 3",
        "a in (b)",
        "a in ('x') eq true",
        "a in ('x', length(b))",
        "a in 'x'",
        "a in",
        "'x' in ('x')",
        "a in ('x') in ('y')",
    ];
    for filter in cases {
        assert_eq!(parse(filter), Err(NotImplemented), "{filter}");
        assert_eq!(parse_original(filter), Err(NotImplemented), "{filter}");
    }
}

/// What the extensions are answered with where there are none.
#[test]
fn the_original_knows_no_extension() {
    let cases = [
        "startswith(a,'x')",
        "startswith (a, 'x') eq true",
        "not startswith(a,'x')",
        "b eq 1 and endswith(a,'x')",
        "(contains(a,'x'))",
        "substringof('x',a)",
        "tolower(a) eq 'x'",
        "'x' eq toupper(a)",
        "length(a) gt 3",
        "length(",
        "contains()",
        "a in ('x','y')",
        "a in ()",
        "a in (",
    ];
    for filter in cases {
        assert_eq!(parse_original(filter), Err(NotImplemented), "{filter}");
    }
}

fn property(name: &str) -> Text {
    Text::Property(name.into())
}

fn quoted(text: &str) -> Text {
    Text::Literal(text.into())
}

fn called(call: Call, comparison: Comparison, literal: Value) -> Expr {
    Expr::Call { call, comparison, literal }
}

fn look(test: Test, whole: Text, part: Text) -> Call {
    Call::Test { test, text: whole, part }
}

fn check_extended(cases: Vec<(&str, Expr)>) {
    for (filter, expected) in cases {
        let parsed = parse(filter).unwrap_or_else(|e| panic!("{filter}: {e}"));
        assert_eq!(parsed, Some(expected), "{filter}");
    }
}

#[test]
fn functions() {
    use Comparison::{Equal, GreaterThan, LessThan, NotEqual};
    let yes = |call| called(call, Equal, Value::Boolean(true));
    let starts = || look(Test::StartsWith, property("a"), quoted("x"));
    let lower = |inner| Text::Lower(Box::new(inner));
    let upper = |inner| Text::Upper(Box::new(inner));
    check_extended(vec![
        ("startswith(a,'x')", yes(starts())),
        ("startswith ( a , 'x' )", yes(starts())),
        ("startswith(a,'x') eq true", yes(starts())),
        ("true eq startswith(a,'x')", yes(starts())),
        ("startswith(a,'x') eq True", yes(starts())),
        ("startswith(a,'x') eq false", called(starts(), Equal, Value::Boolean(false))),
        ("startswith(a,'x') ne true", called(starts(), NotEqual, Value::Boolean(true))),
        ("not startswith(a,'x')", not(yes(starts()))),
        ("not(startswith(a,'x'))and b eq 1", Expr::And(vec![not(yes(starts())), eq("b", 1)])),
        ("endswith(a,b)", yes(look(Test::EndsWith, property("a"), property("b")))),
        ("contains('x',a)", yes(look(Test::Contains, quoted("x"), property("a")))),
        ("substringof('x',a)", yes(look(Test::Contains, property("a"), quoted("x")))),
        (
            "contains(tolower(Name),'O''x')",
            yes(look(Test::Contains, lower(property("Name")), quoted("O'x"))),
        ),
        (
            "contains(tolower(a),tolower('XÉ'))",
            yes(look(Test::Contains, lower(property("a")), quoted("xé"))),
        ),
        ("tolower(a) eq 'x'", called(Call::Text(lower(property("a"))), Equal, text("x"))),
        ("'x' lt toupper(a)", called(Call::Text(upper(property("a"))), GreaterThan, text("x"))),
        (
            "toupper(tolower(a)) eq toupper('x')",
            called(Call::Text(upper(lower(property("a")))), Equal, text("X")),
        ),
        ("a eq toupper('x')", compare("a", Equal, text("X"))),
        ("length(a) lt 3", called(Call::Length(property("a")), LessThan, Value::Int32(3))),
        ("3L gt length(a)", called(Call::Length(property("a")), LessThan, Value::Int64(3))),
        ("length(a) lt 2.5", called(Call::Length(property("a")), LessThan, Value::Double(2.5))),
        ("length(a) eq length('é😀')", {
            called(Call::Length(property("a")), Equal, Value::Int32(3))
        }),
        (
            "length(tolower(length)) eq 0",
            called(Call::Length(lower(property("length"))), Equal, Value::Int32(0)),
        ),
        ("contains('abc','b')", Expr::Constant(true)),
        ("startswith('abc','b') or a eq 1", Expr::Or(vec![Expr::Constant(false), eq("a", 1)])),
        ("a eq contains('abc','b')", compare("a", Equal, Value::Boolean(true))),
    ]);
}

#[test]
fn lists() {
    let is = |literal| compare("a", Comparison::Equal, literal);
    let lower = |text_of: &str| {
        let call = Call::Text(Text::Lower(Box::new(property("a"))));
        called(call, Comparison::Equal, text(text_of))
    };
    check_extended(vec![
        ("a in ('x')", is(text("x"))),
        ("a in ('x','y')", Expr::Or(vec![is(text("x")), is(text("y"))])),
        (
            "a in(1, 2L ,True)",
            Expr::Or(vec![is(Value::Int32(1)), is(Value::Int64(2)), is(Value::Boolean(true))]),
        ),
        ("a in (1,2) or b eq 2", Expr::Or(vec![eq("a", 1), eq("a", 2), eq("b", 2)])),
        (
            "a in (1,2) and b eq 2",
            Expr::And(vec![Expr::Or(vec![eq("a", 1), eq("a", 2)]), eq("b", 2)]),
        ),
        ("not a in (1,2)", not(Expr::Or(vec![eq("a", 1), eq("a", 2)]))),
        ("in in (1)", eq("in", 1)),
        ("tolower(a) in ('x','y')", Expr::Or(vec![lower("x"), lower("y")])),
        ("a in (tolower('X'))", is(text("x"))),
    ]);
}

#[test]
fn functions_of_the_wrong_types() {
    let signature = FilterError::Signature;
    let operands = |made, literal, comparison| FilterError::Operands { made, literal, comparison };
    let cases = [
        ("contains(a)", signature(Function::Contains)),
        ("contains()", signature(Function::Contains)),
        ("contains(a,'x','y')", signature(Function::Contains)),
        ("length(a,'x') eq 1", signature(Function::Length)),
        ("contains(a,5)", signature(Function::Contains)),
        ("startswith(a,true)", signature(Function::StartsWith)),
        ("endswith(a,null)", signature(Function::EndsWith)),
        ("substringof(guid'00000000-0000-0000-0000-000000000000',a)", {
            signature(Function::SubstringOf)
        }),
        ("tolower(datetime'2020-01-01T00:00:00Z') eq 'x'", signature(Function::ToLower)),
        ("toupper(length(a)) eq 'x'", signature(Function::ToUpper)),
        ("length(contains(a,'x')) eq 1", signature(Function::Length)),
        ("tolower(a) eq 5", operands(EdmType::String, EdmType::Int32, Comparison::Equal)),
        ("length(a) gt 'x'", operands(EdmType::Int32, EdmType::String, Comparison::GreaterThan)),
        ("contains(a,'x') ne 1", operands(EdmType::Boolean, EdmType::Int32, Comparison::NotEqual)),
        ("length(a) in (1,'x')", operands(EdmType::Int32, EdmType::String, Comparison::Equal)),
        ("tolower(a) eq null", NullLiteral),
        ("length(a) lt null", NullOrder(Comparison::LessThan)),
        ("a in (1,null)", NullLiteral),
    ];
    for (filter, expected) in cases {
        assert_eq!(parse(filter), Err(expected), "{filter}");
    }
    let message = |filter| parse(filter).unwrap_err().to_string();
    assert_eq!(
        message("contains(a,5)"),
        "No function signature for the function with name 'contains' matches the specified arguments. The \
         function signatures considered are: contains(Edm.String, Edm.String)."
    );
    assert_eq!(
        message("length(a) gt 'x'"),
        "A binary operator with incompatible types was detected. Found operand types 'Edm.Int32' and \
         'Edm.String' for operator kind 'GreaterThan'."
    );
    for (filter, position) in [
        ("tolower(a)", 7),
        ("contains(a 'x')", 14),
        ("contains(a,'x'", 14),
        ("contains(a,not)", 14),
        ("contains(a,'x)", 14),
        ("contains(,'x')", 10),
        ("a in ()", 7),
        ("a in ('x' 'y')", 13),
        ("a in ('x'", 9),
    ] {
        let expected = FilterError::Syntax { position, text: filter.to_owned() };
        assert_eq!(parse(filter), Err(expected), "{filter}");
    }
}

#[test]
fn limits_of_functions_and_lists() {
    let max = limits::FILTER_DEPTH_MAX;
    let nested = |n: usize| format!("{}a{} eq 'x'", "tolower(".repeat(n), ")".repeat(n));
    assert!(parse(&nested(max)).is_ok());
    assert_eq!(parse(&nested(max + 1)), Err(TooDeep));
    assert_eq!(parse(&nested(3_000)), Err(TooDeep));

    let max = limits::FILTER_FUNCTIONS_MAX;
    let many = |n: usize| vec!["contains(a,'')"; n].join(" or ");
    assert!(parse(&many(max)).is_ok());
    assert_eq!(parse(&many(max + 1)), Err(FilterError::TooManyFunctions));
    let listed = |n: usize| format!("tolower(a) in ({})", vec!["''"; n].join(","));
    assert!(parse(&listed(max)).is_ok());
    assert_eq!(parse(&listed(max + 1)), Err(FilterError::TooManyFunctions));

    let max = limits::FILTER_LIST_VALUES_MAX;
    let values = |n: usize| vec!["1"; n].join(",");
    assert!(parse(&format!("a in ({})", values(max))).is_ok());
    assert_eq!(parse(&format!("a in ({})", values(max + 1))), Err(FilterError::TooManyValues));
    let two = format!("a in ({0}) or b in ({0})", values(max / 2 + 1));
    assert_eq!(parse(&two), Err(FilterError::TooManyValues));
}

#[test]
fn null() {
    use Comparison::{GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual};
    let cases = [
        ("x eq null", NullLiteral),
        ("x ne null", NullLiteral),
        ("null eq x", NullLiteral),
        ("null", NullLiteral),
        ("x lt null", NullOrder(LessThan)),
        ("x le null", NullOrder(LessThanOrEqual)),
        ("x gt null", NullOrder(GreaterThan)),
        ("x ge null", NullOrder(GreaterThanOrEqual)),
        ("null lt x", NullOrder(LessThan)),
    ];
    for (filter, expected) in cases {
        assert_eq!(parse(filter), Err(expected), "{filter}");
    }
    assert_eq!(
        parse("x lt null").unwrap_err().to_string(),
        "The operator 'LessThan' is not supported for the 'null' literal; only equality checks are supported."
    );
}

#[test]
fn limits_on_both_sides() {
    let max = limits::FILTER_DEPTH_MAX;
    let parens = |n: usize| format!("{}a eq 1{}", "(".repeat(n), ")".repeat(n));
    assert_eq!(parse(&parens(max)), Ok(Some(eq("a", 1))));
    assert_eq!(parse(&parens(max + 1)), Err(TooDeep));
    assert_eq!(parse(&parens(10_000)), Err(TooDeep));
    assert!(parse(&format!("{}a", "not ".repeat(max))).is_ok());
    assert_eq!(parse(&format!("{}a", "not ".repeat(max + 1))), Err(TooDeep));
    // Depth is what is open at a time, not what has been opened.
    assert!(parse(&vec!["(a)"; 2 * max].join(" and ")).is_ok());

    let padded = |len: usize| format!("a eq 1{}", " ".repeat(len - "a eq 1".len()));
    assert!(parse(&padded(limits::FILTER_BYTES_MAX)).is_ok());
    assert_eq!(parse(&padded(limits::FILTER_BYTES_MAX + 1)), Err(TooLong));
}

#[test]
fn a_long_chain_is_one_node() {
    let Ok(Some(Expr::Or(parts))) = parse(&vec!["a"; 5_000].join(" or ")) else {
        panic!("not a chain");
    };
    assert_eq!(parts.len(), 5_000);
}
