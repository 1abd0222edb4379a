//! One row per answer that the protocol defines: what is sent, and status, code and message of the answer.
//!
//! Recorded traffic and the SDKs' own tests cover what clients do when all goes well; these rows cover what
//! they must be told when it does not. Runs against the built binary.

use rowhouse_testkit::{Client, Operation, Response, TestServer};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const ANY: (&str, &str) = ("If-Match", "*");

fn serve() -> (TestServer, Client) {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    (server, client)
}

/// `status code: message`, without the id and time that every message ends with.
fn said(response: &Response) -> String {
    let text = response.text();
    let message = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|json| json["odata.error"]["message"]["value"].as_str().map(ToOwned::to_owned));
    let message = message.unwrap_or(text);
    let message = message.split("\nRequestId:").next().unwrap_or_default();
    format!("{} {}: {message}", response.status, response.code().unwrap_or_default())
}

/// Verb, path, headers, body, and how the answer starts.
type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

fn starts(found: &str, expected: &str, what: &str) {
    assert!(found.starts_with(expected), "{what}\n  expected {expected}\n  found    {found}");
}

#[test]
fn bodies_that_are_no_entity() {
    let (_server, mut client) = serve();
    let long = "x".repeat(32_769);
    let names = (0..253).fold(String::new(), |all, n| format!(r#"{all},"p{n}":{n}"#));
    let invalid = "400 InvalidInput: An error occurred while processing this request.";
    let large = "400 PropertyValueTooLarge: The property value exceeds the maximum allowed size";
    let need = "400 PropertiesNeedValue: The values are not specified for all properties in the";
    let key = r#""PartitionKey":"p","RowKey":"r""#;
    let cases: Vec<(String, &str)> = vec![
        ("{".into(), invalid),
        (format!("[{{{key}}}]"), invalid),
        (format!("{{{key},\"a\":[1]}}"), invalid),
        (format!("{{{key},\"a\":{{}}}}"), invalid),
        (format!(r#"{{{key},"a":1e400}}"#), invalid),
        (format!(r#"{{{key},"a":"zzz","a@odata.type":"Edm.Guid"}}"#), invalid),
        (format!(r#"{{{key},"a":"9223372036854775808","a@odata.type":"Edm.Int64"}}"#), invalid),
        (format!(r#"{{{key},"a":"1","a@odata.type":"Edm.Byte"}}"#), invalid),
        (r#"{"RowKey":"r"}"#.into(), need),
        (r#"{"PartitionKey":"p","RowKey":null}"#.into(), need),
        (
            r#"{"PartitionKey":"a/b","RowKey":"r"}"#.into(),
            "400 OutOfRangeInput: The 'PartitionKey' parameter of value 'a/b' is out of range.",
        ),
        (
            r#"{"PartitionKey":"p","RowKey":"a#b"}"#.into(),
            "400 OutOfRangeInput: The 'RowKey' parameter of value 'a#b' is out of range.",
        ),
        (format!(r#"{{"PartitionKey":"{}","RowKey":"r"}}"#, "k".repeat(1025)), large),
        (format!(r#"{{{key},"a":"{long}"}}"#), large),
        (
            format!(r#"{{{key},"born":"0001-01-01T00:00:00Z","born@odata.type":"Edm.DateTime"}}"#),
            "400 OutOfRangeInput: The 'born' parameter of value '01/01/0001 00:00:00' is out of",
        ),
        (
            format!(r#"{{{key},"{}":1}}"#, "n".repeat(256)),
            "400 PropertyNameTooLong: The property name exceeds the maximum allowed length (255).",
        ),
        (format!(r#"{{{key},"a-b":1}}"#), "400 PropertyNameInvalid: The property name is invalid."),
        (
            format!(r#"{{{key},"a":1,"a":2}}"#),
            "400 DuplicatePropertiesSpecified: A property is specified more than one time.",
        ),
        (
            format!("{{{key}{names}}}"),
            "400 TooManyProperties: The entity contains more properties than allowed. Each entity",
        ),
    ];
    for (body, expected) in cases {
        let found = said(&client.request("POST", "People", &[JSON], body.as_bytes()));
        starts(&found, expected, &body[..body.len().min(120)]);
    }
    let mut wide = json!({ "PartitionKey": "p", "RowKey": "r" });
    for n in 0..16 {
        wide[format!("p{n}")] = "x".repeat(32_768).into();
    }
    let found = said(&client.request("POST", "People", &[JSON], wide.to_string().as_bytes()));
    starts(&found, "400 EntityTooLarge: The entity is larger than the maximum", "1 MiB");
    assert!(client.query("People", "").is_empty(), "nothing of it was stored");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn urls_verbs_and_headers() {
    let (_server, mut client) = serve();
    let entity = json!({ "PartitionKey": "p", "RowKey": "r" });
    assert_eq!(client.insert("People", &entity).unwrap().status, 204);
    let p = "People(PartitionKey='p',RowKey='r')";
    let missing = "People(PartitionKey='p',RowKey='x')";
    let wrong = ("If-Match", "W/\"wrong\"");
    let not_found = "404 ResourceNotFound: The specified resource does not exist.";
    let no_table = "404 TableNotFound: The table specified does not exist.";
    let length = "400 OutOfRangeInput: The specified resource name length is not within";
    let bad_name = "400 InvalidResourceName: The specifed resource name contains invalid";
    let condition = "412 UpdateConditionNotSatisfied: The update condition specified in the";
    let not_valid = "400 InvalidInput: One of the request inputs is not valid.";
    let syntax = "400 InvalidInput: Bad Request - Error in query syntax.";
    let etag = "400 InvalidInput: The etag value 'test' specified in one of the request headers";
    let verb = "405 UnsupportedHttpVerb: The resource doesn't support specified Http Verb.";
    let unimplemented = "501 NotImplemented: The requested operation is not implemented on the";
    let rows: &[Row<'_>] = &[
        ("GET", missing, &[], "", not_found),
        ("GET", "Nobody()", &[], "", no_table),
        ("GET", "Nobody(PartitionKey='p',RowKey='r')", &[], "", no_table),
        ("GET", "Tables('Nobody')", &[], "", not_found),
        ("DELETE", "Tables('Nobody')", &[], "", not_found),
        ("POST", "Nobody", &[JSON], r#"{"PartitionKey":"p","RowKey":"r"}"#, no_table),
        ("POST", "Tables", &[JSON], r#"{"TableName":"PEOPLE"}"#, "409 TableAlreadyExists: The"),
        ("POST", "Tables", &[JSON], r#"{"TableName":"1ab"}"#, bad_name),
        ("POST", "Tables", &[JSON], r#"{"TableName":"ab"}"#, length),
        ("POST", "Tables", &[JSON], r#"{"TableName":"tables"}"#, bad_name),
        ("POST", "Tables", &[JSON], "nonsense", "400 InvalidInput: "),
        (
            "POST",
            "People",
            &[JSON],
            r#"{"PartitionKey":"p","RowKey":"r"}"#,
            "409 EntityAlreadyExists: The specified entity already exists.",
        ),
        ("PUT", missing, &[JSON, ANY], "{}", not_found),
        ("PATCH", missing, &[JSON, ANY], "{}", not_found),
        ("MERGE", missing, &[JSON, wrong], "{}", not_found),
        ("DELETE", missing, &[ANY], "", not_found),
        ("PUT", p, &[JSON, wrong], "{}", condition),
        ("MERGE", p, &[JSON, wrong], "{}", condition),
        ("DELETE", p, &[wrong], "", condition),
        ("DELETE", p, &[], "", "400 InvalidInput: The If-Match header must be specified"),
        ("PUT", p, &[JSON, ("If-Match", "test")], "{}", etag),
        ("DELETE", p, &[("If-Match", "test")], "", etag),
        (
            "PUT",
            p,
            &[JSON, ("If-None-Match", "*")],
            "{}",
            "400 InvalidInput: If-None-Match HTTP header cannot be specified for PUT operations.",
        ),
        (
            "PUT",
            p,
            &[JSON, ANY, ("If-None-Match", "*")],
            "{}",
            "400 InvalidInput: Both If-Match and If-None-Match HTTP headers cannot be specified",
        ),
        ("PUT", p, &[JSON], r#"{"PartitionKey":"q"}"#, not_valid),
        ("GET", "People(PartitionKey='p')", &[], "", "400 InvalidInput: The number of keys"),
        ("GET", "People(PartitionKey='a%2Fb',RowKey='r')", &[], "", syntax),
        ("GET", "People(PartitionKey='a%5Cb',RowKey='r')", &[], "", syntax),
        ("GET", "People(PartitionKey='a%23b',RowKey='r')", &[], "", "400 OutOfRangeInput: One of"),
        ("GET", "People(PartitionKey='a%C2%80b',RowKey='r')", &[], "", "400 OutOfRangeInput: "),
        ("GET", "People(PartitionKey='%zz',RowKey='r')", &[], "", syntax),
        ("GET", "People()?$top=1001", &[], "", not_valid),
        ("GET", "People()?$top=-1", &[], "", not_valid),
        ("GET", "People()?$top=x", &[], "", not_valid),
        ("GET", "People()?NextPartitionKey=nonsense", &[], "", not_valid),
        ("GET", "People()?NextRowKey=1!4!cA--", &[], "", not_valid),
        ("DELETE", p, &[ANY, wrong], "", "400 InvalidInput: The etag value '*' specified"),
        ("DELETE", "People", &[ANY], "", "400 InvalidInput: The number of keys specified"),
        ("POST", "Nobody", &[JSON], r#"{"RowKey":"r"}"#, no_table),
        ("GET", "People()?$skip=1", &[], "", unimplemented),
        (
            "GET",
            "People()?$filter=aaa%20bbb%20ccc",
            &[],
            "",
            "400 InvalidInput: Syntax error at position 7 in 'aaa bbb ccc'.",
        ),
        ("GET", "People()?$filter=a%20eq%20null", &[], "", not_valid),
        ("GET", "People()?$filter=a%20lt%20null", &[], "", "400 InvalidInput: The operator 'LessT"),
        ("GET", "People()?$filter=1%20eq%202", &[], "", unimplemented),
        ("GET", "People()", &[("Accept", "application/atom+xml")], "", "415 AtomFormatNotSuppor"),
        ("GET", "People()", &[("Accept", "text/html")], "", "415 MediaTypeNotSupported: None of"),
        (
            "GET",
            "People()",
            &[("Accept", "application/json;odata=verbose")],
            "",
            "415 JsonVerboseFormatNotSupported: ",
        ),
        ("GET", "People()", &[("x-ms-version", "nonsense")], "", "400 InvalidHeaderValue: The va"),
        ("PUT", "Tables", &[JSON], "{}", verb),
        ("DELETE", "$batch", &[ANY], "", verb),
        ("PUT", p, &[JSON, ("X-HTTP-Method", "MERGE")], "{}", "400 XMethodNotUsingPost: The requ"),
        ("POST", p, &[JSON, ("X-HTTP-Method", "GET")], "{}", "400 XMethodIncorrectValue: The spe"),
        (
            "POST",
            p,
            &[JSON, ("X-HTTP-Method", "PUT"), ("X-HTTP-Method", "PUT")],
            "{}",
            "400 XMethodIncorrectCount: More than one X-HTTP-Method is specified.",
        ),
    ];
    for (method, path, headers, body, expected) in rows {
        let response = client.request(method, path, headers, body.as_bytes());
        starts(&said(&response), expected, &format!("{method} {path} {headers:?}"));
    }
}

#[test]
fn xml_endpoints_answer_in_xml() {
    let (server, mut client) = serve();
    let xml = ("Content-Type", "application/xml");
    let policies = |count: usize| {
        let one = "<SignedIdentifier><Id>ID</Id></SignedIdentifier>";
        let all: String = (0..count).map(|n| one.replace("ID", &n.to_string())).collect();
        format!("<SignedIdentifiers>{all}</SignedIdentifiers>")
    };
    let properties = "?restype=service&comp=properties";
    let many_rules =
        "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
        <AllowedHeaders/><ExposedHeaders/><MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule>"
            .repeat(6);
    let many_rules =
        format!("<StorageServiceProperties><Cors>{many_rules}</Cors></StorageServiceProperties>");
    let rows = [
        ("PUT", "People?comp=acl", policies(5), 204, ""),
        ("PUT", "People?comp=acl", policies(6), 400, "InvalidXmlDocument"),
        ("PUT", "People?comp=acl", "<SignedIdent".to_owned(), 400, "InvalidXmlDocument"),
        ("PUT", "Nobody?comp=acl", policies(1), 404, "TableNotFound"),
        ("GET", "Nobody?comp=acl", String::new(), 404, "TableNotFound"),
        ("PUT", properties, many_rules, 400, "InvalidXmlDocument"),
        ("GET", "?restype=service&comp=stats", String::new(), 400, "InvalidQueryParameterValue"),
    ];
    for (method, path, body, status, code) in rows {
        let response = client.request(method, path, &[xml], body.as_bytes());
        assert_eq!(response.status, status, "{method} {path}: {}", response.text());
        assert_eq!(response.header("x-content-type-options"), None, "{path}");
        if status >= 400 {
            assert_eq!(response.header("x-ms-error-code"), Some(code), "{method} {path}");
            assert_eq!(response.header("content-type"), Some("application/xml"));
            assert!(response.text().contains(&format!("<m:code>{code}</m:code>")));
        }
    }
    drop(server);
}

#[test]
fn transactions_name_the_operation_at_fault() {
    let (_server, mut client) = serve();
    let entity = |row: &str| json!({ "PartitionKey": "p", "RowKey": row });
    let insert = |row: &str| Operation::insert("People", entity(row));
    assert_eq!(client.insert("People", &entity("taken")).unwrap().status, 204);
    let elsewhere = Operation::insert("People", json!({ "PartitionKey": "q", "RowKey": "1" }));
    let illegal = Operation::insert("People", json!({ "PartitionKey": "a/b", "RowKey": "1" }));
    let delete = |row: &str, etag: &str| Operation::delete("People", ("p", row), etag);
    let many: Vec<_> = (0..101).map(|n| insert(&n.to_string())).collect();
    let rows: Vec<(Vec<Operation>, u16, &str, &str)> = vec![
        (vec![insert("1"), insert("2"), insert("taken")], 409, "EntityAlreadyExists", "2:The"),
        (vec![insert("taken")], 409, "EntityAlreadyExists", "The specified entity"),
        (vec![insert("1"), delete("none", "*")], 404, "ResourceNotFound", "1:The specified"),
        (
            vec![insert("1"), delete("taken", "W/\"old\"")],
            412,
            "UpdateConditionNotSatisfied",
            "1:The update",
        ),
        (vec![insert("1"), insert("1")], 400, "InvalidDuplicateRow", "1:The batch request"),
        (
            vec![insert("1"), elsewhere],
            400,
            "CommandsInBatchActOnDifferentPartitions",
            "1:All commands",
        ),
        (vec![illegal], 400, "OutOfRangeInput", "0:The 'PartitionKey' parameter of value 'a/b'"),
        (
            vec![Operation::insert("Nobody", entity("1"))],
            404,
            "TableNotFound",
            "0:The table specified does not exist.",
        ),
        (many, 400, "InvalidInput", "99:The batch request operation exceeds the maximum 100"),
    ];
    for (operations, status, code, message) in rows {
        let answer = client.batch(&operations).unwrap();
        assert!(!answer.succeeded(), "{message}");
        assert_eq!(answer.parts.len(), 1, "one part says it all: {message}");
        let part = &answer.parts[0];
        assert_eq!(part.status, status, "{message}");
        let body = &part.text[part.text.find('{').unwrap()..=part.text.rfind('}').unwrap()];
        let error: Value = serde_json::from_str(body).unwrap();
        let error = &error["odata.error"];
        assert_eq!(error["code"], code);
        let found = error["message"]["value"].as_str().unwrap();
        starts(found, message, code);
    }
    let rows = client.query("People", "");
    assert_eq!(rows.len(), 1, "nothing of a failed transaction is there");
}

#[test]
fn cross_origin_answers() {
    let (server, mut client) = serve();
    let xml = ("Content-Type", "application/xml");
    let rule = "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>http://a.example\
        </AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods><AllowedHeaders>x-ms-*\
        </AllowedHeaders><ExposedHeaders>x-ms-*</ExposedHeaders><MaxAgeInSeconds>5\
        </MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>";
    let set = client.request("PUT", "?restype=service&comp=properties", &[xml], rule.as_bytes());
    assert_eq!(set.status, 202);
    let mut preflight = |origin: &str, method: Option<&str>, asked: &str| {
        let mut headers = vec![("Origin", origin), ("Access-Control-Request-Headers", asked)];
        headers.extend(method.map(|method| ("Access-Control-Request-Method", method)));
        let response = client.request("OPTIONS", "People", &headers, b"");
        let allowed = response.header("access-control-allow-origin").map(ToOwned::to_owned);
        (response.status, allowed)
    };
    let allowed = Some("http://a.example".to_owned());
    assert_eq!(preflight("http://a.example", Some("GET"), "x-ms-date"), (200, allowed));
    assert_eq!(preflight("http://a.example", Some("GET"), "authorization"), (403, None));
    assert_eq!(preflight("http://a.example", Some("DELETE"), "x-ms-date"), (403, None));
    assert_eq!(preflight("http://b.example", Some("GET"), "x-ms-date"), (403, None));
    assert_eq!(preflight("http://a.example", None, "x-ms-date"), (400, None));

    let mut get = |origin: &str| client.request("GET", "People()", &[("Origin", origin)], b"");
    let response = get("http://a.example");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), Some("http://a.example"));
    assert_eq!(response.header("vary"), Some("Origin"));
    let exposed = response.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("x-ms-version"), "{exposed}");
    // The key of this account is public: a page from elsewhere must not get at it.
    assert_eq!(get("http://b.example").status, 403);
    assert_eq!(get("http://203.0.113.5").status, 403);
    assert_eq!(get("http://localhost:3000").status, 200);
    drop(server);
}

#[test]
fn queries_say_how_they_were_read() {
    let (_server, mut client) = serve();
    for partition in ["a", "b"] {
        for row in ["1", "2", "3"] {
            let entity = json!({ "PartitionKey": partition, "RowKey": row, "n": 1 });
            assert_eq!(client.insert("People", &entity).unwrap().status, 204);
        }
    }
    let rows = [
        ("PartitionKey eq 'a' and RowKey eq '2'", "point; examined=1; returned=1"),
        (
            "PartitionKey eq 'a' and (RowKey eq '1' or RowKey eq '3')",
            "multi-point; examined=2; returned=2",
        ),
        ("PartitionKey eq 'a' and RowKey ge '2'", "range; examined=2; returned=2"),
        ("PartitionKey eq 'a' and n eq 2", "partition-scan; examined=3; returned=0"),
        ("n eq 1", "table-scan; examined=6; returned=6"),
    ];
    let response = client.get("People", "a", "1");
    assert_eq!(response.header("x-rowhouse-plan"), Some("point; examined=1; returned=1"));
    for (filter, plan) in rows {
        let path = format!("People()?$filter={}", rowhouse_testkit::encode(filter));
        let response = client.request("GET", &path, &[], b"");
        assert_eq!(response.header("x-rowhouse-plan"), Some(plan), "{filter}");
    }
}

/// Selecting what is not there makes JSON grow far beyond what is stored: the page ends early instead.
#[test]
fn answers_are_bounded() {
    let (_server, mut client) = serve();
    for batch in 0..10 {
        let operations: Vec<_> = (0..100)
            .map(|n| json!({ "PartitionKey": "p", "RowKey": format!("{:04}", batch * 100 + n) }))
            .map(|entity| Operation::insert("People", entity))
            .collect();
        assert!(client.batch(&operations).unwrap().succeeded());
    }
    let names: Vec<_> = (0..200).map(|n| format!("{}{n:03}", "n".repeat(60))).collect();
    let (mut token, mut rows, mut pages) = (String::new(), 0, 0);
    loop {
        let path = format!("People()?$select={}{token}", names.join(","));
        let response = client.request("GET", &path, &[], b"");
        assert_eq!(response.status, 200);
        assert!(response.body.len() < 9 * 1024 * 1024, "{} bytes", response.body.len());
        rows += response.json()["value"].as_array().unwrap().len();
        pages += 1;
        let next = |name: &str| response.header(&format!("x-ms-continuation-{name}"));
        let Some(partition) = next("NextPartitionKey") else { break };
        let row = next("NextRowKey").unwrap();
        token = format!("&NextPartitionKey={partition}&NextRowKey={row}");
    }
    assert_eq!(rows, 1000);
    assert!(pages > 1, "one page would hold more than 14 MB");
}

fn ask(client: &mut Client, filter: &str) -> Response {
    let path = format!("People()?$filter={}", rowhouse_testkit::encode(filter));
    client.request("GET", &path, &[], b"")
}

#[test]
fn functions_in_filters() {
    let (_server, mut client) = serve();
    for (row, name) in [("1", "Ann"), ("2", "ÉMILE"), ("3", "Zoë")] {
        let entity = json!({ "PartitionKey": "a", "RowKey": row, "Name": name });
        assert_eq!(client.insert("People", &entity).unwrap().status, 204);
    }
    let found = [
        ("contains(tolower(Name),'émi')", "table-scan; examined=3; returned=1"),
        ("Name in ('Ann','Zoë')", "table-scan; examined=3; returned=2"),
        ("startswith(PartitionKey,'a') and length(Name) eq 3", "range; examined=3; returned=2"),
        ("PartitionKey eq 'a' and RowKey in ('1','3')", "multi-point; examined=2; returned=2"),
    ];
    for (filter, plan) in found {
        let response = ask(&mut client, filter);
        assert_eq!(response.header("x-rowhouse-plan"), Some(plan), "{filter}");
    }
    let refused = [
        (
            "contains(Name,5)",
            "400 InvalidInput: No function signature for the function with name 'contains' matches the specified \
             arguments. The function signatures considered are: contains(Edm.String, Edm.String).",
        ),
        (
            "tolower(Name) eq 5",
            "400 InvalidInput: A binary operator with incompatible types was detected. Found operand types \
             'Edm.String' and 'Edm.Int32' for operator kind 'Equal'.",
        ),
        ("Name in ()", "400 InvalidInput: Syntax error at position 10 in 'Name in ()'."),
        ("indexof(Name,'x') eq 1", NOT_IMPLEMENTED),
        ("tolower(Name) eq Other", NOT_IMPLEMENTED),
    ];
    for (filter, expected) in refused {
        assert_eq!(said(&ask(&mut client, filter)), expected, "{filter}");
    }
}

#[test]
fn orders_and_counts() {
    let (_server, mut client) = serve();
    for (partition, row) in [("a", "1"), ("a", "2"), ("b", "1")] {
        let entity = json!({ "PartitionKey": partition, "RowKey": row });
        assert_eq!(client.insert("People", &entity).unwrap().status, 204);
    }
    let mut get = |path: &str| client.request("GET", path, &[], b"");
    let count = get("People()/$count");
    assert_eq!((count.status, count.text().as_str()), (200, "3"));
    assert_eq!(count.header("content-type"), Some("text/plain;charset=utf-8"));
    assert_eq!(get("People()/$count?$filter=PartitionKey%20eq%20'a'").text(), "2");
    let page = get("People()?$count=true&$top=1");
    assert_eq!(page.json()["odata.count"], "3");
    assert_eq!(page.json()["value"].as_array().unwrap().len(), 1);
    assert_eq!(get("People()").json().get("odata.count"), None);

    let descending = "$orderby=PartitionKey%20desc,RowKey%20desc&$top=2";
    let page = get(&format!("People()?{descending}"));
    let rows = |page: &Response| {
        let rows = page.json()["value"].as_array().unwrap().clone();
        let key = |row: &Value| format!("{}{}", row["PartitionKey"], row["RowKey"]);
        rows.iter().map(key).collect::<String>().replace('"', "")
    };
    assert_eq!(rows(&page), "b1a2");
    let token = |name: &str| page.header(&format!("x-ms-continuation-Next{name}")).unwrap();
    let token =
        format!("NextPartitionKey={}&NextRowKey={}", token("PartitionKey"), token("RowKey"));
    assert_eq!(rows(&get(&format!("People()?{descending}&{token}"))), "a1");
    let other = get(&format!("People()?$top=2&{token}"));
    starts(&said(&other), "400 InvalidInput", "a token of another order");
    let order = "$filter=PartitionKey%20eq%20'a'&$orderby=RowKey%20desc";
    assert_eq!(rows(&get(&format!("People()?{order}"))), "a2a1");

    for path in [
        "People()?$orderby=Name",
        "People()?$orderby=RowKey%20desc",
        "People()?$orderby=PartitionKey%20desc,RowKey",
        "People()?$orderby=PartitionKey%20down",
        "People()?$count=yes",
    ] {
        starts(&said(&get(path)), "400 InvalidInput", path);
    }
    for path in ["People()/$count?$top=1", "Tables?$orderby=TableName", "Tables?$count=true"] {
        assert_eq!(said(&get(path)), NOT_IMPLEMENTED, "{path}");
    }
    starts(&said(&get("Missing()/$count")), "404 TableNotFound", "a count of no table");
}

const NOT_IMPLEMENTED: &str =
    "501 NotImplemented: The requested operation is not implemented on the specified resource.";

/// What is an extension elsewhere is answered as the original answers it.
#[test]
fn a_strict_server_knows_no_extension() {
    let server = TestServer::start_with(&["--strict", "--keep-changes", "1h"]);
    let mut client = server.client();
    client.create_table("People");
    let entity = json!({ "PartitionKey": "a", "RowKey": "1", "Name": "Ann" });
    assert_eq!(client.insert("People", &entity).unwrap().status, 204);
    for filter in ["contains(Name,'x')", "Name in ('x')", "length(Name) eq 1", "contains(Name"] {
        assert_eq!(said(&ask(&mut client, filter)), NOT_IMPLEMENTED, "{filter}");
    }
    let changes = client.request("GET", "People?comp=changes", &[], b"");
    starts(&said(&changes), "400 InvalidQueryParameterValue", "comp=changes");
    for option in ["$orderby=PartitionKey", "$count=true"] {
        let response = client.request("GET", &format!("People()?{option}"), &[], b"");
        assert_eq!(said(&response), NOT_IMPLEMENTED, "{option}");
    }
    let count = client.request("GET", "People()/$count", &[], b"");
    starts(&said(&count), "400", "a count is a malformed address");
    for response in [ask(&mut client, "Name eq 'Ann'"), client.get("People", "a", "1")] {
        assert_eq!(response.status, 200);
        assert_eq!(response.header("x-rowhouse-plan"), None);
    }
}
