//! The embedded engine: SQLite behind the store contract, one process, one directory.
//!
//! Every change goes through one thread (`committer`) that gathers what waits into one transaction,
//! commits it with one fsync and then answers everybody. Reads never wait for it: point reads run on
//! the caller's thread (`reader`), pages on threads of their own (`scan`), each on a snapshot.
//! Accounts and tables are held in memory as an immutable snapshot (`catalogue`) that is swapped
//! after the commit that changed it.
//!
//! Beside these, one thread copies the write-ahead log into the database and keeps the log bounded
//! (`checkpoint`), and one deletes the entities of dropped tables and what has expired, gives the space back and builds
//! secondary indexes (`sweep`, `expire`, `index`). Messages of queues are rows like entities (`queue`). If so asked, what every batch
//! left is kept for a while (`log`); a view of the whole store at one moment
//! (`frozen`) is what backups are made from.
//!
//! Below SQLite a layer writes and verifies a checksum of every page (`pages`), so that what the disk damaged is an error and
//! never an answer.
//!
//! After a failed write the store refuses every further change until it is opened again (`health`):
//! it never acknowledges what may not be on disk. The file is described in `docs/formats/embedded.md`.

mod cache;
mod catalogue;
mod change;
mod check;
mod checkpoint;
mod committer;
mod directory;
mod entity;
mod estimate;
mod expire;
mod fit;
mod frozen;
mod health;
mod index;
mod jobs;
mod lead;
mod log;
mod pages;
mod queue;
mod reader;
mod rewrite;
mod room;
mod scan;
mod schema;
mod store;
mod sweep;
mod tuning;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, check};
pub use directory::OpenError;
pub use rewrite::add_checksums;
pub use store::{Durability, EmbeddedStore, Options, Stats};
