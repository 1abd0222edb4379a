//! The store on PostgreSQL, with any number of servers on one database.
//!
//! Every promise of [`rowhouse_store::Store`] is kept by the database: one statement or one transaction an
//! operation, conditions judged inside it, answered after its commit. A server holds nothing that another one
//! would miss; what it caches of accounts and tables it uses only while it holds a lease, and a change of either
//! is answered when no other server can still act on what was before.
//!
//! Nothing outside this crate knows of SQL, and nothing in it of HTTP.

mod address;
mod alone;
mod batch;
mod cache;
mod catalogue;
pub mod direct;
mod entity;
mod expire;
mod fault;
mod filter;
mod frozen;
mod index;
mod key;
mod lanes;
mod lease;
mod load;
mod log;
mod membership;
mod names;
mod nodes;
mod options;
mod pool;
mod props;
mod queue;
mod quota;
mod reader;
mod replica;
mod rights;
mod scan;
mod schema;
mod statement;
mod status;
mod store;
mod sweep;
mod ticks;
mod time;
mod tls;

pub use address::{Address, TlsMode, parse_address};
pub use options::{Durability, OpenError, Options, QueueClock, Url};
pub use replica::PostgresReplica;
pub use store::{PostgresStore, Stats};
