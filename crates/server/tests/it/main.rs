//! A server in this process, from configuration to shutdown.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod restore;
mod run;
