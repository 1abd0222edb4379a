//! A consumer of the change feed that may be killed at any moment, as a process of its own.
//!
//! `feed-consumer DIRECTORY TABLE` asks the server whose address is in the file `address` and appends every answer to the
//! file `heard`, a line each. Now and then it replaces the file `place` with where to go on: everything before that is
//! certain to be in `heard`. It ends when the file `over` is there and nothing is left to hear.

use rowhouse_env::{Random as _, SystemRandom};
use rowhouse_testkit::{Client, encode};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, table] = arguments.as_slice() else { panic!("feed-consumer DIRECTORY TABLE") };
    consume(Path::new(directory), table);
}

fn consume(directory: &Path, table: &str) {
    let heard = File::options().create(true).append(true).open(directory.join("heard"));
    let mut heard = heard.expect("the file can be written");
    // Whoever was killed may have left half a line.
    write(&mut heard, b"\n");
    let mut place = fs::read_to_string(directory.join("place")).unwrap_or("beginning".to_owned());
    let mut client = None;
    loop {
        let over = directory.join("over").exists();
        let Ok(answer) = ask(directory, table, &place, &mut client) else {
            client = None;
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        write(&mut heard, format!("{answer}\n").as_bytes());
        answer["next"].as_str().expect("a token").clone_into(&mut place);
        if chance() < 80 {
            fs::write(directory.join("place.new"), &place).expect("the file can be written");
            fs::rename(directory.join("place.new"), directory.join("place")).expect("it is there");
        }
        if over && answer["more"] == false && answer["value"] == json!([]) {
            return;
        }
    }
}

fn write(heard: &mut File, bytes: &[u8]) {
    heard.write_all(bytes).expect("the file can be written");
}

fn chance() -> u8 {
    let mut byte = [0];
    SystemRandom.fill(&mut byte);
    byte[0]
}

fn ask(
    directory: &Path,
    table: &str,
    place: &str,
    client: &mut Option<Client>,
) -> io::Result<Value> {
    if client.is_none() {
        let address = fs::read_to_string(directory.join("address"))?;
        *client = Some(Client::new(address.parse().map_err(io::Error::other)?));
    }
    let path = format!("{table}?comp=changes&wait=1&$top=50&from={}", encode(place));
    let answer = client.as_mut().expect("just made").try_request("GET", &path, &[], b"")?;
    match answer.status {
        200 => Ok(answer.json()),
        503 => Err(io::ErrorKind::WouldBlock.into()),
        status => panic!("{status}: {}", answer.text()),
    }
}
