//! What a path names.

use super::decode;
use memchr::{memchr, memchr2};

/// What the path of a request names, below the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The service itself.
    Service,
    /// The collection of tables.
    Tables,
    /// One table, as a member of the collection.
    Table(String),
    /// The address of entity group transactions.
    Batch,
    /// The entities of a table.
    Entities(String),
    /// Something below a table, of which there is nothing. Writes go by the table, as Azure's do.
    Below(String),
    /// How many entities a table has. Ours, not the original's: `docs/extensions.md`.
    Count(String),
    /// One entity.
    Entity {
        /// Name of its table.
        table: String,
        /// Its PartitionKey.
        partition: String,
        /// Its RowKey.
        row: String,
    },
}

/// Why a path names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// It is in none of the forms, or not decodable.
    #[error("the path is malformed")]
    Syntax,
    /// More or fewer keys than the resource has.
    #[error("the number of keys does not match the resource")]
    KeyCount {
        /// The resource.
        table: String,
    },
    /// A key holds a slash or a backslash.
    #[error("a key holds a slash")]
    SlashInKey,
}

/// Parses a path below the account, still encoded; empty or starting with `/`.
pub fn parse_resource(raw_path: &str) -> Result<Resource, ResourceError> {
    let path = decode(raw_path).map_err(|_| ResourceError::Syntax)?;
    let path = match path.strip_prefix('/') {
        None if path.is_empty() => return Ok(Resource::Service),
        None => return Err(ResourceError::Syntax),
        Some("") => return Ok(Resource::Service),
        Some("$batch" | "$batch/") => return Ok(Resource::Batch),
        Some(rest) => rest,
    };
    if let Some(name) = path.strip_suffix("()/$count")
        && !name.contains(['/', '('])
        && !name.is_empty()
    {
        return Ok(Resource::Count(name.to_owned()));
    }
    // A client that was given the address of a table as that of the service appends a second segment. Azure goes by the
    // first when it writes. Slashes alone are nothing below: the SDK sends `a//` for a table of that name, and Azure refuses
    // the name.
    let (path, below) = match path.split_once('/') {
        Some((first, rest)) if !first.contains('(') => (first, !rest.chars().all(|c| c == '/')),
        _ => (path, false),
    };
    let (name, predicate) = match path.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').ok_or(ResourceError::Syntax)?),
        None => (path, ""),
    };
    if name.is_empty() {
        return Err(ResourceError::Syntax);
    }
    let is_tables = name == "Tables";
    let keys = parse_keys(predicate, name)?;
    let resource = match keys {
        Keys::None if is_tables => Resource::Tables,
        Keys::None if below => Resource::Below(name.to_owned()),
        Keys::None => Resource::Entities(name.to_owned()),
        Keys::One(table) if is_tables => Resource::Table(table),
        Keys::Two(..) if is_tables => return Err(key_count(name)),
        Keys::One(_) => return Err(key_count(name)),
        Keys::Two(partition, row) => Resource::Entity { table: name.to_owned(), partition, row },
    };
    Ok(resource)
}

enum Keys {
    None,
    One(String),
    /// PartitionKey and RowKey.
    Two(String, String),
}

fn key_count(table: &str) -> ResourceError {
    ResourceError::KeyCount { table: table.to_owned() }
}

/// Parses what stands between the parentheses: nothing, one literal, or `Name='literal'` with commas.
fn parse_keys(predicate: &str, resource: &str) -> Result<Keys, ResourceError> {
    if predicate.is_empty() {
        return Ok(Keys::None);
    }
    let (mut partition, mut row, mut other) = (None, None, None);
    let mut rest = predicate;
    let mut count = 0;
    loop {
        let (name, quoted) = split_at_quote(rest)?;
        let (value, tail) = literal(quoted)?;
        let slot = match name {
            "PartitionKey=" => &mut partition,
            "RowKey=" => &mut row,
            "" | "TableName=" => &mut other,
            _ => return Err(ResourceError::Syntax),
        };
        count += 1;
        if slot.replace(value).is_some() || count > 2 {
            return Err(key_count(resource));
        }
        if tail.is_empty() {
            break;
        }
        rest = tail.strip_prefix(',').ok_or(ResourceError::Syntax)?.trim_start();
    }
    let keys = match (partition, row, other) {
        (Some(partition), Some(row), None) => Keys::Two(partition, row),
        (None, None, Some(value)) => Keys::One(value),
        _ => return Err(key_count(resource)),
    };
    let slash = |text: &String| memchr2(b'/', b'\\', text.as_bytes()).is_some();
    match &keys {
        Keys::Two(partition, row) if slash(partition) || slash(row) => {
            Err(ResourceError::SlashInKey)
        }
        Keys::One(value) if slash(value) => Err(ResourceError::SlashInKey),
        _ => Ok(keys),
    }
}

/// Reads a literal up to its closing quote and un-doubles the quotes inside; returns what follows too.
fn literal(text: &str) -> Result<(String, &str), ResourceError> {
    let (first, mut rest) = split_at_quote(text)?;
    let mut value = first.to_owned();
    while let Some(tail) = rest.strip_prefix('\'') {
        let (piece, tail) = split_at_quote(tail)?;
        value.push('\'');
        value.push_str(piece);
        rest = tail;
    }
    Ok((value, rest))
}

/// What stands before the next quote, and what after it.
fn split_at_quote(text: &str) -> Result<(&str, &str), ResourceError> {
    let quote = memchr(b'\'', text.as_bytes()).ok_or(ResourceError::Syntax)?;
    Ok((&text[..quote], &text[quote + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri::{entity_path, table_path};
    use proptest::prelude::*;

    fn entity(table: &str, partition: &str, row: &str) -> Resource {
        let (table, partition, row) = (table.to_owned(), partition.to_owned(), row.to_owned());
        Resource::Entity { table, partition, row }
    }

    #[test]
    fn forms_of_a_path() {
        let cases = [
            ("", Resource::Service),
            ("/", Resource::Service),
            ("/Tables", Resource::Tables),
            ("/Tables()", Resource::Tables),
            ("/Tables('people')", Resource::Table("people".into())),
            ("/Tables(%27people%27)", Resource::Table("people".into())),
            ("/$batch", Resource::Batch),
            ("/%24batch", Resource::Batch),
            ("/$batch/", Resource::Batch),
            ("/people", Resource::Entities("people".into())),
            ("/people()", Resource::Entities("people".into())),
            ("/people/", Resource::Entities("people".into())),
            ("/people//", Resource::Entities("people".into())),
            ("/people/people", Resource::Below("people".into())),
            ("/people/Tables('x')", Resource::Below("people".into())),
            ("/people//(PartitionKey='a',RowKey='b')", Resource::Below("people".into())),
            ("/tables", Resource::Entities("tables".into())),
            ("/$MetricsHour", Resource::Entities("$MetricsHour".into())),
            ("/t(PartitionKey='p',RowKey='r')", entity("t", "p", "r")),
            ("/t(PartitionKey='p',%20RowKey='r')", entity("t", "p", "r")),
            ("/t(RowKey='r',PartitionKey='p')", entity("t", "p", "r")),
            ("/t(PartitionKey='',RowKey='')", entity("t", "", "")),
            ("/t(PartitionKey='O''Brien',RowKey='''')", entity("t", "O'Brien", "'")),
            ("/t(PartitionKey='A%27%27aaa%22_b',RowKey='a+b')", entity("t", "A'aaa\"_b", "a+b")),
            ("/t(PartitionKey='a%2525b',RowKey='%C3%A9')", entity("t", "a%25b", "é")),
            ("/t(PartitionKey='),(',RowKey=''',RowKey=''')", entity("t", "),(", "',RowKey='")),
        ];
        for (path, expected) in cases {
            assert_eq!(parse_resource(path), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_names_nothing() {
        use ResourceError::{KeyCount, SlashInKey, Syntax};
        let cases = [
            ("people", Syntax),
            ("/()/$count", Syntax),
            ("/t()/$count/x", Syntax),
            ("/t(PartitionKey='a',RowKey='b')/$count", Syntax),
            ("//people", Syntax),
            ("/('x')/x", Syntax),
            ("/('x')", Syntax),
            ("/t(", Syntax),
            ("/t)x(", Syntax),
            ("/t(PartitionKey='a',RowKey='b'", Syntax),
            ("/t(PartitionKey='a',RowKey='b')x", Syntax),
            ("/t(PartitionKey='a'RowKey='b')", Syntax),
            ("/t(PartitionKey='O'Brien',RowKey='b')", Syntax),
            ("/t(PartitionKey='a',RowKey=1)", Syntax),
            ("/t(PartitionKey='a',Other='b')", Syntax),
            ("/t(PartitionKey='a',)", Syntax),
            ("/t(PartitionKey=%zz,RowKey='b')", Syntax),
            ("/t(PartitionKey='a')", KeyCount { table: "t".into() }),
            ("/t('a')", KeyCount { table: "t".into() }),
            ("/t('a','b')", KeyCount { table: "t".into() }),
            ("/t(PartitionKey='a',PartitionKey='b')", KeyCount { table: "t".into() }),
            ("/t(PartitionKey='a',RowKey='b',RowKey='c')", KeyCount { table: "t".into() }),
            ("/Tables(PartitionKey='a',RowKey='b')", KeyCount { table: "Tables".into() }),
            ("/t(PartitionKey='a%2Fb',RowKey='')", SlashInKey),
            ("/t(PartitionKey='',RowKey='a%5Cb')", SlashInKey),
            ("/t(PartitionKey='a/b',RowKey='')", SlashInKey),
        ];
        for (path, expected) in cases {
            assert_eq!(parse_resource(path), Err(expected), "{path}");
        }
    }

    proptest! {
        #[test]
        fn written_paths_are_read_back(partition in "[^/\\\\]{0,12}", row in "[^/\\\\]{0,12}") {
            let path = format!("/{}", entity_path("tab", &partition, &row));
            prop_assert_eq!(parse_resource(&path), Ok(entity("tab", &partition, &row)));
            let path = format!("/{}", table_path(&row));
            prop_assert_eq!(parse_resource(&path), Ok(Resource::Table(row)));
        }

        #[test]
        fn any_text_is_answered(path in "\\PC{0,40}|/t\\(['a,=%27PartionRwKey)]{0,40}") {
            let _ = parse_resource(&path);
        }
    }
}
