//! Keys of entities as the database has them, and where partitions live.
//!
//! A key is one string of bytes, `PartitionKey 00 RowKey`: keys hold no U+0000, so the order of these strings is
//! that of the keys. An index takes at most some 2,700 bytes of a row and legal keys are longer, so it holds the
//! first [`PREFIX`] bytes and, of longer keys, a hash.

use ring::digest::{SHA256, digest};
use rowhouse_store::{Placement, TableId};
use rowhouse_types::{EntityKey, KeyRange, Position};

/// Bytes of a key that the primary key holds.
const PREFIX: usize = 2000;
/// Bytes of a key that the primary key of an index's entries holds, beside the entry.
const ENTRY_PREFIX: usize = 1400;
/// Bytes of the hash of a longer key.
const HASH: usize = 16;

/// A key in columns.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DbKey {
    /// `kp`: the first bytes.
    pub(crate) prefix: Vec<u8>,
    /// `kh`: a hash of a longer key, else nothing.
    pub(crate) hash: Vec<u8>,
    /// `rest`: the bytes beyond.
    pub(crate) rest: Vec<u8>,
    /// `pl`: how many bytes are the PartitionKey.
    pub(crate) partition_len: i16,
}

/// A key in the columns of an index's entry, where there is room for less of it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryKey {
    /// `kp`: the first bytes.
    pub(crate) prefix: Vec<u8>,
    /// `kh`: a hash of a longer key, else nothing.
    pub(crate) hash: Vec<u8>,
    /// `rest`: the bytes beyond.
    pub(crate) rest: Vec<u8>,
}

/// A place between keys, in columns: compared as `(kp, rest)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DbPosition {
    pub(crate) prefix: Vec<u8>,
    pub(crate) rest: Vec<u8>,
}

impl DbKey {
    pub(crate) fn new(key: &EntityKey) -> Self {
        let (partition, row) = (key.partition.as_str().as_bytes(), key.row.as_str().as_bytes());
        let mut prefix = join(partition, row);
        let partition_len = i16::try_from(partition.len()).expect("a key has at most 3 KiB");
        if prefix.len() <= PREFIX {
            return Self { prefix, hash: Vec::new(), rest: Vec::new(), partition_len };
        }
        let hash = hash(&prefix);
        let rest = prefix.split_off(PREFIX);
        Self { prefix, hash, rest, partition_len }
    }

    /// Of the whole string; none if that is not a key.
    pub(crate) fn of_whole(whole: &[u8]) -> Option<(EntityKey, Self)> {
        let partition_len = i16::try_from(whole.iter().position(|byte| *byte == 0)?).ok()?;
        let mut buffer = Vec::new();
        let (partition, row) = split(whole, &[], partition_len, &mut buffer)?;
        let key = EntityKey::new(partition, row).ok()?;
        let columns = Self::new(&key);
        Some((key, columns))
    }

    /// The same key in an entry of an index.
    pub(crate) fn in_entry(&self) -> EntryKey {
        EntryKey::new([&*self.prefix, &*self.rest].concat())
    }
}

impl EntryKey {
    /// Of the whole string.
    pub(crate) fn new(mut prefix: Vec<u8>) -> Self {
        if prefix.len() <= ENTRY_PREFIX {
            return Self { prefix, hash: Vec::new(), rest: Vec::new() };
        }
        let hash = hash(&prefix);
        let rest = prefix.split_off(ENTRY_PREFIX);
        Self { prefix, hash, rest }
    }
}

/// Stands for a long key.
fn hash(key: &[u8]) -> Vec<u8> {
    digest(&SHA256, key).as_ref()[..HASH].to_vec()
}

fn join(partition: &[u8], row: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(partition.len() + 1 + row.len());
    bytes.extend_from_slice(partition);
    bytes.push(0);
    bytes.extend_from_slice(row);
    bytes
}

/// Both halves of a key, from its columns; none if they are not those of a key.
pub(crate) fn split<'a>(
    prefix: &[u8],
    rest: &[u8],
    partition_len: i16,
    buffer: &'a mut Vec<u8>,
) -> Option<(&'a str, &'a str)> {
    buffer.clear();
    buffer.extend_from_slice(prefix);
    buffer.extend_from_slice(rest);
    let (partition, row) = buffer.split_at_checked(usize::try_from(partition_len).ok()?)?;
    let (&[0], row) = row.split_at_checked(1)? else { return None };
    Some((std::str::from_utf8(partition).ok()?, std::str::from_utf8(row).ok()?))
}

impl DbPosition {
    /// The same place in the order of the strings of bytes.
    pub(crate) fn new(position: &Position) -> Self {
        Self::cut(position, PREFIX)
    }

    /// The same place among the entries of an index.
    pub(crate) fn in_entries(position: &Position) -> Self {
        Self::cut(position, ENTRY_PREFIX)
    }

    fn cut(position: &Position, at: usize) -> Self {
        let mut prefix = match position.partition.find('\0') {
            // After every key of the partition and before the next one's: no key holds U+0000 or U+0001.
            Some(end) => [&position.partition.as_bytes()[..end], &[1]].concat(),
            None => join(position.partition.as_bytes(), position.row.as_bytes()),
        };
        let rest = if prefix.len() > at { prefix.split_off(at) } else { Vec::new() };
        Self { prefix, rest }
    }

    /// Beyond every key: no UTF-8 starts with this byte.
    pub(crate) fn end() -> Self {
        Self { prefix: vec![0xFF], rest: Vec::new() }
    }
}

/// The only key in the range, if there can be just one.
pub(crate) fn point(range: &KeyRange) -> Option<EntityKey> {
    let end = range.end.as_ref()?;
    let row = end.row.strip_suffix('\0')?;
    let one = range.start.partition == end.partition && *range.start.row == *row;
    if one { EntityKey::new(&range.start.partition, row).ok() } else { None }
}

/// The only partition in the range, if there can be just one.
pub(crate) fn partition(range: &KeyRange) -> Option<&str> {
    let (start, end) = (&range.start, range.end.as_ref()?);
    let within = start.partition == end.partition
        || (end.row.is_empty() && end.partition.strip_suffix('\0') == Some(&start.partition));
    (within && !start.partition.contains('\0')).then_some(&*start.partition)
}

/// `dk`: which partitions live together. Fixed for ever, see the tests.
///
/// The first eight bytes of a SHA-256 over the group and the part of the PartitionKey that decides.
pub(crate) fn home(table: TableId, placement: &Placement, partition: &str) -> i64 {
    let mut bytes = match &placement.group {
        None => [&b"t"[..], &table.0.to_be_bytes()].concat(),
        Some(group) => [b"g", group.as_bytes(), b"\0"].concat(),
    };
    let routed = match placement.route_chars {
        None => partition,
        Some(chars) => {
            let mut indices = partition.char_indices();
            let end = usize::try_from(chars).ok().and_then(|chars| indices.nth(chars));
            end.map_or(partition, |(end, _)| &partition[..end])
        }
    };
    bytes.extend_from_slice(routed.as_bytes());
    let hash = digest(&SHA256, &bytes);
    i64::from_be_bytes(hash.as_ref()[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is stored depends on these: they never change.
    #[test]
    fn homes_are_frozen() {
        let own = Placement::default();
        let group = |route_chars| Placement { group: Some("orders".into()), route_chars };
        let homes = [
            home(TableId(1), &own, ""),
            home(TableId(1), &own, "p"),
            home(TableId(2), &own, "p"),
            home(TableId(1), &group(None), "péx"),
            home(TableId(2), &group(None), "péx"),
            home(TableId(1), &group(Some(2)), "péx"),
            home(TableId(1), &group(Some(2)), "péy"),
            home(TableId(1), &group(None), "pé"),
            home(TableId(1), &group(Some(0)), "x"),
        ];
        let expected = [
            4_549_668_764_635_936_712,
            -2_066_489_299_766_449_407,
            -8_953_278_708_006_059_943,
            -539_142_951_293_758_301,
            -539_142_951_293_758_301,
            2_329_250_460_183_523_423,
            2_329_250_460_183_523_423,
            2_329_250_460_183_523_423,
            -2_136_157_212_006_605_820,
        ];
        assert_eq!(homes, expected);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ab]{0,3}",
            "[a-c\u{E000}\u{10FFFF}é]{0,4}",
            (995usize..1005, "[ab]{0,2}").prop_map(|(n, end)| "k".repeat(n) + &end),
            (660usize..670, "[ab]{0,2}").prop_map(|(n, end)| "名".repeat(n) + &end),
        ]
    }

    fn columns(key: &EntityKey) -> DbPosition {
        let DbKey { prefix, rest, .. } = DbKey::new(key);
        DbPosition { prefix, rest }
    }

    fn in_entry(key: &EntityKey) -> DbPosition {
        let EntryKey { prefix, rest, .. } = DbKey::new(key).in_entry();
        DbPosition { prefix, rest }
    }

    proptest! {
        #[test]
        fn keys_come_back_and_keep_their_order(
            halves in prop::collection::vec((text(), text()), 2..6),
        ) {
            let mut keys: Vec<_> =
                halves.iter().map(|(p, r)| EntityKey::new(p, r).unwrap()).collect();
            for key in &keys {
                let DbKey { prefix, rest, partition_len, hash } = DbKey::new(key);
                prop_assert_eq!(hash.is_empty(), rest.is_empty());
                let mut buffer = Vec::new();
                let halves = split(&prefix, &rest, partition_len, &mut buffer).unwrap();
                prop_assert_eq!(halves, (key.partition.as_str(), key.row.as_str()));
                // What a statement makes of an entry's key to find the entity.
                let entry = DbKey::new(key).in_entry();
                let whole = [&*entry.prefix, &*entry.rest].concat();
                prop_assert_eq!(&whole, &[&*prefix, &*rest].concat());
                prop_assert_eq!(&whole[..whole.len().min(2000)], &*prefix);
                prop_assert_eq!(if whole.len() > 2000 { entry.hash } else { Vec::new() }, hash);
            }
            keys.sort();
            let columns: Vec<_> = keys.iter().map(columns).collect();
            prop_assert!(columns.is_sorted());
            let entries: Vec<_> = keys.iter().map(in_entry).collect();
            prop_assert!(entries.is_sorted());
        }

        #[test]
        fn places_stand_where_they_stood(
            (p, r) in (text(), text()),
            (q, s) in (text(), text()),
        ) {
            let key = EntityKey::new(&p, &r).unwrap();
            let places = [
                Position::before(&q, &s),
                Position::after(&q, &s),
                Position::before_partition(&q),
                Position::after_partition(&q),
                Position::min(),
            ];
            for place in places {
                let before = (p.as_str(), r.as_str()) < (&*place.partition, &*place.row);
                prop_assert_eq!(columns(&key) < DbPosition::new(&place), before);
                prop_assert_eq!(in_entry(&key) < DbPosition::in_entries(&place), before);
            }
            prop_assert!(columns(&key) < DbPosition::end());
        }
    }

    #[test]
    fn points_and_partitions_are_recognised() {
        let key = EntityKey::new("p", "r").unwrap();
        assert_eq!(point(&KeyRange::point("p", "r")), Some(key));
        assert_eq!(point(&KeyRange::partition("p")), None);
        assert_eq!(point(&KeyRange::all()), None);
        assert_eq!(partition(&KeyRange::point("p", "r")), Some("p"));
        assert_eq!(partition(&KeyRange::partition("p")), Some("p"));
        let rows =
            KeyRange { start: Position::after("p", "a"), end: Some(Position::before("p", "b")) };
        assert_eq!(partition(&rows), Some("p"));
        let rest = KeyRange {
            start: Position::after("p", "a"),
            end: Some(Position::after_partition("p")),
        };
        assert_eq!(partition(&rest), Some("p"));
        let two = KeyRange { start: Position::min(), end: Some(Position::before("p", "b")) };
        assert_eq!(partition(&two), None);
        assert_eq!(partition(&KeyRange::all()), None);
    }
}
