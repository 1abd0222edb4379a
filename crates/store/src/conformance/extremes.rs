//! The edges of what is legal: keys, values, sizes.

use super::Engine;
use super::fixture::{
    content, get, key, keys, number, open, page, put, read_all, record, scan_of, write, write_all,
};
use rowhouse_env::{Random, SeededRandom};
use rowhouse_types::{
    EntityKey, Guid, KeyRange, RecordBuilder, Timestamp, Value, ValueRef, limits,
};

/// A key of exactly so many UTF-16 units of random characters that take `width` bytes each in UTF-8, or
/// of any width for 0.
pub(super) fn random_key(random: &SeededRandom, width: usize, units: usize) -> String {
    let below = |bound: u32| {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let bound = u64::from(bound);
        u32::try_from(u64::from_le_bytes(bytes) % bound).expect("below a 32-bit bound")
    };
    let mut text = String::new();
    let mut left = units;
    while left > 0 {
        let width = if width == 0 { 1 + below(4) as usize } else { width };
        // Half a surrogate pair cannot be had: the last unit is an ASCII character then.
        let (low, high) = match width {
            1 => (0x20, 0x7E),
            2 => (0xA0, 0x7FF),
            3 => (0x800, 0xFFFD),
            _ if left > 1 => (0x1_0000, 0x10_FFFF),
            _ => (0x20, 0x7E),
        };
        match char::from_u32(low + below(high - low + 1)) {
            Some(c) if !"/\\#?".contains(c) => {
                left -= c.len_utf16();
                text.push(c);
            }
            _ => {}
        }
    }
    text
}

/// Random characters of every width, as random ones do not compress; both halves as long as can be.
pub async fn longest_keys_are_kept(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let random = SeededRandom::new(0x5EED);
    let max = limits::KEY_UTF16_UNITS_MAX;
    let mut all: Vec<EntityKey> = vec![key("", ""), key("", "r"), key("p", "")];
    for width in 0..=4 {
        let (partition, row) = (random_key(&random, width, max), random_key(&random, width, max));
        // The same but for its last characters: what an index that cuts keys would confuse.
        let mut sibling: String = row.chars().take(row.chars().count() - 2).collect();
        sibling.push('~');
        all.push(key(&partition, &row));
        all.push(key(&partition, &sibling));
        all.push(key(&partition, ""));
        all.push(key("", &row));
        all.push(key(&row, &partition));
        all.push(key(&sibling, &random_key(&random, width, max - 1)));
    }
    let numbered = |n: usize| number(i64::try_from(n).expect("a small number"));
    let puts = all.iter().enumerate().map(|(n, key)| put(table, key, numbered(n)));
    write_all(&*store, puts.collect()).await;
    for (n, key) in all.iter().enumerate() {
        let found = get(&*store, table, key).await.expect("the entity is there");
        assert_eq!(content(&found), numbered(n), "key {n}");
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        let point = page(&*store, table, scan_of(vec![KeyRange::point(partition, row)])).await;
        assert_eq!(keys(&point), [format!("{partition}/{row}")], "key {n}");
    }
    all.sort();
    for limit in [usize::MAX, 1] {
        let found = read_all(&*store, table, limit).await;
        let found: Vec<_> = found.iter().map(|(p, r, _)| key(p, r)).collect();
        assert!(found == all, "in order, each once, at limit {limit}");
    }
}

/// Prefixes, cases, forms of one letter, spaces at the end, and the border between the halves.
pub async fn similar_keys_stay_apart(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let texts = [
        "", " ", "a", "a ", "A", "aa", "ab", "é", "e\u{301}", "ß", "ss", "'", "''", "%", "_", "a%",
        "\"", "0", "00", "0.0",
    ];
    let long = "k".repeat(1023);
    let longs = [long.clone(), format!("{long}a"), format!("{long}b")];
    let texts: Vec<&str> = texts.into_iter().chain(longs.iter().map(String::as_str)).collect();
    let mut all: Vec<_> = texts.iter().flat_map(|p| texts.iter().map(|r| key(p, r))).collect();
    for chunk in all.chunks(100) {
        let puts = chunk.iter().map(|key| {
            let (partition, row) = (key.partition.as_str(), key.row.as_str());
            let both = [("p", ValueRef::String(partition)), ("r", ValueRef::String(row))];
            put(table, key, record(&both))
        });
        write_all(&*store, puts.collect()).await;
    }
    for key in &all {
        let found = get(&*store, table, key).await.expect("the entity is there");
        let both = [found.as_ref().get("p"), found.as_ref().get("r")];
        let wanted = [key.partition.as_str(), key.row.as_str()];
        assert_eq!(both, wanted.map(|text| Ok(Some(ValueRef::String(text)))));
    }
    all.sort();
    let found = read_all(&*store, table, 100).await;
    assert!(found.iter().map(|(p, r, _)| key(p, r)).eq(all), "in order, each once");
}

/// The least, the greatest and the odd ones of each type.
pub(super) fn odd_values() -> Vec<Value> {
    let text = "\u{0}\u{1}\u{7F}\u{85}\u{2028}\u{FFFE}\u{FFFF}\u{10FFFF} '\"\\/%é😀e\u{301}";
    let longest = "é".repeat(limits::STRING_UTF16_UNITS_MAX);
    let bytes: Vec<u8> = (0..=255).collect();
    let largest = vec![0xA5; limits::BINARY_BYTES_MAX];
    let quiet_with_payload = f64::from_bits(0xFFF8_0000_0000_1234);
    vec![
        Value::String("".into()),
        Value::String(text.into()),
        Value::String(longest.into()),
        Value::Int32(i32::MIN),
        Value::Int32(i32::MAX),
        Value::Int32(0),
        Value::Int64(i64::MIN),
        Value::Int64(i64::MAX),
        Value::Int64((1 << 53) + 1),
        Value::Double(1.0),
        Value::Double(-0.0),
        Value::Double(f64::NAN),
        Value::Double(quiet_with_payload),
        Value::Double(f64::INFINITY),
        Value::Double(f64::NEG_INFINITY),
        Value::Double(f64::MAX),
        Value::Double(f64::from_bits(1)),
        Value::Double(0.1),
        Value::Boolean(true),
        Value::Boolean(false),
        Value::DateTime(Timestamp::EDM_MIN),
        Value::DateTime(Timestamp::MAX),
        Value::DateTime(Timestamp::EDM_MIN.next()),
        Value::Guid(Guid([0; 16])),
        Value::Guid(Guid([0xFF; 16])),
        Value::Guid(Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])),
        Value::Binary([].into()),
        Value::Binary(bytes.into()),
        Value::Binary(largest.into()),
    ]
}

/// Each alone, and all in one entity.
pub async fn every_value_is_kept(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let values = odd_values();
    for (n, value) in values.iter().enumerate() {
        let key = key("alone", &n.to_string());
        let alone = record(&[("v", value.as_ref())]);
        write(&*store, put(table, &key, alone.clone())).await;
        let found = get(&*store, table, &key).await.expect("the entity is there");
        assert!(content(&found) == alone, "value {n}");
    }
    // All together with every kind of name.
    let mut builder = RecordBuilder::new();
    let longest_name = "x".repeat(limits::PROPERTY_NAME_UTF16_UNITS_MAX);
    let names = ["z", "Z", "_", "größe", "名前", "e\u{301}", &longest_name];
    for (n, value) in values.iter().enumerate() {
        let name = names.get(n).map_or_else(|| format!("p{n}"), |name| (*name).to_owned());
        builder.push(&name, value.as_ref()).expect("a legal property");
    }
    let together = builder.finish(Timestamp::default());
    let place = key("together", "");
    write(&*store, put(table, &place, together.clone())).await;
    let found = get(&*store, table, &place).await.expect("the entity is there");
    assert!(content(&found) == together, "all values together, in the client's order");
    let rows = read_all(&*store, table, 5).await;
    assert_eq!(rows.len(), values.len() + 1);
    assert!(rows.iter().any(|(_, _, record)| *record == together), "and in a scan");
}

/// Both limits of a whole entity, read by key and in pages.
pub async fn largest_entities_are_kept(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let random = SeededRandom::new(1);
    let mut block = vec![0; limits::BINARY_BYTES_MAX];
    random.fill(&mut block);
    let build = |last: usize| {
        let mut builder = RecordBuilder::new();
        for n in 0..15 {
            builder.push(&format!("b{n}"), ValueRef::Binary(&block)).expect("a legal property");
        }
        builder.push("last", ValueRef::Binary(&block[..last])).expect("a legal property");
        builder.finish(Timestamp::default())
    };
    let size = build(0).as_ref().size("p", "0").expect("the record decodes");
    let largest = build(limits::ENTITY_BYTES_MAX - size);
    let size = largest.as_ref().size("p", "0").expect("the record decodes");
    assert_eq!(size, limits::ENTITY_BYTES_MAX);
    let mut builder = RecordBuilder::new();
    for n in 0..limits::PROPERTIES_MAX {
        builder.push(&format!("p{n}"), ValueRef::Int32(1)).expect("a legal property");
    }
    let widest = builder.finish(Timestamp::default());
    let all = [largest.clone(), widest, largest.clone(), number(1), largest];
    let puts = all
        .iter()
        .enumerate()
        .map(|(n, record)| put(table, &key("p", &n.to_string()), record.clone()));
    write_all(&*store, puts.collect()).await;
    for (n, record) in all.iter().enumerate() {
        let found = get(&*store, table, &key("p", &n.to_string())).await;
        assert!(content(&found.expect("the entity is there")) == *record, "entity {n}");
    }
    let found = read_all(&*store, table, 2).await;
    assert!(found.iter().map(|(_, _, record)| record).eq(all.iter()), "in pages of two");
}
