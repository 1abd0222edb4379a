//! Messages in a batch of entities: all or none, whoever may, and nothing else means anything else than before.

use base64::Engine as _;
use rowhouse_auth::{AccountSasFields, TableSasFields, sign};
use rowhouse_testkit::{Client, Connection, DEV_ACCOUNT, DEV_KEY, Response, TestServer, encode};
use serde_json::json;
use std::fmt::Write as _;

/// A server with a table `Things` and a queue `orders`.
fn serve(arguments: &[&str]) -> TestServer {
    let server = TestServer::start_with(arguments);
    server.client().create_table("Things");
    assert_eq!(server.queue_client().request("PUT", "orders", &[], b"").status, 201);
    server
}

/// One part of a batch: request line, headers and body.
#[derive(Clone)]
struct Part {
    line: String,
    headers: &'static str,
    body: String,
}

fn insert(server: &TestServer, row: &str) -> Part {
    insert_into(server, "p", row)
}

fn insert_into(server: &TestServer, partition: &str, row: &str) -> Part {
    Part {
        line: format!("POST http://{}/{DEV_ACCOUNT}/Things", server.address()),
        headers: "Content-Type: application/json\r\nPrefer: return-no-content\r\n",
        body: json!({ "PartitionKey": partition, "RowKey": row }).to_string(),
    }
}

fn queue_url(server: &TestServer) -> String {
    format!("http://{}/{DEV_ACCOUNT}", server.queue_address())
}

fn put(server: &TestServer, rest: &str, text: &str) -> Part {
    Part {
        line: format!("POST {}/{rest}", queue_url(server)),
        headers: "Content-Type: application/xml\r\nContent-ID: 7\r\n",
        body: message(text),
    }
}

fn delete(server: &TestServer, rest: &str) -> Part {
    let line = format!("DELETE {}/{rest}", queue_url(server));
    Part { line, headers: "", body: String::new() }
}

fn message(text: &str) -> String {
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

fn body(parts: &[Part]) -> String {
    let mut text =
        String::from("--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n");
    for Part { line, headers, body } in parts {
        let _ = write!(
            text,
            "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             {line} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{body}\r\n",
            body.len()
        );
    }
    text + "--changeset_c--\r\n--batch_b--\r\n"
}

fn batch(server: &TestServer, parts: &[Part]) -> Response {
    batch_that_says(server, &[], parts)
}

fn batch_that_says(server: &TestServer, more: &[(&str, &str)], parts: &[Part]) -> Response {
    let headers = [&[("Content-Type", "multipart/mixed; boundary=batch_b")], more].concat();
    server.client().request("POST", "$batch", &headers, body(parts).as_bytes())
}

/// The statuses of the parts of an answer.
fn statuses(response: &Response) -> Vec<u16> {
    assert_eq!(response.status, 202, "{}", response.text());
    let text = response.text();
    let parts = text.split("\r\nHTTP/1.1 ").skip(1);
    parts.map(|part| part[..3].parse().unwrap()).collect()
}

fn texts(server: &TestServer) -> Vec<String> {
    let path = "orders/messages?peekonly=true&numofmessages=32";
    let xml = server.queue_client().request("GET", path, &[], b"").text();
    let parts = xml.split("<MessageText>").skip(1);
    parts.map(|part| part.split('<').next().unwrap().to_owned()).collect()
}

fn rows(server: &TestServer) -> usize {
    server.client().query("Things", "").len()
}

fn element(text: &str, name: &str) -> String {
    let start = text.find(&format!("<{name}>")).unwrap_or_else(|| panic!("{name}: {text}"));
    text[start + name.len() + 2..].split('<').next().unwrap().to_owned()
}

fn target(xml: &str) -> String {
    let (id, receipt) = (element(xml, "MessageId"), element(xml, "PopReceipt"));
    format!("orders/messages/{id}?popreceipt={}", encode(&receipt))
}

#[test]
fn entities_and_messages_together() {
    let server = serve(&[]);
    let parts = [
        insert(&server, "1"),
        put(&server, "orders/messages", "one"),
        insert(&server, "2"),
        put(&server, "orders/messages?visibilitytimeout=0&messagettl=60", "two &amp; more"),
    ];
    let response = batch(&server, &parts);
    assert_eq!(statuses(&response), [204, 201, 204, 201], "{}", response.text());
    let text = response.text();
    assert_eq!(text.matches("Content-Type: application/xml").count(), 2, "{text}");
    assert_eq!(text.matches("Content-ID: 7").count(), 2, "{text}");
    assert_eq!(text.matches("<QueueMessagesList><QueueMessage><MessageId>").count(), 2, "{text}");
    assert_eq!(
        (rows(&server), texts(&server)),
        (2, vec!["one".to_owned(), "two &amp; more".into()])
    );
    // What was told of a message is what its owner needs.
    let first = target(&text);
    let response = batch(&server, &[insert(&server, "3"), delete(&server, &first)]);
    assert_eq!(statuses(&response), [204, 204], "{}", response.text());
    assert_eq!((rows(&server), texts(&server)), (3, vec!["two &amp; more".to_owned()]));
    // Messages alone.
    let alone = [put(&server, "orders/messages", "three"), put(&server, "orders/messages", "four")];
    assert_eq!(statuses(&batch(&server, &alone)), [201, 201]);
    assert_eq!(texts(&server), ["two &amp; more", "three", "four"]);
}

/// Each fails for one reason, which is told with the part at fault; nothing of it takes effect.
#[test]
#[expect(clippy::too_many_lines, reason = "a table: a row a reason")]
fn all_or_none() {
    let server = serve(&[]);
    assert_eq!(statuses(&batch(&server, &[insert(&server, "there")])), [204]);
    let ok = put(&server, "orders/messages", "never");
    let gone = format!(
        "orders/messages/{}?popreceipt=AAAAAAAAAAE%3D",
        "917274f0-d51e-4768-9892-e6fdb9663621"
    );
    let elsewhere = Part { line: ok.line.replace(DEV_ACCOUNT, "otheraccount"), ..ok.clone() };
    let secondary =
        Part { line: ok.line.replace(DEV_ACCOUNT, "devstoreaccount1-secondary"), ..ok.clone() };
    let other = |method: &str, rest: &str| Part {
        line: format!("{method} {}/{rest}", queue_url(&server)),
        ..ok.clone()
    };
    let long = "x".repeat(65_537);
    let create = Part { line: "PUT $queue/other".to_owned(), ..other("PUT", "") };
    let cases = [
        ("exists", vec![ok.clone(), insert(&server, "there")], 409, "EntityAlreadyExists", 1),
        (
            "no queue",
            vec![insert(&server, "a"), put(&server, "missing/messages", "x")],
            404,
            "QueueNotFound",
            1,
        ),
        (
            "no message",
            vec![insert(&server, "a"), ok.clone(), delete(&server, &gone)],
            404,
            "MessageNotFound",
            2,
        ),
        (
            "no id",
            vec![insert(&server, "a"), delete(&server, "orders/messages/x?popreceipt=AAAA")],
            404,
            "MessageNotFound",
            1,
        ),
        ("no message, alone", vec![delete(&server, &gone)], 404, "MessageNotFound", 0),
        (
            "no id, alone",
            vec![delete(&server, "orders/messages/x?popreceipt=AAAA")],
            404,
            "MessageNotFound",
            0,
        ),
        (
            "no receipt",
            vec![ok.clone(), delete(&server, "orders/messages/x")],
            400,
            "MissingRequiredQueryParameter",
            1,
        ),
        (
            "bad receipt",
            vec![ok.clone(), delete(&server, "orders/messages/x?popreceipt=x")],
            400,
            "InvalidQueryParameterValue",
            1,
        ),
        (
            "range",
            vec![insert(&server, "a"), put(&server, "orders/messages?visibilitytimeout=-1", "x")],
            400,
            "OutOfRangeQueryParameterValue",
            1,
        ),
        (
            "name",
            vec![put(&server, "Orders/messages", "x"), insert(&server, "a")],
            400,
            "InvalidResourceName",
            0,
        ),
        (
            "no xml",
            vec![insert(&server, "a"), Part { body: "x".into(), ..ok.clone() }],
            400,
            "InvalidXmlDocument",
            1,
        ),
        (
            "too long",
            vec![insert(&server, "a"), put(&server, "orders/messages", &long)],
            413,
            "RequestBodyTooLarge",
            1,
        ),
        ("account", vec![insert(&server, "a"), elsewhere], 403, "AuthorizationFailure", 1),
        (
            "secondary",
            vec![insert(&server, "a"), secondary],
            403,
            "InsufficientAccountPermissions",
            1,
        ),
        (
            "update",
            vec![insert(&server, "a"), other("PUT", &format!("{gone}&visibilitytimeout=0"))],
            400,
            "InvalidInput",
            1,
        ),
        (
            "clear",
            vec![insert(&server, "a"), other("DELETE", "orders/messages")],
            400,
            "InvalidInput",
            1,
        ),
        ("create", vec![insert(&server, "a"), create], 400, "InvalidInput", 1),
        (
            "partitions",
            vec![insert(&server, "a"), ok.clone(), insert_into(&server, "q", "a")],
            400,
            "CommandsInBatchActOnDifferentPartitions",
            2,
        ),
    ];
    for (what, parts, status, code, index) in cases {
        let response = batch(&server, &parts);
        assert_eq!(statuses(&response), [status], "{what}: {}", response.text());
        let text = response.text();
        assert!(text.contains(&format!("\"code\":\"{code}\"")), "{what}: {text}");
        assert!(text.contains(&format!("\"value\":\"{index}:")), "{what}: {text}");
        assert_eq!((rows(&server), texts(&server).len()), (1, 0), "nothing of {what}");
    }
    // Messages count among the operations.
    let many = vec![ok.clone(); 101];
    let response = batch(&server, &many);
    assert!(
        response.text().contains("99:The batch request operation exceeds"),
        "{}",
        response.text()
    );
    assert_eq!(statuses(&batch(&server, &many[..100])).len(), 100);
    assert_eq!(texts(&server).len(), 32);
}

#[test]
fn who_may() {
    let server = serve(&[]);
    let key = base64::engine::general_purpose::STANDARD.decode(DEV_KEY).unwrap();
    let first =
        server.queue_client().request("POST", "orders/messages", &[], message("x").as_bytes());
    let target = target(&first.text());
    let all =
        [insert(&server, "a"), put(&server, "orders/messages", "new"), delete(&server, &target)];
    let ask_for = |parts: &[Part], token: String| {
        let body = body(parts);
        let request = format!(
            "POST /{DEV_ACCOUNT}/$batch?{token} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\
             Content-Type: multipart/mixed; boundary=batch_b\r\nContent-Length: {}\r\n\r\n{body}",
            server.address(),
            body.len()
        );
        let mut connection = Connection::open(server.address()).unwrap();
        connection.send(request.as_bytes()).unwrap();
        let response = connection.receive("POST").unwrap();
        let whole = response.status != 202;
        let statuses = if whole { vec![response.status] } else { statuses(&response) };
        (statuses, response.code())
    };
    let ask = |token| ask_for(&all, token);
    let account_token = |services: &str, letters: &str, types: &str| {
        let fields = AccountSasFields {
            version: "2019-02-02".into(),
            services: services.into(),
            resource_types: types.into(),
            permissions: letters.into(),
            expiry: "2099-01-01".into(),
            ..AccountSasFields::default()
        };
        sign::account_sas(DEV_ACCOUNT, &key, &fields).to_string()
    };
    let account =
        |services: &str, letters: &str, types: &str| ask(account_token(services, letters, types));
    let no = |code: &str| (vec![403], Some(code.to_owned()));
    assert_eq!(account("t", "raudp", "o"), no("AuthorizationServiceMismatch"));
    assert_eq!(account("q", "raudp", "o"), no("AuthorizationServiceMismatch"));
    for messages in [&all[1..], &all[1..2], &all[2..]] {
        let answer = ask_for(messages, account_token("q", "raudp", "o"));
        assert_eq!(answer, no("AuthorizationServiceMismatch"), "messages alone");
    }
    assert_eq!(account("qt", "a", "o"), no("AuthorizationPermissionMismatch"));
    assert_eq!(account("qt", "p", "o"), no("AuthorizationPermissionMismatch"));
    assert_eq!(account("qt", "ap", "sc"), no("AuthorizationResourceTypeMismatch"));
    let table = TableSasFields {
        version: "2019-02-02".into(),
        table: "Things".into(),
        permissions: "raud".into(),
        expiry: "2099-01-01".into(),
        ..TableSasFields::default()
    };
    let token = sign::table_sas(DEV_ACCOUNT, &key, &table).to_string();
    assert_eq!(ask(token), no("AuthorizationFailure"), "never a signature of a table");
    assert_eq!((rows(&server), texts(&server)), (0, vec!["x".to_owned()]));
    assert_eq!(account("qt", "ap", "o").0, [204, 201, 204]);
    assert_eq!((rows(&server), texts(&server)), (1, vec!["new".to_owned()]));
}

/// An entity goes from one table to another, and the message that asked for it is gone, in one step; unless asked for, and on a
/// strict server, there is no such thing.
#[test]
fn over_tables_and_partitions_if_asked() {
    const FAR: &[(&str, &str)] = &[("x-rowhouse-transaction", "account")];
    let server = serve(&[]);
    server.client().create_table("Archive");
    assert_eq!(statuses(&batch(&server, &[insert(&server, "1")])), [204]);
    let put = put(&server, "orders/messages", "1");
    let order = batch(&server, &[put]).text();
    let archive = |partition: &str| {
        let part = insert_into(&server, partition, "1");
        Part { line: part.line.replace("/Things", "/Archive"), ..part }
    };
    let remove = Part {
        line: format!(
            "DELETE http://{}/{DEV_ACCOUNT}/Things(PartitionKey='p',RowKey='1')",
            server.address()
        ),
        headers: "If-Match: *\r\n",
        body: String::new(),
    };
    let count = |table| server.client().query(table, "").len();
    let moved = [remove.clone(), archive("q"), delete(&server, &target(&order))];
    let refused = batch(&server, &moved);
    assert_eq!(statuses(&refused), [400], "{}", refused.text());
    assert!(refused.text().contains("CommandsInBatchActOnDifferentPartitions"));
    for wrong in ["Account", "", "account, account", "partition"] {
        let refused = batch_that_says(&server, &[("x-rowhouse-transaction", wrong)], &moved);
        assert_eq!(refused.status, 400, "{wrong}");
        assert_eq!(refused.code().as_deref(), Some("InvalidHeaderValue"), "{wrong}");
    }
    let twice = [remove.clone(), archive("q"), archive("r"), archive("q")];
    let refused = batch_that_says(&server, FAR, &twice);
    assert_eq!(statuses(&refused), [400], "{}", refused.text());
    assert!(refused.text().contains("\"value\":\"3:The batch request contains multiple"));
    let absent = [archive("q"), Part { line: remove.line.replace("'1'", "'2'"), ..remove }];
    let refused = batch_that_says(&server, FAR, &absent);
    assert_eq!(statuses(&refused), [404], "{}", refused.text());
    assert!(refused.text().contains("\"value\":\"1:The specified resource does not exist."));
    assert_eq!((count("Things"), count("Archive"), texts(&server).len()), (1, 0, 1));
    let response = batch_that_says(&server, FAR, &moved);
    assert_eq!(statuses(&response), [204, 204, 204], "{}", response.text());
    assert_eq!((count("Things"), count("Archive"), texts(&server).len()), (0, 1, 0));
    let strict = serve(&["--strict"]);
    let far = [insert(&strict, "1"), insert_into(&strict, "q", "1")];
    let refused = batch_that_says(&strict, FAR, &far);
    assert!(refused.text().contains("CommandsInBatchActOnDifferentPartitions"));
}

/// URLs of the table endpoint mean what they meant, and a strict server knows nothing else.
#[test]
fn nothing_else_changes() {
    let server = serve(&[]);
    let at = |line: &str| Part { line: line.to_owned(), ..put(&server, "orders/messages", "x") };
    let path = format!("/{DEV_ACCOUNT}/orders/messages");
    for line in [
        format!("POST {path}"),
        format!("POST http://{}{path}", server.address()),
        format!("POST http://elsewhere:{}{path}", server.queue_address().port()),
        "POST orders/messages".to_owned(),
        "POST $queues/orders/messages".to_owned(),
    ] {
        let response = batch(&server, &[at(&line)]);
        assert_eq!(statuses(&response), [400], "{line}: {}", response.text());
        assert!(texts(&server).is_empty(), "{line}");
    }
    let host = format!("POST http://{DEV_ACCOUNT}.queue.localhost:1/orders/messages");
    assert_eq!(statuses(&batch(&server, &[at(&host)])), [201], "the label of queues");
    let strict = serve(&["--strict"]);
    let relative = "POST $queue/orders/messages".to_owned();
    let relative = Part { line: relative, ..put(&strict, "orders/messages", "x") };
    for part in [put(&strict, "orders/messages", "x"), relative] {
        let response = batch(&strict, &[part]);
        assert_eq!(statuses(&response), [400], "{}", response.text());
    }
    assert!(texts(&strict).is_empty());
}

/// Clients behind port mappings and proxies see other ports than those of the listeners.
#[test]
fn whatever_port_the_client_sees() {
    let server = serve(&[]);
    let at = |line: String| Part { line, ..put(&server, "orders/messages", "x") };
    let path = format!("/{DEV_ACCOUNT}/orders/messages");
    let lines = [
        format!("POST http://127.0.0.1:1{path}"),
        format!("POST https://localhost{path}"),
        "POST $queue/orders/messages".to_owned(),
        "POST /$queue/orders/messages?messagettl=60".to_owned(),
        format!("POST /{DEV_ACCOUNT}/$queue/orders/messages"),
    ];
    for (count, line) in lines.into_iter().enumerate() {
        let response = batch(&server, &[insert(&server, &count.to_string()), at(line.clone())]);
        assert_eq!(statuses(&response), [204, 201], "{line}: {}", response.text());
        assert_eq!((rows(&server), texts(&server).len()), (count + 1, count + 1), "{line}");
    }
    let taken = server.queue_client().request("GET", "orders/messages", &[], b"");
    let line = format!("DELETE $queue/{}", target(&taken.text()));
    let response = batch(&server, &[Part { line, headers: "", body: String::new() }]);
    assert_eq!(statuses(&response), [204], "{}", response.text());
}

/// Whatever moment the server dies at, an entity and its message are there together or not at all.
#[test]
fn together_across_a_crash() {
    let mut server = serve(&[]);
    for round in 0..3 {
        let (address, queue) = (server.address(), queue_url(&server));
        let writer = std::thread::spawn(move || {
            let mut client = Client::new(address);
            for number in 0.. {
                let row = format!("{round}-{number}");
                let parts = [
                    Part {
                        line: format!("POST http://{address}/{DEV_ACCOUNT}/Things"),
                        headers: "Content-Type: application/json\r\n",
                        body: json!({ "PartitionKey": "p", "RowKey": row }).to_string(),
                    },
                    Part {
                        line: format!("POST {queue}/orders/messages?messagettl=-1"),
                        headers: "",
                        body: message(&row),
                    },
                ];
                let headers = [("Content-Type", "multipart/mixed; boundary=batch_b")];
                let body = body(&parts);
                match client.try_request("POST", "$batch", &headers, body.as_bytes()) {
                    Ok(response) => assert_eq!(statuses(&response), [201, 201]),
                    Err(_) => return number,
                }
            }
            0
        });
        std::thread::sleep(std::time::Duration::from_millis(200 + 70 * round));
        server.kill();
        let answered = writer.join().unwrap();
        assert!(answered > 0, "something was written");
        server.restart();
        let mut entities: Vec<String> = server
            .client()
            .query("Things", "")
            .iter()
            .map(|entity| entity["RowKey"].as_str().unwrap().to_owned())
            .collect();
        let mut messages = all_texts(&server);
        entities.sort();
        messages.sort();
        assert_eq!(entities, messages, "round {round}");
        let whole = entities.iter().filter(|row| row.starts_with(&format!("{round}-"))).count();
        assert!(answered <= whole && whole <= answered + 1, "{answered} answered, {whole} there");
    }
}

/// Every message, which are then hidden for a moment only.
fn all_texts(server: &TestServer) -> Vec<String> {
    let mut client = server.queue_client();
    let mut all = Vec::new();
    loop {
        let path = "orders/messages?numofmessages=32&visibilitytimeout=3";
        let xml = client.request("GET", path, &[], b"").text();
        let parts = xml.split("<MessageText>").skip(1);
        let before = all.len();
        all.extend(parts.map(|part| part.split('<').next().unwrap().to_owned()));
        if all.len() == before {
            std::thread::sleep(std::time::Duration::from_millis(3100));
            return all;
        }
    }
}
