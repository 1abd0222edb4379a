//! The built server: what clients, operators and crashes do to it.
//!
//! One program for all integration tests of this crate: each more is linked once more.

mod accounts;
mod backup;
mod backup_keys;
mod bad_input;
mod bad_requests;
mod changes;
mod changes_load;
mod citus;
mod exact;
mod expire;
mod full_disk;
mod health;
mod history;
mod indexes;
mod kill;
mod large_pages;
mod layers;
mod links;
mod outbox;
mod pages;
mod polls;
mod postgres;
mod postgres_cluster;
mod postgres_kill;
mod postgres_queue_kill;
mod postgres_serve;
mod postgres_standby;
mod power;
mod protocol;
mod queue;
mod queue_answers;
mod queue_bad_input;
mod queue_kill;
mod queue_signatures;
mod ranges;
mod refusals;
mod restore_table;
mod signatures;
mod start;
mod tail;
mod transfer;
mod transfer_watch;
