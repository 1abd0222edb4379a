//! The extensions of the grammar: functions and lists.
//!
//! ```text
//! call = function "(" text { "," text } ")"
//! text = property | string | call                       ; of tolower and toupper
//! list = (property | call) "in" "(" literal { "," literal } ")"
//! ```
//!
//! What can be known without an entity is judged here: a function of literals alone becomes a literal, and an
//! argument that can be no text is refused. A list becomes the comparisons that it stands for.

use crate::call::{Call, Function, Test, Text};
use crate::case;
use crate::error::FilterError;
use crate::expr::{Comparison, Expr};
use crate::lexer::Kind;
use crate::literal;
use crate::parser::{Operand, Parser, Subject, is_reserved, word_as_literal};
use rowhouse_types::{EdmType, Value, check_property_name, limits};

impl<'a> Parser<'a> {
    /// A function where an operand is expected; its name and the parenthesis come next.
    pub(crate) fn call(&mut self, function: Function) -> Result<Operand<'a>, FilterError> {
        Ok(match self.applied(function)? {
            Call::Text(Text::Literal(text)) => Operand::Literal(Value::String(text)),
            Call::Length(Text::Literal(text)) => {
                Operand::Literal(Value::Int32(case::length(&text)))
            }
            Call::Test { test, text: Text::Literal(text), part: Text::Literal(part) } => {
                Operand::Literal(Value::Boolean(test.holds(text.as_bytes(), part.as_bytes())))
            }
            call => Operand::Call(call),
        })
    }

    /// What a function makes, compared with a literal.
    pub(crate) fn compared_call(
        &mut self,
        call: Call,
        comparison: Comparison,
        literal: Value,
    ) -> Result<Expr, FilterError> {
        let (made, given) = (made_type(&call), literal.as_ref().edm_type());
        let number = matches!(given, EdmType::Int32 | EdmType::Int64 | EdmType::Double);
        if made != given && !(made == EdmType::Int32 && number) {
            return Err(FilterError::Operands { made, literal: given, comparison });
        }
        self.functions += call.functions();
        if limits::FILTER_FUNCTIONS_MAX < self.functions {
            return Err(FilterError::TooManyFunctions);
        }
        Ok(Expr::Call { call, comparison, literal })
    }

    /// True at an `in` that begins a list.
    pub(crate) fn at_list(&self) -> bool {
        self.is_extended() && self.at_word("in") && self.peek_at(1).kind == Kind::Open
    }

    /// The list of values that the operand may have.
    pub(crate) fn list(&mut self, operand: Operand<'a>) -> Result<Expr, FilterError> {
        let subject = match operand {
            Operand::Property(name) => Subject::Property(name),
            Operand::Call(call) => Subject::Call(call),
            Operand::Literal(_) | Operand::Null => return Err(FilterError::NotImplemented),
        };
        self.at += 2;
        let mut parts = Vec::new();
        loop {
            let literal = self.value()?;
            parts.push(self.condition(subject.clone(), Comparison::Equal, literal)?);
            match self.peek().kind {
                Kind::Comma => self.at += 1,
                Kind::Close => break,
                _ => return Err(self.syntax_error()),
            }
        }
        self.at += 1;
        self.refuse_operator()?;
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Expr::Or(parts),
        })
    }

    /// A value of a list.
    fn value(&mut self) -> Result<Value, FilterError> {
        self.values += 1;
        if limits::FILTER_LIST_VALUES_MAX < self.values {
            return Err(FilterError::TooManyValues);
        }
        match self.operand(false)? {
            Operand::Literal(literal) => Ok(literal),
            Operand::Property(name) => word_as_literal(name).ok_or(FilterError::NotImplemented),
            Operand::Null => Err(FilterError::NullLiteral),
            Operand::Call(_) => Err(FilterError::NotImplemented),
        }
    }

    fn applied(&mut self, function: Function) -> Result<Call, FilterError> {
        let mut arguments = self.arguments(function)?.into_iter();
        let mut next = || arguments.next().expect("as many as the function takes");
        let first = next();
        let test = |test, text, part| Call::Test { test, text, part };
        Ok(match function {
            Function::StartsWith => test(Test::StartsWith, first, next()),
            Function::EndsWith => test(Test::EndsWith, first, next()),
            Function::Contains => test(Test::Contains, first, next()),
            Function::SubstringOf => test(Test::Contains, next(), first),
            Function::ToLower => Call::Text(first.lower()),
            Function::ToUpper => Call::Text(first.upper()),
            Function::Length => Call::Length(first),
        })
    }

    /// As many texts as the function takes, with what is around them.
    fn arguments(&mut self, function: Function) -> Result<Vec<Text>, FilterError> {
        self.descend()?;
        self.at += 2;
        let mut texts = Vec::new();
        loop {
            texts.push(self.argument(function)?);
            let last = texts.len() == function.arity();
            match self.peek().kind {
                Kind::Comma if !last => self.at += 1,
                Kind::Close if last => break,
                Kind::Comma | Kind::Close => return Err(FilterError::Signature(function)),
                _ => {
                    self.refuse_operator()?;
                    return Err(self.syntax_error());
                }
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(texts)
    }

    fn argument(&mut self, function: Function) -> Result<Text, FilterError> {
        let token = self.peek();
        let refused = || Err(FilterError::Signature(function));
        let is_call = self.peek_at(1).kind == Kind::Open;
        let text = match (token.kind, token.text) {
            (Kind::Word, word) if is_call => return self.inner(function, word),
            (Kind::Word, "true" | "false" | "null") | (Kind::Close, _) => return refused(),
            (Kind::Word, name) if !is_reserved(name) && check_property_name(name).is_ok() => {
                Text::Property(name.into())
            }
            (Kind::Quoted, quoted) => Text::Literal(literal::text(quoted)),
            (Kind::Prefixed, text) if literal::prefixed(text).is_some() => return refused(),
            (Kind::Number, text) if literal::number(text).is_some() => return refused(),
            (Kind::Open | Kind::Foreign, _) => return Err(FilterError::NotImplemented),
            _ => return Err(self.syntax_error()),
        };
        self.at += 1;
        Ok(text)
    }

    /// A function as the argument of another.
    fn inner(&mut self, outer: Function, word: &str) -> Result<Text, FilterError> {
        let inner = Function::from_word(word).ok_or(FilterError::NotImplemented)?;
        match self.applied(inner)? {
            Call::Text(text) => Ok(text),
            Call::Length(_) | Call::Test { .. } => Err(FilterError::Signature(outer)),
        }
    }
}

fn made_type(call: &Call) -> EdmType {
    match call {
        Call::Text(_) => EdmType::String,
        Call::Length(_) => EdmType::Int32,
        Call::Test { .. } => EdmType::Boolean,
    }
}
