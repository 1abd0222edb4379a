//! The server as one thing: configuration in, a running service out.
//!
//! [`run`] opens the engine, builds the services on it, starts the listeners and says when it is
//! ready; once told to stop it drains, closes the store and returns. Whatever keeps it from
//! starting is a [`ServerError`] whose text is one sentence that says what to do next.
//!
//! Here is the only place that chooses an engine, and the only one that knows all layers. Rules of
//! the protocol and of storage are below; flags and files are above, in the binary.

mod accounts;
mod announce;
mod backup;
mod banner;
mod changes;
mod check;
mod config;
mod database;
mod engine;
mod error;
mod figures;
mod files;
mod keys_held;
mod logging;
mod master_key;
mod notes;
mod restore;
mod run;
mod shell;
mod signals;

pub use backup::{read_base, receive_backup, verify_backup};
pub use check::{Checked, add_checksums, check};
pub use config::{Config, KeepChanges, LogFormat};
pub use database::{DatabaseAddress, StorePassword};
pub use error::ServerError;
pub use keys_held::KeysHeld;
pub use logging::start as start_logging;
pub use master_key::MasterKey;
pub use restore::{RestoreChoice, restore};
pub use rowhouse_service_backup::{
    BackupError, Base, Catalogue, Estimate, Extent, FileError, Header, Progress, Restored, Survey,
    TtlLeftOff, check_chain,
};
pub use rowhouse_store::{Table, Ttl};
pub use rowhouse_store_embedded::{CheckReport, OpenError};
pub use rowhouse_store_postgres::OpenError as DatabaseError;
pub use run::{run, run_until_signalled};
pub use shell::quoted;

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Name of the file in the data directory that holds the token of the admin API.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";
