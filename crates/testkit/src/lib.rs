//! What tests of the whole product share: the built server, and a client that may also misbehave.
//!
//! [`TestServer`] runs the binary on free ports and a directory of its own, kills and restarts it.
//! [`TestPostgres`] does the same with a PostgreSQL for the engine that needs one, [`TestCitus`] is a cluster that somebody
//! else runs.
//! [`Client`] speaks the protocol with Shared Key signatures; [`Connection`] below it sends any bytes, so
//! that a test can say what no library would. Both block: a test that wants many at once uses threads.
//! [`page`] follows the documentation as its reader would.
//!
//! A development dependency of all but the load tool, which measures on a [`TestPostgres`] too. Helpers panic,
//! with the reason, where a test could not go on.

mod batch;
#[cfg(unix)]
mod citus;
mod client;
mod connection;
mod door;
pub mod history;
mod load;
mod messages;
#[cfg(unix)]
pub mod page;
#[cfg(unix)]
mod pair;
#[cfg(unix)]
mod postgres;
#[cfg(unix)]
mod power;
mod server;
#[cfg(unix)]
mod small_disk;
mod turnover;
mod victim;

pub use batch::{BatchAnswer, Operation, Part, multipart};
#[cfg(unix)]
pub use citus::{TestCitus, Worker};
pub use client::{Client, DEV_ACCOUNT, DEV_KEY, Retries, encode, entity_path};
pub use connection::{Connection, Response};
pub use door::Door;
pub use load::{Cutoff, Load, Losses, Tally};
pub use messages::Messages;
#[cfg(unix)]
pub use pair::{Blow, Pair, wait_until};
#[cfg(unix)]
pub use postgres::TestPostgres;
#[cfg(unix)]
pub use power::{Disk, HeldBack, Image, Liar};
pub use server::{TestServer, binary, count_from, is_release, seed};
#[cfg(unix)]
pub use small_disk::SmallDisk;
pub use turnover::Turnover;
pub use victim::Victim;
