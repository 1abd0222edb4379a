//! A parsed filter and the tree it is made of.

use crate::call::Call;
use crate::error::FilterError;
use crate::evaluate::{self, Operand};
use crate::index::condition;
use crate::parser::{self, Dialect};
use rowhouse_types::{Corrupt, KeyRange, Position, Row, Value, ValueRef};
use std::convert::Infallible;
use std::fmt;

/// A parsed `$filter`.
///
/// Its tree is bounded in size and depth by the limits of the parser, so that walking it by recursion
/// is safe.
#[derive(Clone, PartialEq)]
pub struct Filter {
    root: Expr,
}

/// One condition.
///
/// `And` and `Or` hold at least two parts, none of the same kind as themselves.
#[derive(Clone, PartialEq)]
pub enum Expr {
    /// All parts hold.
    And(Vec<Expr>),
    /// At least one part holds.
    Or(Vec<Expr>),
    /// The part does not hold.
    Not(Box<Expr>),
    /// A property compared with a literal. A comparison written the other way round is swapped.
    Compare {
        /// Left side.
        property: Box<str>,
        /// How the property must stand to the literal.
        comparison: Comparison,
        /// Right side.
        literal: Value,
    },
    /// What a function makes, compared with a literal of a type that it compares with: a String, a number or a
    /// Boolean. A function that makes true or false and stands alone is compared with true.
    Call {
        /// Left side.
        call: Call,
        /// How what it makes must stand to the literal.
        comparison: Comparison,
        /// Right side.
        literal: Value,
    },
    /// The property exists, is a Boolean, and is true.
    Property(Box<str>),
    /// Always or never.
    Constant(bool),
}

/// The six comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `eq`
    Equal,
    /// `ne`
    NotEqual,
    /// `lt`
    LessThan,
    /// `le`
    LessThanOrEqual,
    /// `gt`
    GreaterThan,
    /// `ge`
    GreaterThanOrEqual,
}

impl Filter {
    /// Parses a decoded `$filter`, extensions included. None for an empty or blank text: no filter.
    pub fn parse(text: &str) -> Result<Option<Self>, FilterError> {
        Ok(parser::parse(text, Dialect::Extended)?.map(|root| Self { root }))
    }

    /// Parses only what the original service understands, and refuses the rest as that does.
    pub fn parse_original(text: &str) -> Result<Option<Self>, FilterError> {
        Ok(parser::parse(text, Dialect::Original)?.map(|root| Self { root }))
    }

    /// Whether the entity satisfies the filter.
    ///
    /// Reads only the properties that decide the answer, and allocates only where a function makes a text.
    pub fn matches(&self, row: &Row<'_>) -> Result<bool, Corrupt> {
        evaluate::holds(&self.root, &mut |name| Operand::of_row(row, name))
    }

    /// Whether something that is not an entity satisfies the filter, its values given by name.
    pub fn matches_with<'a>(&self, lookup: &mut dyn FnMut(&str) -> Option<ValueRef<'a>>) -> bool {
        let Ok(holds) = evaluate::holds(&self.root, &mut |name| {
            Ok::<_, Infallible>(lookup(name).map(Operand::from))
        });
        holds
    }

    /// How many conditions it has: what evaluating it costs, roughly.
    pub fn terms(&self) -> usize {
        self.root.terms()
    }

    /// The names that it looks at, each once; those of keys and Timestamp among them.
    pub fn properties(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.name(&mut names);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The same filter for whoever sees only the partitions of this range: it says in addition that PartitionKey is one of
    /// them. An index that begins with PartitionKey then has spans for it that hold no other partition.
    pub fn within_partitions(&self, range: &KeyRange) -> Self {
        let KeyRange { start, end } = range;
        let compare = |comparison, partition: &str| Expr::Compare {
            property: "PartitionKey".into(),
            comparison,
            literal: Value::String(partition.into()),
        };
        let mut parts = Vec::new();
        let one = |end: &Position| *end <= Position::after_partition(&start.partition);
        if end.as_ref().is_some_and(one) {
            parts.push(compare(Comparison::Equal, &start.partition));
        } else {
            if !start.partition.is_empty() {
                parts.push(compare(Comparison::GreaterThanOrEqual, &start.partition));
            }
            if let Some(end) = end {
                let whole = end.row.is_empty();
                let comparison =
                    if whole { Comparison::LessThan } else { Comparison::LessThanOrEqual };
                parts.push(compare(comparison, &end.partition));
            }
        }
        match &self.root {
            root if parts.is_empty() => return Self { root: root.clone() },
            Expr::And(more) => parts.extend(more.iter().cloned()),
            other => parts.push(other.clone()),
        }
        Self { root: Expr::And(parts) }
    }

    /// The tree, for engines that translate it.
    pub fn root(&self) -> &Expr {
        &self.root
    }
}

impl Expr {
    fn name<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.name(names)),
            Self::Not(part) => part.name(names),
            Self::Call { call, .. } => names.extend(condition::properties(call)),
            Self::Compare { property, .. } | Self::Property(property) => names.push(property),
            Self::Constant(_) => {}
        }
    }

    pub(crate) fn terms(&self) -> usize {
        /// A function may go through a whole text where a comparison stops at the first difference.
        const FUNCTION: usize = 8;
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::terms).sum(),
            Self::Not(part) => part.terms(),
            Self::Call { call, .. } => FUNCTION * call.functions(),
            Self::Compare { .. } | Self::Property(_) | Self::Constant(_) => 1,
        }
    }
}

/// Shows the shape and the types of the literals, not the literals: they are user data.
impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.root).finish()
    }
}

/// Shows the shape and the types of the literals, not the literals: they are user data.
impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(parts) => f.debug_tuple("And").field(parts).finish(),
            Self::Or(parts) => f.debug_tuple("Or").field(parts).finish(),
            Self::Not(part) => f.debug_tuple("Not").field(part).finish(),
            Self::Compare { property, comparison, literal } => f
                .debug_struct("Compare")
                .field("property", property)
                .field("comparison", comparison)
                .field("literal", &literal.as_ref().edm_type())
                .finish(),
            Self::Call { call, comparison, literal } => f
                .debug_struct("Call")
                .field("call", call)
                .field("comparison", comparison)
                .field("literal", &literal.as_ref().edm_type())
                .finish(),
            Self::Property(name) => f.debug_tuple("Property").field(name).finish(),
            Self::Constant(value) => f.debug_tuple("Constant").field(value).finish(),
        }
    }
}

impl Comparison {
    /// The long name, `LessThan` and so on, as error messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "Equal",
            Self::NotEqual => "NotEqual",
            Self::LessThan => "LessThan",
            Self::LessThanOrEqual => "LessThanOrEqual",
            Self::GreaterThan => "GreaterThan",
            Self::GreaterThanOrEqual => "GreaterThanOrEqual",
        }
    }

    /// From the word of the language. Case matters.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "lt" => Self::LessThan,
            "le" => Self::LessThanOrEqual,
            "gt" => Self::GreaterThan,
            "ge" => Self::GreaterThanOrEqual,
            _ => return None,
        })
    }

    /// The comparison that says the same with the sides exchanged.
    pub(crate) fn swapped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::LessThan => Self::GreaterThan,
            Self::LessThanOrEqual => Self::GreaterThanOrEqual,
            Self::GreaterThan => Self::LessThan,
            Self::GreaterThanOrEqual => Self::LessThanOrEqual,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_literals() {
        let filter =
            Filter::parse("PartitionKey eq 'secret' and not (n gt 4711)").unwrap().unwrap();
        let shown = format!("{filter:?}");
        assert!(!shown.contains("secret") && !shown.contains("4711"), "{shown}");
        assert!(shown.contains("PartitionKey") && shown.contains("Int32"), "{shown}");
        let filter = Filter::parse("contains(a,'secret') and tolower(b) eq 'secret'").unwrap();
        let shown = format!("{filter:?}");
        assert!(!shown.contains("secret") && shown.contains("Contains"), "{shown}");
        let shown = format!("{:?}", Filter::parse("'secret' ! x").unwrap_err());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn is_shared_between_threads() {
        fn check<T: Clone + Send + Sync + 'static>() {}
        check::<Filter>();
    }
}
