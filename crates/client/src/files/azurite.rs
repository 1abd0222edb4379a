//! Azurite's data file of tables, `__azurite_db_table__.json`.
//!
//! It is a LokiJS database: one JSON object whose `collections` are the tables, each named `account$table`,
//! with an object for each entity in `data`. `$TABLES_COLLECTION$` lists the tables with their access policies,
//! `$SERVICES_COLLECTION$` the service properties of each account. Types stand beside the values as on the wire, but for Guids, whose
//! text is in Base64 since Azurite 3.14. The file is read as a stream: its size does not matter.

mod listed;

use super::{BadRow, FileRow, Rows};
use crate::entity::Entity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use listed::Listed;
use rowhouse_types::{Guid, StoredPolicy};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Entities that are read ahead.
const AHEAD: usize = 1000;
const TYPE: &str = "@odata.type";

/// Reads the entities of one account.
#[derive(Debug)]
pub struct AzuriteReader {
    tables: Vec<Arc<str>>,
    entities: u64,
    beside: Beside,
    rows: Receiver<io::Result<FileRow>>,
}

/// Access policies, or why they cannot be read.
pub type ReadPolicies = Result<Vec<StoredPolicy>, String>;

/// What there is in the file beside the entities of the account.
#[derive(Debug, Default)]
pub struct Beside {
    /// The stored access policies of each table that has some, or why they cannot be read.
    pub policies: Vec<(Arc<str>, ReadPolicies)>,
    /// Whether the account has service properties of its own: CORS rules, logging, metrics.
    pub has_properties: bool,
    /// Other accounts that have tables.
    pub accounts: BTreeSet<String>,
}

impl AzuriteReader {
    /// Reads through the file once, to see that it is one and which tables the account has in it.
    pub fn open(path: &Path, account: &str) -> io::Result<Self> {
        let (mut tables, mut entities, mut beside) = (Vec::new(), 0, Beside::default());
        read_collections(path, account, &mut |event| {
            match event {
                Event::Table(table) => tables.push(table),
                Event::Listed(listed) => {
                    let table = Arc::<str>::from(listed.table.as_str());
                    let policies = listed.policies();
                    if policies.as_ref().map_or(true, |policies| !policies.is_empty()) {
                        beside.policies.push((table, policies));
                    }
                }
                Event::Properties => beside.has_properties = true,
                Event::OtherAccount(account) => drop(beside.accounts.insert(account)),
                Event::Entity(..) => entities += 1,
            }
            true
        })?;
        let (sender, rows) = sync_channel(AHEAD);
        let (path, account) = (path.to_owned(), account.to_owned());
        std::thread::spawn(move || send_rows(&path, &account, &sender));
        Ok(Self { tables, entities, beside, rows })
    }

    /// The names of the tables, also of empty ones.
    pub fn tables(&self) -> &[Arc<str>] {
        &self.tables
    }

    /// How many entities the tables have together.
    pub fn entities(&self) -> u64 {
        self.entities
    }

    /// What else there is; nothing the second time.
    pub fn take_beside(&mut self) -> Beside {
        std::mem::take(&mut self.beside)
    }
}

impl Rows for AzuriteReader {
    fn next_row(&mut self) -> io::Result<Option<FileRow>> {
        self.rows.recv().ok().transpose()
    }
}

fn send_rows(path: &Path, account: &str, sender: &SyncSender<io::Result<FileRow>>) {
    let mut number = 0;
    let read = read_collections(path, account, &mut |event| {
        let Event::Entity(table, document) = event else { return true };
        number += 1;
        let row = FileRow { number, table: Some(table), entity: entity_of(document) };
        // Nobody listens any more: the rest is not wanted.
        sender.send(Ok(row)).is_ok()
    });
    if let Err(error) = read {
        let _ = sender.send(Err(error));
    }
}

/// What is found in the file, in its order.
enum Event {
    Table(Arc<str>),
    Entity(Arc<str>, Document),
    /// A table of the account in the list of tables.
    Listed(Listed),
    /// Service properties of the account.
    Properties,
    /// A table of that account.
    OtherAccount(String),
}

/// Hands out what is found until there is no more or the taker wants no more.
fn read_collections(
    path: &Path,
    account: &str,
    take: &mut dyn FnMut(Event) -> bool,
) -> io::Result<()> {
    let input = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut json = serde_json::Deserializer::from_reader(input);
    let mut reading = Reading { account, take, stopped: false, found: false };
    let read = Member { name: "collections", inner: &mut reading }.deserialize(&mut json);
    let (stopped, found) = (reading.stopped, reading.found);
    match read {
        _ if stopped => Ok(()),
        Ok(()) if found => Ok(()),
        Ok(()) => Err(io::Error::other("this is not a table file of Azurite")),
        Err(error) if error.is_io() => Err(error.into()),
        Err(error) => {
            Err(io::Error::other(format!("this is not a table file of Azurite ({error})")))
        }
    }
}

struct Reading<'t> {
    account: &'t str,
    take: &'t mut dyn FnMut(Event) -> bool,
    stopped: bool,
    /// A collection was there.
    found: bool,
}

impl Reading<'_> {
    fn hand_out<E: serde::de::Error>(&mut self, event: Event) -> Result<(), E> {
        self.stopped = !(self.take)(event);
        if self.stopped { Err(E::custom("no more is wanted")) } else { Ok(()) }
    }
}

/// An object of which one member matters: `collections` of the whole file.
struct Member<'r, 't> {
    name: &'static str,
    inner: &'r mut Reading<'t>,
}

impl<'de> DeserializeSeed<'de> for Member<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == self.name {
                map.next_value_seed(Collections(self.inner))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The list of collections.
struct Collections<'r, 't>(&'r mut Reading<'t>);

impl<'de> DeserializeSeed<'de> for Collections<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Collections<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of collections")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Collection(self.0))?.is_some() {}
        Ok(())
    }
}

/// One collection: a table, or something of Azurite's own.
struct Collection<'r, 't>(&'r mut Reading<'t>);

impl<'de> DeserializeSeed<'de> for Collection<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Collection<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a collection")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut of = None;
        while let Some(member) = map.next_key::<String>()? {
            match member.as_str() {
                "name" => {
                    self.0.found = true;
                    of = Some(self.0.named(&map.next_value::<String>()?)?);
                }
                "data" => match &of {
                    None => {
                        let reason = "a collection has its objects before its name";
                        return Err(serde::de::Error::custom(reason));
                    }
                    Some(Of::Nothing) => drop(map.next_value::<IgnoredAny>()?),
                    Some(of) => map.next_value_seed(Documents { of, reading: self.0 })?,
                },
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// What the objects of a collection are.
enum Of {
    /// Entities of this table.
    Table(Arc<str>),
    /// Tables.
    Tables,
    /// Service properties.
    Services,
    /// Nothing that matters.
    Nothing,
}

impl Reading<'_> {
    /// What the collection of that name is of.
    fn named<E: serde::de::Error>(&mut self, name: &str) -> Result<Of, E> {
        match (name, name.split_once('$')) {
            ("$TABLES_COLLECTION$", _) => Ok(Of::Tables),
            ("$SERVICES_COLLECTION$", _) => Ok(Of::Services),
            (_, Some((account, table))) if account == self.account => {
                let table = Arc::<str>::from(table);
                self.hand_out(Event::Table(table.clone()))?;
                Ok(Of::Table(table))
            }
            (_, Some((account, _))) if !account.is_empty() => {
                self.hand_out(Event::OtherAccount(account.to_owned()))?;
                Ok(Of::Nothing)
            }
            _ => Ok(Of::Nothing),
        }
    }
}

/// The service properties of an account.
#[derive(serde::Deserialize)]
struct Properties {
    #[serde(default, rename = "accountName")]
    account: String,
}

/// The objects of a collection.
struct Documents<'r, 't> {
    of: &'r Of,
    reading: &'r mut Reading<'t>,
}

impl<'de> DeserializeSeed<'de> for Documents<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Documents<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        match self.of {
            Of::Table(table) => {
                while let Some(document) = list.next_element()? {
                    self.reading.hand_out(Event::Entity(table.clone(), document))?;
                }
            }
            Of::Tables => {
                while let Some(listed) = list.next_element::<Listed>()? {
                    if listed.account == self.reading.account {
                        self.reading.hand_out(Event::Listed(listed))?;
                    }
                }
            }
            Of::Services => {
                while let Some(properties) = list.next_element::<Properties>()? {
                    if properties.account == self.reading.account {
                        self.reading.hand_out(Event::Properties)?;
                    }
                }
            }
            Of::Nothing => while list.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(())
    }
}

/// An entity as Azurite keeps it.
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    partition_key: String,
    row_key: String,
    #[serde(rename = "lastModifiedTime")]
    modified: Option<String>,
    #[serde(rename = "properties")]
    properties: Members,
}

/// Members of an object, in their order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("properties")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        input.deserialize_map(Collect)
    }
}

/// The entity that a document stands for, read as one from the wire would be.
fn entity_of(document: Document) -> Result<Entity, BadRow> {
    let Document { partition_key, row_key, modified, properties: Members(members) } = document;
    let quoted = |text: &str| serde_json::to_string(text).expect("text can always be written");
    let mut json = format!(
        "{{\"PartitionKey\":{},\"RowKey\":{},\"Timestamp\":{}",
        quoted(&partition_key),
        quoted(&row_key),
        quoted(&modified.unwrap_or_default())
    );
    let is_guid = |name: &str| {
        let annotation = members.iter().find(|(other, _)| other.strip_suffix(TYPE) == Some(name));
        annotation.is_some_and(|(_, value)| value.get() == "\"Edm.Guid\"")
    };
    for (name, value) in &members {
        let bare = name.strip_suffix(TYPE).unwrap_or(name);
        if matches!(bare, "PartitionKey" | "RowKey" | "Timestamp") {
            continue;
        }
        json.push(',');
        json.push_str(&quoted(name));
        json.push(':');
        if is_guid(name) {
            json.push_str(&quoted(&guid_text(value.get())));
        } else {
            json.push_str(value.get());
        }
    }
    json.push('}');
    Entity::from_json(json.as_bytes())
        .map_err(|reason| BadRow::new(reason, Some(&partition_key), Some(&row_key)))
}

/// A Guid as it is written everywhere else; what is none stays as it is, and is refused later.
fn guid_text(json: &str) -> String {
    let text: String = serde_json::from_str(json).unwrap_or_else(|_| json.to_owned());
    if Guid::parse(&text).is_some() {
        return text;
    }
    let decoded = STANDARD.decode(&text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_types::{Timestamp, ValueRef};

    const FILE: &str = r#"{"filename":"db.json","collections":[
        {"name":"$TABLES_COLLECTION$","data":[{"account":"acct","table":"People","$loki":1}],"idIndex":[1]},
        {"name":"$SERVICES_COLLECTION$","data":[]},
        {"name":"acct$People","data":[
            {"PartitionKey":"p","RowKey":"it's \"r\"","properties":{
                "PartitionKey":"p","RowKey":"it's \"r\"","S":"","I":7,
                "D":1,"D@odata.type":"Edm.Double","N":"NaN","N@odata.type":"Edm.Double",
                "L":"9007199254740993","L@odata.type":"Edm.Int64","B":true,"B@odata.type":"Edm.Boolean",
                "G":"YzlkYTY0NTUtMjEzZC00MmM5LTlhNzktM2U5MTQ5YTU3ODMz","G@odata.type":"Edm.Guid",
                "H":"c9da6455-213d-42c9-9a79-3e9149a57833","H@odata.type":"Edm.Guid",
                "Y":"AQI=","Y@odata.type":"Edm.Binary",
                "T":"2020-01-02T03:04:05.1234567Z","T@odata.type":"Edm.DateTime","X":null,
                "Timestamp":"2021-01-01T00:00:00.0000000Z","Timestamp@odata.type":"Edm.DateTime"},
             "lastModifiedTime":"2021-01-01T00:00:00.0000000Z","eTag":"W/\"x\"","meta":{"revision":0},"$loki":1},
            {"PartitionKey":"p","RowKey":"bad","properties":{"L":"x","L@odata.type":"Edm.Int64"},"$loki":2}
        ],"binaryIndices":{"PartitionKey":{"name":"PartitionKey","dirty":true,"values":[]}}},
        {"name":"other$People","data":[{"PartitionKey":"q","RowKey":"r","properties":{}}]},
        {"name":"acct$Empty","data":[]}],"databaseVersion":1.5}"#;

    fn open(text: &[u8]) -> io::Result<(Vec<Arc<str>>, Vec<FileRow>)> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("db.json");
        std::fs::write(&path, text)?;
        let mut reader = AzuriteReader::open(&path, "acct")?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next_row()? {
            rows.push(row);
        }
        Ok((reader.tables().to_vec(), rows))
    }

    #[test]
    fn types_are_those_that_azurite_answers_with() {
        let (tables, rows) = open(FILE.as_bytes()).unwrap();
        assert_eq!(tables.iter().map(|name| &**name).collect::<Vec<_>>(), ["People", "Empty"]);
        assert_eq!(rows.len(), 2);
        let entity = rows[0].entity.as_ref().unwrap();
        assert_eq!((&*entity.partition, &*entity.row), ("p", "it's \"r\""));
        let record = entity.record.as_ref();
        let guid = Guid::parse("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap();
        let time = Timestamp::parse_iso("2020-01-02T03:04:05.1234567Z").unwrap();
        let expected = [
            ("S", ValueRef::String("")),
            ("I", ValueRef::Int32(7)),
            ("D", ValueRef::Double(1.0)),
            ("L", ValueRef::Int64(9_007_199_254_740_993)),
            ("B", ValueRef::Boolean(true)),
            ("G", ValueRef::Guid(guid)),
            ("H", ValueRef::Guid(guid)),
            ("Y", ValueRef::Binary(&[1, 2])),
            ("T", ValueRef::DateTime(time)),
        ];
        for (name, value) in expected {
            assert_eq!(record.get(name).unwrap(), Some(value), "{name}");
        }
        assert!(matches!(record.get("N").unwrap(), Some(ValueRef::Double(n)) if n.is_nan()));
        assert_eq!(record.len(), 10, "null and the keys are no properties");
        assert_eq!(record.timestamp().iso().as_str(), "2021-01-01T00:00:00Z");
        let bad = rows[1].entity.as_ref().unwrap_err();
        assert_eq!((bad.partition.as_deref(), bad.row.as_deref()), (Some("p"), Some("bad")));
    }

    #[test]
    fn other_files_are_refused() {
        for text in
            ["", "{}", "[]", "{\"collections\":[]}", &FILE[..900], "PartitionKey,RowKey\r\n"]
        {
            assert!(open(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_rows_or_an_error(cut in 0..FILE.len(), byte in any::<u8>()) {
            let mut text = FILE.as_bytes().to_vec();
            text[cut] = byte;
            let _ = open(&text);
        }
    }
}
