//! A client of the Table protocol, and what moves tables with it: export, import and copy.
//!
//! The other side may be Rowhouse, Azure or Azurite: nothing here asks for more than the protocol that they
//! share, but what is said to be Rowhouse's own. Values keep their types exactly. Memory is bounded: tables are read page by page, answers have a
//! limit, and no more than a few pages are on their way at a time. What is repeated after a fault is safe to
//! repeat: writes of a transfer replace, or are compared with what is there.
//!
//! [`Target`] says where a service is and who asks, [`Client`] asks it. [`files`] reads and writes entities as
//! lines of JSON, as CSV and from Azurite's data file. [`export`], [`import`] and [`copy`] are the transfers;
//! each can be interrupted at any point and resumed. [`watch`] goes on after a copy with what is changed.

mod apply;
mod batch;
mod beside;
mod changes;
mod client;
pub mod copy;
mod delete;
mod digest;
mod entity;
mod error;
pub mod export;
pub mod files;
mod following;
pub mod import;
mod index;
mod lanes;
mod loader;
mod progress;
mod queue;
mod range;
mod retry;
pub mod sas;
mod saved;
mod state;
mod stop;
mod target;
mod transport;
mod ttl;
pub mod watch;
mod written;

pub use batch::Operation;
pub use beside::{Note, Policies};
pub use changes::ChangesPage;
pub use client::{Client, Page, Place, Query, Write};
pub use delete::{Deleted, Deletion};
pub use digest::Digest;
pub use entity::Entity;
pub use error::{ClientError, ServiceError, TransferError};
pub use following::{Following, Notice};
pub use index::{Asked, CostlyQuery, Index, IndexState, NewIndex};
pub use loader::{OnConflict, Refused};
pub use progress::Progress;
pub use queue::{Life, Moved, NewMessage, TakenMessage};
pub use range::Range;
pub use stop::{Stop, Stopper};
pub use target::{Target, TargetError};
pub use transport::tls;
pub use ttl::Ttl;
pub use written::{WrittenEntity, WrittenPage, WrittenValue};
