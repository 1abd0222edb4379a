//! What is written is read back, and whatever is read is judged.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rowhouse_types::{Guid, RecordBuilder, Timestamp, Value, ValueRef};

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(String::new()),
        "[a,\"\r\n\t ;'éß😀]{0,6}",
        Just("2020-01-01T00:00:00Z".to_owned()),
        Just("1".to_owned()),
        Just(" NaN ".to_owned()),
    ];
    let double = prop_oneof![
        any::<f64>().prop_filter("one zero and one NaN", |n| !n.is_nan() && n.to_bits() != 1 << 63),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(1.0),
        Just(1e300),
        Just(5e-324),
    ];
    prop_oneof![
        text.prop_map(|text| Value::String(text.into())),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        double.prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        (Timestamp::EDM_MIN.ticks()..=Timestamp::MAX.ticks())
            .prop_map(|ticks| Value::DateTime(Timestamp::from_ticks(ticks).unwrap())),
        any::<[u8; 16]>().prop_map(|bytes| Value::Guid(Guid(bytes))),
        vec(any::<u8>(), 0..6).prop_map(|bytes| Value::Binary(bytes.into())),
    ]
}

fn entity() -> impl Strategy<Value = Entity> {
    let key = "[a,\" 'é😀]{0,4}";
    let ticks = 1..Timestamp::MAX.ticks();
    (key, key, btree_map("[A-Cé]{1,2}", value(), 0..5), ticks).prop_map(
        |(partition, row, properties, ticks)| {
            let mut builder = RecordBuilder::new();
            for (name, value) in &properties {
                builder.push(name, value.as_ref()).unwrap();
            }
            let record = builder.finish(Timestamp::from_ticks(ticks).unwrap());
            Entity { partition: partition.into(), row: row.into(), record }
        },
    )
}

fn read_all(mut reader: impl Rows) -> Vec<FileRow> {
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push(row);
    }
    rows
}

/// NaN is not equal to itself, so properties are compared by what they look like.
fn shown(entity: &Entity) -> String {
    let mut properties: Vec<_> =
        entity.record.as_ref().iter().map(|property| format!("{:?}", property.unwrap())).collect();
    properties.sort();
    let time = entity.record.as_ref().timestamp().iso();
    format!("{:?} {:?} {} {properties:?}", entity.partition, entity.row, time.as_str())
}

fn ndjson(entities: &[Entity]) -> Vec<u8> {
    let mut out = Vec::new();
    for entity in entities {
        entity.write_json(&mut out, true);
        out.push(b'\n');
    }
    out
}

fn csv(entities: &[Entity]) -> Vec<u8> {
    let mut names: Vec<String> = Vec::new();
    for entity in entities {
        for property in entity.record.as_ref().iter() {
            let name = property.unwrap().name.to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut writer = CsvWriter::new(Vec::new(), names).unwrap();
    for entity in entities {
        writer.write(entity).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn lines_of_json_come_back(entities in vec(entity(), 0..5)) {
        let text = ndjson(&entities);
        prop_assert_eq!(memchr::memchr_iter(b'\n', &text).count(), entities.len());
        let rows = read_all(NdjsonReader::new(&text[..]));
        let back: Vec<_> = rows.iter().map(|row| shown(row.entity.as_ref().unwrap())).collect();
        prop_assert_eq!(back, entities.iter().map(shown).collect::<Vec<_>>());
    }

    #[test]
    fn csv_comes_back(entities in vec(entity(), 0..5)) {
        let text = csv(&entities);
        let rows = read_all(CsvReader::new(&text[..]).unwrap());
        let back: Vec<_> = rows.iter().map(|row| shown(row.entity.as_ref().unwrap())).collect();
        prop_assert_eq!(back, entities.iter().map(shown).collect::<Vec<_>>());
    }

    #[test]
    fn skipping_is_reading_without_looking(entities in vec(entity(), 0..6), skip in 0..8u64) {
        let text = csv(&entities);
        let mut reader = CsvReader::new(&text[..]).unwrap();
        reader.skip_rows(skip).unwrap();
        prop_assert_eq!(read_all(reader).len(), entities.len().saturating_sub(usize::try_from(skip).unwrap()));
        let text = ndjson(&entities);
        let mut reader = NdjsonReader::new(&text[..]);
        reader.skip_rows(skip).unwrap();
        prop_assert_eq!(read_all(reader).len(), entities.len().saturating_sub(usize::try_from(skip).unwrap()));
    }

    #[test]
    fn any_bytes_are_judged(bytes in vec(any::<u8>(), 0..80)) {
        read_all(NdjsonReader::new(&bytes[..]));
        if let Ok(reader) = CsvReader::new(&bytes[..]) {
            read_all(reader);
        }
    }

    #[test]
    fn any_fields_are_judged(text in "(PartitionKey|RowKey|Timestamp|A|@type|,|\"|\r|\n|Edm.|Int64|1|é| ){0,30}") {
        let text = format!("PartitionKey,RowKey,A,A@type\r\n{text}");
        if let Ok(reader) = CsvReader::new(text.as_bytes()) {
            read_all(reader);
        }
    }
}

#[test]
fn csv_as_storage_explorer_writes_it() {
    let text = "\u{FEFF}PartitionKey,RowKey,Timestamp,Age,Age@type,Name,Name@type,Since,Since@type\r\n\
                p,1,2017-09-03T12:17:54.827Z,7,Edm.Int32,\"O\"\"Brien, Pat\r\nJr.\",Edm.String,,\r\n\
                p,2,,7,Int64,,String,2020-01-01T00:00:00.0000001Z,DateTime\r\n\
                \r\n\
                p,3,,7,,plain,,,\n";
    let rows = read_all(CsvReader::new(text.as_bytes()).unwrap());
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [2, 4, 6]);
    let get = |index: usize, name: &str| {
        let entity = rows[index].entity.as_ref().unwrap();
        entity.record.as_ref().get(name).unwrap().map(ValueRef::to_owned)
    };
    assert_eq!(get(0, "Age"), Some(Value::Int32(7)));
    assert_eq!(get(0, "Name"), Some(Value::String("O\"Brien, Pat\r\nJr.".into())));
    assert_eq!(get(0, "Since"), None, "neither value nor type: the property is not there");
    assert_eq!(get(1, "Age"), Some(Value::Int64(7)));
    assert_eq!(get(1, "Name"), Some(Value::String("".into())), "a type alone: an empty text");
    assert!(matches!(get(1, "Since"), Some(Value::DateTime(_))));
    assert_eq!(get(2, "Age"), Some(Value::String("7".into())), "no type: a text");
}

#[test]
fn bad_rows_do_not_end_the_reading() {
    let text = "PartitionKey,RowKey,A,A@type\np,1,x,Int32\np,2\np,3,1,Byte\np,4,\"1\"x,Int32\np,5,1,Int32\n";
    let rows = read_all(CsvReader::new(text.as_bytes()).unwrap());
    let judged: Vec<_> = rows.iter().map(|row| (row.number, row.entity.is_ok())).collect();
    assert_eq!(judged, [(2, false), (3, false), (4, false), (5, false), (6, true)]);
    let text = "{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}\nnonsense\n\n{\"RowKey\":\"2\"}\n{\"PartitionKey\":\"a/b\",\"RowKey\":\"\"}\n{\"PartitionKey\":\"p\",\"RowKey\":\"3\"}";
    let rows = read_all(NdjsonReader::new(text.as_bytes()));
    let judged: Vec<_> = rows.iter().map(|row| (row.number, row.entity.is_ok())).collect();
    assert_eq!(judged, [(1, true), (2, false), (4, false), (5, false), (6, true)]);
}

#[test]
fn a_line_beyond_the_limit_is_passed_over() {
    let mut text = vec![b'x'; ROW_BYTES_MAX + 1];
    text.extend_from_slice(b"\n{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}\n");
    let rows = read_all(NdjsonReader::new(&text[..]));
    assert_eq!(rows.iter().map(|row| row.entity.is_ok()).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn lines_of_names_that_do_not_do() {
    for text in
        ["", "A,B\n", "PartitionKey,RowKey,A,A\n", "PartitionKey,A\n", "PartitionKey,RowKey,\n"]
    {
        assert!(CsvReader::new(text.as_bytes()).is_err(), "{text:?}");
    }
}
