//! No backup holds a key that can be read: without a master key keys are left out, and an account that was restored has
//! everything but them. On both engines, with the built binary.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_testkit::{Client, DEV_KEY, TestPostgres, TestServer, binary};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const LEFT_OUT: &str =
    "Keys      left out for 1 account: there were none, or no master key to seal them with";
const SEALED: &str = "Keys      sealed: a server needs the master key that this one was taken with";

/// Where a server keeps its data: a directory, or a database.
struct Place {
    parent: TempDir,
    database: Option<String>,
}

impl Place {
    fn new(postgres: Option<&TestPostgres>) -> Self {
        let parent = tempfile::tempdir().expect("a temporary directory can be made");
        Self { parent, database: postgres.map(TestPostgres::create_database) }
    }

    fn serve(&self, arguments: &[&str]) -> TestServer {
        match &self.database {
            None => TestServer::start_in(self.parent.path(), arguments),
            Some(url) => TestServer::start_with_store_and(url, arguments),
        }
    }

    fn restore(&self, files: &[&Path]) -> String {
        let mut command = rowhouse(&["restore"]);
        command.args(files);
        match &self.database {
            None => command.arg("--data").arg(self.parent.path().join("data")),
            Some(url) => command.env("ROWHOUSE_STORE", url),
        };
        success(command)
    }
}

fn rowhouse(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command says that asks a running server.
fn ask(server: &TestServer, arguments: &[&str]) -> String {
    let mut command = rowhouse(arguments);
    command.arg("--admin").arg(format!("http://{}", server.admin_address()));
    command.arg("--admin-token-file").arg(server.data().join("admin-token"));
    success(command)
}

fn success(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn backup(server: &TestServer, file: &Path, base: Option<&Path>) -> String {
    let mut arguments = vec!["backup", file.to_str().expect("UTF-8")];
    if let Some(base) = base {
        arguments.extend(["--incremental", base.to_str().expect("UTF-8")]);
    }
    ask(server, &arguments)
}

/// All bytes of a backup, as they are in the file and as they were before they were compressed.
fn everything_in(file: &Path) -> Vec<u8> {
    let mut all = fs::read(file).expect("it can be read");
    let (bytes, mut at) = (all.clone(), 12);
    while at < bytes.len() {
        let number = |at: usize| {
            let number = bytes[at..at + 4].try_into().expect("four bytes");
            usize::try_from(u32::from_le_bytes(number)).expect("it fits")
        };
        let (length, stored) = (number(at + 1), number(at + 5));
        let content = zstd::bulk::decompress(&bytes[at + 9..at + 9 + stored], length);
        all.extend(content.expect("it is compressed"));
        at += 9 + stored + 8;
    }
    all
}

fn holds(file: &Path, key: &str) -> bool {
    let all = everything_in(file);
    let raw = STANDARD.decode(key).expect("a key is Base64");
    let found = |what: &[u8]| all.windows(what.len()).any(|part| part == what);
    found(&raw) || found(key.as_bytes())
}

/// A server with the account `shop` beside the one for development.
struct Shop {
    keys: [String; 2],
    entities: Vec<Value>,
    policies: String,
}

impl Shop {
    fn open(server: &TestServer) -> Self {
        let told = ask(server, &["account", "create", "shop", "--json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let keys = [0, 1].map(|slot| told["keys"][slot].as_str().expect("a key").to_owned());
        let mut client = Client::with_account(server.address(), "shop", &keys[0]);
        for client in [&mut client, &mut server.client()] {
            client.create_table("Things");
            put(client, 0);
        }
        let policies = "<SignedIdentifiers><SignedIdentifier><Id>p</Id><AccessPolicy>\
            <Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";
        let set = client.request("PUT", "Things?comp=acl", &[], policies.as_bytes());
        assert_eq!(set.status, 204, "{}", set.text());
        Self { keys, entities: Vec::new(), policies: policies_of(&mut client) }
    }

    fn is_whole(&self, client: &mut Client) {
        assert_eq!(client.query("Things", ""), self.entities, "Timestamps and ETags, too");
        assert_eq!(policies_of(client), self.policies);
    }
}

fn policies_of(client: &mut Client) -> String {
    let answer = client.request("GET", "Things?comp=acl", &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

fn put(client: &mut Client, row: u32) {
    let entity = json!({ "PartitionKey": "p", "RowKey": row.to_string(), "n": row });
    assert_eq!(client.insert("Things", &entity).expect("answered").status, 204);
}

/// That nobody gets in with this key, in Base64.
fn is_refused(server: &TestServer, key: &str) {
    let mut client = Client::with_account(server.address(), "shop", key);
    let answer = client.request("GET", "Things()", &[], b"");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("AuthenticationFailed"), "{}", answer.text());
}

fn keys_are_left_out_or_sealed(postgres: Option<&TestPostgres>) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = |name: &str| -> PathBuf { directory.path().join(name) };
    let (full, later, sealed) = (file("full.rhb"), file("later.rhb"), file("sealed.rhb"));
    let place = Place::new(postgres);
    let mut server = place.serve(&["--keep-changes=1h"]);
    let mut shop = Shop::open(&server);
    assert!(backup(&server, &full, None).contains(LEFT_OUT));
    let mut client = Client::with_account(server.address(), "shop", &shop.keys[0]);
    put(&mut client, 1);
    let told = backup(&server, &later, Some(&full));
    assert!(told.contains(LEFT_OUT) && told.contains("1 change since"), "{told}");
    shop.entities = client.query("Things", "");
    assert_eq!(shop.entities.len(), 2);
    let development = server.client().query("Things", "");
    drop(client);
    server.stop();

    let mut verify = rowhouse(&["backup", "verify"]);
    verify.args([&full, &later]);
    assert_eq!(success(verify).matches(LEFT_OUT).count(), 2);
    for file in [&full, &later] {
        assert!(shop.keys.iter().all(|key| !holds(file, key)));
        assert!(holds(file, DEV_KEY), "it is found if it is there, and is no secret");
    }

    // Everything is there but the keys.
    let elsewhere = Place::new(postgres);
    let told = elsewhere.restore(&[&full, &later]);
    assert!(told.contains(LEFT_OUT), "{told}");
    let data = match &elsewhere.database {
        None => elsewhere.parent.path().join("data").display().to_string(),
        Some(_) => "DIR-OF-THE-SERVER".to_owned(),
    };
    for slot in [1, 2] {
        let command = format!("\n  rowhouse account rotate shop --slot {slot} --data {data}\n");
        assert!(told.contains(&command), "{told}");
    }
    let mut server = elsewhere.serve(&[]);
    assert_eq!(server.client().query("Things", ""), development, "its key is public");
    put(&mut server.client(), 1);
    // What stands in the place of a key is none, and neither is nothing.
    let strangers = [&*shop.keys[0], &shop.keys[1], "", "Ag==", "AA==", DEV_KEY];
    for key in strangers {
        is_refused(&server, key);
    }
    // The start tells it, on standard output and in the log, and of no keys that lie open: there are none.
    let log = server.log();
    let note = "shop has no keys, so nobody can sign for it: rowhouse account rotate shop --slot 1";
    assert_eq!(log.matches(note).count(), 2, "{log}");
    assert!(!log.contains("unsealed"), "{log}");
    let listed = |server: &TestServer| {
        let told = ask(server, &["account", "list"]);
        let line = told.lines().find(|line| line.starts_with("shop ")).expect("it is listed");
        line.split_whitespace().last().expect("a column").to_owned()
    };
    assert_eq!(listed(&server), "none");
    let told = ask(&server, &["account", "show", "shop", "--keys"]);
    assert!(told.contains("Key 1     none") && !told.contains("AccountKey"), "{told}");
    let told = ask(&server, &["account", "rotate", "shop", "--slot", "1"]);
    let new = told.lines().last().expect("a key").to_owned();
    assert_eq!(listed(&server), "1");
    shop.is_whole(&mut Client::with_account(server.address(), "shop", &new));
    for key in strangers {
        is_refused(&server, key);
    }
    server.stop();

    // With a master key, what was stored before there was one is sealed for the backup.
    let master = file("master.key");
    fs::write(&master, STANDARD.encode([7; 32])).expect("it can be written");
    let with_master_key = ["--master-key-file", master.to_str().expect("UTF-8")];
    let mut server = place.serve(&with_master_key);
    let told = backup(&server, &sealed, None);
    assert!(told.contains(SEALED) && !told.contains("left out"), "{told}");
    // In the store it still lies open, which the start tells, on standard output and in the log.
    let log = server.log();
    let note = "the keys of shop still lie unsealed in ";
    assert_eq!(log.matches(note).count(), 2, "{log}");
    assert!(log.contains("; this seals them: rowhouse account rotate shop --slot 1"), "{log}");
    server.stop();
    assert!(shop.keys.iter().all(|key| !holds(&sealed, key)));
    let elsewhere = Place::new(postgres);
    let told = elsewhere.restore(&[&sealed]);
    assert!(told.contains(SEALED) && !told.contains("rotate"), "{told}");
    let server = elsewhere.serve(&with_master_key);
    for key in &shop.keys {
        shop.is_whole(&mut Client::with_account(server.address(), "shop", key));
    }
    assert_eq!(server.client().query("Things", ""), development);
}

#[test]
fn keys_are_in_no_backup_but_sealed() {
    keys_are_left_out_or_sealed(None);
}

#[test]
fn keys_are_in_no_backup_but_sealed_on_postgres() {
    keys_are_left_out_or_sealed(Some(&TestPostgres::start()));
}
