//! The edge: where bytes on a socket become typed operations and back.
//!
//! `listener` accepts connections and caps what a client may cost before it is known. A [`Handler`]
//! answers requests: the services in `table` and `queue`, behind the `front` that they share, and the administration in `admin`. Status codes and error
//! codes exist here and nowhere below.

pub mod admin;
pub mod listener;
pub mod telemetry;

mod front;
mod queue;
mod table;

pub use front::{Front, FrontConfig, PublicKey};
pub use queue::{QueueHandler, QueueHandlerConfig};
pub use table::{Outbox, TableHandler, TableHandlerConfig};

use bytes::Bytes;
use std::net::SocketAddr;

/// A request as it came in, its body unread.
pub type Request = http::Request<hyper::body::Incoming>;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Answers requests. Never fails: a failure is a response too.
pub trait Handler: Send + Sync + 'static {
    /// What its answers carry: whole bodies, or such as are made while they are sent.
    type Body: http_body::Body<Data = Bytes, Error: Into<BoxError>> + From<Bytes> + Send + 'static;

    /// Answers one request.
    fn handle(
        &self,
        request: Request,
        peer: Peer,
    ) -> impl Future<Output = http::Response<Self::Body>> + Send;

    /// Says that there is no room for the connection that a request came on. Nothing else becomes of the request.
    fn busy(&self, request: &http::request::Parts) -> http::Response<Self::Body>;
}

/// Why a body ended early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
