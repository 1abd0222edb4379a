//! The attackers' account: its tables, its table with many indexes, and the signatures that it has
//! given away.

use super::filters;
use crate::command::Running;
use crate::server::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{AccountSasFields, TableSasFields, sign};
use rowhouse_testkit::{Client, Response};
use rowhouse_types::limits::{INDEX_PROPERTIES_MAX, INDEXES_MAX};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

const ACCOUNT: &str = "attacker";
/// Its key: any bytes will do, because the server only listens on this machine.
const KEY: [u8; 64] = [7; 64];
/// The table with indexes.
const INDEXED: &str = "Indexed";
/// Threads that create tables: the server commits what they ask for at a time together.
const MAKERS: usize = 32;
/// How long the indexes may take.
const INDEXED_WITHIN: Duration = Duration::from_mins(1);

const VERSION: &str = "2019-02-02";
const EXPIRY: &str = "2099-01-01T00:00:00Z";
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Creates the account with the product's own command.
pub(super) fn create(server: &Server, binary: &Path) -> io::Result<()> {
    let (admin, data, key) = (server.admin().unwrap_or_default(), server.data(), encoded_key());
    let what = ["account", "--admin", &admin, "--data"].map(OsStr::new);
    let create = ["create", ACCOUNT, "--key", &key, "--key", &key].map(OsStr::new);
    let arguments = what.into_iter().chain([data.as_os_str()]).chain(create);
    Running::start(binary, arguments)?.finish().map(drop)
}

/// Creates that many tables.
pub(super) fn make_tables(address: SocketAddrV4, tables: usize) -> io::Result<()> {
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS)
            .map(|maker| {
                scope.spawn(move || {
                    let mut client = client(address);
                    (maker..tables)
                        .step_by(MAKERS)
                        .try_for_each(|n| make_table(&mut client, &format!("T{n:05}")))
                })
            })
            .collect();
        makers.into_iter().try_for_each(|maker| {
            maker.join().map_err(|_| io::Error::other("a thread has failed"))?
        })
    })
}

/// Makes the table with as many indexes as a table may have, and that many entities.
pub(super) fn make_indexes(address: SocketAddrV4, entities: usize) -> io::Result<()> {
    let mut client = client(address);
    make_table(&mut client, INDEXED)?;
    for n in 0..entities {
        let mut entity = json!({ "PartitionKey": "p", "RowKey": format!("{n:05}") });
        for property in 0..filters::PROPERTIES {
            entity[format!("P{property}")] = json!(n);
        }
        expect(204, &client.insert(INDEXED, &entity)?, "inserting an entity")?;
    }
    let path = format!("{INDEXED}?comp=index");
    for index in 0..INDEXES_MAX {
        let first = INDEX_PROPERTIES_MAX * index;
        let properties: Vec<_> =
            (first..first + INDEX_PROPERTIES_MAX).map(|n| format!("P{n}")).collect();
        let body = json!({ "properties": properties }).to_string();
        let made = client.try_request("PUT", &path, &[JSON], body.as_bytes())?;
        expect(201, &made, "creating an index")?;
    }
    let began = Instant::now();
    while began.elapsed() < INDEXED_WITHIN {
        let listed = client.try_request("GET", &path, &[], b"")?;
        expect(200, &listed, "listing indexes")?;
        if are_ready(&listed.json()) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(io::Error::other("the indexes are not ready in time"))
}

/// Requests that list tables with the worst filter, by a signature that allows nothing else.
pub(super) fn listings(address: SocketAddrV4) -> Vec<Vec<u8>> {
    let fields = AccountSasFields {
        version: VERSION.to_owned(),
        services: "t".to_owned(),
        resource_types: "c".to_owned(),
        permissions: "l".to_owned(),
        expiry: EXPIRY.to_owned(),
        ..AccountSasFields::default()
    };
    let signature = sign::account_sas(ACCOUNT, &KEY, &fields).to_string();
    vec![get(address, "Tables", &filters::of_tables(), &signature)]
}

/// Requests that are hard to plan, by a signature that only allows to read one table.
pub(super) fn queries(address: SocketAddrV4) -> Vec<Vec<u8>> {
    let fields = TableSasFields {
        version: VERSION.to_owned(),
        table: INDEXED.to_owned(),
        permissions: "r".to_owned(),
        expiry: EXPIRY.to_owned(),
        ..TableSasFields::default()
    };
    let signature = sign::table_sas(ACCOUNT, &KEY, &fields).to_string();
    let path = format!("{INDEXED}()");
    let filters = filters::of_indexes();
    filters.iter().map(|filter| get(address, &path, filter, &signature)).collect()
}

fn get(address: SocketAddrV4, path: &str, filter: &str, signature: &str) -> Vec<u8> {
    let filter = filters::encoded(filter);
    format!(
        "GET /{ACCOUNT}/{path}?$filter={filter}&{signature} HTTP/1.1\r\nHost: {address}\r\n\
         x-ms-version: {VERSION}\r\nAccept: application/json;odata=minimalmetadata\r\n\r\n"
    )
    .into_bytes()
}

fn client(address: SocketAddrV4) -> Client {
    Client::with_account(address.into(), ACCOUNT, &encoded_key())
}

fn encoded_key() -> String {
    STANDARD.encode(KEY)
}

fn make_table(client: &mut Client, name: &str) -> io::Result<()> {
    let body = json!({ "TableName": name }).to_string();
    let headers = [JSON, ("Prefer", "return-no-content")];
    let made = client.try_request("POST", "Tables", &headers, body.as_bytes())?;
    expect(204, &made, "creating a table")
}

fn are_ready(listed: &Value) -> bool {
    let indexes = listed["value"].as_array();
    indexes.is_some_and(|indexes| indexes.iter().all(|index| index["state"] == "ready"))
}

fn expect(status: u16, answer: &Response, doing: &str) -> io::Result<()> {
    if answer.status == status {
        return Ok(());
    }
    let text = answer.text();
    Err(io::Error::other(format!("{doing} was answered with {}: {text}", answer.status)))
}
