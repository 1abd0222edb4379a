//! The load tool on small data.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod common;
mod pair;
mod postgres;
mod smoke;
