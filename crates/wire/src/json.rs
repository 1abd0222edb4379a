//! JSON as far as the protocol needs it: flat objects in, members out.

pub(crate) mod reader;
pub(crate) mod writer;
