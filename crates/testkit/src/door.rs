//! A server that moves, at an address that does not.

use crate::server::TestServer;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// An address that stays while the server behind it changes its port.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    behind: Arc<Mutex<SocketAddr>>,
}

impl Door {
    /// In front of a server.
    pub fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let behind = Arc::new(Mutex::new(server.address()));
        let open = Arc::clone(&behind);
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let address = *open.lock().expect("no panic");
                let Ok(client) = client else { continue };
                if let Ok(server) = TcpStream::connect(address) {
                    join(&client, &server);
                    join(&server, &client);
                }
            }
        });
        Self { address, behind }
    }

    /// What clients are told.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on to that server.
    pub fn lead_to(&self, server: &TestServer) {
        *self.behind.lock().expect("no panic") = server.address();
    }
}

/// Passes on everything until either side ends.
fn join(from: &TcpStream, to: &TcpStream) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be copied");
    let (mut from, mut to) = (copy(from), copy(to));
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        for stream in [from, to] {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
}
