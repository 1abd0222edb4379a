//! Functions of the language: what they are called, what they take and what they make.
//!
//! These are extensions: the original service has none of them.

use crate::case;
use std::fmt;

/// A text that a function looks at: a property, a literal, or what another function makes of one.
#[derive(Clone, PartialEq)]
pub enum Text {
    /// The value of a property.
    Property(Box<str>),
    /// As it was written.
    Literal(Box<str>),
    /// `tolower`; of anything but a literal.
    Lower(Box<Text>),
    /// `toupper`; of anything but a literal.
    Upper(Box<Text>),
}

/// A function and its arguments, of which at least one is not a literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `tolower` or `toupper`: makes a text.
    Text(Text),
    /// `length`: makes a number, of UTF-16 code units.
    Length(Text),
    /// Makes true or false.
    Test {
        /// Which one.
        test: Test,
        /// What is looked at.
        text: Text,
        /// What is looked for.
        part: Text,
    },
}

/// The functions that look for a text in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// `startswith`
    StartsWith,
    /// `endswith`
    EndsWith,
    /// `contains`, and `substringof` with its arguments exchanged.
    Contains,
}

/// The functions by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `startswith(text, part)`
    StartsWith,
    /// `endswith(text, part)`
    EndsWith,
    /// `contains(text, part)`
    Contains,
    /// `substringof(part, text)`
    SubstringOf,
    /// `tolower(text)`
    ToLower,
    /// `toupper(text)`
    ToUpper,
    /// `length(text)`
    Length,
}

impl Function {
    const ALL: [Self; 7] = [
        Self::StartsWith,
        Self::EndsWith,
        Self::Contains,
        Self::SubstringOf,
        Self::ToLower,
        Self::ToUpper,
        Self::Length,
    ];

    /// From its name. Case matters.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == word)
    }

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::StartsWith => "startswith",
            Self::EndsWith => "endswith",
            Self::Contains => "contains",
            Self::SubstringOf => "substringof",
            Self::ToLower => "tolower",
            Self::ToUpper => "toupper",
            Self::Length => "length",
        }
    }

    /// How many texts it takes.
    pub(crate) fn arity(self) -> usize {
        match self {
            Self::StartsWith | Self::EndsWith | Self::Contains | Self::SubstringOf => 2,
            Self::ToLower | Self::ToUpper | Self::Length => 1,
        }
    }
}

/// With the types of the arguments, as messages have it.
impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = if self.arity() == 1 { "Edm.String" } else { "Edm.String, Edm.String" };
        write!(f, "{}({arguments})", self.name())
    }
}

impl Text {
    pub(crate) fn lower(self) -> Self {
        match self {
            Self::Literal(text) => Self::Literal(case::lower(&text).into()),
            other => Self::Lower(Box::new(other)),
        }
    }

    pub(crate) fn upper(self) -> Self {
        match self {
            Self::Literal(text) => Self::Literal(case::upper(&text).into()),
            other => Self::Upper(Box::new(other)),
        }
    }

    /// How many functions it is made by.
    fn functions(&self) -> usize {
        match self {
            Self::Property(_) | Self::Literal(_) => 0,
            Self::Lower(inner) | Self::Upper(inner) => 1 + inner.functions(),
        }
    }
}

impl Call {
    /// How many functions are applied.
    pub(crate) fn functions(&self) -> usize {
        match self {
            Self::Text(text) => text.functions(),
            Self::Length(text) => 1 + text.functions(),
            Self::Test { text, part, .. } => 1 + text.functions() + part.functions(),
        }
    }
}

impl Test {
    /// Whether the text has the part where the test looks for it.
    pub(crate) fn holds(self, text: &[u8], part: &[u8]) -> bool {
        match self {
            Self::StartsWith => text.starts_with(part),
            Self::EndsWith => text.ends_with(part),
            Self::Contains => case::readable(text).contains(&*case::readable(part)),
        }
    }
}

/// Shows the shape, not the literals: they are user data.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property(name) => f.debug_tuple("Property").field(name).finish(),
            Self::Literal(_) => f.write_str("Literal"),
            Self::Lower(inner) => f.debug_tuple("Lower").field(inner).finish(),
            Self::Upper(inner) => f.debug_tuple("Upper").field(inner).finish(),
        }
    }
}
