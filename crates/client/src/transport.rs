//! Connections to one service: opened when needed, kept while they work, never shared by two requests.

use crate::error::ClientError;
use crate::target::Endpoint;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// From sending a request to the end of its answer. The services give up after 30 seconds themselves.
const ANSWER_TIME: Duration = Duration::from_secs(90);
/// Largest answer that is read, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection could not be made or broke: another attempt may do.
    Passing(String),
    /// The answer is beyond the limit.
    TooLarge,
    /// The other side is not who it should be.
    Untrusted(String),
    /// The other side does not answer with HTTP.
    NotHttp,
    /// The other side does not encrypt.
    NotTls,
}

/// Connections to one endpoint.
pub(crate) struct Transport {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Transport {
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        let tls = if endpoint.tls { Some(connector()?) } else { None };
        Ok(Self { endpoint, tls, idle: Mutex::default() })
    }

    /// Sends a request on a connection of its own and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, Fault> {
        let mut sender = match self.take_idle() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answer = timeout(ANSWER_TIME, exchange(&mut sender, request)).await;
        let answer = answer.map_err(|_| {
            Fault::Passing(format!("no answer within {} seconds", ANSWER_TIME.as_secs()))
        })??;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Ok(answer)
    }

    /// A connection that is open and has nothing unread on it.
    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|sender| sender.is_ready() && !sender.is_closed())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let late = |_| Fault::Passing("cannot connect in time".to_owned());
        timeout(CONNECT_TIME, self.open()).await.map_err(late)?
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let passing = |error: io::Error| Fault::Passing(error.to_string());
        let address = (self.endpoint.host.as_str(), self.endpoint.port);
        let stream = TcpStream::connect(address).await.map_err(passing)?;
        // Costs nothing to go without.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.endpoint.host.clone())
                    .map_err(|error| Fault::Untrusted(error.to_string()))?;
                let stream =
                    tls.connect(name, stream).await.map_err(|error| match error.kind() {
                        // Neither will be better the next time.
                        io::ErrorKind::InvalidData if is_no_tls(&error) => Fault::NotTls,
                        io::ErrorKind::InvalidData => Fault::Untrusted(error.to_string()),
                        _ => passing(error),
                    })?;
                handshake(stream).await
            }
        }
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transport({})", self.endpoint)
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Fault> {
    let broken = |error: hyper::Error| Fault::Passing(error.to_string());
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Whoever sends on it learns of its end; there is nobody else to tell.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Fault> {
    let broken = |error: hyper::Error| {
        if error.is_parse() { Fault::NotHttp } else { Fault::Passing(error.to_string()) }
    };
    let (head, mut body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if ANSWER_BYTES_MAX < read.len() + data.len() {
                return Err(Fault::TooLarge);
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: read.into() })
}

/// Whether the first bytes of the other side were no record of TLS.
fn is_no_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(_)))
}

fn connector() -> Result<TlsConnector, ClientError> {
    tls().map(TlsConnector::from)
}

/// How to encrypt: certificates and the names in them are checked by the authorities of the operating system, or
/// those of the file that `SSL_CERT_FILE` names.
pub fn tls() -> Result<Arc<ClientConfig>, ClientError> {
    let refuse = |reason: String| ClientError::Certificates(reason);
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(refuse("the operating system has no certificate authorities".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
