//! Secondary indexes, orders by properties and explanations, as they are on the wire and on the command line, on both
//! engines. Runs the built binary.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{TableSasFields, sign};
use rowhouse_testkit::{
    Client, Connection, DEV_ACCOUNT, DEV_KEY, Operation, Response, TestPostgres, TestServer,
    binary, encode,
};
use serde_json::{Value, json};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("Content-Type", "application/json");
/// How long anything here may take, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);
const PEOPLE: usize = 150;

/// Runs a test on a server of each engine, which has a table of people.
fn on_both(test: impl Fn(&TestServer, &mut Client)) {
    for server in [
        TestServer::start(),
        TestServer::start_with_store_and(
            &TestPostgres::shared().create_database(),
            &["--ephemeral"],
        ),
    ] {
        let mut client = server.client();
        client.create_table("People");
        for chunk in (0..PEOPLE).collect::<Vec<_>>().chunks(50) {
            let operations: Vec<Operation> =
                chunk.iter().map(|n| Operation::insert("People", person(*n))).collect();
            let answer = client.batch(&operations).expect("answered");
            assert!(answer.succeeded(), "{answer:?}");
        }
        test(&server, &mut client);
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

fn person(n: usize) -> Value {
    let city = ["Oslo", "Rome", "Turin"][n % 3];
    json!({
        "PartitionKey": "p",
        "RowKey": format!("{n:04}"),
        "Email": format!("{n}@example.com"),
        "City": city,
        "Age": n * 7 % 100,
    })
}

fn create(client: &mut Client, body: &Value) -> Response {
    client.request("PUT", "People?comp=index", &[JSON], body.to_string().as_bytes())
}

fn get(client: &mut Client, path: &str) -> Response {
    client.request("GET", path, &[], b"")
}

/// The indexes once none of them is being built.
fn built(client: &mut Client) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let answer = get(client, "People?comp=index");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let indexes = answer.json()["value"].as_array().expect("a list").clone();
        if indexes.iter().all(|index| index["state"] != "building") {
            return indexes;
        }
        assert!(began.elapsed() < WITHIN, "{indexes:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The RowKeys of a page, its plan and the options that ask for the next one.
fn page(client: &mut Client, options: &str) -> (Vec<String>, String, Option<String>) {
    let answer = get(client, &format!("People()?{options}"));
    assert_eq!(answer.status, 200, "{options}: {}", answer.text());
    let json = answer.json();
    let rows = json["value"].as_array().expect("a list").iter();
    let rows = rows.map(|row| row["RowKey"].as_str().expect("a key").to_owned()).collect();
    let token = |name: &str| {
        let value = answer.header(&format!("x-ms-continuation-{name}"))?;
        Some(format!("&{name}={}", encode(value)))
    };
    let next = token("NextPartitionKey").zip(token("NextRowKey")).map(|(p, r)| p + &r);
    (rows, answer.header("x-rowhouse-plan").expect("a plan").to_owned(), next)
}

fn said(response: &Response) -> (u16, String) {
    (response.status, response.code().unwrap_or_default())
}

fn expect(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn an_index_is_declared_built_used_and_dropped() {
    on_both(|_, client| {
        let email = "$filter=Email%20eq%20%277@example.com%27";
        let scan = format!("table-scan; examined={PEOPLE}; returned=1");
        assert_eq!(page(client, email), (vec!["0007".to_owned()], scan, None));
        let created = create(client, &json!({ "properties": ["Email"] }));
        assert_eq!(created.status, 201, "{}", created.text());
        assert_eq!(created.json()["name"], "Email");
        assert_eq!(
            said(&create(client, &json!({ "properties": ["Email"] }))),
            expect(409, "IndexAlreadyExists")
        );
        let indexes = built(client);
        let found = &indexes[0];
        assert_eq!(
            (indexes.len(), &found["state"], &found["unique"]),
            (1, &json!("ready"), &json!(false))
        );
        assert_eq!(found["examined"], PEOPLE, "{found}");
        let (rows, plan, _) = page(client, email);
        assert_eq!(rows, ["0007"]);
        let cheap =
            ["index(Email); examined=1; returned=1", "index(Email); examined=2; returned=1"];
        assert!(cheap.contains(&plan.as_str()), "{plan}");
        let count = get(client, &format!("People()/$count?{email}"));
        assert_eq!(count.text(), "1");
        assert!(count.header("x-rowhouse-plan").unwrap_or_default().starts_with("index(Email)"));
        let dropped = client.request("DELETE", "People?comp=index&name=Email", &[], b"");
        assert_eq!(dropped.status, 204, "{}", dropped.text());
        let dropped = client.request("DELETE", "People?comp=index&name=Email", &[], b"");
        assert_eq!(said(&dropped), expect(404, "IndexNotFound"));
        assert!(page(client, email).1.starts_with("table-scan"));
        assert_eq!(built(client), Vec::<Value>::new());
    });
}

#[test]
fn a_unique_index_refuses_writes() {
    on_both(|_, client| {
        let created =
            create(client, &json!({ "properties": ["Email"], "unique": true, "name": "mail" }));
        assert_eq!(created.status, 201, "{}", created.text());
        built(client);
        let mut again = person(7);
        again["RowKey"] = json!("new");
        let refused = client.insert("People", &again).expect("answered");
        assert_eq!(said(&refused), expect(409, "UniqueIndexViolation"), "{}", refused.text());
        assert!(refused.text().contains("'mail'"), "{}", refused.text());
        let free = json!({ "PartitionKey": "p", "RowKey": "free", "Email": "free@example.com" });
        let batch =
            [Operation::insert("People", free.clone()), Operation::insert("People", again.clone())];
        let answer = client.batch(&batch).expect("answered");
        assert!(!answer.succeeded(), "{answer:?}");
        assert_eq!(client.get("People", "p", "free").status, 404, "nothing of the batch");
        // The value is free again when its entity is gone.
        let path = rowhouse_testkit::entity_path("People", "p", "0007");
        assert_eq!(client.delete(&path, "*").expect("answered").status, 204);
        assert_eq!(client.insert("People", &again).expect("answered").status, 204);
        let city = create(client, &json!({ "properties": ["City"], "unique": true }));
        assert_eq!(city.status, 201, "{}", city.text());
        let states: Vec<_> = built(client).iter().map(|index| index["state"].clone()).collect();
        assert_eq!(states, ["ready", "notUnique"]);
        assert_eq!(client.insert("People", &free).expect("answered").status, 204);
    });
}

#[test]
fn answers_in_the_order_of_a_property() {
    on_both(|_, client| {
        let mut expected: Vec<(usize, usize)> = (0..PEOPLE).map(|n| (n * 7 % 100, n)).collect();
        expected.sort_unstable();
        let expected: Vec<String> = expected.iter().map(|(_, n)| format!("{n:04}")).collect();
        let refused = get(client, "People()?$orderby=Age");
        assert_eq!(said(&refused), expect(400, "InvalidInput"), "{}", refused.text());
        for kind in ["table-scan", "index(Age)"] {
            if kind != "table-scan" {
                assert_eq!(create(client, &json!({ "properties": ["Age"] })).status, 201);
                built(client);
            }
            for (order, descending) in [("Age", false), ("Age%20desc", true)] {
                let (mut rows, mut next) = (Vec::new(), Some(String::new()));
                while let Some(token) = next {
                    let asked = format!("$orderby={order}&$top=40{token}");
                    let (found, plan, following) = page(client, &asked);
                    assert!(plan.starts_with(kind), "{plan}");
                    rows.extend(found);
                    next = following;
                }
                if descending {
                    rows.reverse();
                }
                assert_eq!(rows, expected, "{kind} {order}");
            }
        }
        let (_, plan, next) = page(client, "$orderby=Age&$top=5");
        assert!(
            plan.starts_with("index(Age); examined=6")
                || plan.starts_with("index(Age); examined=5"),
            "{plan}"
        );
        let token = next.expect("there is more");
        for other in [
            "$top=5",
            "$orderby=Age%20desc&$top=5",
            "$orderby=City&$top=5",
            "$orderby=PartitionKey",
        ] {
            let refused = get(client, &format!("People()?{other}{token}"));
            assert_eq!(said(&refused), expect(400, "InvalidInput"), "{other}");
        }
        assert_eq!(client.request("DELETE", "People?comp=index&name=Age", &[], b"").status, 204);
        let refused = get(client, &format!("People()?$orderby=Age&$top=5{token}"));
        assert_eq!(said(&refused), expect(400, "InvalidInput"));
        assert!(refused.text().contains("index that is not there"), "{}", refused.text());
    });
}

#[test]
fn queries_are_explained_and_the_costly_ones_remembered() {
    on_both(|_, client| {
        let asked = "$filter=Email%20eq%20%277@example.com%27";
        let told = get(client, &format!("People()?{asked}&$explain=true"));
        assert_eq!(told.status, 200, "{}", told.text());
        let told = told.json();
        assert_eq!((&told["plan"], &told["returned"]), (&json!("table-scan"), &json!(1)));
        assert_eq!(told["examined"], PEOPLE);
        assert_eq!(told["advice"], json!(["rowhouse index create People Email avoids this scan."]));
        assert!(!told.to_string().contains("example.com"), "no values: {told}");
        assert_eq!(create(client, &json!({ "properties": ["Email"] })).status, 201);
        built(client);
        let path = format!("People()?{asked}&$explain=true");
        let told = get(client, &path).json();
        assert_eq!((&told["plan"], &told["index"]), (&json!("index(Email)"), &json!(["Email"])));
        assert_eq!((&told["estimated"], &told["advice"]), (&json!(1), &json!([])));
        let text = client.request("GET", &path, &[("Accept", "text/plain")], b"");
        assert_eq!(text.header("content-type"), Some("text/plain;charset=utf-8"));
        assert!(text.text().starts_with("plan      index(Email)\n"), "{}", text.text());
        let refused = get(client, "People()?$explain=maybe");
        assert_eq!(said(&refused), expect(400, "InvalidInput"));

        let queries = get(client, "People?comp=queries").json();
        let costly = &queries["value"][0];
        assert_eq!((&costly["filter"], &costly["count"]), (&json!("Email eq ?"), &json!(1)));
        // The index is there by now.
        assert_eq!(costly["commands"], json!([]));
        assert_eq!(costly["examined"], PEOPLE);
        let dropped = client.request("DELETE", "People?comp=index&name=Email", &[], b"");
        assert_eq!(dropped.status, 204);
        let costly = &get(client, "People?comp=queries").json()["value"][0];
        assert_eq!(costly["commands"], json!(["rowhouse index create People Email"]));
        assert!(!queries.to_string().contains("example.com"), "no values: {queries}");
    });
}

/// kill -9 while an index is built, again and again: it goes on, and holds what a scan finds.
#[test]
fn a_killed_build_goes_on() {
    const MANY: usize = 6000;
    let url = TestPostgres::shared().create_database();
    let servers = [TestServer::start(), TestServer::start_with_store_and(&url, &["--ephemeral"])];
    for (mut server, embedded) in servers.into_iter().zip([true, false]) {
        let mut client = server.client();
        client.create_table("People");
        for chunk in (0..MANY).collect::<Vec<_>>().chunks(100) {
            let operations: Vec<Operation> =
                chunk.iter().map(|n| Operation::insert("People", person(*n))).collect();
            assert!(client.batch(&operations).expect("answered").succeeded());
        }
        let mut interrupted = 0;
        for round in 0..6 {
            let name = format!("round{round}");
            let body = json!({ "properties": ["Email"], "unique": true, "name": name });
            assert_eq!(create(&mut client, &body).status, 201);
            std::thread::sleep(Duration::from_millis(10 + 40 * round));
            server.kill();
            if embedded {
                server.check().expect("entities and indexes agree");
            }
            server.restart();
            client = server.client();
            let listed = get(&mut client, "People?comp=index").json();
            let state = |index: &Value| index["state"] == "building";
            interrupted +=
                usize::from(listed["value"].as_array().expect("a list").iter().any(state));
            for index in built(&mut client) {
                assert_eq!(index["state"], "ready", "{index}");
            }
            for n in (0..MANY).step_by(501) {
                let asked = format!("$filter=Email%20eq%20%27{n}@example.com%27");
                let (rows, plan, _) = page(&mut client, &asked);
                assert_eq!(rows, [format!("{n:04}")], "round {round}");
                assert!(plan.starts_with("index(round"), "{plan}");
            }
            let path = format!("People?comp=index&name={name}");
            assert_eq!(client.request("DELETE", &path, &[], b"").status, 204);
        }
        server.kill();
        if embedded {
            server.check().expect("entities and indexes agree");
        }
        let engine = if embedded { "SQLite" } else { "PostgreSQL" };
        println!("{interrupted} of 6 builds on {engine} were interrupted");
        assert!(interrupted > 0, "too little happened to show anything");
    }
}

#[test]
fn what_is_wrong_with_a_request_for_an_index() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    for body in [
        json!({}),
        json!({ "properties": [] }),
        json!({ "properties": ["A", "A"] }),
        json!({ "properties": ["A", "B", "C", "D", "E"] }),
        json!({ "properties": ["a-b"] }),
        json!({ "properties": ["A"], "name": "a b" }),
        json!({ "properties": ["A"], "other": 1 }),
    ] {
        assert_eq!(said(&create(&mut client, &body)), expect(400, "InvalidInput"), "{body}");
    }
    let no_table = client.request("PUT", "Nobody?comp=index", &[JSON], br#"{"properties":["A"]}"#);
    assert_eq!(said(&no_table), expect(404, "TableNotFound"));
    assert_eq!(said(&get(&mut client, "Nobody?comp=index")), expect(404, "TableNotFound"));
    assert_eq!(said(&get(&mut client, "Nobody?comp=queries")), expect(404, "TableNotFound"));
    assert_eq!(client.request("POST", "People?comp=index", &[JSON], b"{}").status, 405);
    assert_eq!(client.request("DELETE", "People?comp=queries", &[], b"").status, 405);
    let nameless = client.request("DELETE", "People?comp=index", &[], b"");
    assert_eq!(said(&nameless), expect(400, "InvalidInput"));
    for n in 0..16 {
        assert_eq!(create(&mut client, &json!({ "properties": [format!("P{n}")] })).status, 201);
    }
    let many = create(&mut client, &json!({ "properties": ["More"] }));
    assert_eq!(said(&many), expect(409, "TooManyIndexes"));
}

/// A signature of a range of keys reads through an index and learns nothing of the rest; indexes are not its business.
#[test]
fn a_signature_sees_its_range() {
    on_both(|server, client| {
        assert_eq!(create(client, &json!({ "properties": ["Email"], "unique": true })).status, 201);
        assert_eq!(create(client, &json!({ "properties": ["Age"] })).status, 201);
        built(client);
        let fields = TableSasFields {
            version: "2019-02-02".into(),
            table: "People".into(),
            permissions: "ra".into(),
            expiry: "2099-01-01T00:00:00Z".into(),
            start_partition: Some("p".into()),
            start_row: Some("0000".into()),
            end_partition: Some("p".into()),
            end_row: Some("0099".into()),
            ..TableSasFields::default()
        };
        let key = STANDARD.decode(DEV_KEY).expect("Base64");
        let sas = sign::table_sas(DEV_ACCOUNT, &key, &fields).to_string();
        let ask = |method: &str, path: &str, body: &str| {
            let separator = if path.contains('?') { '&' } else { '?' };
            let mut connection = Connection::open(server.address()).expect("it listens");
            let request = format!(
                "{method} /{DEV_ACCOUNT}/{path}{separator}{sas} HTTP/1.1\r\nHost: localhost\r\n\
                 Accept: application/json\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            connection.send(request.as_bytes()).expect("it is read");
            connection.receive(method).expect("it is answered")
        };
        let rows = |answer: &Response| answer.json()["value"].as_array().expect("a list").len();
        let inside = ask("GET", "People()?$filter=Email%20eq%20%277@example.com%27", "");
        assert_eq!((inside.status, rows(&inside)), (200, 1), "{}", inside.text());
        let outside = ask("GET", "People()?$filter=Email%20eq%20%27120@example.com%27", "");
        assert_eq!((outside.status, rows(&outside)), (200, 0));
        let plan = outside.header("x-rowhouse-plan").expect("a plan").to_owned();
        assert!(plan.ends_with("examined=0; returned=0"), "{plan}");
        let ordered = ask("GET", "People()?$orderby=Age&$top=1000", "");
        assert_eq!((ordered.status, rows(&ordered)), (200, 100), "{}", ordered.text());
        let told = ask("GET", "People()?$filter=Age%20ge%200&$explain=true", "").json();
        assert_eq!((&told["estimated"], &told["returned"]), (&json!(100), &json!(100)), "{told}");
        for (method, path, body) in [
            ("GET", "People?comp=index", ""),
            ("PUT", "People?comp=index", r#"{"properties":["City"]}"#),
            ("DELETE", "People?comp=index&name=Age", ""),
            ("GET", "People?comp=queries", ""),
        ] {
            assert_eq!(ask(method, path, body).status, 403, "{method} {path}");
        }
        let taken = r#"{"PartitionKey":"p","RowKey":"0050x","Email":"120@example.com"}"#;
        let refused = ask("POST", "People", taken);
        assert_eq!(said(&refused), expect(409, "UniqueIndexViolation"), "{}", refused.text());
        assert!(!refused.text().contains("'Email'"), "{}", refused.text());
    });
}

#[test]
fn a_strict_server_knows_no_index() {
    let server = TestServer::start_with(&["--strict"]);
    let mut client = server.client();
    client.create_table("People");
    for method in ["GET", "PUT", "DELETE"] {
        let answer = client.request(method, "People?comp=index", &[JSON], b"");
        assert_eq!(said(&answer), expect(400, "InvalidQueryParameterValue"), "{method}");
    }
    let answer = get(&mut client, "People?comp=queries");
    assert_eq!(said(&answer), expect(400, "InvalidQueryParameterValue"));
    let answer = get(&mut client, "People()?$explain=true");
    assert_eq!(said(&answer), expect(501, "NotImplemented"));
}

fn rowhouse(server: &TestServer, arguments: &[&str]) -> Output {
    let endpoint = format!("http://{}/{DEV_ACCOUNT}", server.address());
    Command::new(binary())
        .args(arguments)
        .args(["--endpoint", &endpoint, "--account", DEV_ACCOUNT, "--key", DEV_KEY])
        .output()
        .expect("it can be started")
}

#[test]
fn the_commands() {
    on_both(|server, client| {
        let run = |arguments: &[&str]| {
            let output = rowhouse(server, arguments);
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success(), "{arguments:?}: {text}");
            text
        };
        let fails = |arguments: &[&str]| {
            let output = rowhouse(server, arguments);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let filter = "Email eq '7@example.com'";
        let explain = ["explain", "--table", "People", "--filter", filter];
        let told = run(&explain);
        assert!(told.contains("plan      table-scan\n"), "{told}");
        assert!(told.contains("advice    rowhouse index create People Email avoids"), "{told}");
        let queries = run(&["table", "queries", "People"]);
        assert!(
            queries.contains("Email eq ?") && queries.contains("These would help"),
            "{queries}"
        );
        let built = run(&["index", "create", "People", "Email"]);
        let expected = format!("Built the index Email of People: looked at {PEOPLE} entities in ");
        assert!(built.starts_with(&expected), "{built}");
        let queries = run(&["table", "queries", "People"]);
        assert!(
            queries.contains("Email eq ?") && !queries.contains("These would help"),
            "{queries}"
        );
        let there = fails(&["index", "create", "People", "Email"]);
        assert!(there.contains("IndexAlreadyExists"), "{there}");
        let repeats = fails(&["index", "create", "People", "City", "--unique"]);
        assert!(repeats.contains("cannot be unique"), "{repeats}");
        run(&["index", "create", "People", "City,Age", "--name", "ca", "--no-wait"]);
        self::built(client);
        let list = run(&["index", "list", "People"]);
        let lines: Vec<String> = list
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "NAME PROPERTIES UNIQUE STATE",
                "Email Email no ready",
                "City City yes not unique: values repeat",
                "ca City,Age no ready"
            ]
        );
        let told: Value =
            serde_json::from_str(&run(&[&explain[..], &["--json"]].concat())).expect("JSON");
        assert_eq!(told["plan"], "index(Email)");
        let told = run(&["explain", "--table", "People", "--order", "Age desc", "--top", "3"]);
        assert!(told.contains("returned  3, and there are more"), "{told}");
        assert_eq!(run(&["index", "drop", "People", "ca"]), "Dropped the index ca of People.\n");
        assert!(fails(&["index", "drop", "People", "ca"]).contains("has no index ca"));

        assert_eq!(run(&["table", "create", "Pets"]), "Created the table Pets.\n");
        assert!(fails(&["table", "create", "Pets"]).contains("already"));
        assert_eq!(run(&["table", "list"]), "People\nPets\n");
        assert_eq!(run(&["table", "list", "--json"]), "[\"People\",\"Pets\"]\n");
        let none = run(&["table", "queries", "Pets"]);
        assert!(none.starts_with("No query has looked at"), "{none}");
        assert!(fails(&["table", "delete", "Pets"]).contains("--yes"));
        assert_eq!(run(&["table", "delete", "Pets", "--yes"]), "Deleted the table Pets.\n");
        assert!(fails(&["table", "delete", "Pets", "--yes"]).contains("no table Pets"));
    });
}
