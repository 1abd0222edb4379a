use super::*;
use crate::media::Metadata;
use crate::select::Select;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rowhouse_types::{
    Etag, Guid, NameError, PropertyError, Record, RecordBuilder, Row, Rows, Timestamp, Value,
    ValueRef, limits,
};

const BASE: &str = "https://acct.table.example.net";

fn time(text: &str) -> Timestamp {
    Timestamp::parse_iso(text).unwrap()
}

fn record(properties: &[(&str, ValueRef<'_>)]) -> Record {
    let mut builder = RecordBuilder::new();
    for (name, value) in properties {
        builder.push(name, *value).unwrap();
    }
    builder.finish(time("2022-05-06T00:34:41.820498Z"))
}

fn context(level: Metadata, select: Option<&Select>) -> Context<'_> {
    Context { base: BASE, account: "acct", table: "people", level, select }
}

fn one(cx: &Context<'_>, partition: &str, row: &str, record: &Record) -> String {
    let mut out = Vec::new();
    write_one(&mut out, cx, &Row { partition, row, record: record.as_ref() }).unwrap();
    String::from_utf8(out).unwrap()
}

/// The only property of a body.
fn property(body: &str) -> Result<Value, EntityError> {
    let record = read(body.as_bytes())?.record;
    let value = record.as_ref().iter().next().unwrap().unwrap().value.to_owned();
    Ok(value)
}

mod reading {
    use super::*;

    #[test]
    fn types_by_form_and_by_annotation() {
        let guid = Guid::parse("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap();
        let cases = [
            (r#""x":"text""#, Value::String("text".into())),
            (r#""x":"""#, Value::String("".into())),
            (r#""x":true"#, Value::Boolean(true)),
            (r#""x":1"#, Value::Int32(1)),
            (r#""x":-0"#, Value::Int32(0)),
            (r#""x":-2147483648"#, Value::Int32(i32::MIN)),
            (r#""x":2147483648"#, Value::Double(2_147_483_648.0)),
            (r#""x":3000000000"#, Value::Double(3e9)),
            (r#""x":1.0"#, Value::Double(1.0)),
            (r#""x":1e3"#, Value::Double(1000.0)),
            (r#""x":1E-400"#, Value::Double(0.0)),
            (r#""x":"255","x@odata.type":"Edm.Int64""#, Value::Int64(255)),
            (r#""x@odata.type":"Edm.Int64","x":"255""#, Value::Int64(255)),
            (r#""x@odata.type":"Edm.Int64","x":255"#, Value::Int64(255)),
            (r#""x@odata.type":"Edm.Int64","x":"-9223372036854775808""#, Value::Int64(i64::MIN)),
            (r#""x@odata.type":"Edm.Int32","x":"5""#, Value::Int32(5)),
            (r#""x@odata.type":"Edm.Int32","x":5"#, Value::Int32(5)),
            (r#""x@odata.type":"Edm.Double","x":5"#, Value::Double(5.0)),
            (r#""x@odata.type":"Edm.Double","x":"0""#, Value::Double(0.0)),
            (r#""x@odata.type":"Edm.Double","x":"1E+20""#, Value::Double(1e20)),
            (r#""x@odata.type":"Edm.Double","x":"Infinity""#, Value::Double(f64::INFINITY)),
            (r#""x@odata.type":"Edm.Double","x":"-Infinity""#, Value::Double(f64::NEG_INFINITY)),
            (r#""x@odata.type":"Edm.Boolean","x":"false""#, Value::Boolean(false)),
            (r#""x@odata.type":"Edm.Boolean","x":true"#, Value::Boolean(true)),
            (r#""x@odata.type":"Edm.String","x":"5""#, Value::String("5".into())),
            (
                r#""x@odata.type":"Edm.DateTime","x":"2008-07-10T00:00:00.123456789+00:00""#,
                Value::DateTime(time("2008-07-10T00:00:00.1234567Z")),
            ),
            (
                r#""x@odata.type":"Edm.Guid","x":"C9DA6455-213D-42C9-9A79-3E9149A57833""#,
                Value::Guid(guid),
            ),
            (r#""x@odata.type":"Edm.Binary","x":"//4=""#, Value::Binary([0xFF, 0xFE].into())),
            (r#""x@odata.type":"Edm.Binary","x":"""#, Value::Binary([].into())),
            (r#""\u0078@odata.type":"Edm.Int64","x":"1""#, Value::Int64(1)),
            (r#""x":"1","\u0078@odata.t\u0079pe":"Edm.\u0049nt64""#, Value::Int64(1)),
        ];
        for (members, expected) in cases {
            assert_eq!(property(&format!("{{{members}}}")), Ok(expected), "{members}");
        }
        let nan = property(r#"{"x@odata.type":"Edm.Double","x":"NaN"}"#);
        assert!(matches!(nan, Ok(Value::Double(value)) if value.is_nan()));
        for zero in [r#"{"x":-0.0}"#, r#"{"x@odata.type":"Edm.Double","x":"-0"}"#] {
            let value = property(zero);
            assert!(matches!(value, Ok(Value::Double(v)) if v.to_bits() == 0), "{zero}");
        }
    }

    #[test]
    fn values_that_do_not_convert() {
        let cases = [
            r#""x":1e400"#,
            r#""x":-1e400"#,
            r#""x":[]"#,
            r#""x":{}"#,
            r#""x":"\ud800""#,
            r#""x@odata.type":"Edm.Byte","x":1"#,
            r#""x@odata.type":"Int32","x":1"#,
            r#""x@odata.type":1,"x":1"#,
            r#""x@odata.type":null,"x":1"#,
            r#""x@odata.type":"Edm.Int32","x":"2147483648""#,
            r#""x@odata.type":"Edm.Int32","x":1.0"#,
            r#""x@odata.type":"Edm.Int32","x":"a""#,
            r#""x@odata.type":"Edm.Int64","x":"9223372036854775808""#,
            r#""x@odata.type":"Edm.Int64","x":"1.5""#,
            r#""x@odata.type":"Edm.Int64","x":true"#,
            r#""x@odata.type":"Edm.Double","x":"inf""#,
            r#""x@odata.type":"Edm.Double","x":"nan""#,
            r#""x@odata.type":"Edm.Double","x":"1e400""#,
            r#""x@odata.type":"Edm.Double","x":"""#,
            r#""x@odata.type":"Edm.Boolean","x":"maybe""#,
            r#""x@odata.type":"Edm.Boolean","x":1"#,
            r#""x@odata.type":"Edm.String","x":1"#,
            r#""x@odata.type":"Edm.DateTime","x":"yesterday""#,
            r#""x@odata.type":"Edm.DateTime","x":1"#,
            r#""x@odata.type":"Edm.DateTime","x":"2008-13-01T00:00:00Z""#,
            r#""x@odata.type":"Edm.Guid","x":"zzz""#,
            r#""x@odata.type":"Edm.Binary","x":"a""#,
            r#""x@odata.type":"Edm.Binary","x":"YQ""#,
            r#""x@odata.type":"Edm.Binary","x":"Y Q=""#,
        ];
        for members in cases {
            assert_eq!(property(&format!("{{{members}}}")), Err(EntityError::Syntax), "{members}");
        }
        for body in ["", "null", "[]", "{\"a\":1}x", "{\"a\":1", "{\"a\":\"\u{1}\"}"] {
            assert_eq!(read(body.as_bytes()), Err(EntityError::Syntax), "{body}");
        }
    }

    #[test]
    fn keys_and_what_is_ignored() {
        let body =
            br#"{"odata.metadata":"x","odata.etag":"y","PartitionKey@odata.type":"Edm.String",
            "PartitionKey":"p","RowKey":"","RowKey@odata.type":"Edm.String","Timestamp":"never",
            "Timestamp@odata.type":"Edm.DateTime","gone":null,"gone@odata.type":"Edm.Byte",
            "nobody@odata.type":"Edm.Byte","x@odata.other":1,"x":1}"#;
        let entity = read(body).unwrap();
        assert_eq!(entity.partition.as_deref(), Some("p"));
        assert_eq!(entity.row.as_deref(), Some(""));
        assert!(!entity.foreign_key);
        let names: Vec<_> = entity.record.as_ref().iter().map(|p| p.unwrap().name).collect();
        assert_eq!(names, ["x"]);
        assert_eq!(entity.record.as_ref().timestamp(), Timestamp::default());

        let entity = read(br#"{"PartitionKey":null}"#).unwrap();
        assert_eq!((entity.partition, entity.row), (None, None));
        for body in [
            r#"{"PartitionKey":1}"#,
            r#"{"RowKey":true}"#,
            r#"{"PartitionKey":"2020-01-01T00:00:00Z","PartitionKey@odata.type":"Edm.DateTime"}"#,
        ] {
            assert!(read(body.as_bytes()).unwrap().foreign_key, "{body}");
        }
    }

    #[test]
    fn properties_that_are_refused() {
        let refused = |name: &str, error| Err(EntityError::Property { name: name.into(), error });
        let cases = [
            (r#"{"a":1,"b":2,"a":3}"#, refused("a", PropertyError::Duplicate)),
            (r#"{"a":null,"a":3}"#, refused("a", PropertyError::Duplicate)),
            (r#"{"a":1,"\u0061":3}"#, refused("a", PropertyError::Duplicate)),
            (
                r#"{"PartitionKey":"p","PartitionKey":"p"}"#,
                refused("PartitionKey", PropertyError::Duplicate),
            ),
            (
                r#"{"a":1,"a@odata.type":"Edm.Int32","a@odata.type":"Edm.Int32"}"#,
                refused("a", PropertyError::Duplicate),
            ),
            (r#"{"a-b":1}"#, refused("a-b", PropertyError::Name(NameError::Character('-')))),
            (
                r#"{"d":"0001-01-01T00:00:00Z","d@odata.type":"Edm.DateTime"}"#,
                Err(EntityError::DateOutOfRange { name: "d".into(), value: Timestamp::default() }),
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(read(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn limits_on_both_sides() {
        let too_many = |result: Result<EntityBody<'_>, EntityError>| {
            matches!(result, Err(EntityError::Property { error: PropertyError::TooMany, .. }))
        };
        let numbers = |count: usize| {
            let members: Vec<_> = (0..count)
                .map(|n| format!(r#""p{n}@odata.type":"Edm.Int64","p{n}":"{n}""#))
                .collect();
            format!(r#"{{"PartitionKey":"p","RowKey":"r",{}}}"#, members.join(","))
        };
        let body = numbers(limits::PROPERTIES_MAX);
        let most = read(body.as_bytes()).unwrap();
        assert_eq!(most.record.as_ref().len(), limits::PROPERTIES_MAX);
        assert_eq!(most.record.as_ref().get("p251").unwrap(), Some(ValueRef::Int64(251)));
        assert!(too_many(read(numbers(limits::PROPERTIES_MAX + 1).as_bytes())));

        let nulls = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!(r#""p{n}":null"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(read(nulls(limits::ENTITY_MEMBERS_MAX).as_bytes()).is_ok());
        assert!(too_many(read(nulls(limits::ENTITY_MEMBERS_MAX + 1).as_bytes())));

        let text = |units: usize| format!(r#"{{"s":"{}"}}"#, "x".repeat(units));
        assert!(read(text(limits::STRING_UTF16_UNITS_MAX).as_bytes()).is_ok());
        let error = read(text(limits::STRING_UTF16_UNITS_MAX + 1).as_bytes()).unwrap_err();
        let error_is = PropertyError::ValueTooLarge;
        assert_eq!(error, EntityError::Property { name: "s".into(), error: error_is });
    }
}

mod writing {
    use super::*;

    fn sample() -> Record {
        let guid = Guid::parse("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap();
        record(&[
            ("age", ValueRef::Int32(39)),
            ("ratio", ValueRef::Double(3.0)),
            ("born", ValueRef::DateTime(time("1973-10-04T00:00:00Z"))),
            ("id", ValueRef::Guid(guid)),
            ("n", ValueRef::Int64(255)),
        ])
    }

    const CUSTOM: &str = r#""age":39,"ratio":3.0,"born@odata.type":"Edm.DateTime","born":"1973-10-04T00:00:00Z","id@odata.type":"Edm.Guid","id":"c9da6455-213d-42c9-9a79-3e9149a57833","n@odata.type":"Edm.Int64","n":"255""#;
    const ETAG: &str = r#""odata.etag":"W/\"datetime'2022-05-06T00%3A34%3A41.820498Z'\"""#;

    #[test]
    fn one_entity_at_every_level() {
        let cases = [
            (
                Metadata::Minimal,
                format!(
                    r#"{{"odata.metadata":"{BASE}/$metadata#people/@Element",{ETAG},"PartitionKey":"p","RowKey":"r","Timestamp":"2022-05-06T00:34:41.820498Z",{CUSTOM}}}"#
                ),
            ),
            (
                Metadata::Full,
                format!(
                    r#"{{"odata.metadata":"{BASE}/$metadata#people/@Element","odata.type":"acct.people","odata.id":"{BASE}/people(PartitionKey='p',RowKey='r')",{ETAG},"odata.editLink":"people(PartitionKey='p',RowKey='r')","PartitionKey":"p","RowKey":"r","Timestamp@odata.type":"Edm.DateTime","Timestamp":"2022-05-06T00:34:41.820498Z",{CUSTOM}}}"#
                ),
            ),
            (
                Metadata::None,
                r#"{"PartitionKey":"p","RowKey":"r","Timestamp":"2022-05-06T00:34:41.820498Z","age":39,"ratio":3.0,"born":"1973-10-04T00:00:00Z","id":"c9da6455-213d-42c9-9a79-3e9149a57833","n":"255"}"#.to_owned(),
            ),
        ];
        for (level, expected) in cases {
            assert_eq!(one(&context(level, None), "p", "r", &sample()), expected);
        }
        let tag = Etag::new(time("2022-05-06T00:34:41.820498Z")).to_string().replace('"', "\\\"");
        assert_eq!(ETAG, format!("\"odata.etag\":\"{tag}\""));
    }

    #[test]
    fn pages() {
        let record = sample();
        let mut rows = Rows::new();
        let page = |rows: &Rows, level| {
            let mut out = Vec::new();
            write_page(&mut out, &context(level, None), None, rows.iter(), usize::MAX).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            page(&rows, Metadata::Minimal),
            format!(r#"{{"odata.metadata":"{BASE}/$metadata#people","value":[]}}"#)
        );
        assert_eq!(page(&rows, Metadata::None), r#"{"value":[]}"#);
        let mut out = Vec::new();
        let cx = context(Metadata::None, None);
        write_page(&mut out, &cx, Some(12), rows.iter(), usize::MAX).unwrap();
        assert_eq!(out, br#"{"odata.count":"12","value":[]}"#);
        for row in ["1", "2"] {
            rows.push(&Row { partition: "p", row, record: record.as_ref() });
        }
        let entity = |row: &str| {
            format!(
                r#"{{{ETAG},"PartitionKey":"p","RowKey":"{row}","Timestamp":"2022-05-06T00:34:41.820498Z",{CUSTOM}}}"#
            )
        };
        let expected = format!(
            r#"{{"odata.metadata":"{BASE}/$metadata#people","value":[{},{}]}}"#,
            entity("1"),
            entity("2")
        );
        assert_eq!(page(&rows, Metadata::Minimal), expected);
    }

    /// The largest pages of plain text are proved to fit, and what may be longer is not.
    #[test]
    fn what_fits() {
        let page = |text: &str, bytes: usize| {
            let record = record(&[("text", ValueRef::String(text))]);
            let mut rows = Rows::new();
            while rows.byte_len() < bytes {
                rows.push(&Row { partition: "p", row: "r", record: record.as_ref() });
            }
            rows
        };
        let cx = context(Metadata::Minimal, None);
        let (most, limit) = (limits::PAGE_BYTES_MAX, limits::PAGE_REPLY_BYTES_MAX);
        let plain = "tëxt \"in quotes\"\n".repeat(100);
        for (text, bytes, expected) in [
            (plain.as_str(), most, true),
            (&"\u{1}".repeat(1000), limit / 7, true),
            (&"\u{1}".repeat(1000), most, false),
        ] {
            assert_eq!(fits(&cx, None, &page(text, bytes), limit), expected, "{bytes}");
        }
    }

    #[test]
    fn a_corrupt_record_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        let record = sample();
        let good = Row { partition: "p", row: "r", record: record.as_ref() };
        let corrupt = rowhouse_types::Corrupt("test");
        let rows = [Ok(good), Err(corrupt), Ok(good)];
        let cx = context(Metadata::Minimal, None);
        assert_eq!(write_page(&mut out, &cx, None, rows.into_iter(), usize::MAX), Err(corrupt));
        assert_eq!(out, b"before");
    }

    #[test]
    fn selections() {
        let record = record(&[
            ("age", ValueRef::Int64(39)),
            ("sex", ValueRef::String("male")),
            ("other", ValueRef::Boolean(true)),
        ]);
        let cases = [
            (
                "age,sex,xyz",
                format!(
                    r#"{{"odata.metadata":"{BASE}/$metadata#people/@Element&$select=age,sex,xyz",{ETAG},"age@odata.type":"Edm.Int64","age":"39","sex":"male","xyz":null}}"#
                ),
            ),
            (
                "sex, RowKey, PartitionKey",
                format!(
                    r#"{{"odata.metadata":"{BASE}/$metadata#people/@Element&$select=sex,RowKey,PartitionKey",{ETAG},"PartitionKey":"p","RowKey":"r","sex":"male"}}"#
                ),
            ),
            (
                "Timestamp",
                format!(
                    r#"{{"odata.metadata":"{BASE}/$metadata#people/@Element&$select=Timestamp",{ETAG},"Timestamp":"2022-05-06T00:34:41.820498Z"}}"#
                ),
            ),
        ];
        for (text, expected) in cases {
            let select = Select::parse(text).unwrap();
            let cx = context(Metadata::Minimal, select.as_ref());
            assert_eq!(one(&cx, "p", "r", &record), expected);
        }
        let select = Select::parse("xyz").unwrap();
        let cx = context(Metadata::None, select.as_ref());
        assert_eq!(one(&cx, "p", "r", &record), r#"{"xyz":null}"#);
    }

    #[test]
    fn values_and_addresses() {
        let record = record(&[
            ("s", ValueRef::String("a\"\\\n\u{1}é😀")),
            ("nan", ValueRef::Double(f64::NAN)),
            ("inf", ValueRef::Double(f64::INFINITY)),
            ("low", ValueRef::Double(f64::NEG_INFINITY)),
            ("zero", ValueRef::Double(-0.0)),
            ("big", ValueRef::Double(1e20)),
            ("min", ValueRef::Int64(i64::MIN)),
            ("no", ValueRef::Boolean(false)),
            ("bin", ValueRef::Binary(b"\xff\xfe")),
            ("empty", ValueRef::Binary(b"")),
        ]);
        let custom = r#""s":"a\"\\\n\u0001é😀","nan@odata.type":"Edm.Double","nan":"NaN","inf@odata.type":"Edm.Double","inf":"Infinity","low@odata.type":"Edm.Double","low":"-Infinity","zero":0.0,"big":1E+20,"min@odata.type":"Edm.Int64","min":"-9223372036854775808","no":false,"bin@odata.type":"Edm.Binary","bin":"//4=","empty@odata.type":"Edm.Binary","empty":"""#;
        let full = one(&context(Metadata::Full, None), "A'aaa\"_bbbb2", "a b", &record);
        assert!(full.ends_with(&format!(",{custom}}}")), "{full}");
        let address = "people(PartitionKey='A''aaa%22_bbbb2',RowKey='a%20b')";
        assert!(full.contains(&format!(r#""odata.id":"{BASE}/{address}""#)), "{full}");
        assert!(full.contains(&format!(r#""odata.editLink":"{address}""#)), "{full}");
        assert!(full.contains(r#""PartitionKey":"A'aaa\"_bbbb2","RowKey":"a b""#), "{full}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(|text| Value::String(text.into())),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f64>().prop_map(|value| Value::Double(value + 0.0)),
        any::<i32>().prop_map(|value| Value::Double(value.into())),
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)]
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        (Timestamp::EDM_MIN.ticks()..=Timestamp::MAX.ticks())
            .prop_map(|ticks| Value::DateTime(Timestamp::from_ticks(ticks).unwrap())),
        any::<[u8; 16]>().prop_map(|bytes| Value::Guid(Guid(bytes))),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Binary(bytes.into())),
    ]
}

fn level() -> impl Strategy<Value = Metadata> {
    prop_oneof![Just(Metadata::None), Just(Metadata::Minimal), Just(Metadata::Full)]
}

/// Everything, or some of what is there, of what is not, and of keys.
fn select() -> impl Strategy<Value = Option<Select>> {
    let name = "[a-c\"é]{1,2}|PartitionKey|RowKey|Timestamp|missing";
    prop_oneof![
        Just(None),
        vec(name, 1..30).prop_map(|names| Select::parse(&names.join(",")).unwrap()),
    ]
}

/// A page of few entities, their keys and texts full of what has to be escaped.
fn rows() -> impl Strategy<Value = Rows> {
    let key = "[a-c'\"%é😀 \\\\]{0,6}";
    let text = "[\0-\x1F\"\\\\a-cé😀]{0,20}".prop_map(|text: String| Value::String(text.into()));
    let properties = btree_map("[a-cé]{1,2}", prop_oneof![3 => value(), 2 => text], 0..5);
    let ticks = 0..=Timestamp::MAX.ticks();
    vec((key, key, properties, ticks), 0..8).prop_map(|entities| {
        let mut rows = Rows::new();
        for (partition, row, properties, ticks) in entities {
            let borrowed: Vec<_> = properties.iter().map(|(n, v)| (&**n, v.as_ref())).collect();
            let mut record = record(&borrowed);
            record.stamp(Timestamp::from_ticks(ticks).unwrap());
            rows.push(&Row { partition: &partition, row: &row, record: record.as_ref() });
        }
        rows
    })
}

/// One NaN is as good as another.
fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (ValueRef::Double(a), ValueRef::Double(b)) if a.is_nan() => b.is_nan(),
        (ValueRef::Double(a), ValueRef::Double(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// Nothing but the entity, and a type wherever another program might lose it.
#[test]
fn plain_entities() {
    let record = record(&[
        ("D", ValueRef::Double(1.0)),
        ("I", ValueRef::Int32(1)),
        ("L", ValueRef::Int64(1)),
        ("S", ValueRef::String("")),
    ]);
    let row = Row { partition: "p", row: "r", record: record.as_ref() };
    let members =
        r#""D@odata.type":"Edm.Double","D":1.0,"I":1,"L@odata.type":"Edm.Int64","L":"1","S":""}"#;
    let time =
        r#""Timestamp@odata.type":"Edm.DateTime","Timestamp":"2022-05-06T00:34:41.820498Z","#;
    for (timestamp, time) in [(false, ""), (true, time)] {
        let mut out = Vec::new();
        write_plain(&mut out, &row, timestamp).unwrap();
        let expected = format!(r#"{{"PartitionKey":"p","RowKey":"r",{time}{members}"#);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        properties in btree_map("[a-zé_]{1,3}", value(), 0..12)
            .prop_map(|map| map.into_iter().collect::<Vec<_>>())
            .prop_shuffle(),
        partition in any::<String>(),
        row in any::<String>(),
        full in any::<bool>(),
    ) {
        let borrowed: Vec<_> = properties.iter().map(|(n, v)| (&**n, v.as_ref())).collect();
        let record = record(&borrowed);
        let cx = context(if full { Metadata::Full } else { Metadata::Minimal }, None);
        let first = one(&cx, &partition, &row, &record);
        let mut entity = read(first.as_bytes()).unwrap();
        prop_assert_eq!(entity.partition.as_deref(), Some(&*partition));
        prop_assert_eq!(entity.row.as_deref(), Some(&*row));
        prop_assert_eq!(entity.record.as_ref().len(), properties.len());
        for (found, (name, value)) in entity.record.as_ref().iter().zip(&properties) {
            let found = found.unwrap();
            prop_assert_eq!(found.name, name);
            prop_assert!(same(found.value, value.as_ref()), "{:?} {:?}", found, value);
        }
        entity.record.stamp(record.as_ref().timestamp());
        prop_assert_eq!(&one(&cx, &partition, &row, &entity.record), &first);
        let mut plain = Vec::new();
        let whole = Row { partition: &partition, row: &row, record: entity.record.as_ref() };
        write_plain(&mut plain, &whole, true).unwrap();
        let mut again = read(&plain).unwrap().record;
        again.stamp(record.as_ref().timestamp());
        prop_assert_eq!(&one(&cx, &partition, &row, &again), &first);
    }

    /// Whatever is asked for and however small they are, the pieces are the page.
    #[test]
    fn pieces_join_to_the_page(
        rows in rows(),
        level in level(),
        select in select(),
        count in any::<Option<u64>>(),
        limit in prop_oneof![0_usize..200, Just(1 << 20)],
    ) {
        let cx = context(level, select.as_ref());
        let mut whole = Vec::new();
        write_page(&mut whole, &cx, count, rows.iter(), usize::MAX).unwrap();
        let mut page = PageWriter::new(&cx, count, rows);
        let mut joined = Vec::new();
        while !page.is_ended() {
            let piece = page.piece(limit).unwrap();
            prop_assert!(!piece.is_empty());
            joined.extend(piece);
        }
        prop_assert!(page.piece(limit).unwrap().is_empty());
        prop_assert_eq!(String::from_utf8(joined), String::from_utf8(whole));
    }

    #[test]
    fn what_fits_is_not_longer(
        rows in rows(),
        level in level(),
        select in select(),
        count in any::<Option<u64>>(),
    ) {
        let cx = context(level, select.as_ref());
        let mut whole = Vec::new();
        write_page(&mut whole, &cx, count, rows.iter(), usize::MAX).unwrap();
        prop_assert!(!fits(&cx, count, &rows, whole.len() - 1));
        prop_assert!(fits(&cx, count, &rows, whole.len() * 16));
        prop_assert!(whole.len() <= most_bytes(&cx, count, &rows).unwrap());
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..80)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_members_are_answered(
        body in r#"\{(,?"(a|b|PartitionKey|Timestamp)(@odata.type)?":("Edm.(Int64|Guid|Binary|Double|DateTime)"|"[-0-9a-zA-Z:.+/=]{0,12}"|[-0-9.eE]{1,6}|null|true)){0,6}\}"#,
    ) {
        let _ = read(body.as_bytes());
    }
}
