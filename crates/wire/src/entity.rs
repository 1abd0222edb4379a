//! Entities as JSON.
//!
//! Reading goes from the body into a record and writing from a record into the answer, without any
//! structure in between. Both keep what JSON alone would lose: the difference between `1` and `1.0`, the
//! eight types, the order of properties.

mod bound;
mod page;
mod read;
mod write;

pub use bound::{fits, most_bytes};
pub use page::{PageWriter, write_page};
pub use read::{EntityBody, EntityError, read};
pub use write::{Context, write_one, write_plain};
pub(crate) use write::{write_members, write_metadata};

#[cfg(test)]
mod tests;
