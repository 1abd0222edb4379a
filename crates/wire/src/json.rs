//! JSON as far as the protocol needs it: flat objects in, members out.

pub(crate) mod reader;
mod scan;
pub(crate) mod writer;
