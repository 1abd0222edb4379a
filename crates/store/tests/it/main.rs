//! The naive store, and whether the conformance suite finds faults.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod faults;
mod guarantees;
mod model;
