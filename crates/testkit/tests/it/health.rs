//! `rowhouse health`, which containers and load balancers call.

use rowhouse_testkit::{TestServer, binary};
use std::process::Command;

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
