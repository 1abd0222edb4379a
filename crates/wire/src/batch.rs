//! Entity group transactions: a multipart request in, a multipart answer out.

mod request;
mod response;

pub use request::{BatchError, Part, Request, boundary, parse};
pub use response::{PartWriter, ResponseWriter};
