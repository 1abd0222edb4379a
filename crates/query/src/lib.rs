//! The `$filter` language and `$orderby`: parsing, evaluation on stored records, and planning.
//!
//! A text becomes a [`Filter`] once, at the edge. A filter answers whether an entity satisfies it; [`plan`] turns it
//! into the ranges of keys that have to be read, and [`index`] into parts of secondary indexes, whose entries it makes.
//! The meaning of every comparison is that of the protocol, with one stated difference: text is ordered by its UTF-8
//! bytes, as keys are.
//!
//! Functions and `in` are ours, not the original's: [`Filter::parse_original`] does without them.
//!
//! Nothing here reads storage or knows of HTTP. Status codes for the errors are the caller's business,
//! and so is what an engine does with a plan.

mod call;
mod call_parser;
mod case;
mod error;
mod evaluate;
mod expr;
pub mod index;
mod keyset;
mod lexer;
mod literal;
mod order;
mod parser;
mod plan;
mod steps;

pub use call::{Call, Function, Test, Text};
pub use error::FilterError;
pub use expr::{Comparison, Expr, Filter};
pub use order::{Order, OrderError};
pub use plan::{Plan, PlanKind, plan};
