//! The vocabulary of Rowhouse: names, keys, values, records, times, grants, limits, and what a cluster looks like.
//!
//! Pure data and functions. No I/O, no async, no clock, and nothing of ours below it: every other
//! crate may use this one. Text that comes from outside becomes one of these types at the edge and is
//! not checked again.

pub mod cluster;
pub mod grant;
pub mod limits;

mod etag;
mod key;
mod name;
mod network;
mod policy;
mod properties;
mod record;
mod rows;
mod time;
mod value;

pub use etag::{Etag, EtagError};
pub use grant::{Access, Denied, Grant, QueueAccess, Service};
pub use key::{Direction, EntityKey, KeyRange, PartitionKey, Position, RowKey};
pub use name::{
    AccountName, FoldedName, IndexName, NameError, QueueName, TableName, check_property_name,
};
pub use network::{Network, NetworkError};
pub use policy::StoredPolicy;
pub use properties::{CorsRule, Logging, Metrics, ServiceProperties, ServicePropertiesUpdate};
pub use record::{
    Corrupt, LimitExceeded, Property, PropertyError, Record, RecordBuilder, RecordRef,
    StoredProperty,
};
pub use rows::{Row, Rows};
pub use time::{IsoText, TimeError, Timestamp};
pub use value::{EdmType, Guid, Value, ValueRef};
