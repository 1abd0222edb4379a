//! Properties as the database has them: one JSON object `{"name": ["type", value]}`.
//!
//! A value keeps its type by a letter, so that an Int64 and a Double of the same number come back as what they
//! were. What JSON numbers and PostgreSQL's text cannot hold is written as text: NaN with its bits, infinities,
//! the negative zero, and U+0000 inside of strings by an escape that keeps their order. The order of the
//! properties is not in the object; it stands beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{BufMut, BytesMut};
use rowhouse_types::{
    Corrupt, EdmType, Guid, Record, RecordBuilder, RecordRef, Timestamp, ValueRef,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// The text of a JSON object, as a parameter and as a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Jsonb(pub(crate) Vec<u8>);

impl Jsonb {
    /// No properties.
    pub(crate) fn empty() -> Self {
        Self(b"{}".to_vec())
    }
}

impl ToSql for Jsonb {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.put_u8(1);
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}

/// A column of the type, not copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonbRef<'a>(&'a str);

impl<'a> tokio_postgres::types::FromSql<'a> for JsonbRef<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let (&version, text) = raw.split_first().ok_or("an empty jsonb")?;
        if version != 1 {
            return Err("an unknown version of jsonb".into());
        }
        Ok(Self(std::str::from_utf8(text)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// The letter that stands for a type.
pub(crate) const fn letter(edm_type: EdmType) -> &'static str {
    match edm_type {
        EdmType::String => "s",
        EdmType::Int32 => "i",
        EdmType::Int64 => "l",
        EdmType::Double => "d",
        EdmType::Boolean => "b",
        EdmType::DateTime => "t",
        EdmType::Guid => "g",
        EdmType::Binary => "x",
    }
}

/// A record without its Timestamp.
pub(crate) fn encode(record: RecordRef<'_>) -> Result<Jsonb, Corrupt> {
    let mut out = Vec::with_capacity(2 * record.as_bytes().len());
    out.push(b'{');
    for (index, property) in record.iter().enumerate() {
        let property = property?;
        if index > 0 {
            out.push(b',');
        }
        push_text(&mut out, property.name);
        out.extend_from_slice(b":[\"");
        out.extend_from_slice(letter(property.value.edm_type()).as_bytes());
        out.extend_from_slice(b"\",");
        push_value(&mut out, property.value);
        out.push(b']');
    }
    out.push(b'}');
    Ok(Jsonb(out))
}

/// The names of a record's properties, in its order.
pub(crate) fn names(record: RecordRef<'_>) -> Result<Vec<&str>, Corrupt> {
    record.iter().map(|property| Ok(property?.name)).collect()
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text can be written to memory");
}

fn push_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::String(text) => push_text(out, &escaped(text)),
        ValueRef::Int32(n) => out.extend_from_slice(n.to_string().as_bytes()),
        ValueRef::Int64(n) => out.extend_from_slice(n.to_string().as_bytes()),
        ValueRef::Double(n) => push_double(out, n),
        ValueRef::Boolean(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        ValueRef::DateTime(t) => out.extend_from_slice(t.ticks().to_string().as_bytes()),
        ValueRef::Guid(g) => push_text(out, &g.to_string()),
        ValueRef::Binary(bytes) => push_text(out, &BASE64.encode(bytes)),
    }
}

fn push_double(out: &mut Vec<u8>, n: f64) {
    if n.is_nan() {
        push_text(out, &format!("NaN:{:016x}", n.to_bits()));
    } else if n.is_infinite() {
        push_text(out, if n > 0.0 { "Infinity" } else { "-Infinity" });
    } else if n == 0.0 && n.is_sign_negative() {
        push_text(out, "-0");
    } else {
        out.extend_from_slice(ryu::Buffer::new().format_finite(n).as_bytes());
    }
}

/// U+0000 becomes U+0001 U+0001 and U+0001 becomes U+0001 U+0002: the order of texts stays as it was.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte <= 1) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.push_str("\u{1}\u{1}"),
            '\u{1}' => out.push_str("\u{1}\u{2}"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

pub(crate) fn unescaped(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if !text.contains('\u{1}') {
        return Some(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\u{1}' => match chars.next()? {
                '\u{1}' => '\0',
                '\u{2}' => '\u{1}',
                _ => return None,
            },
            c => c,
        });
    }
    Some(Cow::Owned(out))
}

/// One value as it stands in the object.
#[derive(Deserialize)]
struct Stored<'a>(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] &'a RawValue);

/// The object as it stands: names and values in the order of the database, without those that were taken.
struct Object<'a>(Vec<(Cow<'a, str>, Option<Stored<'a>>)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of properties")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    entries.push((name, Some(map.next_value()?)));
                }
                Ok(Object(entries))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// A text that is borrowed where it can be.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// The value of that name, once. The database sorts names by length, then by bytes.
    fn take(&mut self, name: &str) -> Option<Stored<'a>> {
        let order = |entry: &(Cow<'a, str>, Option<Stored<'a>>)| {
            entry.0.len().cmp(&name.len()).then_with(|| (*entry.0).cmp(name))
        };
        let at = self.0.binary_search_by(order).ok()?;
        self.0[at].1.take()
    }
}

const PROPS: Corrupt = Corrupt("the properties are not an object of typed values");

fn timestamp(ts: i64) -> Result<Timestamp, Corrupt> {
    let ticks = u64::try_from(ts).ok().and_then(Timestamp::from_ticks);
    ticks.ok_or(Corrupt("Timestamp out of range"))
}

/// A record of some of the properties: those of these names that have a value.
pub(crate) fn decode_some(
    ts: i64,
    names: &[&str],
    values: &[Option<JsonbRef<'_>>],
) -> Result<Record, Corrupt> {
    let timestamp = timestamp(ts)?;
    if values.len() < names.len() {
        return Err(Corrupt("names and values do not agree"));
    }
    let mut builder = RecordBuilder::new();
    for (name, value) in names.iter().zip(values) {
        if let Some(JsonbRef(value)) = value {
            push_stored(&mut builder, name, &serde_json::from_str(value).map_err(|_| PROPS)?)?;
        }
    }
    Ok(builder.finish(timestamp))
}

/// A record from its columns.
pub(crate) fn decode(ts: i64, names: &[&str], props: JsonbRef<'_>) -> Result<Record, Corrupt> {
    let timestamp = timestamp(ts)?;
    let mut object: Object<'_> = serde_json::from_str(props.0).map_err(|_| PROPS)?;
    if object.0.len() != names.len() {
        return Err(Corrupt("names and properties do not agree"));
    }
    let name_bytes = names.iter().map(|name| name.len()).sum();
    let mut builder = RecordBuilder::with_room(names.len(), name_bytes, props.0.len());
    for name in names {
        let stored = object.take(name).ok_or(Corrupt("names and properties do not agree"))?;
        push_stored(&mut builder, name, &stored)?;
    }
    Ok(builder.finish(timestamp))
}

fn push_stored(
    builder: &mut RecordBuilder,
    name: &str,
    Stored(letter, raw): &Stored<'_>,
) -> Result<(), Corrupt> {
    const VALUE: Corrupt = Corrupt("a value does not fit its type");
    let raw = raw.get();
    let text = || serde_json::from_str::<Name<'_>>(raw).map(|name| name.0).map_err(|_| VALUE);
    let (string, bytes);
    let value = match &**letter {
        "s" => {
            string = unescaped(text()?).ok_or(VALUE)?;
            ValueRef::String(&string)
        }
        "i" => ValueRef::Int32(raw.parse().map_err(|_| VALUE)?),
        "l" => ValueRef::Int64(raw.parse().map_err(|_| VALUE)?),
        "d" if raw.starts_with('"') => ValueRef::Double(special(&text()?).ok_or(VALUE)?),
        "d" => ValueRef::Double(raw.parse().map_err(|_| VALUE)?),
        "b" => ValueRef::Boolean(raw.parse().map_err(|_| VALUE)?),
        "t" => {
            let ticks = raw.parse().ok().and_then(Timestamp::from_ticks);
            ValueRef::DateTime(ticks.ok_or(VALUE)?)
        }
        "g" => ValueRef::Guid(Guid::parse(&text()?).ok_or(VALUE)?),
        "x" => {
            bytes = BASE64.decode(&*text()?).map_err(|_| VALUE)?;
            ValueRef::Binary(&bytes)
        }
        _ => return Err(Corrupt("unknown type of a property")),
    };
    builder.push_distinct(name, value).map_err(|_| VALUE)
}

/// A Double that is no JSON number.
fn special(text: &str) -> Option<f64> {
    match text {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "-0" => Some(-0.0),
        text => {
            let bits = u64::from_str_radix(text.strip_prefix("NaN:")?, 16).ok()?;
            Some(f64::from_bits(bits)).filter(|n| n.is_nan())
        }
    }
}

/// An upper bound of the entity's size by the published formula: cheap, and enough for small ones.
pub(crate) fn size_bound(key_bytes: usize, record: RecordRef<'_>) -> i32 {
    let bound = 4 + 2 * key_bytes + 12 * record.len() + 2 * record.as_bytes().len();
    i32::try_from(bound).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use rowhouse_types::Value;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c_]{1,3}", "[a-zé名][a-z0-9é名\u{301}]{0,8}"]
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[\u{0}-\u{3}a]{0,6}", "[\"\\\\/u0]{0,6}"]
    }

    fn value() -> impl Strategy<Value = Value> {
        let ticks = Timestamp::EDM_MIN.ticks()..=Timestamp::MAX.ticks();
        prop_oneof![
            text().prop_map(|text| Value::String(text.into())),
            any::<i32>().prop_map(Value::Int32),
            any::<i64>().prop_map(Value::Int64),
            any::<u64>().prop_map(|bits| Value::Double(f64::from_bits(bits))),
            prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
                .prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
            ticks.prop_map(|n| Value::DateTime(Timestamp::from_ticks(n).unwrap())),
            any::<[u8; 16]>().prop_map(|bytes| Value::Guid(Guid(bytes))),
            vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Binary(bytes.into())),
        ]
    }

    /// In an order of names that is none of the database's.
    fn record() -> impl Strategy<Value = Record> {
        let properties = btree_map(name(), value(), 0..12).prop_flat_map(|properties| {
            Just(properties.into_iter().collect::<Vec<_>>()).prop_shuffle()
        });
        (properties, 0..=Timestamp::MAX.ticks()).prop_map(|(properties, ticks)| {
            let mut builder = RecordBuilder::new();
            for (name, value) in &properties {
                builder.push(name, value.as_ref()).unwrap();
            }
            builder.finish(Timestamp::from_ticks(ticks).unwrap())
        })
    }

    /// The text of a stored object: names sorted by length, then by bytes, and a space after each comma and colon.
    fn stored(Jsonb(text): &Jsonb) -> String {
        let object: Object<'_> = serde_json::from_slice(text).unwrap();
        let mut entries = object.0;
        entries.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        let entries: Vec<_> = entries
            .iter()
            .map(|(name, value)| {
                let Stored(letter, value) = value.as_ref().unwrap();
                format!("{}: [\"{letter}\", {}]", serde_json::to_string(name).unwrap(), value.get())
            })
            .collect();
        format!("{{{}}}", entries.join(", "))
    }

    fn decoded(ts: i64, names: &[&str], text: &str) -> Result<Record, Corrupt> {
        decode(ts, names, JsonbRef(text))
    }

    /// Pieces of stored objects, whole and broken.
    fn nearly_stored() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"b\"",
            "\"s\"",
            "\"i\"",
            "\"d\"",
            "\"x\"",
            "\"g\"",
            "1",
            "-1",
            "1e999",
            "99999999999",
            "0.5",
            "\"NaN:7ff8000000000000\"",
            "\"NaN:0\"",
            "\"\\u0001\"",
            "null",
            "true",
            "\"a\": [\"i\", 1]",
            "\"b\": [\"s\", \"\"]",
            "\"a\": [\"t\", 0]",
            " ",
        ]);
        vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn records_come_back(record in record()) {
            let text = stored(&encode(record.as_ref()).unwrap());
            let names = names(record.as_ref()).unwrap();
            let ts = i64::try_from(record.as_ref().timestamp().ticks()).unwrap();
            prop_assert_eq!(decoded(ts, &names, &text).unwrap(), record);
        }

        #[test]
        fn escapes_keep_texts_and_their_order(a in text(), b in text()) {
            prop_assert!(!escaped(&a).contains('\0'));
            let back = unescaped(escaped(&a));
            prop_assert_eq!(back.as_deref(), Some(&*a));
            prop_assert_eq!(escaped(&a).cmp(&escaped(&b)), a.cmp(&b));
        }

        #[test]
        fn any_text_is_a_record_or_corrupt(
            ts in any::<i64>(),
            names in vec("[ab]{0,2}", 0..3),
            text in prop_oneof![nearly_stored(), any::<String>()],
        ) {
            let names: Vec<_> = names.iter().map(|name| &**name).collect();
            let _ = decoded(ts, &names, &text);
            let _ = decoded(0, &names, &text);
        }

        /// A part of a stored object, or one with a character changed.
        #[test]
        fn damaged_objects_do_no_harm(
            record in record(),
            at in any::<prop::sample::Index>(),
            other in any::<char>(),
        ) {
            let text = stored(&encode(record.as_ref()).unwrap());
            let names = names(record.as_ref()).unwrap();
            let mut chars: Vec<_> = text.chars().collect();
            let at = at.index(chars.len());
            let _ = decoded(0, &names, &chars[..at].iter().collect::<String>());
            chars[at] = other;
            let _ = decoded(0, &names, &chars.into_iter().collect::<String>());
        }
    }

    #[test]
    fn names_and_properties_that_do_not_agree_are_corrupt() {
        let two = r#"{"a": ["i", 1], "b": ["i", 2]}"#;
        assert!(decoded(0, &["b", "a"], two).is_ok());
        for names in [&["a"][..], &["a", "c"], &["a", "a"], &["a", "b", "c"], &[]] {
            assert!(decoded(0, names, two).is_err(), "{names:?}");
        }
        for ts in [-1, i64::MIN, i64::MAX] {
            assert!(decoded(ts, &["a", "b"], two).is_err(), "{ts}");
        }
    }

    #[test]
    fn values_that_do_not_fit_their_type_are_corrupt() {
        let values = [
            r#""i", 2147483648"#,
            r#""i", 1.5"#,
            r#""l", 9223372036854775808"#,
            r#""l", "1""#,
            r#""d", "1""#,
            r#""d", "NaN:0""#,
            r#""d", true"#,
            r#""b", 1"#,
            r#""b", "true""#,
            r#""t", -1"#,
            r#""t", 1"#,
            r#""t", 3155378976000000000"#,
            r#""g", "0""#,
            r#""x", "?""#,
            r#""x", "A""#,
            r#""s", 1"#,
            r#""s", "\u0001""#,
            r#""s", "\u0001\u0003""#,
            r#""q", 1"#,
            r#""", 1"#,
            r#""i""#,
            r#""i", 1, 2"#,
            "1, 2",
        ];
        for value in values {
            assert!(decoded(0, &["a"], &format!(r#"{{"a": [{value}]}}"#)).is_err(), "{value}");
        }
    }
}
