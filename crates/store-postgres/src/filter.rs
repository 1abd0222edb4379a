//! A filter in SQL, with exactly the meaning that it has on a record.
//!
//! Every condition is true or false, never unknown, so that `not` and `or` mean what they mean in the language. Names
//! and literals are parameters: nothing that a client wrote becomes part of a statement.
//!
//! What the database cannot judge exactly, it lets pass: then the SQL holds for more rows than the filter does, never for
//! fewer, says so, and whoever reads the rows judges them again. Only functions of texts can be of that kind (`call`).

mod call;

use crate::props::{escaped, letter};
use rowhouse_query::{Comparison, Expr, Filter};
use rowhouse_store::Expiry;
use rowhouse_types::{EdmType, Value};
use std::fmt::Write as _;
use tokio_postgres::types::{ToSql, Type};

/// The halves of the key as bytes.
const PARTITION_KEY: &str = "substring(i.kp || i.rest, 1, i.pl)";
const ROW_KEY: &str = "substring(i.kp || i.rest, i.pl + 2)";

/// Values of a statement, with their types.
#[derive(Default)]
pub(crate) struct Parameters(Vec<(Box<dyn ToSql + Sync + Send>, Type)>);

impl Parameters {
    /// Adds a value; its place in the statement, as `$n`.
    pub(crate) fn push(&mut self, value: impl ToSql + Sync + Send + 'static, ty: Type) -> String {
        self.0.push((Box::new(value), ty));
        format!("${}", self.0.len())
    }

    /// As the client takes them.
    pub(crate) fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.0.iter().map(|(value, ty)| (&**value as &(dyn ToSql + Sync), ty.clone())).collect()
    }
}

/// A filter on a row `i` of the entities.
pub(crate) struct Condition {
    pub(crate) sql: String,
    /// It holds for no row that does not satisfy the filter.
    pub(crate) exact: bool,
}

impl Condition {
    /// It holds for every row.
    pub(crate) fn always() -> Self {
        Self { sql: constant(true).to_owned(), exact: true }
    }
}

/// What a page wants: what satisfies the filter and has not expired.
pub(crate) fn wanted(
    filter: Option<&Filter>,
    expiry: Option<Expiry<'_>>,
    parameters: &mut Parameters,
) -> Condition {
    let mut wanted = match filter {
        Some(filter) => condition(filter, parameters),
        None => Condition::always(),
    };
    if let Some(expiry) = expiry {
        let lives = lives(expiry, parameters);
        wanted.sql = format!("({lives} AND {})", wanted.sql);
    }
    wanted
}

/// Holds for rows that have not expired.
fn lives(expiry: Expiry<'_>, parameters: &mut Parameters) -> String {
    let Some(last) = expiry.last() else { return constant(true).to_owned() };
    let last = parameters.push(ticks(last), Type::INT8);
    match expiry.property() {
        None => format!("i.ts > {last}"),
        Some(name) => {
            let name = parameters.push(name.to_owned(), Type::TEXT);
            format!("coalesce({} > {last}, true)", time("i", &name))
        }
    }
}

/// The ticks of a DateTime of the row; null if there is none of that name and type.
pub(crate) fn time(row: &str, name: &str) -> String {
    let letter = letter(EdmType::DateTime);
    format!(
        "CASE WHEN {row}.props->{name}->>0 = '{letter}' THEN ({row}.props->{name}->1)::bigint END"
    )
}

/// The filter as a condition.
pub(crate) fn condition(filter: &Filter, parameters: &mut Parameters) -> Condition {
    let mut sql = String::new();
    let mut exact = true;
    push(&mut sql, filter.root(), parameters, &mut Doubt { passes: true, exact: &mut exact });
    Condition { sql, exact }
}

/// What to do about a condition that the database cannot judge.
struct Doubt<'a> {
    /// What it counts as. True, but under a `not` the other way round.
    passes: bool,
    /// Turns false when there is one.
    exact: &'a mut bool,
}

impl Doubt<'_> {
    /// What such a condition counts as.
    fn sql(&mut self) -> &'static str {
        *self.exact = false;
        constant(self.passes)
    }
}

fn push(out: &mut String, expr: &Expr, parameters: &mut Parameters, doubt: &mut Doubt<'_>) {
    match expr {
        Expr::And(parts) => push_all(out, parts, " AND ", parameters, doubt),
        Expr::Or(parts) => push_all(out, parts, " OR ", parameters, doubt),
        Expr::Not(part) => {
            out.push_str("(NOT ");
            let doubt = &mut Doubt { passes: !doubt.passes, exact: doubt.exact };
            push(out, part, parameters, doubt);
            out.push(')');
        }
        Expr::Call { call, comparison, literal } => {
            call::push(out, call, *comparison, literal, parameters, doubt);
        }
        Expr::Constant(value) => out.push_str(constant(*value)),
        Expr::Property(name) => match &**name {
            "PartitionKey" | "RowKey" | "Timestamp" => out.push_str("false"),
            name => {
                let name = parameters.push(name.to_owned(), Type::TEXT);
                let _ = write!(out, "coalesce(i.props->{name} = '[\"b\", true]'::jsonb, false)");
            }
        },
        Expr::Compare { property, comparison, literal } => {
            let compared = match &**property {
                "PartitionKey" => of_key(PARTITION_KEY, literal),
                "RowKey" => of_key(ROW_KEY, literal),
                "Timestamp" => of_timestamp(literal),
                name => {
                    let name = parameters.push(name.to_owned(), Type::TEXT);
                    return of_property(out, &name, *comparison, literal, parameters);
                }
            };
            match compared {
                Some((column, value, ty)) => {
                    let value = parameters.push_boxed(value, ty);
                    let _ = write!(out, "({column} {} {value})", operator(*comparison));
                }
                None => out.push_str(constant(accepts_less(*comparison))),
            }
        }
    }
}

fn push_all(
    out: &mut String,
    parts: &[Expr],
    word: &str,
    parameters: &mut Parameters,
    doubt: &mut Doubt<'_>,
) {
    out.push('(');
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push_str(word);
        }
        push(out, part, parameters, doubt);
    }
    out.push(')');
}

/// A column that is always there, a value of its type, and that type; none if the types do not compare.
type Compared = Option<(&'static str, Box<dyn ToSql + Sync + Send>, Type)>;

fn of_key(column: &'static str, literal: &Value) -> Compared {
    match literal {
        Value::String(text) => Some((column, Box::new(text.as_bytes().to_vec()), Type::BYTEA)),
        _ => None,
    }
}

fn of_timestamp(literal: &Value) -> Compared {
    match literal {
        Value::DateTime(at) => Some(("i.ts", Box::new(ticks(*at)), Type::INT8)),
        _ => None,
    }
}

pub(crate) fn ticks(at: rowhouse_types::Timestamp) -> i64 {
    i64::try_from(at.ticks()).unwrap_or(i64::MAX)
}

/// A property: what its stored type decides, each type in its own way; any other type counts as less, and a missing
/// property satisfies nothing.
fn of_property(
    out: &mut String,
    name: &str,
    comparison: Comparison,
    literal: &Value,
    parameters: &mut Parameters,
) {
    let operator = operator(comparison);
    let _ = write!(out, "(CASE i.props->{name}->>0");
    for (edm_type, value) in widened(literal) {
        let _ = write!(out, " WHEN '{}' THEN ", letter(edm_type));
        let stored = match edm_type {
            EdmType::String | EdmType::Guid => format!("(i.props->{name}->>1) COLLATE \"C\""),
            EdmType::Int32 | EdmType::Int64 | EdmType::DateTime => {
                format!("(i.props->{name}->1)::bigint")
            }
            EdmType::Double => format!("(i.props->{name}->>1)::double precision"),
            EdmType::Boolean => format!("(i.props->{name}->1)::boolean"),
            EdmType::Binary => format!("decode(i.props->{name}->>1, 'base64')"),
        };
        let not_a_number = constant(comparison == Comparison::NotEqual);
        match value {
            Widened::NaN => out.push_str(not_a_number),
            Widened::Value(value, ty) => {
                let value = parameters.push_boxed(value, ty);
                if edm_type == EdmType::Double {
                    let nan = format!("left(i.props->{name}->>1, 3) = 'NaN'");
                    let _ = write!(
                        out,
                        "CASE WHEN {nan} THEN {not_a_number} ELSE {stored} {operator} {value} END"
                    );
                } else {
                    let _ = write!(out, "{stored} {operator} {value}");
                }
            }
        }
    }
    let _ = if accepts_less(comparison) {
        write!(out, " ELSE i.props ? {name} END)")
    } else {
        write!(out, " ELSE false END)")
    };
}

/// A literal as a value of a stored type.
enum Widened {
    Value(Box<dyn ToSql + Sync + Send>, Type),
    /// Only ever different.
    NaN,
}

/// The stored types that the literal compares with, and the literal as a value of each.
fn widened(literal: &Value) -> Vec<(EdmType, Widened)> {
    let double = |n: f64| {
        let value =
            if n.is_nan() { Widened::NaN } else { Widened::Value(Box::new(n), Type::FLOAT8) };
        (EdmType::Double, value)
    };
    let of =
        |edm_type, value: Box<dyn ToSql + Sync + Send>, ty| (edm_type, Widened::Value(value, ty));
    match literal {
        Value::String(text) => {
            vec![of(EdmType::String, Box::new(escaped(text).into_owned()), Type::TEXT)]
        }
        Value::Int32(n) => {
            let wide = i64::from(*n);
            vec![
                of(EdmType::Int32, Box::new(wide), Type::INT8),
                of(EdmType::Int64, Box::new(wide), Type::INT8),
                double(f64::from(*n)),
            ]
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "widening to the stored type rounds, as it does on records"
        )]
        Value::Int64(n) => {
            vec![of(EdmType::Int64, Box::new(*n), Type::INT8), double(*n as f64)]
        }
        Value::Double(n) => vec![double(*n)],
        Value::Boolean(b) => vec![of(EdmType::Boolean, Box::new(*b), Type::BOOL)],
        Value::DateTime(at) => vec![of(EdmType::DateTime, Box::new(ticks(*at)), Type::INT8)],
        Value::Guid(guid) => vec![of(EdmType::Guid, Box::new(guid.to_string()), Type::TEXT)],
        Value::Binary(bytes) => {
            vec![of(EdmType::Binary, Box::new(bytes.to_vec()), Type::BYTEA)]
        }
    }
}

impl Parameters {
    fn push_boxed(&mut self, value: Box<dyn ToSql + Sync + Send>, ty: Type) -> String {
        self.0.push((value, ty));
        format!("${}", self.0.len())
    }
}

fn constant(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::LessThan => "<",
        Comparison::LessThanOrEqual => "<=",
        Comparison::GreaterThan => ">",
        Comparison::GreaterThanOrEqual => ">=",
    }
}

/// Whether a value of a type that does not compare satisfies it.
fn accepts_less(comparison: Comparison) -> bool {
    matches!(comparison, Comparison::NotEqual | Comparison::LessThan | Comparison::LessThanOrEqual)
}
