//! Why a text is not a filter.

use crate::call::Function;
use crate::expr::Comparison;
use rowhouse_types::{EdmType, limits};
use std::fmt;

/// Why a text is not a filter. The message is fit for the client who wrote it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text does not follow the grammar.
    #[error("Syntax error at position {position} in '{text}'.")]
    Syntax {
        /// Where the offending token ends, in UTF-16 units from the start: the original counts so.
        position: usize,
        /// The whole filter.
        text: String,
    },
    /// A comparison for equality with `null`, which no stored property ever is.
    #[error("One of the request inputs is not valid.")]
    NullLiteral,
    /// An ordering comparison with `null`, named as it was written.
    #[error(
        "The operator '{0}' is not supported for the 'null' literal; only equality checks are supported."
    )]
    NullOrder(Comparison),
    /// OData that the service does not offer: unknown functions, arithmetic, paths, two properties or two
    /// literals compared with each other.
    #[error("The requested operation is not implemented on the specified resource.")]
    NotImplemented,
    /// Parentheses and `not` are nested beyond [`limits::FILTER_DEPTH_MAX`].
    #[error("The filter is nested deeper than {} levels.", limits::FILTER_DEPTH_MAX)]
    TooDeep,
    /// The text is longer than [`limits::FILTER_BYTES_MAX`].
    #[error("The filter is longer than {} bytes.", limits::FILTER_BYTES_MAX)]
    TooLong,
    /// A function with too few or too many arguments, or with one that is no text.
    #[error(
        "No function signature for the function with name '{}' matches the specified arguments. \
         The function signatures considered are: {}.", .0.name(), .0
    )]
    Signature(Function),
    /// What a function makes is compared with a literal of a type that it never has.
    #[error(
        "A binary operator with incompatible types was detected. Found operand types '{}' and '{}' \
         for operator kind '{comparison}'.", made.name(), literal.name()
    )]
    Operands {
        /// The type of what the function makes.
        made: EdmType,
        /// The type of the literal.
        literal: EdmType,
        /// How they were to be compared.
        comparison: Comparison,
    },
    /// More functions than [`limits::FILTER_FUNCTIONS_MAX`], each counted for every literal that it is compared with.
    #[error("The filter has more than {} functions.", limits::FILTER_FUNCTIONS_MAX)]
    TooManyFunctions,
    /// More values in lists than [`limits::FILTER_LIST_VALUES_MAX`].
    #[error("The lists of the filter have more than {} values.", limits::FILTER_LIST_VALUES_MAX)]
    TooManyValues,
}

/// Leaves out the text: it holds user data and must not reach a log by accident.
impl fmt::Debug for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { position, text } => {
                write!(f, "Syntax(position {position} of {} bytes)", text.len())
            }
            Self::NullLiteral => f.write_str("NullLiteral"),
            Self::NullOrder(comparison) => write!(f, "NullOrder({comparison})"),
            Self::NotImplemented => f.write_str("NotImplemented"),
            Self::TooDeep => f.write_str("TooDeep"),
            Self::TooLong => f.write_str("TooLong"),
            Self::Signature(function) => write!(f, "Signature({function})"),
            Self::Operands { made, literal, comparison } => {
                write!(f, "Operands({made:?} {comparison} {literal:?})")
            }
            Self::TooManyFunctions => f.write_str("TooManyFunctions"),
            Self::TooManyValues => f.write_str("TooManyValues"),
        }
    }
}
