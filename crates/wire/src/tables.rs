//! Tables as JSON: the body of Create Table, and lists of names.

use crate::json::reader::{Malformed, Reader, Scalar};
use crate::json::writer::{self, Object};
use crate::media::Metadata;
use crate::uri;

/// The body is not a flat JSON object with at most one `TableName`, a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is malformed")]
pub struct TableBodyError;

impl From<Malformed> for TableBodyError {
    fn from(_: Malformed) -> Self {
        Self
    }
}

/// Reads the body of Create Table: the name, unchecked, if there and not null. Other members are ignored.
pub fn read_create(body: &[u8]) -> Result<Option<String>, TableBodyError> {
    let mut reader = Reader::new(body)?;
    let mut found = None;
    while let Some((name, value)) = reader.member()? {
        if reader.resolve(&name) == "TableName" && found.replace(value).is_some() {
            return Err(TableBodyError);
        }
    }
    match found {
        None | Some(Scalar::Null) => Ok(None),
        Some(Scalar::Text(text)) => Ok(Some(reader.resolve(&text).to_owned())),
        Some(Scalar::Number(_) | Scalar::Bool(_)) => Err(TableBodyError),
    }
}

/// Writes a list of tables as the whole answer.
pub fn write_list<'n>(
    out: &mut Vec<u8>,
    base: &str,
    account: &str,
    level: Metadata,
    names: impl Iterator<Item = &'n str>,
) {
    let mut list = Object::open(out);
    write_metadata(&mut list, base, level, "");
    list.name("value", "");
    list.out.push(b'[');
    for (index, name) in names.enumerate() {
        if index > 0 {
            list.out.push(b',');
        }
        let mut object = Object::open(list.out);
        write_members(&mut object, base, account, level, name);
        object.close();
    }
    list.out.push(b']');
    list.close();
}

/// Writes one table as the whole answer.
pub fn write_one(out: &mut Vec<u8>, base: &str, account: &str, level: Metadata, name: &str) {
    let mut object = Object::open(out);
    write_metadata(&mut object, base, level, "/@Element");
    write_members(&mut object, base, account, level, name);
    object.close();
}

fn write_metadata(object: &mut Object<'_>, base: &str, level: Metadata, suffix: &str) {
    if level != Metadata::None {
        object.name("odata.metadata", "");
        object.out.push(b'"');
        writer::escaped(object.out, base);
        object.out.extend_from_slice(b"/$metadata#Tables");
        object.out.extend_from_slice(suffix.as_bytes());
        object.out.push(b'"');
    }
}

fn write_members(object: &mut Object<'_>, base: &str, account: &str, level: Metadata, name: &str) {
    if level == Metadata::Full {
        let path = uri::table_path(name);
        object.text("odata.type", &format!("{account}.Tables"));
        object.text("odata.id", &format!("{base}/{path}"));
        object.text("odata.editLink", &path);
    }
    object.text("TableName", name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: &str = "https://acct.table.example.net";

    #[test]
    fn bodies_of_create_table() {
        let cases: &[(&str, Result<Option<&str>, TableBodyError>)] = &[
            (r#"{"TableName":"people"}"#, Ok(Some("people"))),
            (r#"{"odata.type":"x","Other":1,"TableName":"p\u0061"}"#, Ok(Some("pa"))),
            (r#"{"TableName":""}"#, Ok(Some(""))),
            (r#"{"TableName":null}"#, Ok(None)),
            ("{}", Ok(None)),
            ("", Err(TableBodyError)),
            (r#"{"TableName":1}"#, Err(TableBodyError)),
            (r#"{"TableName":"a","TableName":"b"}"#, Err(TableBodyError)),
            (r#"{"TableName":"a"} x"#, Err(TableBodyError)),
        ];
        for (body, expected) in cases {
            let found = read_create(body.as_bytes());
            assert_eq!(found.as_ref().map(Option::as_deref), expected.as_ref().copied(), "{body}");
        }
    }

    fn list(level: Metadata, names: &[&str]) -> String {
        let mut out = Vec::new();
        write_list(&mut out, BASE, "acct", level, names.iter().copied());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lists_at_every_level() {
        assert_eq!(
            list(Metadata::Minimal, &["apples", "pears"]),
            r#"{"odata.metadata":"https://acct.table.example.net/$metadata#Tables","value":[{"TableName":"apples"},{"TableName":"pears"}]}"#
        );
        assert_eq!(list(Metadata::None, &["apples"]), r#"{"value":[{"TableName":"apples"}]}"#);
        assert_eq!(list(Metadata::None, &[]), r#"{"value":[]}"#);
        assert_eq!(
            list(Metadata::Full, &["apples"]),
            r#"{"odata.metadata":"https://acct.table.example.net/$metadata#Tables","value":[{"odata.type":"acct.Tables","odata.id":"https://acct.table.example.net/Tables('apples')","odata.editLink":"Tables('apples')","TableName":"apples"}]}"#
        );
    }

    #[test]
    fn one_table_at_every_level() {
        let cases = [
            (Metadata::None, r#"{"TableName":"people"}"#),
            (
                Metadata::Minimal,
                r#"{"odata.metadata":"https://acct.table.example.net/$metadata#Tables/@Element","TableName":"people"}"#,
            ),
            (
                Metadata::Full,
                r#"{"odata.metadata":"https://acct.table.example.net/$metadata#Tables/@Element","odata.type":"acct.Tables","odata.id":"https://acct.table.example.net/Tables('people')","odata.editLink":"Tables('people')","TableName":"people"}"#,
            ),
        ];
        for (level, expected) in cases {
            let mut out = Vec::new();
            write_one(&mut out, BASE, "acct", level, "people");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_create(&bytes);
        }
    }
}
