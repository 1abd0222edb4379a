//! What commands print: what is wrong, what to do next, and how to go on.

use crate::cli::{Server, failure, output, rowhouse, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server whose tables and queues commands reach by a variable.
struct Site {
    directory: tempfile::TempDir,
    server: Server,
}

impl Site {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), &[&["--ephemeral"], arguments].concat());
        Self { directory, server }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn url(&self, name: &str) -> &str {
        self.server.ready[name].as_str().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let connection = self.url("connectionString");
        rowhouse(self.path(), arguments).env("ROWHOUSE_CONNECTION", connection).output().unwrap()
    }

    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn fails(&self, arguments: &[&str]) -> String {
        failure(&self.run(arguments))
    }

    /// A table of so many people.
    fn fill(&self, table: &str, count: usize) {
        let row = |n: usize| {
            json!({
                "PartitionKey": format!("p{}", n % 3),
                "RowKey": format!("{n:04}"),
                "Name": format!("Name {n}"),
                "Age": n,
                "Big@odata.type": "Edm.Int64",
                "Big": n.to_string(),
                "Code": n.to_string(),
            })
        };
        let lines: Vec<String> = (0..count).map(|n| row(n).to_string()).collect();
        fs::write(self.path().join("rows.ndjson"), lines.join("\n")).unwrap();
        self.prints(&["import", table, "rows.ndjson", "--create"]);
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Two of them side by side, with an account made on each: nothing but the ready file is known.
#[test]
fn any_free_port_and_a_ready_file_with_everything() {
    let sites = [Site::start(&["--quiet"]), Site::start(&["--quiet"])];
    for site in &sites {
        let token = site.url("adminTokenFile");
        assert!(Path::new(token).is_absolute(), "{token}");
        let create = ["account", "create", "shop", "--admin", site.url("admin")];
        let create = output(site.path(), &[&create[..], &["--admin-token-file", token]].concat());
        assert!(create.status.success(), "{}", stderr(&create));
        site.prints(&["table", "create", "People"]);
        assert_eq!(site.prints(&["table", "list"]), "People\n");
    }
    assert_ne!(sites[0].url("admin"), sites[1].url("admin"));
    for site in sites {
        site.server.stop();
    }
}

#[test]
fn nothing_is_made_before_all_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--tls-cert", "nope.pem", "--tls-key", "nope.pem"][..], "nope.pem"),
        (&["--master-key-file", "nope.key"], "nope.key"),
        (&["--admin-token-file", "nope.token"], "nope.token"),
        (&["--store", NO_STORE, "--store-ca-file", "nope.ca"], "nope.ca"),
        (&["--store", NO_STORE, "--store-password-file", "nope.password"], "nope.password"),
    ] {
        assert_refused_early(directory.path(), arguments, expected);
    }
}

/// A certificate and a key that are there, and wrong for each other.
#[test]
fn a_pair_that_does_not_fit_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let home = directory.path().join(name);
        fs::create_dir(&home).unwrap();
        let made = Server::start(&home, &["--quiet", "--tls-self-signed", "--data", "data"]);
        made.stop();
    }
    let (cert, key) = ("one/data/tls-cert.pem", "one/data/tls-key.pem");
    for (arguments, expected) in [
        (["--tls-cert", key, "--tls-key", cert], key),
        (["--tls-cert", cert, "--tls-key", "two/data/tls-key.pem"], "two/data/tls-key.pem"),
        (["--tls-cert", cert, "--tls-key", cert], cert),
    ] {
        assert_refused_early(directory.path(), &arguments, expected);
    }
}

/// Nothing listens there.
const NO_STORE: &str = "postgres://ann@127.0.0.1:1/shop";

fn assert_refused_early(directory: &Path, arguments: &[&str], expected: &str) {
    let fixed = ["serve", "--data", "data", "--table-port", "0"];
    let sentence = failure(&output(directory, &[&fixed[..], arguments].concat()));
    assert!(sentence.contains(expected), "{expected}: {sentence}");
    assert!(!directory.join("data").exists(), "{arguments:?} left a directory behind");
}

#[test]
fn flags_win_over_variables_and_empty_ones_are_unset() {
    let site = Site::start(&[]);
    let endpoint = format!("{}/devstoreaccount1", site.url("table"));
    let service = ["--endpoint", &endpoint, "--account", "devstoreaccount1", "--key", KEY];
    let list = [&["table", "list"], &service[..]].concat();
    let mut command = rowhouse(site.path(), &list);
    let listed = command.env("ROWHOUSE_CONNECTION", "nonsense").env("ROWHOUSE_SAS", "x").output();
    assert!(listed.as_ref().unwrap().status.success(), "{}", stderr(&listed.unwrap()));
    let connection = site.url("connectionString");
    let mut command = rowhouse(site.path(), &["table", "list", "--connection", connection]);
    let listed = command.env("ROWHOUSE_ENDPOINT", "http://127.0.0.1:1/x").output().unwrap();
    assert!(listed.status.success(), "{}", stderr(&listed));
    let mut command = rowhouse(site.path(), &list);
    let listed = command.env("ROWHOUSE_CONNECTION", "").env("ROWHOUSE_KEY_FILE", "").output();
    assert!(listed.unwrap().status.success());
    // Two variables: both are named.
    let mut command = rowhouse(site.path(), &["table", "list"]);
    command.env("ROWHOUSE_CONNECTION", connection).env("ROWHOUSE_ENDPOINT", &endpoint);
    let sentence = failure(&command.output().unwrap());
    assert!(sentence.contains("ROWHOUSE_CONNECTION or ROWHOUSE_ENDPOINT"), "{sentence}");
    // An empty variable of another type, and usage without variables.
    let mut command = rowhouse(site.path(), &["serve", "--config", "absent.toml"]);
    let sentence = failure(&command.env("ROWHOUSE_TABLE_PORT", "").output().unwrap());
    assert!(sentence.contains("absent.toml"), "{sentence}");
    // Kubernetes sets this one for a service that is called rowhouse-queue.
    let mut command = rowhouse(site.path(), &["serve", "--config", "absent.toml"]);
    let link = command.env("ROWHOUSE_QUEUE_PORT", "tcp://10.0.0.1:80").output().unwrap();
    assert!(failure(&link).contains("absent.toml"));
    let mut command = rowhouse(site.path(), &["import"]);
    let usage = stderr(&command.env("ROWHOUSE_CONNECTION", "x").output().unwrap());
    assert!(usage.contains("Usage: rowhouse import <TABLE> <FILE>"), "{usage}");
    let mut command = rowhouse(site.path(), &["import", "--help"]);
    let help = stdout(&command.env("ROWHOUSE_CONNECTION", "x").output().unwrap());
    assert!(help.contains("[env: ROWHOUSE_CONNECTION]"), "{help}");
    site.server.stop();
}

#[test]
fn a_failed_export_leaves_nothing_behind() {
    let site = Site::start(&[]);
    site.fill("People", 5000);
    let before = site.names();
    for jobs in ["1", "4"] {
        let gone =
            ["--connection", "AccountName=a;AccountKey=YQ==;TableEndpoint=http://127.0.0.1:1/a"];
        let export = ["export", "People", "--out", "out.ndjson", "--jobs", jobs];
        for _ in 0..2 {
            let sentence = site.fails(&[&export[..], &gone].concat());
            assert!(sentence.contains("no answer from http://127.0.0.1:1/a"), "{sentence}");
        }
        // Quoted as it was typed, however the table is cut.
        let sentence = site.fails(&[&export[..], &["--filter", "Age gte 3"]].concat());
        assert!(sentence.contains("in 'Age gte 3' (InvalidInput)"), "{sentence}");
        let mut missing = export;
        missing[1] = "Peeple";
        let sentence = site.fails(&missing);
        let expected = "there is no table Peeple (TableNotFound): did you mean People?";
        assert!(sentence.contains(expected), "{sentence}");
    }
    let sentence = site.fails(&["export", "People", "--out", "nowhere/x.csv"]);
    assert!(
        sentence.contains("cannot write nowhere/x.csv: there is no directory nowhere"),
        "{sentence}"
    );
    let sentence = site.fails(&["export", "People", "--out", "rows.parquet"]);
    assert!(sentence.contains("rows.parquet") && sentence.contains("--format"), "{sentence}");
    let sentence = site.fails(&["import", "People", "rows.parquet"]);
    assert!(sentence.contains("--format"), "{sentence}");
    assert_eq!(site.names(), before);
    site.server.stop();
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let site = Site::start(&[]);
    site.fill("People", 5000);
    for arguments in [&["export", "People"][..], &["query", "People", "--all", "--json"]] {
        let mut child = rowhouse(site.path(), arguments)
            .env("ROWHOUSE_CONNECTION", site.url("connectionString"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0]).unwrap();
        drop(out);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {}", stderr(&ended));
        assert!(!stderr(&ended).contains("rowhouse:"), "{}", stderr(&ended));
    }
    site.server.stop();
}

#[test]
fn messages_recognise_what_answers() {
    let site = Site::start(&[]);
    site.fill("People", 3);
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |url: &str, arguments: &[&str]| {
        let endpoint = format!("{url}/devstoreaccount1");
        let service = ["--endpoint", &endpoint, "--account", "devstoreaccount1", "--key", KEY];
        failure(&output(elsewhere.path(), &[arguments, &service].concat()))
    };
    let list = ["table", "list"];
    let tls = site.url("table").replace("http:", "https:");
    for (sentence, expected) in [
        (at(site.url("queue"), &list), "is a Queue service, not a Table service: check the port"),
        (at(site.url("admin"), &list), "is not a Table service: check the port"),
        (at(site.url("table"), &["queue", "list"]), "is a Table service, not a Queue service"),
        (at(&tls, &list), "does not speak TLS: write http://"),
        (
            site.fails(&["explain", "Nope"]),
            "there is no table Nope (TableNotFound): 'rowhouse table",
        ),
        (site.fails(&["index", "create", "Nope", "X"]), "there is no table Nope (TableNotFound)"),
        (site.fails(&["import", "Nope", "rows.ndjson"]), "--create makes it"),
        (site.fails(&["queue", "peek", "nope"]), "there is no queue nope (QueueNotFound)"),
    ] {
        assert!(sentence.contains(expected), "{sentence}");
    }
    let missing = site.fails(&["explain", "Nope"]);
    assert!(!missing.contains("--create"), "{missing}");
    // A positional table and the older flag mean the same.
    let explained = site.prints(&["explain", "People"]);
    assert_eq!(site.prints(&["explain", "--table", "People"]), explained);
    site.server.stop();

    let strict = Site::start(&["--strict"]);
    strict.prints(&["table", "create", "People"]);
    for arguments in [
        &["index", "create", "People", "Age"][..],
        &["query", "People", "--count"],
        &["query", "People", "--order", "Age"],
        &["table", "ttl", "People"],
    ] {
        let sentence = strict.fails(arguments);
        assert!(sentence.contains("it runs with --strict, or it is not a Rowhouse"), "{sentence}");
    }
    let banner = stdout(&strict.server.stop());
    assert!(banner.contains("Strict"), "{banner}");

    let encrypted = Site::start(&["--development-account=false", "--tls-self-signed"]);
    let plain = encrypted.url("table").replace("https:", "http:");
    let sentence = at(&plain, &list);
    assert!(
        sentence.contains("does not speak HTTP: if it speaks TLS, write https://"),
        "{sentence}"
    );
    encrypted.server.stop();
    let other = Site::start(&["--development-account=false"]);
    let sentence = at(other.url("table"), &list);
    assert!(
        sentence.contains("no account devstoreaccount1")
            && sentence.contains("ROWHOUSE_CONNECTION"),
        "{sentence}"
    );
    other.server.stop();
}

/// Reads a line of standard error that says this, and ends the command.
fn line_of(mut command: Command, expected: &str) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let found = lines.find_map(|line| line.ok().filter(|line| line.contains(expected)));
    child.kill().unwrap();
    child.wait().unwrap();
    found.unwrap_or_else(|| panic!("a line with {expected:?}"))
}

#[test]
fn a_command_says_why_it_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let body =
            r#"{"odata.error":{"code":"ServerBusy","message":{"value":"The disk is full."}}}"#;
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut client = client;
                let mut request = [0; 4096];
                while client.read(&mut request).is_ok_and(|read| 0 < read) {
                    let length = body.len();
                    let head = format!("HTTP/1.1 503 Busy\r\nContent-Length: {length}\r\n\r\n");
                    let _ = client.write_all(format!("{head}{body}").as_bytes());
                }
            });
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let connection = format!("AccountName=a;AccountKey=YQ==;TableEndpoint=http://{address}/a");
    let command = rowhouse(directory.path(), &["table", "list", "--connection", &connection]);
    let line = line_of(command, "waiting for");
    assert!(line.contains("The disk is full (ServerBusy)"), "{line}");
}

/// Answers a number of requests as steps of a deletion, each of which removes three entities, and no other request. Says
/// when the first of the others is there.
fn half_a_service(answered: usize) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, waits) = mpsc::channel();
    let left = Arc::new(AtomicUsize::new(answered));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (asked, left) = (asked.clone(), Arc::clone(&left));
            std::thread::spawn(move || {
                let mut client = BufReader::new(client);
                while let Some(first) = head_of_a_request(&mut client) {
                    if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
                        let _ = asked.send(());
                        std::thread::sleep(Duration::from_mins(1));
                        return;
                    }
                    // Counting ends at once, deleting goes on.
                    let next = if first.contains("dryrun") {
                        ""
                    } else {
                        "x-ms-continuation-NextPartitionKey: p\r\n"
                    };
                    let body = r#"{"matched":3,"deleted":3,"examined":3}"#;
                    let head =
                        format!("HTTP/1.1 200 OK\r\n{next}Content-Length: {}\r\n\r\n", body.len());
                    client.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
                }
            });
        }
    });
    let connection = format!("AccountName=a;AccountKey=YQ==;TableEndpoint=http://{address}/a");
    (connection, waits)
}

/// Reads a request without a body; its first line.
fn head_of_a_request(client: &mut BufReader<TcpStream>) -> Option<String> {
    let mut lines = client.lines().map_while(Result::ok);
    let first = lines.next()?;
    lines.find(String::is_empty)?;
    Some(first)
}

/// Presses Ctrl-C when the command waits for an answer, and returns what it prints.
fn interrupted(directory: &Path, arguments: &[&str], waits: &mpsc::Receiver<()>) -> String {
    let child = rowhouse(directory, arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    waits.recv_timeout(Duration::from_secs(20)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let began = Instant::now();
    let ended = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "at once");
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    stderr(&ended)
}

#[test]
fn an_interrupted_copy_says_how_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (source, waits) = half_a_service(0);
    let dest = "AccountName=b;AccountKey=YQ==;TableEndpoint=http://127.0.0.1:1/b";
    let text = interrupted(directory.path(), &["copy", &source, dest], &waits);
    let expected =
        "stopped after 0 entities: the same command copies everything again; with --resume FILE";
    assert!(text.contains(expected), "{text}");
    let text = interrupted(directory.path(), &["copy", &source, dest, "--resume", "state"], &waits);
    assert!(
        text.contains("stopped after 0 entities") && text.contains("the same command"),
        "{text}"
    );
    assert!(!text.contains("--resume FILE"), "{text}");
}

#[test]
fn an_interrupted_deletion_says_how_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let truncate = ["table", "truncate", "Logs", "--yes"];
    let filter = ["table", "delete-where", "Logs", "--filter", "Age gt 3"];
    let filtered = [&filter[..], &["--yes"]].concat();
    let goes_on = "the same command goes on with the rest";
    // The first request counts.
    for (command, answered, deleted) in [
        (&truncate[..], 0, "0 entities of Logs were deleted"),
        (&filtered, 1, "0 entities of Logs were deleted"),
        (&filtered, 3, "6 entities of Logs were deleted"),
        (&[&filter[..], &["--dry-run"]].concat(), 0, "nothing was deleted"),
    ] {
        let (service, waits) = half_a_service(answered);
        let command = [command, &["--connection", &service]].concat();
        let text = interrupted(directory.path(), &command, &waits);
        assert!(text.contains(deleted), "{command:?}: {text}");
        assert_eq!(text.contains(goes_on), deleted != "nothing was deleted", "{text}");
    }
}

#[test]
fn an_interrupted_import_says_how_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rows.ndjson"), "{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}\n")
        .unwrap();
    let (service, waits) = half_a_service(0);
    let import = ["import", "People", "rows.ndjson", "--resume", "--connection", &service];
    let text = interrupted(directory.path(), &import, &waits);
    assert!(text.contains("no such import was interrupted"), "{text}");
    assert!(text.contains("stopped after 0 rows") && text.contains("same command again"), "{text}");
}

/// A server refuses a misspelled option; a command does not look at options of a server.
#[test]
fn a_variable_that_no_command_knows_is_refused_by_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut serve = rowhouse(directory.path(), &["serve", "--table-port", "0"]);
    let sentence = failure(&serve.env("ROWHOUSE_TABEL_PORT", "1").output().unwrap());
    let expected = "there is no variable ROWHOUSE_TABEL_PORT: did you mean ROWHOUSE_TABLE_PORT?";
    assert!(sentence.contains(expected), "{sentence}");
    assert!(!directory.path().join("rowhouse-data").exists(), "it left a directory behind");
    // Empty is unset; what comes next is wrong for another reason.
    let mut serve = rowhouse(directory.path(), &["serve", "--config", "absent.toml"]);
    let serve = serve.env("ROWHOUSE_TABEL_PORT", "").env("ROWHOUSE_SERVICE_HOST", "10.0.0.1");
    let sentence = failure(&serve.env("ROWHOUSE_CONNECTION", "x").output().unwrap());
    assert!(sentence.contains("absent.toml"), "{sentence}");
    for arguments in [&["version"][..], &["serve", "--help"]] {
        let mut command = rowhouse(directory.path(), arguments);
        let output = command.env("ROWHOUSE_TABEL_PORT", "1").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn an_index_of_nothing_is_noticed() {
    let site = Site::start(&[]);
    site.fill("People", 20);
    let made = site.prints(&["index", "create", "People", "Agee"]);
    assert!(
        made.contains("No entity of People has the property Agee. Did you mean Age?"),
        "{made}"
    );
    let made = site.prints(&["index", "create", "People", "Age"]);
    assert!(!made.contains("No entity"), "{made}");
    site.server.stop();
}

#[test]
fn entities_are_shown() {
    let site = Site::start(&[]);
    site.fill("People", 250);
    let shown =
        site.run(&["query", "People", "--filter", "Age ge 248", "--select", "RowKey,Age,Big,Code"]);
    let expected = "RowKey  Age  Big   Code\n0249    249  249L  '249'\n0248    248  248L  '248'\n";
    assert_eq!(stdout(&shown), expected);
    assert_eq!(stderr(&shown), "plan: table-scan; examined=250; returned=2\n");
    let ordered = site.run(&[
        "query", "People", "--order", "Age desc", "--top", "2", "--json", "--select", "Age",
    ]);
    assert_eq!(stdout(&ordered), "{\"Age\":249}\n{\"Age\":248}\n");
    assert!(stderr(&ordered).contains("only the first 2"), "{}", stderr(&ordered));
    assert_eq!(site.prints(&["query", "People"]).lines().count(), 101);
    assert_eq!(site.prints(&["query", "People", "--all", "--json"]).lines().count(), 250);
    assert_eq!(site.prints(&["query", "People", "--count"]), "250\n");
    assert_eq!(
        site.prints(&["query", "People", "--count", "--json", "--filter", "Age lt 5"]),
        "{\"count\":5}\n"
    );
    let none = site.run(&["query", "People", "--filter", "Age lt 0"]);
    assert!(stdout(&none).is_empty() && stderr(&none).contains("No entity was found."));
    // What is printed as JSON can be imported.
    fs::write(
        site.path().join("again.ndjson"),
        site.prints(&["query", "People", "--all", "--json"]),
    )
    .unwrap();
    let again = site.prints(&["import", "Again", "again.ndjson", "--create"]);
    assert!(again.starts_with("Imported 250 of 250 rows"), "{again}");
    site.server.stop();
}

#[test]
fn signatures_are_made_and_explained() {
    let site = Site::start(&[]);
    site.fill("People", 30);
    let create = ["sas", "create", "table", "People", "--permissions", "r", "--expires", "7d"];
    let range = ["--from-partition", "p1", "--to-partition", "p1"];
    let url = site.prints(&[&create[..], &range].concat());
    let url = url.trim();
    let counted = output(site.path(), &["query", "People", "--count", "--connection", url]);
    assert_eq!(stdout(&counted), "10\n", "{}", stderr(&counted));
    let explained = site.prints(&["sas", "explain", url]);
    for part in [
        "For        the table People\n",
        "Allows     read (r)\n",
        "Keys       from PartitionKey \"p1\" to PartitionKey \"p1\"\n",
        "(7 days left)\n",
        "Signature  made with this key of the account\n",
    ] {
        assert!(explained.contains(part) || part.contains("7 days"), "{part}: {explained}");
    }
    let forged = url.replace("spk=p1", "spk=p0");
    let json: Value =
        serde_json::from_str(&site.prints(&["sas", "explain", &forged, "--json"])).unwrap();
    assert_eq!((&json["signature"], &json["holds"]), (&json!("wrong"), &json!(true)));
    site.prints(&["queue", "put", "jobs", "one", "--create"]);
    let url = site.prints(&["sas", "create", "queue", "jobs", "--permissions", "ra"]);
    let put = output(site.path(), &["queue", "put", "jobs", "two", "--connection", url.trim()]);
    assert!(put.status.success(), "{}", stderr(&put));
    let take = output(site.path(), &["queue", "take", "jobs", "--connection", url.trim()]);
    assert!(failure(&take).contains("what the shared access signature allows"));
    let made = site.prints(&["sas", "create", "account", "--permissions", "lr", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let listed =
        output(site.path(), &["table", "list", "--connection", made["url"].as_str().unwrap()]);
    assert_eq!(stdout(&listed), "People\n", "{}", stderr(&listed));
    assert!(site.fails(&["sas", "create", "table", "People"]).contains("--permissions"));
    let range = ["--from-partition", "p2", "--to-partition", "p1"];
    assert!(site.fails(&[&create[..], &range].concat()).contains("swap them"));
    for kind in ["table", "queue"] {
        let create = ["sas", "create", kind, "people", "--permissions", "r", "--policy", ""];
        assert!(site.fails(&create).contains("--policy is empty"));
    }
    assert!(
        site.fails(&["sas", "create", "table", "People", "--permissions", "rx"]).contains("'x'")
    );
    site.server.stop();
}

#[test]
fn messages_are_put_taken_and_moved() {
    let site = Site::start(&[]);
    let put = site.fails(&["queue", "put", "jobs", "x"]);
    assert!(put.contains("there is no queue jobs") && put.contains("--create makes it"), "{put}");
    for n in 0..70 {
        site.prints(&["queue", "put", "jobs-poison", &format!("job {n}\n<&>"), "--create"]);
    }
    site.prints(&["queue", "put", "jobs", "first", "--create", "--expires", "never", "--json"]);
    assert_eq!(
        site.prints(&["queue", "list"]),
        "NAME          MESSAGES\njobs                 1\njobs-poison         70\n"
    );
    let peeked = site.prints(&["queue", "peek", "jobs-poison", "--top", "2"]);
    assert!(peeked.contains("  0x     job 0\\n<&>\n"), "{peeked}");
    let moved = site.prints(&["queue", "move", "jobs-poison", "jobs", "--top", "5"]);
    assert_eq!(moved, "Moved 5 messages from jobs-poison to jobs.\n");
    let moved = site.prints(&["queue", "move", "jobs-poison", "jobs", "--json"]);
    assert_eq!(moved, "{\"maybeTwice\":0,\"moved\":65}\n");
    let listed: Value = serde_json::from_str(&site.prints(&["queue", "list", "--json"])).unwrap();
    assert_eq!(
        listed,
        json!([{ "name": "jobs", "messages": 71 }, { "name": "jobs-poison", "messages": 0 }])
    );
    let mut texts = Vec::new();
    loop {
        let taken = site.prints(&["queue", "take", "jobs", "--top", "32", "--delete", "--json"]);
        if taken.is_empty() {
            break;
        }
        let messages = taken.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        texts.extend(messages.map(|message| message["text"].as_str().unwrap().to_owned()));
    }
    let expected =
        std::iter::once("first".to_owned()).chain((0..70).map(|n| format!("job {n}\n<&>")));
    assert_eq!(texts, expected.collect::<Vec<_>>(), "each once, in order, with its text");
    assert!(site.fails(&["queue", "move", "jobs", "jobs"]).contains("two queues"));
    assert!(site.fails(&["queue", "move", "jobs", "nope"]).contains("there is no queue nope"));
    site.prints(&["queue", "put", "jobs", "aGk=", "--delay", "1h"]);
    site.prints(&["queue", "put", "jobs", "hi", "--base64"]);
    let peeked = site.prints(&["queue", "peek", "jobs", "--base64", "--json"]);
    assert!(peeked.contains("\"text\":\"hi\"") && peeked.lines().count() == 1, "{peeked}");
    assert!(site.fails(&["queue", "clear", "jobs"]).contains("--yes"));
    site.prints(&["queue", "clear", "jobs", "--yes"]);
    assert!(site.prints(&["queue", "peek", "jobs"]).is_empty());
    site.server.stop();
}
