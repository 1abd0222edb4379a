//! A single table restored into a running server with the built binary, while command and server are killed.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Client, TestPostgres, TestServer, binary, seed, wait_until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So many times something is killed; then it is let go on to its end.
const KILLS: usize = 8;
/// How often it is tried to kill the server while a table is half there.
const KILLS_LATE_MAX: usize = 20;
const ENTITIES: usize = 700;
const RESUMED: &str = "(the rest of an earlier attempt)";

fn ask(server: &TestServer, arguments: &[&str], file: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).arg(file);
    command.arg("--admin").arg(format!("http://{}", server.admin_address()));
    command.arg("--admin-token-file").arg(server.data().join("admin-token"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn restore(server: &TestServer, file: &Path, renamed: &str) -> Child {
    let mut command = ask(server, &["restore", "--table", renamed], file);
    command.spawn().expect("it can be started")
}

/// Has the server receive so many bytes of the backup for a table, and hangs up: the half is there when it returns.
fn hang_up(server: &TestServer, file: &Path, (old, new): (&str, &str), after: usize) {
    let backup = std::fs::read(file).expect("the backup can be read");
    let token = std::fs::read_to_string(server.data().join("admin-token")).expect("the token");
    let account = "devstoreaccount1";
    let mut stream = TcpStream::connect(server.admin_address()).expect("it listens");
    write!(
        stream,
        "POST /v1/accounts/{account}/tables/{new}/restore?account={account}&table={old} HTTP/1.1\r\n\
         Host: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        token.trim(),
        backup.len()
    )
    .and_then(|()| stream.write_all(&backup[..after]))
    .expect("it takes a part");
    stream.shutdown(Shutdown::Write).expect("it can be told that nothing follows");
    // Whatever it answers: after that it is not at work any more.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Whether it succeeded, and what it said.
fn ended(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

/// More than the frames after which it is noted how far a restore has got, and nothing that could be compressed.
fn fill(client: &mut Client, chance: &SeededRandom) {
    client.create_table("Noise");
    for row in 0..ENTITIES {
        let mut noise = vec![0; 40 * 1024];
        chance.fill(&mut noise);
        let entity = json!({
            "PartitionKey": format!("p{}", row % 3), "RowKey": format!("{row:04}"),
            "Noise@odata.type": "Edm.Binary", "Noise": STANDARD.encode(noise),
        });
        assert_eq!(client.insert("Noise", &entity).expect("answered").status, 204);
    }
}

fn ten_things(client: &mut Client) {
    client.create_table("Things");
    for row in 0..10 {
        let entity = json!({ "PartitionKey": "p", "RowKey": format!("{row}") });
        assert_eq!(client.insert("Things", &entity).expect("answered").status, 204);
    }
}

/// Every entity with its Timestamp and ETag.
fn contents(client: &mut Client, table: &str) -> Vec<Value> {
    let mut entities = client.query(table, "");
    for entity in &mut entities {
        let members = entity.as_object_mut().expect("an entity");
        members.retain(|name, _| name == "odata.etag" || !name.starts_with("odata."));
    }
    entities
}

/// Whether nobody takes the half for a table. From one look to the next it may have become whole, never the reverse.
fn is_hidden(client: &mut Client) -> bool {
    let mut get = |path: &str| {
        let answer = client.request("GET", path, &[], b"");
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.status);
        answer
    };
    let first = [get("Again()").status == 200, get("Tables('Again')").status == 200];
    let tables = get("Tables").body;
    let names = String::from_utf8_lossy(&tables);
    assert!(names.contains("Noise"), "{names}");
    let looks = [first[0], first[1], names.contains("Again")];
    assert!(looks.is_sorted(), "{looks:?}");
    if looks.contains(&true) {
        return false;
    }
    let entity = json!({ "PartitionKey": "p", "RowKey": "mine" });
    match client.insert("Again", &entity).expect("answered").status {
        404 => true,
        204 => {
            let key = "Again(PartitionKey='p',RowKey='mine')";
            assert_eq!(client.delete(key, "*").expect("answered").status, 204);
            false
        }
        status => panic!("{status}"),
    }
}

fn killed(mut server: TestServer) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let chance = SeededRandom::new(seed());
    let any = |below: u32| {
        let mut bytes = [0; 4];
        chance.fill(&mut bytes);
        u32::from_le_bytes(bytes) % below
    };
    fill(&mut server.client(), &chance);
    let file = directory.path().join("backup.rhb");
    let (taken, said) = ended(ask(&server, &["backup"], &file).spawn().expect("it starts"));
    assert!(taken, "{said}");
    let expected = contents(&mut server.client(), "Noise");
    let started = Instant::now();
    let (whole, said) = ended(restore(&server, &file, "Noise=Before"));
    assert!(whole && said.contains(&format!(": {ENTITIES} entities.")), "{said}");
    let longest = u32::try_from(started.elapsed().as_millis()).expect("it is short");

    let (mut kills, mut begun) = (0, 0);
    loop {
        let mut child = restore(&server, &file, "Noise=Again");
        if kills < KILLS {
            std::thread::sleep(Duration::from_millis(any(longest).into()));
            if child.try_wait().expect("it can be asked").is_none() {
                kills += 1;
                if any(2) == 0 {
                    child.kill().expect("it can be killed");
                    ended(child);
                } else {
                    server.kill();
                    // It may have been told in time, or it tells why not.
                    let (_, said) = ended(child);
                    assert!(!said.is_empty());
                    begun += usize::from(said.contains("goes on from the last place"));
                    server.restart();
                }
                let mut client = server.client();
                if is_hidden(&mut client) {
                    continue;
                }
                // All of it had been sent by then: whoever sees the table sees all.
                assert_eq!(contents(&mut client, "Again"), expected);
                let deleted = client.delete("Tables('Again')", "*").expect("answered");
                assert_eq!(deleted.status, 204);
                continue;
            }
        }
        match ended(child) {
            (true, said) => {
                println!("{kills} kills, {begun} of them of a server that was receiving: {said}");
                assert!(said.contains("Noise as devstoreaccount1/Again"), "{said}");
                assert_eq!(contents(&mut server.client(), "Again"), expected);
                if kills == KILLS {
                    break;
                }
                let deleted = server.client().delete("Tables('Again')", "*").expect("answered");
                assert_eq!(deleted.status, 204);
            }
            // The server had all of the one before, and was done after the looks.
            (false, said) if said.contains("already: choose another name") => {
                assert_eq!(contents(&mut server.client(), "Again"), expected);
                let deleted = server.client().delete("Tables('Again')", "*").expect("answered");
                assert_eq!(deleted.status, 204);
            }
            // The server has not noticed yet that the one before is gone.
            (false, said) => assert!(said.contains("nother backup or restore"), "{said}"),
        }
    }
    let (again, said) = ended(restore(&server, &file, "Noise=Again"));
    assert!(!again && said.contains("There is a table Again already"), "{said}");

    // The server is killed late, until it was once at a moment at which the table had begun and was not whole.
    let resumed = (0..KILLS_LATE_MAX).any(|attempt| {
        let table = format!("Last{attempt}");
        let child = restore(&server, &file, &format!("Noise={table}"));
        std::thread::sleep(Duration::from_millis((longest / 2 + any(longest / 2 + 1)).into()));
        server.kill();
        let (ended_before, _) = ended(child);
        server.restart();
        let mut said = String::new();
        if !ended_before {
            let whole;
            let again = ["restore", "--json", "--table", &format!("Noise={table}")];
            (whole, said) = ended(ask(&server, &again, &file).spawn().expect("it starts"));
            // The server may have been killed between the last write and its answer.
            assert!(whole || said.contains("already: choose another name"), "{said}");
        }
        assert_eq!(contents(&mut server.client(), &table), expected);
        said.contains("\"resumed\":true")
    });
    assert!(resumed, "none of {KILLS_LATE_MAX} was gone on with");

    // Behind the first place that is noted, only the rest is put back.
    let length = usize::try_from(std::fs::metadata(&file).expect("it is there").len());
    hang_up(&server, &file, ("Noise", "Rest"), length.expect("it is short") / 10 * 9);
    server.kill();
    server.restart();
    let (whole, said) = ended(restore(&server, &file, "Noise=Rest"));
    assert!(whole && said.contains(RESUMED), "{said}");
    assert_eq!(contents(&mut server.client(), "Rest"), expected);
}

/// Somebody who checks the data or takes or verifies a backup learns that a table is not whole, and nobody gets it back as if it
/// were.
#[test]
fn halves_are_told() {
    let mut server = TestServer::start();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let first = directory.path().join("first.rhb");
    let mut client = server.client();
    ten_things(&mut client);
    let run = |mut command: Command| ended(command.spawn().expect("it can be started"));
    let (taken, said) = run(ask(&server, &["backup"], &first));
    assert!(taken && !said.contains("Half"), "{said}");
    let length = std::fs::metadata(&first).expect("it is there").len();
    let length = usize::try_from(length).expect("it is short");
    hang_up(&server, &first, ("Things", "Again"), length - 8);

    let line = "Half      1 table is half restored: devstoreaccount1/Again\n";
    let second = directory.path().join("second.rhb");
    for arguments in [&["backup"][..], &["backup", "verify"]] {
        let (done, said) = run(ask(&server, arguments, &second));
        assert!(done && said.contains(line), "{said}");
    }
    let (done, said) = run(ask(&server, &["backup", "verify", "--json"], &second));
    assert!(done && said.contains("\"halfRestored\":[\"devstoreaccount1/Again\"]"), "{said}");
    let (whole, said) = ended(restore(&server, &second, "Again=Third"));
    assert!(!whole && said.contains("was itself half restored"), "{said}");
    let check = |server: &TestServer| {
        let mut command = Command::new(binary());
        command.arg("check").arg(server.data()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(command)
    };
    server.kill();
    let (in_order, said) = check(&server);
    assert!(in_order, "{said}");
    let expected = "2 tables with 10 entities: everything is in order.\n\
                    1 table is half restored: devstoreaccount1/Again. ";
    assert!(said.starts_with(expected), "{said}");
    server.restart();
    let (whole, said) = ended(restore(&server, &first, "Things=Again"));
    // The half had not got to a place that is noted.
    assert!(whole && said.contains(": 10 entities.\n"), "{said}");
    server.kill();
    assert_eq!(check(&server).1, "2 tables with 20 entities: everything is in order.\n");
}

/// Who sends all of a backup and does not wait for the answer leaves a table that is whole, or a half that nobody sees and the next
/// attempt goes on with; and a line for the audit.
#[test]
fn nobody_waits_for_the_answer() {
    const ATTEMPTS: usize = 50;
    let server = TestServer::start();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("backup.rhb");
    let mut client = server.client();
    ten_things(&mut client);
    let (taken, said) = ended(ask(&server, &["backup"], &file).spawn().expect("it starts"));
    assert!(taken, "{said}");
    let expected = contents(&mut client, "Things");
    let length = usize::try_from(std::fs::metadata(&file).expect("it is there").len());
    let length = length.expect("it is short");
    for attempt in 0..ATTEMPTS {
        hang_up(&server, &file, ("Things", &format!("Again{attempt}")), length);
    }
    // Of a client that hangs up at once the server may not even have heard what it wants.
    let lines = |table: &str| {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("table.restore"));
        lines.filter(|line| line.contains(&format!("\"{table}\""))).count()
    };
    let mut begun = 0;
    for attempt in 0..ATTEMPTS {
        let table = format!("Again{attempt}");
        let again = ["restore", "--json", "--table", &format!("Things={table}")];
        let (done, said) = ended(ask(&server, &again, &file).spawn().expect("it starts"));
        let was_whole = !done;
        assert!(done || said.contains("already: choose another name"), "{said}");
        if was_whole || said.contains("\"resumed\":true") {
            wait_until("each of the two has its line", || lines(&table) == 2);
            begun += 1;
        }
        assert_eq!(contents(&mut client, &table), expected);
    }
    println!("{begun} of {ATTEMPTS} had begun");
    assert!(begun > 0, "none had begun");
}

/// Of several tables those that can be are restored, and the others told: so the same command goes on with one that is
/// half there although another is whole by now.
#[test]
fn one_table_that_is_refused_does_not_stop_the_others() {
    let server = TestServer::start();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("backup.rhb");
    let mut client = server.client();
    for table in ["First", "Second"] {
        client.create_table(table);
        let entity = json!({ "PartitionKey": "p", "RowKey": table });
        assert_eq!(client.insert(table, &entity).expect("answered").status, 204);
    }
    let run = |mut command: Command| ended(command.spawn().expect("it can be started"));
    let (taken, said) = run(ask(&server, &["backup"], &file));
    assert!(taken, "{said}");
    let (whole, said) = ended(restore(&server, &file, "First=One"));
    assert!(whole, "{said}");
    let length = std::fs::metadata(&file).expect("it is there").len();
    let length = usize::try_from(length).expect("it is short");
    hang_up(&server, &file, ("Second", "Two"), length - 8);
    let tables =
        ["restore", "--table", "First=One", "--table", "Nothing=Three", "--table", "Second=Two"];
    let (all, said) = run(ask(&server, &tables, &file));
    assert!(!all, "{said}");
    let second = "Restored devstoreaccount1/Second as devstoreaccount1/Two: 1 entity.\n";
    let told = "rowhouse: 2 of 3 tables were not restored\n  \
                First=One: There is a table One already: choose another name\n  \
                Nothing=Three: the backup has no table Nothing: ";
    assert!(said.contains(second) && said.contains(told), "{said}");
    assert_eq!(contents(&mut client, "Two").len(), 1);
}

#[test]
fn a_table_goes_on_after_kills() {
    killed(TestServer::start());
}

#[test]
fn a_table_goes_on_after_kills_on_postgres() {
    let postgres = TestPostgres::start();
    killed(TestServer::start_with_store(&postgres.create_database()));
}
