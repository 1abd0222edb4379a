//! A connection to the admin API, encrypted or not.

use rowhouse_client::tls;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// Bytes to and from a server.
#[derive(Debug)]
pub(crate) enum AdminStream {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl AdminStream {
    /// Encrypts a connection to a host, whose certificate is checked with the first bytes.
    pub(crate) fn encrypted(stream: TcpStream, host: &str) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let config = tls().map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::Encrypted(Box::new(StreamOwned::new(connection, stream))))
    }

    /// The longest that reading or writing may take each time.
    pub(crate) fn set_patience(&self, time: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(stream) => stream.get_ref(),
        };
        stream.set_read_timeout(Some(time))?;
        stream.set_write_timeout(Some(time))
    }
}

impl Read for AdminStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for AdminStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
