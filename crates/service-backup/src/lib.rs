//! Backup and restore, free of HTTP and of files.
//!
//! A backup is a stream of bytes: everything that a store held at one moment (*full*), or what has changed
//! since another backup (*incremental*). [`write`](write_full) makes it from a snapshot, [`Reader`] takes it
//! apart and believes nothing that it has not checked, [`survey`] reads one to its end and tells what is in it.
//! [`restore`] puts a full backup and the incremental ones that follow it into an empty store, and
//! [`restore_table`] a single table under a new name into one that is in use. Timestamps, and so ETags, are
//! those of the original.
//!
//! Memory is bounded whatever the size of a backup: by a few frames of at most [`FRAME_BYTES_MAX`], and by
//! accounts and tables, which a store holds in memory too. `docs/formats/backup.md` describes every byte.

mod apply;
mod catalogue;
mod error;
mod fields;
mod frame;
mod indexes;
mod items;
mod keys;
mod marker;
mod pace;
mod queues;
mod read;
mod restore;
mod service;
mod survey;
mod table;
mod ttl;
mod write;

pub use catalogue::Catalogue;
pub use error::{BackupError, FileError, cause};
pub use frame::{FRAME_BYTES_MAX, VERSION as FORMAT_VERSION};
pub use items::{Base, Extent, Header, Totals};
pub use keys::KeepKeys;
pub use marker::{unfinished, unfinished_in};
pub use read::{Entities, Messages, Part, Reader};
pub use restore::{Restored, TtlLeftOff, restore};
pub use rowhouse_store::Estimate;
pub use service::{BackupService, Taking};
pub use survey::{Holder, Latest, Progress, Survey, beginning, check_chain, check_times, survey};
pub use table::{RestoredTable, TableChoice, restore_table};
pub use write::{About, write_full, write_incremental};
