//! Tables into files, out of files and from server to server, interrupted and resumed.
//!
//! What arrived is compared through this crate's own client, which shares nothing with the one that moved it.

use rowhouse_auth::{AccountSasFields, sign};
use rowhouse_testkit::{Client, DEV_ACCOUNT, DEV_KEY, TestServer, binary, encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Every entity by its keys, without what differs from server to server.
type Content = BTreeMap<(String, String), Value>;

fn connection(server: &TestServer) -> String {
    format!(
        "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};TableEndpoint=http://{}/{DEV_ACCOUNT}",
        server.address()
    )
}

fn command(directory: &Path, server: &TestServer, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command.env("ROWHOUSE_CONNECTION", connection(server));
    command
}

fn run(directory: &Path, server: &TestServer, arguments: &[&str]) -> Output {
    command(directory, server, arguments).output().expect("the command can be started")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn succeed(directory: &Path, server: &TestServer, arguments: &[&str]) -> String {
    let output = run(directory, server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// Reads a whole table page by page.
fn content(client: &mut Client, table: &str) -> Content {
    let (mut all, mut next) = (Content::new(), String::new());
    loop {
        let answer = client.request("GET", &format!("{table}(){next}"), &[], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page: Value = serde_json::from_str(&answer.text()).unwrap();
        for entity in page["value"].as_array().unwrap() {
            let mut entity = entity.as_object().unwrap().clone();
            entity.retain(|name, _| !name.starts_with("odata.") && name != "Timestamp");
            let key = |name: &str| entity[name].as_str().unwrap().to_owned();
            let key = (key("PartitionKey"), key("RowKey"));
            assert!(all.insert(key, entity.into()).is_none(), "no key twice");
        }
        let token = |name: &str| answer.header(&format!("x-ms-continuation-{name}"));
        match (token("nextpartitionkey"), token("nextrowkey")) {
            (Some(partition), Some(row)) => {
                next =
                    format!("?NextPartitionKey={}&NextRowKey={}", encode(partition), encode(row));
            }
            _ => return all,
        }
    }
}

/// Entities of every type, in partitions of different sizes whose names share their start.
fn entity(number: usize) -> Value {
    let double = [json!(1.0), json!("NaN"), json!("-Infinity"), json!(1e300), json!(0.1)];
    let texts = ["", "it's, \"quoted\"\r\nand more", "é😀", " blanks ", "2020-01-01T00:00:00Z"];
    let mut entity = json!({
        "PartitionKey": format!("region-{:02}", number % 23 * number % 17),
        "RowKey": format!("{number:06}"),
        "Text": texts[number % texts.len()],
        "Int": number,
        "Double@odata.type": "Edm.Double",
        "Double": double[number % double.len()],
        "Long@odata.type": "Edm.Int64",
        "Long": (i64::MAX - i64::try_from(number).unwrap()).to_string(),
        "Yes": number.is_multiple_of(2),
        "When@odata.type": "Edm.DateTime",
        "When": format!("2020-01-02T03:04:05.{:07}Z", number + 1),
        "Guid@odata.type": "Edm.Guid",
        "Guid": format!("c9da6455-213d-42c9-9a79-{number:012x}"),
        "Bytes@odata.type": "Edm.Binary",
        "Bytes": if number.is_multiple_of(2) { "" } else { "AAH/" },
    });
    if number.is_multiple_of(3) {
        entity["Sometimes"] = json!(format!("{number}"));
    }
    entity
}

fn write_file(path: &Path, count: usize) {
    let lines: Vec<String> = (0..count).map(|number| entity(number).to_string()).collect();
    fs::write(path, lines.join("\n")).unwrap();
}

/// Waits for something to happen while the process runs; false if it was too quick.
fn wait_until(child: &mut Child, what: &str, mut happened: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !happened() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// True if the process was killed before it ended by itself.
fn kill(mut child: Child) -> bool {
    let early = child.try_wait().unwrap().is_none();
    // One that has ended cannot be killed.
    let _ = child.kill();
    child.wait().unwrap();
    early
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn files_hold_everything() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (TestServer::start(), TestServer::start());
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 5000);
    let said = succeed(here, &from, &["import", "People", "in.ndjson", "--create"]);
    assert!(said.starts_with("Imported 5000 of 5000 rows into People;"), "{said}");
    let expected = content(&mut from.client(), "People");
    assert_eq!(expected.len(), 5000);
    assert_eq!(expected[&("region-00".to_owned(), "000000".to_owned())]["Guid"], entity(0)["Guid"]);
    for (index, (file, jobs)) in
        [("a.ndjson", "1"), ("b.ndjson", "4"), ("c.csv", "4"), ("d.csv", "1")]
            .into_iter()
            .enumerate()
    {
        let said = succeed(here, &from, &["export", "People", "--out", file, "--jobs", jobs]);
        assert!(said.starts_with("Exported 5000 entities of People"), "{said}");
        let table = format!("Copy{index}");
        succeed(here, &to, &["import", &table, file, "--create"]);
        assert_eq!(content(&mut to.client(), &table), expected, "{file}");
    }
    let (sorted, any) =
        (fs::read_to_string(here.join("a.ndjson")), fs::read_to_string(here.join("b.ndjson")));
    let (sorted, mut any) =
        (sorted.unwrap(), any.unwrap().lines().map(str::to_owned).collect::<Vec<_>>());
    any.sort();
    assert_eq!(sorted.lines().collect::<Vec<_>>(), any, "one job keeps the order of keys");
    let left: Vec<_> =
        fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "nothing but the files is left: {left:?}");
}

#[test]
fn part_of_a_table_to_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 200);
    succeed(here, &server, &["import", "People", "in.ndjson", "--create"]);
    let filter = "PartitionKey eq 'region-00' and Int lt 100";
    let output =
        run(here, &server, &["export", "People", "--filter", filter, "--columns", "Int,Sometimes"]);
    let lines: Vec<Value> =
        text(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected =
        (0..100).map(entity).filter(|entity| entity["PartitionKey"] == "region-00").count();
    assert!(expected > 0);
    assert_eq!(lines.len(), expected);
    assert!(lines.iter().all(|line| line.get("Text").is_none() && line.get("Int").is_some()));
    let output = run(
        here,
        &server,
        &["export", "People", "--filter", filter, "--columns", "Int,Sometimes", "--format", "csv"],
    );
    let csv = text(&output);
    assert!(
        csv.starts_with("PartitionKey,RowKey,Timestamp,Int,Int@type,Sometimes,Sometimes@type\r\n")
    );
    assert_eq!(csv.lines().count(), expected + 1);
    let mut import =
        command(here, &server, &["import", "Piped", "-", "--format", "csv", "--create"]);
    let mut import = import.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(import.stdin.as_mut().unwrap(), csv.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
    assert_eq!(content(&mut server.client(), "Piped").len(), expected);
}

/// Columns that every row has, and columns that are named twice, are there once.
#[test]
fn columns_are_exported_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 20);
    succeed(here, &server, &["import", "People", "in.ndjson", "--create"]);
    for (columns, file, expected) in [
        ("PartitionKey,Int,RowKey,Int,Timestamp", "a.csv", ",Int,Int@type"),
        ("RowKey", "b.csv", ""),
    ] {
        succeed(here, &server, &["export", "People", "--columns", columns, "--out", file]);
        let text = fs::read_to_string(here.join(file)).unwrap();
        let names = format!("PartitionKey,RowKey,Timestamp{expected}");
        assert_eq!(text.lines().next(), Some(names.as_str()));
        let table = file.replace('.', "");
        succeed(here, &server, &["import", &format!("T{table}"), file, "--create"]);
        assert_eq!(content(&mut server.client(), &format!("T{table}")).len(), 20);
    }
    let said = succeed(here, &server, &["export", "People", "--columns", "RowKey"]);
    let first: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let names: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(names, ["PartitionKey", "RowKey", "Timestamp", "Timestamp@odata.type"]);
}

/// Keys that make cutting a table into ranges hard: empty ones, each the start of the next, and of every kind of
/// character.
#[test]
fn no_key_is_missed_or_read_twice() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    let keys =
        ["", " ", "a", "a ", "aa", "aa'a", "a\u{E000}", "a😀", "z", "~", "é", "\u{FFFD}", "😀😀"];
    let mut lines = Vec::new();
    for partition in keys {
        for row in keys.iter().flat_map(|key| (0..12).map(move |n| format!("{key}{n}"))) {
            lines.push(json!({ "PartitionKey": partition, "RowKey": row }).to_string());
        }
    }
    for row in keys.iter().flat_map(|key| (0..100).map(move |n| format!("{key}{n:03}"))) {
        lines.push(json!({ "PartitionKey": "aa", "RowKey": row, "More": true }).to_string());
    }
    let rows = lines.len();
    fs::write(here.join("in.ndjson"), lines.join("\n")).unwrap();
    succeed(here, &server, &["import", "Hard", "in.ndjson", "--create"]);
    let only = "PartitionKey eq 'aa'";
    succeed(here, &server, &["export", "Hard", "--filter", only, "--out", "one.ndjson"]);
    succeed(here, &server, &["import", "OnePartition", "one.ndjson", "--create"]);
    let three = "PartitionKey eq 'aa' or PartitionKey eq 'a😀' or PartitionKey eq ''";
    succeed(here, &server, &["export", "Hard", "--filter", three, "--out", "three.ndjson"]);
    succeed(here, &server, &["import", "ThreePartitions", "three.ndjson", "--create"]);
    for table in ["Hard", "OnePartition", "ThreePartitions"] {
        let expected = content(&mut server.client(), table);
        for jobs in ["1", "2", "7", "64"] {
            let file = format!("{table}-{jobs}.ndjson");
            succeed(here, &server, &["export", table, "--jobs", jobs, "--out", &file]);
            let text = fs::read_to_string(here.join(file)).unwrap();
            let mut found = Content::new();
            for line in text.lines() {
                let entity: Value = serde_json::from_str(line).unwrap();
                let key = |name: &str| entity[name].as_str().unwrap().to_owned();
                assert!(
                    found.insert((key("PartitionKey"), key("RowKey")), entity.clone()).is_none()
                );
            }
            assert!(found.keys().eq(expected.keys()), "{table} with {jobs} jobs");
        }
    }
    assert_eq!(content(&mut server.client(), "Hard").len(), rows);
}

/// The progress is saved once a second; a server that pauses lets a quick export take that long. There are so many entities that
/// it is not done before it is killed, also on a fast machine.
#[test]
fn an_export_that_is_killed_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = TestServer::start();
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 48_000);
    succeed(here, &server, &["import", "People", "in.ndjson", "--create"]);
    for (file, lines) in [("out.ndjson", 48_000), ("out.csv", 48_001)] {
        let arguments = ["export", "People", "--out", file, "--jobs", "2", "--resume"];
        let part = here.join(format!("{file}.part"));
        let progress = here.join(format!("{file}.progress"));
        let mut certain = 0;
        for _ in 0..2 {
            let mut export = spawn(command(here, &server, &arguments));
            let written = || certain < length(&part);
            assert!(wait_until(&mut export, "some pages are written", written));
            server.pause();
            std::thread::sleep(Duration::from_millis(1100));
            server.resume();
            let before = fs::read(&progress).unwrap();
            assert!(wait_until(&mut export, "the progress is saved", || {
                fs::read(&progress).is_ok_and(|now| now != before)
            }));
            assert!(kill(export), "there is more to export");
            let state: Value = serde_json::from_slice(&fs::read(&progress).unwrap()).unwrap();
            certain = state["bytes"].as_u64().unwrap();
            assert!(certain > 0 && !here.join(file).exists());
        }
        let refused = text(&run(here, &server, &["export", "People", "--out", file]));
        assert!(refused.contains("add --resume"), "{refused}");
        // What is not certain is cut off, whatever it is.
        fs::OpenOptions::new()
            .append(true)
            .open(&part)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"{\"PartitionKey\":\"torn"))
            .unwrap();
        succeed(here, &server, &arguments);
        assert!(!part.exists() && !progress.exists());
        succeed(here, &server, &["import", &file.replace('.', ""), file, "--create"]);
        let (all, copied) = (
            content(&mut server.client(), "People"),
            content(&mut server.client(), &file.replace('.', "")),
        );
        assert_eq!(all, copied);
        if file == "out.ndjson" {
            assert_eq!(fs::read_to_string(here.join(file)).unwrap().lines().count(), lines);
        }
        let again = text(&run(here, &server, &arguments));
        assert!(again.contains("is there already"), "{again}");
    }
}

#[test]
fn an_import_that_is_killed_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 12_000);
    server.client().create_table("People");
    let arguments =
        ["import", "People", "in.ndjson", "--jobs", "1", "--resume", "--errors", "errors"];
    let progress = here.join("in.ndjson.People.progress");
    let mut before = Vec::new();
    for _ in 0..3 {
        let mut import = spawn(command(here, &server, &arguments));
        assert!(wait_until(&mut import, "the progress is saved", || {
            fs::read(&progress).is_ok_and(|now| now != before)
        }));
        // In the middle of a portion.
        std::thread::sleep(Duration::from_millis(5));
        assert!(kill(import), "there is more to import");
        before = fs::read(&progress).unwrap();
    }
    let refused = text(&run(here, &server, &arguments[..3]));
    assert!(refused.contains("add --resume"), "{refused}");
    let whole = fs::read(here.join("in.ndjson")).unwrap();
    fs::write(here.join("in.ndjson"), &whole[..whole.len() / 2]).unwrap();
    let refused = text(&run(here, &server, &arguments));
    assert!(refused.contains("not the one"), "{refused}");
    fs::write(here.join("in.ndjson"), &whole).unwrap();
    let said = succeed(here, &server, &arguments);
    assert!(said.contains("of 12000 rows into People"), "{said}");
    assert!(!progress.exists());
    assert_eq!(length(&here.join("errors")), 0);
    assert_eq!(content(&mut server.client(), "People").len(), 12_000);
}

#[test]
fn only_bad_rows_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    let mut lines: Vec<String> = (0..300)
        .map(|n| json!({ "PartitionKey": "p", "RowKey": format!("{n:03}"), "A": n }).to_string())
        .collect();
    lines[7] = "{\"PartitionKey\":\"p\"".to_owned();
    lines[150] = r#"{"PartitionKey":"p","RowKey":"a/b"}"#.to_owned();
    lines[299] =
        r#"{"PartitionKey":"p","RowKey":"x","A@odata.type":"Edm.Int64","A":"many"}"#.to_owned();
    fs::write(here.join("in.ndjson"), lines.join("\n")).unwrap();
    let mut client = server.client();
    client.create_table("People");
    for row in [50, 51, 250] {
        let other = json!({ "PartitionKey": "p", "RowKey": format!("{row:03}"), "B": "old" });
        client.insert("People", &other).unwrap();
    }
    client.insert("People", &json!({ "PartitionKey": "p", "RowKey": "052", "A": 52 })).unwrap();
    let output =
        run(here, &server, &["import", "People", "in.ndjson", "--errors", "errors.ndjson"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("Imported 293 of 300 rows into People, 1 already there"), "{said}");
    assert!(said.contains("6 rows were refused: see errors.ndjson"), "{said}");
    let errors = fs::read_to_string(here.join("errors.ndjson")).unwrap();
    let mut numbers: Vec<u64> = errors
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [8, 51, 52, 151, 251, 300], "{errors}");
    let of_line = |number: u64| {
        let mut found = errors.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut found = found.find(|error| error["line"] == number).unwrap();
        assert!(found.as_object_mut().unwrap().remove("reason").is_some(), "{errors}");
        found
    };
    let keys = |line: u64, row: &str| json!({ "line": line, "table": "People", "PartitionKey": "p", "RowKey": row });
    assert_eq!(of_line(8), json!({ "line": 8, "table": "People" }), "it is no JSON");
    for (line, row) in [(51, "050"), (151, "a/b"), (300, "x")] {
        assert_eq!(of_line(line), keys(line, row));
    }
    assert_eq!(content(&mut client, "People").len(), 297);
    // The other ways to meet what is there.
    let row = |client: &mut Client| content(client, "People")[&("p".into(), "050".into())].clone();
    let import = |policy: &str| {
        let output =
            run(here, &server, &["import", "People", "in.ndjson", "--on-conflict", policy]);
        assert!(text(&output).contains("line 8: "), "{}", text(&output));
        assert!(text(&output).contains("3 rows were refused"), "{}", text(&output));
    };
    import("skip");
    assert_eq!((row(&mut client)["B"].as_str(), row(&mut client).get("A")), (Some("old"), None));
    import("merge");
    assert_eq!(
        (row(&mut client)["B"].as_str(), row(&mut client)["A"].as_u64()),
        (Some("old"), Some(50))
    );
    import("replace");
    assert_eq!((row(&mut client).get("B"), row(&mut client)["A"].as_u64()), (None, Some(50)));
}

/// A file of errors takes the place of nothing: not of the input, by whatever name, nor of anything else.
#[test]
fn errors_overwrite_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 3);
    fs::create_dir(here.join("below")).unwrap();
    fs::hard_link(here.join("in.ndjson"), here.join("hard")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("in.ndjson", here.join("soft")).unwrap();
    fs::write(here.join("mine"), "keep this").unwrap();
    fs::write(here.join("empty"), "").unwrap();
    let input = fs::read(here.join("in.ndjson")).unwrap();
    let soft = if cfg!(unix) { "soft" } else { "in.ndjson" };
    for (errors, expected) in [
        ("in.ndjson", "is the file that is imported"),
        ("./below/../in.ndjson", "is the file that is imported"),
        ("hard", "is the file that is imported"),
        (soft, "is the file that is imported"),
        ("mine", "mine is there already and not empty"),
    ] {
        let arguments = ["import", "People", "in.ndjson", "--create", "--errors", errors];
        for arguments in [&arguments[..], &[&arguments[..], &["--resume"]].concat()] {
            let output = run(here, &server, arguments);
            assert_eq!(output.status.code(), Some(1), "{errors}: {}", text(&output));
            assert!(text(&output).contains(expected), "{errors}: {}", text(&output));
        }
        assert_eq!(fs::read(here.join("in.ndjson")).unwrap(), input, "{errors}");
    }
    let mut piped = command(here, &server, &["import", "People", "-", "--errors", "in.ndjson"]);
    let piped = piped.stdin(fs::File::open(here.join("in.ndjson")).unwrap()).output().unwrap();
    assert!(text(&piped).contains("not empty"), "{}", text(&piped));
    assert_eq!(fs::read(here.join("in.ndjson")).unwrap(), input);
    assert_eq!(fs::read_to_string(here.join("mine")).unwrap(), "keep this");
    assert!(content(&mut server.client(), "People").is_empty(), "nothing was imported yet");
    succeed(here, &server, &["import", "People", "in.ndjson", "--errors", "empty"]);
    let azurite = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/tests/data/azurite-3.37.0.json");
    fs::copy(azurite, here.join("azurite.json")).unwrap();
    let azurite = ["import", "azurite", "azurite.json", "--errors", "azurite.json"];
    let said = text(&run(here, &server, &azurite));
    assert!(said.contains("is the file that is imported"), "{said}");
    assert_ne!(length(&here.join("azurite.json")), 0);
}

/// What was refused before a kill is told once, and another file is not cut off to go on.
#[test]
fn errors_go_on_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    let lines: Vec<String> = (0..12_000)
        .map(|n| if n % 100 == 0 { "nonsense".to_owned() } else { entity(n).to_string() })
        .collect();
    fs::write(here.join("in.ndjson"), lines.join("\n")).unwrap();
    server.client().create_table("People");
    let arguments = ["import", "People", "in.ndjson", "--jobs", "1", "--resume", "--errors"];
    let progress = here.join("in.ndjson.People.progress");
    let mut import = spawn(command(here, &server, &[&arguments[..], &["errors"]].concat()));
    let saved = || {
        let state = fs::read(&progress).ok();
        let state: Option<Value> = state.and_then(|state| serde_json::from_slice(&state).ok());
        state.is_some_and(|state| state["report"]["rows"].as_u64() > Some(0))
    };
    assert!(wait_until(&mut import, "the progress is saved", saved));
    assert!(kill(import), "there is more to import");
    fs::write(here.join("mine"), "keep this").unwrap();
    let refused = text(&run(here, &server, &[&arguments[..], &["mine"]].concat()));
    assert!(refused.contains("mine is there already and not empty"), "{refused}");
    assert_eq!(fs::read_to_string(here.join("mine")).unwrap(), "keep this");
    // What is not certain is cut off, whatever it is.
    let mut errors = fs::OpenOptions::new().append(true).open(here.join("errors")).unwrap();
    std::io::Write::write_all(&mut errors, b"{\"line\":1").unwrap();
    let output = run(here, &server, &[&arguments[..], &["errors"]].concat());
    assert!(text(&output).contains("120 rows were refused: see errors"), "{}", text(&output));
    let errors = fs::read_to_string(here.join("errors")).unwrap();
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64().unwrap();
    let found: Vec<u64> = errors.lines().map(line).collect();
    assert_eq!(found, (0..120).map(|n| n * 100 + 1).collect::<Vec<_>>());
}

/// Which of several rows with the same keys counts is said by --on-conflict, as if they had been there before.
#[test]
fn rows_with_the_same_keys_meet_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    let rows = [json!({ "A": 1, "B": 1 }), json!({ "A": 1, "B": 1 }), json!({ "A": 2 })];
    let lines = rows.clone().map(|mut row| {
        (row["PartitionKey"], row["RowKey"]) = (json!("p"), json!("r"));
        row.to_string()
    });
    fs::write(here.join("in.ndjson"), lines.join("\n")).unwrap();
    for (policy, said, expected) in [
        ("fail", "Imported 1 of 3 rows into Tfail, 1 already there;", &rows[0]),
        ("skip", "Imported 1 of 3 rows into Tskip, 2 left alone;", &rows[0]),
        ("replace", "Imported 3 of 3 rows into Treplace;", &rows[2]),
        ("merge", "Imported 3 of 3 rows into Tmerge;", &json!({ "A": 2, "B": 1 })),
    ] {
        let table = format!("T{policy}");
        let arguments = ["import", &table, "in.ndjson", "--create", "--on-conflict", policy];
        let output = run(here, &server, &arguments);
        assert!(text(&output).starts_with(said), "{}", text(&output));
        let refused = text(&output).contains("line 3: another entity with these keys");
        assert_eq!((refused, output.status.success()), (policy == "fail", policy != "fail"));
        let mut found = content(&mut server.client(), &table).into_values().next().unwrap();
        found.as_object_mut().unwrap().retain(|name, _| !name.ends_with("Key"));
        assert_eq!(found, *expected, "{policy}");
    }
}

/// Of two rows with the same keys the later one replaces the other, however far apart they are.
#[test]
fn the_last_row_with_a_key_wins() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let line = |row: usize, value: usize| {
        json!({ "PartitionKey": "p", "RowKey": format!("{row}"), "A": value }).to_string()
    };
    let lines: Vec<String> = (0..500).map(|n| line(n % 50, n)).collect();
    fs::write(directory.path().join("in.ndjson"), lines.join("\n")).unwrap();
    let arguments = ["import", "People", "in.ndjson", "--create", "--on-conflict", "replace"];
    succeed(directory.path(), &server, &arguments);
    for ((_, row), entity) in content(&mut server.client(), "People") {
        assert_eq!(entity["A"].as_u64(), Some(450 + row.parse::<u64>().unwrap()));
    }
}

#[test]
fn a_copy_that_is_killed_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut from, to) = (TestServer::start(), TestServer::start());
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 9000);
    succeed(here, &from, &["import", "People", "in.ndjson", "--create"]);
    let one: Vec<String> = (0..3000)
        .map(|n| json!({ "PartitionKey": "only", "RowKey": format!("{n:05}"), "A": n }).to_string())
        .collect();
    fs::write(here.join("one.ndjson"), one.join("\n")).unwrap();
    succeed(here, &from, &["import", "OnePartition", "one.ndjson", "--create"]);
    from.client().create_table("Empty");
    let policy = b"<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Permission>r</Permission>\
                   </AccessPolicy></SignedIdentifier></SignedIdentifiers>";
    let set = from.client().request("PUT", "People?comp=acl", &[], policy);
    assert_eq!(set.status, 204, "{}", set.text());

    let (source, target) = (connection(&from), connection(&to));
    let arguments =
        ["copy", &source, &target, "--resume", "state", "--verify", "--acls", "--jobs", "3"];
    let state = here.join("state");
    for _ in 0..2 {
        let copied = |table| {
            let found = to.client().request("GET", &format!("{table}()?$top=1"), &[], b"");
            found.status == 200 && found.text().contains("RowKey")
        };
        let before = fs::read(&state).unwrap_or_default();
        let mut copy = spawn(command(here, &from, &arguments));
        wait_until(&mut copy, "something is copied", || copied("OnePartition"));
        from.pause();
        std::thread::sleep(Duration::from_millis(1100));
        from.resume();
        let saved = || fs::read(&state).is_ok_and(|now| now != before);
        assert!(wait_until(&mut copy, "the state is saved", saved));
        assert!(kill(copy), "there is more to copy");
    }
    let said = succeed(here, &from, &arguments);
    assert_eq!(said.matches("same").count(), 3, "{said}");
    let known: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    let cut = |table: &str, kind: &str| {
        let ranges = known["tables"][table].as_array().unwrap().iter();
        ranges.filter(|range| range["range"].get(kind).is_some()).count()
    };
    assert!(cut("People", "partitions") > 3 && cut("OnePartition", "rows") > 3, "{known}");
    for (table, count) in [("People", 9000), ("OnePartition", 3000), ("Empty", 0)] {
        let copied = content(&mut to.client(), table);
        assert_eq!(copied.len(), count);
        assert_eq!(copied, content(&mut from.client(), table), "{table}");
    }
    let acl = to.client().request("GET", "People?comp=acl", &[], b"");
    assert!(acl.text().contains("<Id>readers</Id>"), "{}", acl.text());

    let stray = json!({ "PartitionKey": "stray", "RowKey": "" });
    to.client().insert("People", &stray).unwrap();
    let output = run(here, &from, &["copy", &source, &target, "--verify", "--tables", "People"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("DIFFERENT"), "{}", text(&output));
}

/// Policies are copied unless they are left out, also by a run that resumes one without them, and compared.
#[test]
fn policies_are_copied_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (TestServer::start(), TestServer::start());
    let here = directory.path();
    for table in ["Guarded", "Open"] {
        from.client().create_table(table);
        let entity = json!({ "PartitionKey": "p", "RowKey": "r" });
        from.client().insert(table, &entity).unwrap();
    }
    let policy = |id: &str| {
        format!(
            "<SignedIdentifiers><SignedIdentifier><Id>{id}</Id><AccessPolicy><Permission>r</Permission>\
             </AccessPolicy></SignedIdentifier></SignedIdentifiers>"
        )
    };
    let set = |server: &TestServer, table: &str, policies: &str| {
        let path = format!("{table}?comp=acl");
        let set = server.client().request("PUT", &path, &[], policies.as_bytes());
        assert_eq!(set.status, 204, "{}", set.text());
    };
    let has = |table: &str, id: &str| {
        let acl = to.client().request("GET", &format!("{table}?comp=acl"), &[], b"");
        acl.text().contains(&format!("<Id>{id}</Id>"))
    };
    let (source, target) = (connection(&from), connection(&to));
    let copy = |options: &[&str]| {
        let output = run(here, &from, &[&["copy", &source, &target], options].concat());
        (output.status.success(), text(&output))
    };
    set(&from, "Guarded", &policy("readers"));
    let (done, said) = copy(&["--resume", "state", "--no-acls"]);
    assert!(done && !has("Guarded", "readers"), "{said}");
    assert!(said.ends_with("the same command with --verify compares both sides.\n"), "{said}");
    let (same, said) = copy(&["--resume", "state", "--no-acls", "--verify"]);
    assert!(same && said.matches("same").count() == 2, "{said}");
    // The same file, now with policies.
    let (same, said) = copy(&["--resume", "state", "--verify"]);
    assert!(same && said.matches("same").count() == 2, "{said}");
    assert!(has("Guarded", "readers") && !said.contains("Not verified"), "{said}");
    // What the destination has of its own stays, unless they are asked for.
    set(&to, "Guarded", &policy("mine"));
    set(&to, "Open", &policy("mine"));
    let (same, said) = copy(&["--verify"]);
    assert!(!same && has("Guarded", "mine") && has("Open", "mine"), "{said}");
    assert!(said.contains("Access policies not copied of Guarded: there are others"), "{said}");
    assert!(said.matches("OTHER POLICIES").count() == 2, "{said}");
    assert!(said.contains("2 tables have other access policies: --acls"), "{said}");
    let (same, said) = copy(&["--verify", "--acls", "--resume", "state"]);
    assert!(same && has("Guarded", "readers") && !has("Open", "mine"), "{said}");
    let (_, said) = copy(&["--acls", "--no-acls"]);
    assert!(said.contains("cannot be used with"), "{said}");
    let (done, said) = copy(&[]);
    assert!(done && said.ends_with("both sides are read again and compared.\n"), "{said}");
}

/// What only Rowhouse has is not copied, and that is said.
#[test]
fn indexes_and_expiry_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (TestServer::start(), TestServer::start());
    let here = directory.path();
    for table in ["Plain", "Rich"] {
        from.client().create_table(table);
    }
    succeed(here, &from, &["index", "create", "Rich", "Email", "--unique"]);
    succeed(here, &from, &["table", "ttl", "Rich", "--after", "30d"]);
    let said = succeed(here, &from, &["copy", &connection(&from), &connection(&to)]);
    let expected = "Not copied of Rich: 1 index (rowhouse index create), when entities expire (rowhouse table ttl).";
    assert!(said.contains(expected) && !said.contains("Plain"), "{said}");
}

#[test]
fn a_signature_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (TestServer::start(), TestServer::start());
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 50);
    succeed(here, &from, &["import", "People", "in.ndjson", "--create"]);
    let fields = AccountSasFields {
        version: "2019-02-02".into(),
        services: "t".into(),
        resource_types: "sco".into(),
        permissions: "rwdlacu".into(),
        expiry: "2099-01-01T00:00:00Z".into(),
        ..AccountSasFields::default()
    };
    let key = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, DEV_KEY).unwrap();
    let sas = sign::account_sas(DEV_ACCOUNT, &key, &fields).to_string();
    let url = |server: &TestServer| format!("http://{}/{DEV_ACCOUNT}?{sas}", server.address());
    let said = succeed(here, &from, &["copy", &url(&from), &url(&to), "--verify"]);
    assert!(said.starts_with("Copied 50 entities of 1 table,"), "{said}");
    // A signature of the account is not enough for policies.
    assert!(said.contains("\nAccess policies not copied of People: "), "{said}");
    assert!(said.contains("\nAccess policies not compared of 1 table."), "{said}");
    let without = succeed(here, &from, &["copy", &url(&from), &url(&to), "--no-acls", "--verify"]);
    assert!(!without.contains("olicies"), "{without}");
    let refused = run(here, &from, &["copy", &url(&from), &url(&to), "--acls"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let expected = "the access policies of People cannot be copied: ";
    assert!(text(&refused).contains(expected), "{}", text(&refused));
    assert!(text(&refused).contains("they need the key of the account"), "{}", text(&refused));
    let endpoint = format!("http://{}/{DEV_ACCOUNT}", to.address());
    let mut export = Command::new(binary());
    export.args(["export", "People", "--endpoint", &endpoint, "--sas", &sas]);
    let output = export.env_remove("ROWHOUSE_CONNECTION").output().unwrap();
    assert_eq!(text(&output).lines().count(), 50, "{}", text(&output));
}

/// A file that Azurite wrote: a table with two policies, one without, and service properties.
#[test]
fn policies_of_azurite_are_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/tests/data");
    let file = directory.path().join("azurite.json");
    fs::copy(format!("{data}/azurite-3.37.0-policies.json"), &file).unwrap();
    let import = |options: &[&str]| {
        let output = run(
            directory.path(),
            &server,
            &[&["import", "azurite", "azurite.json"], options].concat(),
        );
        (output.status.success(), text(&output))
    };
    let mut client = server.client();
    let mut acl = |method: &str, body: &[u8]| {
        let answer = client.request(method, "Guarded?comp=acl", &[], body);
        String::from_utf8(answer.body).unwrap()
    };
    for _ in 0..2 {
        let (whole, said) = import(&[]);
        assert!(whole && said.contains("Set the access policies of 1 table."), "{said}");
        assert!(said.contains("Left out: the service properties of the account"), "{said}");
        // What the file cannot show.
        assert!(said.contains("Note: Azurite completes this file only"), "{said}");
        let policies = acl("GET", b"");
        for part in
            ["<Id>readers</Id>", "2026-01-02T03:04:05.0000000Z", "<Permission>raud</Permission>"]
        {
            assert!(policies.contains(part), "{part}: {policies}");
        }
    }
    let other =
        "<SignedIdentifiers><SignedIdentifier><Id>mine</Id></SignedIdentifier></SignedIdentifiers>";
    acl("PUT", other.as_bytes());
    let (whole, said) = import(&[]);
    assert!(!whole && said.contains("Guarded: it has other ones already"), "{said}");
    let (whole, said) = import(&["--on-conflict", "skip"]);
    assert!(whole && !said.contains("Set the access"), "{said}");
    assert!(acl("GET", b"").contains("<Id>mine</Id>"));
    assert!(import(&["--on-conflict", "replace"]).0);
    assert!(acl("GET", b"").contains("<Id>readers</Id>"));
}

/// A row that is refused hides nothing about policies, and those of one table nothing about those of the others.
#[test]
fn everything_of_azurite_that_is_refused_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/tests/data");
    let text_of = fs::read_to_string(format!("{data}/azurite-3.37.0-policies.json")).unwrap();
    let policy = |id: &str| format!(r#"{{"id":"{id}","accessPolicy":{{"permission":"r"}}}}"#);
    // More than a table can have: a service refuses them.
    let many: String = (0..6).map(|n| policy(&n.to_string()) + ",").collect();
    let file = text_of.replacen(r#""tableAcl":["#, &format!(r#""tableAcl":[{many}"#), 1).replacen(
        r#""table":"Open","#,
        &format!(r#""table":"Open","tableAcl":[{}],"#, policy("readers")),
        1,
    );
    fs::write(directory.path().join("azurite.json"), file).unwrap();
    let mut client = server.client();
    client.create_table("Guarded");
    let mine = json!({ "PartitionKey": "p", "RowKey": "r", "N": 2 });
    assert_eq!(client.insert("Guarded", &mine).unwrap().status, 204);
    let output = run(directory.path(), &server, &["import", "azurite", "azurite.json"]);
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("1 row was refused"), "{said}");
    let named = "Guarded, PartitionKey \"p\", RowKey \"r\": another entity with these keys";
    assert!(said.contains(named), "{said}");
    assert!(said.contains("access policies were not set: Guarded: "), "{said}");
    assert!(said.contains("Set the access policies of 1 table."), "{said}");
    let there = client.request("GET", "Open?comp=acl", &[], b"").text();
    assert!(there.contains("<Id>readers</Id>"), "{there}");
    run(directory.path(), &server, &["import", "azurite", "azurite.json", "--errors", "errors"]);
    let errors = fs::read_to_string(directory.path().join("errors")).unwrap();
    let mut error: Value = serde_json::from_str(&errors).unwrap();
    assert!(error.as_object_mut().unwrap().remove("reason").is_some(), "{errors}");
    let expected = json!({ "entity": 1, "table": "Guarded", "PartitionKey": "p", "RowKey": "r" });
    assert_eq!(error, expected);
}

#[test]
fn failures_are_a_sentence_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start();
    let here = directory.path();
    fs::write(here.join("in.ndjson"), entity(0).to_string()).unwrap();
    fs::write(here.join("bad.csv"), "A,B\n1,2\n").unwrap();
    let wrong = format!("{}x", connection(&server));
    let (wrong, same) = (wrong.as_str(), connection(&server));
    let cases: &[(&[&str], &str)] = &[
        (&["export", "Absent", "--out", "x"], "there is no table Absent (TableNotFound)"),
        (&["import", "Absent", "in.ndjson"], "--create"),
        (&["import", "Absent", "absent.ndjson"], "cannot read absent.ndjson"),
        (&["import", "Absent", "bad.csv"], "has no PartitionKey"),
        (&["import", "azurite", "in.ndjson"], "not a table file of Azurite"),
        (&["export", "a-b"], "name of a table"),
        (&["export", "People", "--resume"], "--out"),
        (&["export", "People", "--connection", "nonsense"], "connection string"),
        (&["export", "People", "--connection", wrong], "check the key"),
        (
            &["export", "People", "--connection", "http://127.0.0.1:1/a?sig=a"],
            "that the server runs",
        ),
        (&["copy", &same, &same], "same service"),
        (&["copy", "nonsense", &same], "the source: "),
    ];
    for (arguments, expected) in cases {
        let output = run(here, &server, arguments);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}

#[test]
fn an_encrypted_service_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(&["--tls-self-signed"]);
    let here = directory.path();
    write_file(&here.join("in.ndjson"), 200);
    let connection = connection(&server).replace("http://", "https://");
    let import = |certificate: Option<&Path>| {
        let arguments = ["import", "People", "in.ndjson", "--create", "--connection", &connection];
        let mut import = command(here, &server, &arguments);
        match certificate {
            Some(path) => import.env("SSL_CERT_FILE", path),
            None => import.env_remove("SSL_CERT_FILE"),
        };
        import.output().unwrap()
    };
    let certificate = server.data().join("tls-cert.pem");
    assert!(certificate.exists());
    let output = import(Some(&certificate));
    assert!(text(&output).starts_with("Imported 200 of 200 rows into People"), "{}", text(&output));
    let output = import(None);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("SSL_CERT_FILE"), "{}", text(&output));
}
