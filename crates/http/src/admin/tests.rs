//! The admin listener as a client sees it: tokens, scopes, hosts, and each call of the API.

use super::*;
use crate::listener::{Limits, Listener, Tls};
use rowhouse_env::{Random as _, SeededRandom, SimulatedClock, SystemRandom};
use rowhouse_service_account::DEVELOPMENT_KEY;
use rowhouse_service_account::Sealer;
use rowhouse_service_backup::KeepKeys;
use rowhouse_store::model::ModelStore;
use rowhouse_store::{Batch, Command, Condition, Placement, Store as _, Write};
use rowhouse_types::cluster::{Cluster, ClusterStatus, Load, Node, Role, Shard};
use rowhouse_types::{EntityKey, RecordBuilder, Timestamp, ValueRef};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

const ALL: &str = "token-for-everything";
const READ: &str = "token-for-reading";
const OPERATE: &str = "token-for-operating";
const KEYS: &str = "token-for-keys-only";
const BACKUP: &str = "token-for-backups";

struct Running {
    address: std::net::SocketAddr,
    store: Arc<ModelStore>,
    ready: Arc<AtomicBool>,
    warning: Arc<AtomicBool>,
    _stop: watch::Sender<bool>,
}

fn start(loopback: bool) -> Running {
    start_with(loopback, None)
}

fn start_with(loopback: bool, tls: Option<Tls>) -> Running {
    start_within(loopback, tls, Limits::default())
}

fn start_within(loopback: bool, tls: Option<Tls>, limits: Limits) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let lines = format!("{ALL}\n{READ} read\n{OPERATE} operate\n{KEYS} keys\n{BACKUP} backup\n");
    std::fs::write(&file, lines).unwrap();
    let ready = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&ready);
    let warning = Arc::new(AtomicBool::new(false));
    let off = Arc::clone(&warning);
    let clock = Arc::new(SimulatedClock::new(Timestamp::EDM_MIN));
    let store = Arc::new(ModelStore::new(Arc::<SimulatedClock>::clone(&clock)));
    let accounts = AccountService::new(
        Arc::<ModelStore>::clone(&store),
        Sealer::unsealed(),
        Arc::new(SystemRandom),
    );
    let accounts = Arc::new(accounts);
    let sealed = Arc::clone(&accounts);
    let admin = Admin {
        accounts,
        backups: Arc::new(BackupService::new(
            Arc::<ModelStore>::clone(&store),
            clock,
            Arc::new(SystemRandom),
            KeepKeys::new(move |account| sealed.keys_for_backup(account)),
            "test",
        )),
        readiness: Arc::new(move || {
            if !asked.load(SeqCst) {
                return Err("the disk is full".to_owned());
            }
            Ok(off.load(SeqCst).then(|| "the clock is wrong".to_owned()))
        }),
        cluster: Arc::new(|| Box::pin(std::future::ready(Ok(hot_cluster())))),
        metrics: Arc::default(),
        tokens: Arc::new(Tokens::load(&file, &SeededRandom::new(1)).unwrap()),
        loopback,
        endpoints: Endpoints {
            table: "http://127.0.0.1:10002".to_owned(),
            queue: "http://127.0.0.1:10001".to_owned(),
        },
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), tls, limits).unwrap();
    let address = listener.local_addr();
    let (stop, shutdown) = watch::channel(false);
    tokio::spawn(listener.serve(Arc::new(admin), shutdown));
    Running { address, store, ready, warning, _stop: stop }
}

/// Two nodes with four shards, one of which is busy.
fn hot_cluster() -> ClusterStatus {
    let node = |id| {
        let (host, role) = ("db.example".to_owned(), Role::Worker);
        Node { id, host, port: 5432, role, active: true, reachable: id == 1 }
    };
    let shard = |id, node, busy_ms_per_second| {
        let load = Load { busy_ms_per_second, ..Load::default() };
        Shard { id, node: Some(node), from: -1, to: 0, bytes: None, rows: Some(5), load }
    };
    let shards = vec![shard(7, 1, 1.0), shard(8, 1, 1.0), shard(9, 2, 1.0), shard(10, 2, 400.0)];
    ClusterStatus::Citus(Cluster { nodes: vec![node(1), node(2)], shards, ..Cluster::default() })
}

impl Running {
    /// The head of the answer to a request.
    async fn head_of(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        String::from_utf8_lossy(&answer[..end + 4]).into_owned()
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        exchange(stream, method, path, headers, body).await
    }

    async fn call(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let headers = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
        let (status, text) = self.send(method, path, &headers, body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

/// Sends one request and reads the status and the body of the answer.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n\
         {headers}\r\n{body}"
    );
    let (status, body) = exchange_bytes(&mut stream, request.as_bytes()).await;
    (status, String::from_utf8(body).unwrap())
}

/// Sends these bytes and reads the status and the body of the answer.
async fn exchange_bytes(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
) -> (u16, Vec<u8>) {
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let status = str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer.split_off(end + 4))
}

#[tokio::test]
async fn probes_are_open_on_loopback() {
    let server = start(true);
    let host = "host: 127.0.0.1:10003\r\n";
    assert_eq!(server.send("GET", "/healthz", host, "").await, (200, "ok\n".to_owned()));
    assert_eq!(server.send("GET", "/readyz", host, "").await, (200, "ready\n".to_owned()));
    server.warning.store(true, SeqCst);
    let warned = (200, "ready\nwarning: the clock is wrong\n".to_owned());
    assert_eq!(server.send("GET", "/readyz", host, "").await, warned);
    let (status, figures) = server.send("GET", "/metrics", host, "").await;
    assert!(status == 200 && figures.contains("# TYPE rowhouse_requests_total counter"));
    server.ready.store(false, SeqCst);
    let unready = (503, "the disk is full\n".to_owned());
    assert_eq!(server.send("GET", "/readyz", host, "").await, unready);
    assert_eq!(server.send("GET", "/healthz", host, "").await.0, 200);
}

#[tokio::test]
async fn hosts_are_checked_on_loopback() {
    let server = start(true);
    let cases = [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:10003", 200),
        ("[::1]", 200),
        ("[::1]:10003", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::1]evil.example", 403),
        ("192.168.1.1", 403),
        ("", 403),
    ];
    for (host, expected) in cases {
        let (status, body) = server.send("GET", "/healthz", &format!("host: {host}\r\n"), "").await;
        assert_eq!(status, expected, "{host}: {body}");
        let headers = format!("host: {host}\r\nauthorization: Bearer {ALL}\r\n");
        let (status, body) = server.send("GET", "/v1/accounts", &headers, "").await;
        assert_eq!(status, expected, "{host}: {body}");
    }
}

/// Without TLS nothing at all is answered on a network, whatever the token.
#[tokio::test]
async fn a_network_needs_tls() {
    let server = start(false);
    for path in ["/healthz", "/metrics", "/v1/accounts", "/nothing"] {
        let (status, body) = server.call(ALL, "GET", path, "").await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("TlsRequired")), "{path}");
    }
}

/// With TLS everything takes a token: the probes too, and what is not there.
#[tokio::test]
async fn a_network_needs_a_token_for_everything() {
    let directory = tempfile::tempdir().unwrap();
    let now = Timestamp::from_unix(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
    let tls = Tls::self_signed(directory.path(), &[], now).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(tls.certificate_file()).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let server = start_with(false, Some(tls));
    let cases: [(&str, Option<&str>, u16); 10] = [
        ("/healthz", None, 401),
        ("/readyz", None, 401),
        ("/metrics", None, 401),
        ("/nothing", None, 401),
        ("/v1/accounts", None, 401),
        ("/metrics", Some(KEYS), 403),
        ("/metrics", Some(READ), 200),
        ("/healthz", Some(READ), 200),
        ("/nothing", Some(READ), 404),
        ("/v1/accounts", Some(READ), 200),
    ];
    for (path, token, expected) in cases {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let headers = format!("host: rowhouse.example\r\n{}", token.unwrap_or_default());
        let stream = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (status, body) = exchange(stream, "GET", path, &headers, "").await;
        assert_eq!(status, expected, "{path} {headers}: {body}");
    }
}

#[tokio::test]
async fn every_call_needs_its_scope() {
    let server = start(true);
    let rotate = "/v1/accounts/absent/keys/1/rotate";
    // Per call: what a token of each scope gets. 404 and 400 come after the token was accepted.
    let cases = [
        ("GET", "/v1/accounts", [200, 403, 403, 403]),
        ("GET", "/v1/accounts/absent", [404, 403, 403, 403]),
        ("POST", "/v1/accounts", [403, 400, 403, 403]),
        ("DELETE", "/v1/accounts/absent", [403, 404, 403, 403]),
        ("GET", "/v1/accounts/absent/keys", [403, 403, 404, 403]),
        ("POST", rotate, [403, 403, 404, 403]),
        ("GET", "/v1/backup?base=none", [403, 403, 403, 400]),
        ("POST", "/v1/accounts/absent/tables/New/restore?table=Old", [403, 404, 403, 403]),
        ("GET", "/v1/cluster", [200, 403, 403, 403]),
    ];
    for (method, path, expected) in cases {
        for (token, expected) in [READ, OPERATE, KEYS, BACKUP].into_iter().zip(expected) {
            let (status, body) = server.call(token, method, path, "").await;
            assert_eq!(status, expected, "{method} {path} {token}: {body}");
        }
        for headers in [
            "host: localhost\r\n".to_owned(),
            "host: localhost\r\nauthorization: Bearer wrong-wrong-wrong\r\n".to_owned(),
            format!("host: localhost\r\nauthorization: Basic {ALL}\r\n"),
            format!("host: localhost\r\nauthorization: {ALL}\r\n"),
        ] {
            let (status, body) = server.send(method, path, &headers, "").await;
            assert_eq!(status, 401, "{method} {path} {headers}: {body}");
        }
    }
}

#[tokio::test]
async fn accounts_live() {
    let server = start(true);
    let create = r#"{"name":"shop"}"#;
    let (status, shop) = server.call(ALL, "POST", "/v1/accounts", create).await;
    assert_eq!(status, 201, "{shop}");
    let keys: Vec<&str> =
        shop["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{shop}");
    assert_eq!(server.call(ALL, "POST", "/v1/accounts", create).await.0, 409);

    let (_, list) = server.call(READ, "GET", "/v1/accounts", "").await;
    assert_eq!(list["accounts"][0]["name"], "shop");
    assert_eq!(list["accounts"][0].get("keys"), None, "reading shows no keys");
    assert_eq!(list["accounts"][0]["key_count"], 2);
    let (_, shown) = server.call(READ, "GET", "/v1/accounts/shop", "").await;
    assert_eq!((&shown["created"], shown.get("keys")), (&shop["created"], None));
    let (_, shown) = server.call(KEYS, "GET", "/v1/accounts/shop/keys", "").await;
    assert_eq!(shown["keys"], shop["keys"]);
    assert_eq!(shown["endpoint"], "http://127.0.0.1:10002/shop");
    assert_eq!(shown["queue_endpoint"], "http://127.0.0.1:10001/shop");

    let path = "/v1/accounts/shop/keys/2/rotate";
    let (status, rotated) = server.call(KEYS, "POST", path, "").await;
    assert_eq!((status, &rotated["slot"]), (200, &json!(2)), "{rotated}");
    let (_, shown) = server.call(KEYS, "GET", "/v1/accounts/shop/keys", "").await;
    assert_eq!(shown["keys"], json!([shop["keys"][0], rotated["key"]]), "the other stays");
    let key = format!("{}A=", "S".repeat(42));
    let chosen = json!({ "key": key }).to_string();
    let (_, rotated) = server.call(KEYS, "POST", path, &chosen).await;
    assert_eq!(rotated["key"], key);
    assert_eq!(server.call(KEYS, "POST", path, r#"{"key":"c2VjcmV0"}"#).await.0, 400, "short");
    let (status, answer) = server.call(KEYS, "POST", "/v1/master-key/reseal", "").await;
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("NoMasterKey")));
    assert_eq!(server.call(OPERATE, "POST", "/v1/master-key/reseal", "").await.0, 403);

    assert_eq!(server.call(OPERATE, "DELETE", "/v1/accounts/shop", "").await.0, 204);
    assert_eq!(server.call(OPERATE, "DELETE", "/v1/accounts/shop", "").await.0, 404);
}

#[tokio::test]
async fn a_cluster_is_shown_with_what_it_amounts_to() {
    let (status, shown) = start(true).call(READ, "GET", "/v1/cluster", "").await;
    assert_eq!((status, &shown["engine"]), (200, &json!("citus")), "{shown}");
    assert_eq!(shown["nodes"][1]["reachable"], false);
    assert_eq!(
        (&shown["shards"][0]["bytes"], &shown["shards"][0]["rows"]),
        (&Value::Null, &json!(5))
    );
    assert_eq!(shown["shards"][3]["load"]["busy_ms_per_second"], 400.0);
    assert_eq!(shown["skew"]["shard_load"]["id"], 10);
    assert!(shown["hint"].as_str().is_some_and(|hint| hint.contains("Shard 10")), "{shown}");
}

/// Who may create but not handle keys neither sees nor chooses them.
#[tokio::test]
async fn creating_is_not_handling_keys() {
    let server = start(true);
    let (status, shop) = server.call(OPERATE, "POST", "/v1/accounts", r#"{"name":"shop"}"#).await;
    assert_eq!((status, shop.get("keys")), (201, None));
    let keys = ["A", "B"].map(|letter| format!("{}A=", letter.repeat(42)));
    let chosen = json!({ "name": "mine", "keys": keys }).to_string();
    assert_eq!(server.call(OPERATE, "POST", "/v1/accounts", &chosen).await.0, 403);
    let (status, mine) = server.call(ALL, "POST", "/v1/accounts", &chosen).await;
    assert_eq!((status, &mine["keys"]), (201, &json!(keys)));
    let public = json!({ "name": "open", "keys": [keys[0], DEVELOPMENT_KEY] }).to_string();
    assert_eq!(server.call(ALL, "POST", "/v1/accounts", &public).await.0, 400, "everybody has it");
}

#[tokio::test]
async fn bad_requests_are_told_apart() {
    let server = start(true);
    let large = format!(r#"{{"name":"{}"}}"#, "a".repeat(limits::ADMIN_BODY_BYTES_MAX));
    // 31 bytes are one too few.
    let key = format!("{}==", "A".repeat(42));
    let short = format!(r#"{{"name":"good","keys":["{key}","{key}"]}}"#);
    let cases = [
        ("POST", "/v1/accounts", "", 400),
        ("POST", "/v1/accounts", "{", 400),
        ("POST", "/v1/accounts", r#"{"name":"UPPER"}"#, 400),
        ("POST", "/v1/accounts", r#"{"name":"good","more":1}"#, 400),
        ("POST", "/v1/accounts", r#"{"name":"good","keys":["?","YQ=="]}"#, 400),
        ("POST", "/v1/accounts", short.as_str(), 400),
        ("POST", "/v1/accounts", large.as_str(), 413),
        ("POST", "/v1/accounts/good/keys/3/rotate", "", 404),
        ("GET", "/v1/accounts/NOT-A-NAME", "", 404),
        ("GET", "/v1/accounts/", "", 404),
        ("GET", "/v1/nothing", "", 404),
        ("GET", "/", "", 404),
        ("PUT", "/v1/accounts", "", 405),
        ("POST", "/v1/cluster", "", 405),
        ("GET", "/v1/cluster/nodes", "", 404),
        ("POST", "/healthz", "", 405),
        ("POST", "/v1/backup", "", 405),
        ("GET", "/v1/backup?since=1", "", 400),
        ("GET", "/v1/backup?place=1", "", 400),
        ("GET", "/v1/backup?base=00000000-0000-0000-0000-000000000000&place=0", "", 409),
        ("GET", "/v1/accounts/good/tables/New/restore", "", 405),
        ("POST", "/v1/accounts/good/tables/New/restore", "", 400),
        ("POST", "/v1/accounts/good/tables/a_b/restore?table=Old", "", 400),
        ("POST", "/v1/accounts/good/tables/New/restore?table=Old", "", 404),
    ];
    for (method, path, body, expected) in cases {
        let (status, answer) = server.call(ALL, method, path, body).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| m.ends_with('.')), "{answer}");
    }
}

/// Everything in one answer, and a table of it back through one request.
#[tokio::test]
async fn a_backup_goes_out_and_a_table_comes_back() {
    let server = start(true);
    assert_eq!(server.call(OPERATE, "POST", "/v1/accounts", r#"{"name":"shop"}"#).await.0, 201);
    let shop = server.store.account(&"shop".parse().unwrap()).await.unwrap().unwrap();
    let old = "Old".parse().unwrap();
    let table = server.store.create_table(shop.id, &old, Placement::default()).await.unwrap();
    let (key, condition) = (EntityKey::new("p", "r").unwrap(), Condition::Any);
    let write = Write::Put(RecordBuilder::new().finish(Timestamp::default()));
    let command = Command::Entity { table: table.id, key, condition, write };
    server.store.commit(Batch::of(command)).await.unwrap();
    // In this version a body ends with its connection.
    let get = format!("GET /v1/backup HTTP/1.0\r\nauthorization: Bearer {BACKUP}\r\n\r\n");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let (status, backup) = exchange_bytes(&mut stream, get.as_bytes()).await;
    assert_eq!(status, 200);
    assert!(backup.starts_with(b"\x89RHB"));
    let estimate = server.head_of(&get).await;
    assert!(estimate.contains("\r\nx-rowhouse-estimate: items=1\r\n"), "{estimate}");

    let restore = async |table: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/accounts/shop/tables/{table}/restore?table=old HTTP/1.1\r\n\
             host: localhost\r\nauthorization: Bearer {OPERATE}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = [head.as_bytes(), body].concat();
        let (status, body) = exchange_bytes(&mut stream, &request).await;
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, body) = restore("New", &backup).await;
    let expected = json!({
        "account": "shop",
        "table": "New",
        "items": 1,
        "changes": 0,
        "indexes": 0,
        "indexesLeftOut": 0,
        "resumed": false,
        "ttlLeftOff": false,
    });
    assert_eq!((status, body), (200, expected));
    let new = server.store.table(shop.id, &"new".parse().unwrap()).await.unwrap();
    assert_eq!(new.unwrap().name.as_str(), "New");
    let (status, body) = restore("New", &backup).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("TableExists")));
    let (status, body) = restore("Newer", &backup[..backup.len() - 1]).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("BadBackup")));
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("The backup is cut short") && message.ends_with('.'), "{message}");
}

/// A client that stalls loses its backup, and what the store keeps for it is let go of.
#[tokio::test]
async fn a_stalled_backup_ends() {
    let limits = Limits { head_time: Duration::from_millis(300), ..Limits::default() };
    let server = start_within(true, None, limits);
    assert_eq!(server.call(OPERATE, "POST", "/v1/accounts", r#"{"name":"shop"}"#).await.0, 201);
    let shop = server.store.account(&"shop".parse().unwrap()).await.unwrap().unwrap();
    let name = "Noise".parse().unwrap();
    let table = server.store.create_table(shop.id, &name, Placement::default()).await.unwrap();
    let chance = SeededRandom::new(1);
    for row in 0..400 {
        // More than sockets hold, and nothing that could be compressed.
        let mut noise = vec![0; 64 * 1024];
        chance.fill(&mut noise);
        let mut builder = RecordBuilder::new();
        builder.push("noise", ValueRef::Binary(&noise)).unwrap();
        let write = Write::Put(builder.finish(Timestamp::EDM_MIN));
        let key = EntityKey::new("p", &row.to_string()).unwrap();
        let command = Command::Entity { table: table.id, key, condition: Condition::Any, write };
        server.store.commit(Batch::of(command)).await.unwrap();
    }
    let get = format!("GET /v1/backup HTTP/1.0\r\nauthorization: Bearer {BACKUP}\r\n\r\n");
    let mut stalled = TcpStream::connect(server.address).await.unwrap();
    stalled.write_all(get.as_bytes()).await.unwrap();
    stalled.read_exact(&mut [0; 16]).await.unwrap();
    let busy = server.call(BACKUP, "GET", "/v1/backup", "").await;
    assert_eq!((busy.0, &busy.1["error"]["code"]), (503, &json!("ServerBusy")));
    let began = std::time::Instant::now();
    loop {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(get.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        if head.ends_with(b"200") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it lets go of the snapshot");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
