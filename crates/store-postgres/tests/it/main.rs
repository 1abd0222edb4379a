//! The PostgreSQL engine on a real PostgreSQL.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod alone;
mod changes;
mod citus;
mod citus_indexes;
mod citus_plans;
mod citus_status;
mod common;
mod conformance;
mod direct;
mod estimate;
mod expire;
mod faults;
mod filters;
mod indexes;
mod lanes;
mod large_queues;
mod load;
mod long_keys;
mod plans;
mod queues;
mod rights;
mod selects;
mod servers;
mod tls;
mod upgrade;
