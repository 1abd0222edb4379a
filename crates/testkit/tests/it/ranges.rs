//! A signature that is limited to a range of keys learns nothing of what is outside: every answer, with all its headers and
//! numbers, is what it would be if nothing else were there. Runs the built binary, on both engines.
//!
//! Two servers have the same tables and indexes. One has the entities of the range alone, the other one more around them, and
//! both are asked the same random questions.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{TableSasFields, sign};
use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{
    Client, Connection, DEV_ACCOUNT, DEV_KEY, Operation, Response, TestPostgres, TestServer,
    count_from, encode, seed,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const WITHIN: Duration = Duration::from_mins(1);
/// More than a plan takes at once, so that indexes are weighed.
const INSIDE: usize = 60;
const OUTSIDE: usize = 240;
/// Pages of an answer that are read.
const PAGES_MAX: usize = 12;

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % end as u64).expect("small")
    }

    fn one_of<'a>(&self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// The range of a signature, for which each server has a table of its own.
struct Range {
    table: &'static str,
    start: (&'static str, Option<&'static str>),
    end: (Option<&'static str>, Option<&'static str>),
}

const RANGES: [Range; 4] = [
    Range { table: "Partition", start: ("m", None), end: (Some("m"), None) },
    Range { table: "Rows", start: ("m", Some("0010")), end: (Some("m"), Some("0070")) },
    Range { table: "Partitions", start: ("m", None), end: (Some("m0"), None) },
    Range { table: "Rest", start: ("m", None), end: (None, None) },
];

impl Range {
    fn contains(&self, entity: &Value) -> bool {
        let key = |name: &str| entity[name].as_str().expect("a key").to_owned();
        let (partition, row) = (key("PartitionKey"), key("RowKey"));
        let after =
            (partition.as_str(), row.as_str()) >= (self.start.0, self.start.1.unwrap_or(""));
        let before = match self.end {
            (None, _) => true,
            (Some(last), None) => partition.as_str() <= last,
            (Some(last), Some(end)) => (partition.as_str(), row.as_str()) <= (last, end),
        };
        after && before
    }

    fn signature(&self) -> String {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let fields = TableSasFields {
            version: "2019-02-02".into(),
            table: self.table.into(),
            permissions: "rd".into(),
            expiry: "2099-01-01T00:00:00Z".into(),
            start_partition: Some(self.start.0.to_owned()),
            start_row: owned(self.start.1),
            end_partition: owned(self.end.0),
            end_row: owned(self.end.1),
            ..TableSasFields::default()
        };
        let key = STANDARD.decode(DEV_KEY).expect("Base64");
        sign::table_sas(DEV_ACCOUNT, &key, &fields).to_string()
    }
}

/// Mostly in the partition `m`; values that ranges of an index mix with those of others.
fn entities(dice: &Dice) -> Vec<Value> {
    let entity = |n: usize| {
        let partition = if n < INSIDE { "m" } else { ["a", "l", "m", "m0", "z"][n % 5] };
        let mut entity = json!({
            "PartitionKey": partition,
            "RowKey": format!("{n:04}"),
            "Salary": dice.below(50),
            "Name": format!("{}{}", dice.one_of(&["an", "ann", "bo", "cy", ""]), dice.below(9)),
            "City": dice.one_of(&["Oslo", "Rome", "Turin"]),
            "Badge": format!("b{n}"),
        });
        if dice.below(8) == 0 {
            entity.as_object_mut().expect("an object").remove("Salary");
        }
        entity
    };
    (0..INSIDE + OUTSIDE).map(entity).collect()
}

fn fill(client: &mut Client, table: &str, entities: &[Value]) {
    client.create_table(table);
    let mut partitions: Vec<&str> =
        entities.iter().map(|entity| entity["PartitionKey"].as_str().expect("a key")).collect();
    partitions.sort_unstable();
    partitions.dedup();
    for partition in partitions {
        let of: Vec<_> =
            entities.iter().filter(|entity| entity["PartitionKey"] == partition).collect();
        for chunk in of.chunks(100) {
            let operations: Vec<Operation> =
                chunk.iter().map(|entity| Operation::insert(table, (*entity).clone())).collect();
            let answer = client.batch(&operations).expect("answered");
            assert!(answer.succeeded(), "{answer:?}");
        }
    }
    let path = format!("{table}?comp=index");
    for index in [
        json!({ "properties": ["Salary"] }),
        json!({ "properties": ["Name"] }),
        json!({ "properties": ["City", "Salary"] }),
        json!({ "properties": ["PartitionKey", "Salary"] }),
        json!({ "properties": ["Badge"], "unique": true }),
    ] {
        let created = client.request("PUT", &path, &[JSON], index.to_string().as_bytes());
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let began = Instant::now();
    loop {
        let answer = client.request("GET", &path, &[], b"");
        let indexes = answer.json()["value"].as_array().expect("a list").clone();
        if indexes.iter().all(|index| index["state"] == "ready") {
            return;
        }
        assert!(began.elapsed() < WITHIN, "{indexes:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn filter(dice: &Dice) -> String {
    let (low, high) = (dice.below(50), dice.below(50));
    let city = dice.one_of(&["Oslo", "Rome", "Turin", "Nowhere"]);
    let name = dice.one_of(&["a", "an", "ann", "b", "x"]);
    match dice.below(14) {
        0 => String::new(),
        1 => format!("Salary ge {low} and Salary lt {high}"),
        2 => format!("Salary eq {low}"),
        3 => format!("Salary gt {low}"),
        4 => format!("startswith(Name,'{name}')"),
        5 => format!("City eq '{city}' and Salary gt {low}"),
        6 => format!("City eq '{city}'"),
        7 => format!("Badge eq 'b{}'", dice.below(INSIDE + OUTSIDE)),
        8 => format!("Salary in ({low},{high},7)"),
        9 => format!("City eq '{city}' or Salary eq {low}"),
        10 => format!("Name eq '{name}1' or Salary gt {low}"),
        11 => format!("contains(Name,'{name}')"),
        12 => format!("PartitionKey eq 'm' and Salary gt {low}"),
        _ => format!("PartitionKey ge 'l' and Salary le {low} and Name gt '{name}'"),
    }
}

/// A question: its method, and its path with options.
fn question(dice: &Dice, table: &str) -> (&'static str, String) {
    let filter = filter(dice);
    let option =
        if filter.is_empty() { String::new() } else { format!("&$filter={}", encode(&filter)) };
    let top =
        if dice.below(2) == 0 { String::new() } else { format!("&$top={}", 1 + dice.below(9)) };
    match dice.below(8) {
        0 => ("GET", format!("{table}()/$count?{option}")),
        1 => ("GET", format!("{table}()?$count=true{option}{top}")),
        2 => ("GET", format!("{table}()?$explain=true{option}{top}")),
        3 if !filter.is_empty() => {
            ("POST", format!("{table}?comp=delete&dryrun=true{option}{top}"))
        }
        4 | 5 => {
            let by = dice.one_of(&["Salary", "Salary%20desc", "Name", "City%20desc", "Badge"]);
            let explain = dice.one_of(&["", "", "&$explain=true"]);
            ("GET", format!("{table}()?$orderby={by}{option}{top}{explain}"))
        }
        6 => {
            let by = dice.one_of(&["PartitionKey%20desc", "RowKey%20desc"]);
            ("GET", format!("{table}()?$orderby={by}{option}&$top={}", 1 + dice.below(9)))
        }
        _ => ("GET", format!("{table}()?{option}{top}")),
    }
}

fn ask(server: &TestServer, method: &str, path: &str, sas: &str) -> Response {
    let mut connection = Connection::open(server.address()).expect("it listens");
    let request = format!(
        "{method} /{DEV_ACCOUNT}/{path}&{sas} HTTP/1.1\r\nHost: localhost\r\n\
         Accept: application/json\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    connection.send(request.as_bytes()).expect("it is read");
    connection.receive(method).expect("it is answered")
}

/// What differs between two servers although they have the same is left out: when, and under which id.
fn told(answer: &Response) -> (u16, Vec<(String, String)>, Value) {
    const LEFT_OUT: [&str; 3] = ["date", "x-ms-request-id", "content-length"];
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()))
        .collect();
    headers.sort();
    let mut body =
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::String(answer.text()));
    strip(&mut body);
    (answer.status, headers, body)
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for name in ["Timestamp", "odata.etag", "odata.metadata"] {
                members.remove(name);
            }
            members.values_mut().for_each(strip);
            // Errors end with an id and a time.
            if let Some(Value::String(text)) = members.get_mut("value")
                && let Some(at) = text.find("\nRequestId:")
            {
                text.truncate(at);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// All pages of an answer as one caller gets them from both servers.
fn compare(servers: [&TestServer; 2], method: &str, path: &str, sas: &str) -> Vec<String> {
    let (mut plans, mut place) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let [part, whole] =
            servers.map(|server| ask(server, method, &format!("{path}{place}"), sas));
        assert_eq!(told(&part), told(&whole), "{method} {path}{place}");
        assert!(part.status == 200 || part.status == 400, "{method} {path}: {}", part.text());
        plans.extend(part.header("x-rowhouse-plan").map(str::to_owned));
        let token = |name: &str| {
            let value = part.header(&format!("x-ms-continuation-{name}"))?;
            Some(format!("&{name}={}", encode(value)))
        };
        match token("NextPartitionKey").zip(token("NextRowKey")) {
            Some((partition, row)) => place = partition + &row,
            None => break,
        }
    }
    plans
}

/// A server with the tables of all ranges: with what is in each of them alone, or with everything.
fn server(store: Option<&str>, entities: &[Value], whole: bool) -> TestServer {
    let server = match store {
        None => TestServer::start(),
        Some(url) => TestServer::start_with_store_and(url, &["--ephemeral"]),
    };
    let mut client = server.client();
    for range in &RANGES {
        let of: Vec<Value> =
            entities.iter().filter(|entity| whole || range.contains(entity)).cloned().collect();
        assert!(INSIDE / 2 < of.len() && (whole || of.len() < entities.len()));
        fill(&mut client, range.table, &of);
    }
    server
}

fn nothing_shows(stores: [Option<&str>; 2], questions: usize) {
    let dice = Dice(SeededRandom::new(seed()));
    let entities = entities(&dice);
    let [part, whole] = stores;
    let (part, whole) = (server(part, &entities, false), server(whole, &entities, true));
    let mut plans = Vec::new();
    for range in &RANGES {
        let sas = range.signature();
        for _ in 0..questions {
            let (method, path) = question(&dice, range.table);
            plans.extend(compare([&part, &whole], method, &path, &sas));
        }
    }
    let through = plans.iter().filter(|plan| plan.starts_with("index;")).count();
    assert!(through > 0, "some went through an index: {plans:?}");
    assert!(!plans.iter().any(|plan| plan.contains('(')), "no index is named: {plans:?}");
    for server in [&part, &whole] {
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

#[test]
fn nothing_outside_the_range_of_a_signature_shows() {
    nothing_shows([None, None], count_from("ROWHOUSE_QUESTIONS", 120));
}

#[test]
fn nothing_outside_the_range_of_a_signature_shows_on_postgres() {
    let [part, whole] = [(); 2].map(|()| TestPostgres::shared().create_database());
    nothing_shows([Some(&part), Some(&whole)], count_from("ROWHOUSE_QUESTIONS", 60));
}

/// Salaries of others cannot be found by counting, which is what this is about.
#[test]
fn a_signature_does_not_find_the_values_of_others() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut staff: Vec<Value> = (0..40)
        .map(|n| json!({ "PartitionKey": "m", "RowKey": format!("{n:04}"), "Salary": 5 }))
        .collect();
    staff.extend((0..25).map(
        |n| json!({ "PartitionKey": "z", "RowKey": format!("{n:04}"), "Salary": 1000 + 7 * n }),
    ));
    for entity in &mut staff {
        let badge = format!("{}{}", entity["PartitionKey"], entity["RowKey"]);
        entity["Badge"] = Value::String(badge);
    }
    fill(&mut client, "Partition", &staff);
    let sas = RANGES[0].signature();
    for (option, plan) in [
        (
            "()?$filter=Salary%20ge%20900%20and%20Salary%20lt%202000",
            "index; examined=0; returned=0",
        ),
        (
            "()/$count?$filter=Salary%20ge%20900%20and%20Salary%20lt%202000",
            "index; examined=0; returned=0",
        ),
        ("()?$orderby=Salary%20desc&$top=1", "table-scan; examined=40; returned=1"),
    ] {
        let answer = ask(&server, "GET", &format!("Partition{option}"), &sas);
        assert_eq!(answer.header("x-rowhouse-plan"), Some(plan), "{option}");
    }
}
