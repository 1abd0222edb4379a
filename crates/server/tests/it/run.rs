//! A whole server in this process: what it takes to start, and what is left when it stops.

use rowhouse_server::{Config, MasterKey, ServerError, run};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Quiet, on free ports, with everything under one directory.
fn config(directory: &Path) -> Config {
    Config {
        data: directory.join("data"),
        table_port: 0,
        queue_port: 0,
        admin_port: 0,
        quiet: true,
        ready_file: Some(directory.join("ready.json")),
        ..Config::default()
    }
}

struct Running {
    table: String,
    admin: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServerError>>,
}

async fn start(config: &Config) -> Running {
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(run(config.clone(), async {
        let _ = stopped.await;
    }));
    let ready = config.ready_file.as_ref().unwrap();
    let begin = Instant::now();
    let text = loop {
        if let Ok(text) = std::fs::read_to_string(ready) {
            break text;
        }
        assert!(!ended.is_finished(), "{:?}", ended.await);
        assert!(begin.elapsed() < Duration::from_secs(20), "is ready in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let ready: Value = serde_json::from_str(&text).unwrap();
    let address = |name: &str| ready[name].as_str().unwrap().replace("http://", "");
    Running { table: address("table"), admin: address("admin"), stop, ended }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
    }
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Why a server does not start.
async fn refusal(config: &Config) -> String {
    run(config.clone(), std::future::ready(())).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_server_starts_answers_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    for _ in 0..2 {
        let server = start(&config).await;
        assert!(get(&server.admin, "/healthz").await.contains("200 OK"));
        assert!(get(&server.admin, "/readyz").await.contains("200 OK"));
        let figures = get(&server.admin, "/metrics").await;
        assert!(figures.contains("\nrowhouse_store_ready 1\n"), "{figures}");
        let answer = get(&server.table, "/devstoreaccount1/Tables").await;
        assert!(answer.contains("403 Forbidden"), "no signature, no answer: {answer}");
        assert!(refusal(&Config { ready_file: None, ..config.clone() }).await.contains("in use"));
        server.stop().await;
        assert!(!config.ready_file.as_ref().unwrap().exists());
    }
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let table_port = taken.local_addr().unwrap().port();
    let config = Config { table_port, ..config(directory.path()) };
    let sentence = refusal(&config).await;
    assert!(sentence.contains(&format!("port {table_port} of 127.0.0.1 is in use")), "{sentence}");
    drop(taken);
    start(&config).await.stop().await;
}

/// Data made on a laptop are not served to a network with the key that everybody knows.
#[tokio::test]
async fn the_public_key_does_not_come_along() {
    let directory = tempfile::tempdir().unwrap();
    let laptop = config(directory.path());
    start(&laptop).await.stop().await;
    let site = Config { development_account: false, ..laptop.clone() };
    let sentence = refusal(&site).await;
    assert!(sentence.contains("rowhouse account rotate devstoreaccount1"), "{sentence}");
    let network = Config { host: "0.0.0.0".parse().unwrap(), ..laptop };
    let sentence = refusal(&network).await;
    assert!(sentence.contains("--allow-development-key-on-network"), "{sentence}");
}

#[tokio::test]
async fn sealed_accounts_need_their_master_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = |byte: &str| MasterKey::Text(byte.repeat(32));
    let with = |master_key| Config { master_key, ..config(directory.path()) };
    start(&with(key("ab"))).await.stop().await;
    for wrong in [key("cd"), MasterKey::None] {
        let sentence = refusal(&with(wrong)).await;
        assert!(sentence.contains("the accounts cannot be opened"), "{sentence}");
    }
    assert!(refusal(&with(MasterKey::Text("short".into()))).await.contains("32 bytes"));
    start(&with(key("ab"))).await.stop().await;
}

#[tokio::test]
async fn ephemeral_keeps_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { ephemeral: true, ..config(directory.path()) };
    let server = start(&config).await;
    assert!(get(&server.admin, "/readyz").await.contains("200 OK"));
    server.stop().await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_work_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let good = config(directory.path());
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let cases = [
        (Config { data: file.clone(), ..good.clone() }, "not a directory"),
        (
            Config { tls_cert: Some(file.clone()), tls_key: Some(file.clone()), ..good.clone() },
            "does not hold a certificate",
        ),
        (Config { admin_token_file: Some(file.clone()), ..good.clone() }, "at least 16 characters"),
        (Config { admin_token_file: Some("absent".into()), ..good.clone() }, "cannot read"),
        (Config { ready_file: Some("absent/ready".into()), ..good.clone() }, "cannot write"),
    ];
    for (config, expected) in cases {
        let sentence = refusal(&config).await;
        assert!(sentence.contains(expected) && !sentence.contains('\n'), "{expected}: {sentence}");
    }
}
