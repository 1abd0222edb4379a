//! The embedded engine: the contract, its files, kills and full disks.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod common;
mod conformance;
mod damage;
mod directory;
mod expire;
mod full_disk;
mod kill;
mod limits;
mod upgrade;
