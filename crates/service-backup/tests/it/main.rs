//! Backups: their format, and what restoring them gives.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod format;
mod restore;
mod support;
mod table;
