//! Bytes to types and back: URLs, headers, receipts, OData JSON, batch multipart and the XML of the protocol.
//!
//! Everything here is a pure function. What comes from outside is refused with an error that says what
//! is wrong with it; no input panics, and none costs more memory than a small multiple of its length.
//! Which status and which error code an error becomes is decided by the crate that answers requests,
//! and so is the validity of names and keys: they are returned as text.

pub mod batch;
pub mod changes;
pub mod entity;
pub mod error;
pub mod media;
pub mod metadata;
pub mod receipt;
pub mod select;
pub mod tables;
pub mod token;
pub mod uri;
pub mod version;
pub mod xml;

mod json;
mod params;
