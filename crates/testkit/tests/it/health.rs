//! `rowhouse health`, which containers and load balancers call.

use rowhouse_testkit::{TestServer, binary};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a container's health check calls: it succeeds without a token while the server takes requests, and only then.
#[test]
fn health_says_whether_it_is_ready() {
    let mut server = TestServer::start();
    let admin = format!("http://{}", server.admin_address());
    let health = || {
        let mut command = Command::new(binary());
        command
            .args(["health", "--admin", &admin, "--data", "nowhere"])
            .output()
            .expect("it starts")
    };
    let ready = health();
    assert!(ready.status.success(), "{ready:?}");
    assert_eq!(ready.stdout, b"ready\n");
    server.kill();
    let gone = health();
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("no answer from the server"),
        "{gone:?}"
    );
}

/// The sentence names what is wrong with the address, and a server that is suspended is not said to be missing.
#[test]
fn health_says_what_is_wrong() {
    let mut server = TestServer::start();
    let failed = |url: &str| {
        let output = Command::new(binary()).args(["health", "--admin", url]).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{url}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (table, admin) = (server.address(), server.admin_address());
    assert!(failed(&format!("http://{table}")).contains("is not a Rowhouse admin listener"));
    assert!(failed(&format!("https://{admin}")).contains("does not speak TLS"));
    server.pause();
    assert!(failed(&format!("http://{admin}")).contains("did not answer in time"));
    server.resume();
}

/// Somebody else on the port of a server that is down gets no token, and cannot hold the command up byte by byte.
#[test]
fn health_trusts_nobody_on_the_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = format!("http://{}", listener.local_addr().expect("it is bound"));
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("admin-token"), "SECRET").expect("it can be written");
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n".iter().cycle() {
            std::thread::sleep(Duration::from_millis(300));
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
        }
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let began = Instant::now();
    let mut command = Command::new(binary());
    command.args(["health", "--admin", &admin, "--data"]).arg(directory.path());
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let request = stranger.join().expect("it ends");
    assert!(!request.contains("SECRET") && request.starts_with("GET /readyz "), "{request}");
}
