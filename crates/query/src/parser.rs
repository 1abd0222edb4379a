//! Builds the tree of a filter from its tokens.
//!
//! ```text
//! or         = and { "or" and }
//! and        = unary { "and" unary }
//! unary      = "not" unary | "(" or ")" | comparison | property | "true" | "false"
//! comparison = property op literal | literal op property
//! ```
//!
//! The extensions, functions and lists, are in `call_parser`; in the dialect of the original they are refused.
//!
//! Words are keywords only where a keyword can stand: a property may be called `eq` or `not`, and can
//! be named on the left of a comparison. Nesting is bounded, and a chain of any length of `and` or `or`
//! is one node, so nobody who walks the tree by recursion goes deep.

use crate::call::{Call, Function};
use crate::error::FilterError;
use crate::expr::{Comparison, Expr};
use crate::lexer::{self, Kind, Token};
use crate::literal;
use rowhouse_types::{Value, check_property_name, limits};

/// How much of the language is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// What the original service understands.
    Original,
    /// That, functions and lists.
    Extended,
}

/// Parses a text; none if it is blank.
pub(crate) fn parse(text: &str, dialect: Dialect) -> Result<Option<Expr>, FilterError> {
    if limits::FILTER_BYTES_MAX < text.len() {
        return Err(FilterError::TooLong);
    }
    let tokens = lexer::tokens(text);
    let mut parser =
        Parser { text, tokens: &tokens, dialect, at: 0, depth: 0, functions: 0, values: 0 };
    if parser.peek().kind == Kind::End {
        return Ok(None);
    }
    let root = parser.or()?;
    match parser.peek().kind {
        Kind::End => Ok(Some(root)),
        _ => Err(parser.syntax_error()),
    }
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token<'a>],
    dialect: Dialect,
    /// The token that comes next.
    pub(crate) at: usize,
    /// Parentheses, `not` and functions that are open.
    pub(crate) depth: usize,
    /// Functions of the tree so far.
    pub(crate) functions: usize,
    /// Values of lists so far.
    pub(crate) values: usize,
}

/// One side of a comparison.
pub(crate) enum Operand<'a> {
    Property(&'a str),
    Call(Call),
    Literal(Value),
    Null,
}

/// What is compared with a literal.
#[derive(Clone)]
pub(crate) enum Subject<'a> {
    Property(&'a str),
    Call(Call),
}

/// Operators and connectives: names of properties only on the left of a comparison.
pub(crate) fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not") || Comparison::from_word(word).is_some()
}

/// Operators of OData that the service does not offer.
fn is_foreign_operator(token: Token<'_>) -> bool {
    match token.kind {
        Kind::Word => matches!(token.text, "add" | "sub" | "mul" | "div" | "mod" | "in" | "has"),
        Kind::Foreign | Kind::Comma => true,
        _ => false,
    }
}

fn comparison_of(token: Token<'_>) -> Option<Comparison> {
    (token.kind == Kind::Word).then(|| Comparison::from_word(token.text)).flatten()
}

/// The literal that a word may also be, when what stands on the other side is a property.
pub(crate) fn word_as_literal(word: &str) -> Option<Value> {
    for value in [true, false] {
        if word.eq_ignore_ascii_case(if value { "true" } else { "false" }) {
            return Some(Value::Boolean(value));
        }
    }
    literal::special_double(word)
}

/// What is compared, with what, and whether it was written the other way round. Of two names, one that may be a
/// literal is one.
fn sides<'a>(
    left: Operand<'a>,
    right: Operand<'a>,
) -> Result<(Subject<'a>, Operand<'a>, bool), FilterError> {
    let literal = |operand| match operand {
        Operand::Property(name) => {
            word_as_literal(name).map_or(Operand::Property(name), Operand::Literal)
        }
        other => other,
    };
    Ok(match (left, right) {
        (Operand::Property(left), Operand::Property(right)) => {
            match (word_as_literal(left), word_as_literal(right)) {
                (Some(left), None) => (Subject::Property(right), Operand::Literal(left), true),
                _ => (Subject::Property(left), literal(Operand::Property(right)), false),
            }
        }
        (Operand::Call(call), other) => (Subject::Call(call), literal(other), false),
        (other, Operand::Call(call)) => (Subject::Call(call), literal(other), true),
        (Operand::Property(name), other) => (Subject::Property(name), other, false),
        (other, Operand::Property(name)) => (Subject::Property(name), other, true),
        _ => return Err(FilterError::NotImplemented),
    })
}

impl<'a> Parser<'a> {
    fn or(&mut self) -> Result<Expr, FilterError> {
        let first = self.and()?;
        if !self.at_word("or") {
            return Ok(first);
        }
        let mut parts = Vec::new();
        let mut next = first;
        loop {
            match next {
                Expr::Or(inner) => parts.extend(inner),
                other => parts.push(other),
            }
            if !self.at_word("or") {
                return Ok(Expr::Or(parts));
            }
            self.at += 1;
            next = self.and()?;
        }
    }

    fn and(&mut self) -> Result<Expr, FilterError> {
        let first = self.unary()?;
        if !self.at_word("and") {
            return Ok(first);
        }
        let mut parts = Vec::new();
        let mut next = first;
        loop {
            match next {
                Expr::And(inner) => parts.extend(inner),
                other => parts.push(other),
            }
            if !self.at_word("and") {
                return Ok(Expr::And(parts));
            }
            self.at += 1;
            next = self.unary()?;
        }
    }

    fn unary(&mut self) -> Result<Expr, FilterError> {
        let negated = self.at_not();
        if !negated && self.peek().kind != Kind::Open {
            return self.comparison();
        }
        self.descend()?;
        self.at += 1;
        let result = if negated {
            Expr::Not(Box::new(self.unary()?))
        } else {
            let inner = self.or()?;
            if self.peek().kind != Kind::Close {
                return Err(self.syntax_error());
            }
            self.at += 1;
            self.refuse_operator()?;
            inner
        };
        self.depth -= 1;
        Ok(result)
    }

    /// One level deeper, if that is allowed.
    pub(crate) fn descend(&mut self) -> Result<(), FilterError> {
        if self.depth == limits::FILTER_DEPTH_MAX {
            return Err(FilterError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    fn comparison(&mut self) -> Result<Expr, FilterError> {
        let start = self.at;
        let left = self.operand(true)?;
        if self.at_list() {
            return self.list(left);
        }
        let Some(comparison) = comparison_of(self.peek()) else {
            self.refuse_operator()?;
            return self.alone(left, start);
        };
        self.at += 1;
        let right = self.operand(false)?;
        self.refuse_operator()?;
        let (subject, other, swapped) = sides(left, right)?;
        match other {
            Operand::Literal(literal) => {
                let comparison = if swapped { comparison.swapped() } else { comparison };
                self.condition(subject, comparison, literal)
            }
            Operand::Null => Err(match comparison {
                Comparison::Equal | Comparison::NotEqual => FilterError::NullLiteral,
                order => FilterError::NullOrder(order),
            }),
            Operand::Property(_) | Operand::Call(_) => Err(FilterError::NotImplemented),
        }
    }

    /// An operand that is compared with nothing, and began at that token.
    fn alone(&mut self, operand: Operand<'a>, start: usize) -> Result<Expr, FilterError> {
        match operand {
            Operand::Property(name) => Ok(match word_as_literal(name) {
                Some(Value::Boolean(value)) => Expr::Constant(value),
                _ => Expr::Property(name.into()),
            }),
            Operand::Literal(Value::Boolean(value)) => Ok(Expr::Constant(value)),
            Operand::Call(call @ Call::Test { .. }) => {
                self.compared_call(call, Comparison::Equal, Value::Boolean(true))
            }
            Operand::Null => Err(FilterError::NullLiteral),
            Operand::Literal(_) | Operand::Call(_) => {
                self.at = start;
                Err(self.syntax_error())
            }
        }
    }

    pub(crate) fn condition(
        &mut self,
        subject: Subject<'a>,
        comparison: Comparison,
        literal: Value,
    ) -> Result<Expr, FilterError> {
        match subject {
            Subject::Property(name) => {
                Ok(Expr::Compare { property: name.into(), comparison, literal })
            }
            Subject::Call(call) => self.compared_call(call, comparison, literal),
        }
    }

    pub(crate) fn operand(&mut self, left: bool) -> Result<Operand<'a>, FilterError> {
        let token = self.peek();
        let operand = match token.kind {
            Kind::Word => return self.word(token.text, left),
            Kind::Quoted => Some(Value::String(literal::text(token.text))),
            Kind::Prefixed => literal::prefixed(token.text),
            Kind::Number => literal::number(token.text),
            Kind::Open | Kind::Foreign | Kind::Comma => return Err(FilterError::NotImplemented),
            Kind::Close | Kind::Bad | Kind::End => None,
        };
        let literal = operand.ok_or_else(|| self.syntax_error())?;
        self.at += 1;
        Ok(Operand::Literal(literal))
    }

    /// A word where an operand is expected. Words that are literals only sometimes stay properties
    /// until the other side is known.
    fn word(&mut self, word: &'a str, left: bool) -> Result<Operand<'a>, FilterError> {
        let next = self.peek_at(1);
        if is_reserved(word) {
            if !left || comparison_of(next).is_none() {
                return Err(self.syntax_error());
            }
        } else if next.kind == Kind::Open {
            return match Function::from_word(word) {
                Some(function) if self.is_extended() => self.call(function),
                _ => Err(FilterError::NotImplemented),
            };
        }
        let operand = match word {
            "true" => Operand::Literal(Value::Boolean(true)),
            "false" => Operand::Literal(Value::Boolean(false)),
            "null" => Operand::Null,
            name if check_property_name(name).is_ok() => Operand::Property(name),
            _ => return Err(self.syntax_error()),
        };
        self.at += 1;
        Ok(operand)
    }

    /// True at a `not` that negates, as opposed to a property of that name being compared.
    fn at_not(&self) -> bool {
        if !self.at_word("not") {
            return false;
        }
        let operand = self.peek_at(2);
        let is_name = comparison_of(self.peek_at(1)).is_some()
            && match operand.kind {
                Kind::Word => !is_reserved(operand.text),
                Kind::Quoted | Kind::Prefixed | Kind::Number => true,
                _ => false,
            };
        !is_name
    }

    /// A condition is complete, so an operator here would take it, or a part of it, as its operand.
    pub(crate) fn refuse_operator(&self) -> Result<(), FilterError> {
        let token = self.peek();
        if comparison_of(token).is_some() || is_foreign_operator(token) {
            return Err(FilterError::NotImplemented);
        }
        Ok(())
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.dialect == Dialect::Extended
    }

    pub(crate) fn at_word(&self, word: &str) -> bool {
        let token = self.peek();
        token.kind == Kind::Word && token.text == word
    }

    pub(crate) fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    /// The token so many places ahead, or the end.
    pub(crate) fn peek_at(&self, ahead: usize) -> Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens[(self.at + ahead).min(last)]
    }

    /// The complaint about the token that comes next.
    pub(crate) fn syntax_error(&self) -> FilterError {
        let before = &self.text[..self.peek().end];
        FilterError::Syntax { position: before.encode_utf16().count(), text: self.text.to_owned() }
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
