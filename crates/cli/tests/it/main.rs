//! The commands as a user types them.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod cli;
mod commands;
mod deploy;
