//! Filters and plans, against naive twins and golden files.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod common;
mod evaluate;
mod index;
mod index_spans;
mod parse;
mod plan;
