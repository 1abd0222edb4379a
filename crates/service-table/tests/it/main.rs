//! The rules of the Table service on the naive store.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod delete;
mod indexes;
mod plans;
mod polls;
mod service;
