//! The change feed as JSON, written straight from the records, and the tokens that name a place in it.

use crate::entity::{self, Context};
use crate::json::writer::{self, Object};
use crate::media::Metadata;
use crate::token;
use rowhouse_types::{Corrupt, EdmType, RecordRef, Row, Timestamp};

/// A place in the changes of one table, as clients give it back.
///
/// On the wire it is opaque; it begins with the version of what is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Id of the table.
    pub table: u64,
    /// When the table was created, in ticks.
    pub created: u64,
    /// All changes up to this place are told.
    pub place: u64,
    /// So many of those after it too.
    pub told: u64,
}

impl Token {
    /// The text for clients.
    pub fn encode(&self) -> String {
        let Self { table, created, place, told } = self;
        token::encode(&format!("c1 {table} {created} {place} {told}"))
    }

    /// Reads back what [`Token::encode`] wrote; nothing for any other text.
    pub fn decode(text: &str) -> Option<Self> {
        let inner = token::decode(text)?;
        let mut numbers = inner.strip_prefix("c1 ")?.split(' ').map(|digits| digits.parse().ok());
        let mut next = || numbers.next().flatten();
        let token = Self { table: next()?, created: next()?, place: next()?, told: next()? };
        (token.encode() == text).then_some(token)
    }
}

/// One change of one entity.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Where it stands among all changes; those of one batch have the same.
    pub sequence: u64,
    /// PartitionKey.
    pub partition: &'a str,
    /// RowKey.
    pub row: &'a str,
    /// When it was made.
    pub at: Timestamp,
    /// What the entity became; none if it was deleted.
    pub record: Option<RecordRef<'a>>,
}

/// The body of an answer in the making.
#[derive(Debug)]
pub struct Feed<'c> {
    out: Vec<u8>,
    cx: Context<'c>,
    /// Where the first change starts.
    start: usize,
}

impl<'c> Feed<'c> {
    /// Begins an answer of about so many bytes.
    pub fn new(cx: Context<'c>, bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        let mut object = Object::open(&mut out);
        entity::write_metadata(&mut object, &cx, "");
        object.name("value", "");
        out.push(b'[');
        let start = out.len();
        Self { out, cx, start }
    }

    /// Bytes so far.
    pub fn byte_len(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written since it had so many bytes.
    pub fn cut(&mut self, byte_len: usize) {
        self.out.truncate(byte_len);
    }

    /// Adds a change; after an error nothing is added.
    pub fn push(&mut self, change: &Change<'_>) -> Result<(), Corrupt> {
        let length = self.out.len();
        if self.start < length {
            self.out.push(b',');
        }
        let mut object = Object::open(&mut self.out);
        object.name("sequence", "");
        object.out.push(b'"');
        writer::integer(object.out, change.sequence);
        object.out.push(b'"');
        let kind = if change.record.is_some() { "put" } else { "delete" };
        object.text("change", kind);
        object.name("entity", "");
        let mut inner = Object::open(object.out);
        let Change { partition, row, at, record, .. } = *change;
        let written = if let Some(record) = record {
            entity::write_members(&mut inner, &self.cx, &Row { partition, row, record })
        } else {
            write_deleted(&mut inner, self.cx.level, change, at);
            Ok(())
        };
        inner.close();
        object.close();
        if written.is_err() {
            self.out.truncate(length);
        }
        written
    }

    /// Ends the answer: where the next one starts, and whether there is more already.
    pub fn finish(mut self, next: &Token, more: bool) -> Vec<u8> {
        self.out.extend_from_slice(b"],\"next\":");
        writer::string(&mut self.out, &next.encode());
        self.out.extend_from_slice(b",\"more\":");
        self.out.extend_from_slice(if more { b"true}" } else { b"false}" });
        self.out
    }
}

/// All that is known of an entity that is gone.
fn write_deleted(object: &mut Object<'_>, level: Metadata, change: &Change<'_>, at: Timestamp) {
    object.text("PartitionKey", change.partition);
    object.text("RowKey", change.row);
    if level == Metadata::Full {
        object.name("Timestamp", "@odata.type");
        writer::string(object.out, EdmType::DateTime.name());
    }
    object.text("Timestamp", at.iso().as_str());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_types::{Record, RecordBuilder, ValueRef};
    use serde_json::{Value, json};

    const NEXT: Token = Token { table: 7, created: 9, place: 13, told: 0 };

    fn context(level: Metadata) -> Context<'static> {
        let (base, account, table) = ("http://h/acct", "acct", "People");
        Context { base, account, table, level, select: None }
    }

    fn record(text: &str, at: Timestamp) -> Record {
        let mut builder = RecordBuilder::new();
        builder.push("Text", ValueRef::String(text)).unwrap();
        builder.push("Big", ValueRef::Int64(5)).unwrap();
        builder.finish(at)
    }

    fn parsed(feed: Feed<'_>) -> Value {
        serde_json::from_slice(&feed.finish(&NEXT, false)).unwrap()
    }

    #[test]
    fn the_shape_of_an_answer() {
        let at = Timestamp::parse_iso("2026-11-16T08:00:00.0000001Z").unwrap();
        let record = record("a\"b", at);
        let put =
            Change { sequence: 12, partition: "p", row: "r", at, record: Some(record.as_ref()) };
        let delete = Change { sequence: 13, record: None, ..put };
        let answer = |level, changes: &[Change<'_>]| {
            let mut feed = Feed::new(context(level), 0);
            for change in changes {
                feed.push(change).unwrap();
            }
            String::from_utf8(feed.finish(&NEXT, true)).unwrap()
        };
        let next = NEXT.encode();
        assert_eq!(
            answer(Metadata::Minimal, &[put, delete]),
            format!(
                "{{\"odata.metadata\":\"http://h/acct/$metadata#People\",\"value\":[\
                 {{\"sequence\":\"12\",\"change\":\"put\",\"entity\":{{\
                 \"odata.etag\":\"W/\\\"datetime'2026-11-16T08%3A00%3A00.0000001Z'\\\"\",\
                 \"PartitionKey\":\"p\",\"RowKey\":\"r\",\
                 \"Timestamp\":\"2026-11-16T08:00:00.0000001Z\",\"Text\":\"a\\\"b\",\
                 \"Big@odata.type\":\"Edm.Int64\",\"Big\":\"5\"}}}},\
                 {{\"sequence\":\"13\",\"change\":\"delete\",\"entity\":{{\
                 \"PartitionKey\":\"p\",\"RowKey\":\"r\",\
                 \"Timestamp\":\"2026-11-16T08:00:00.0000001Z\"}}}}],\
                 \"next\":\"{next}\",\"more\":true}}"
            )
        );
        assert_eq!(
            answer(Metadata::None, &[]),
            format!("{{\"value\":[],\"next\":\"{next}\",\"more\":true}}")
        );
        assert!(answer(Metadata::Full, &[delete]).contains("Timestamp@odata.type"));
    }

    #[test]
    fn what_is_cut_leaves_no_trace() {
        let change = Change {
            sequence: 1,
            partition: "p",
            row: "r",
            at: Timestamp::default(),
            record: None,
        };
        let mut feed = Feed::new(context(Metadata::None), 0);
        let empty = feed.byte_len();
        feed.push(&change).unwrap();
        let one = feed.byte_len();
        feed.push(&change).unwrap();
        feed.cut(one);
        assert_eq!(feed.byte_len(), one);
        feed.cut(empty);
        feed.push(&change).unwrap();
        assert_eq!(parsed(feed)["value"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn what_is_not_a_token() {
        let inner =
            ["", "c1", "c1 1 2 3", "c1 1 2 3 4 5", "c2 1 2 3 4", "c1 1 2 3 +4", "c1 01 2 3 4"];
        for text in inner {
            assert_eq!(Token::decode(&token::encode(text)), None, "{text}");
        }
        assert_eq!(Token::decode("now"), None);
    }

    proptest! {
        #[test]
        fn tokens_survive(table: u64, created: u64, place: u64, told: u64) {
            let token = Token { table, created, place, told };
            prop_assert_eq!(Token::decode(&token.encode()), Some(token));
        }

        #[test]
        fn any_text_is_a_token_or_not(text in "\\PC{0,30}|1![0-9]{1,2}![A-Za-z0-9._-]{0,20}") {
            if let Some(token) = Token::decode(&text) {
                prop_assert_eq!(token.encode(), text);
            }
        }

        /// Whatever the keys and texts are, it is JSON that says the same, in order, with the entity as a
        /// query would show it.
        #[test]
        fn any_changes_are_told(
            changes in prop::collection::vec((any::<u64>(), "\\PC{0,5}", "\\PC{0,5}", prop::option::of(any::<String>())), 0..6),
            level in prop::sample::select(vec![Metadata::None, Metadata::Minimal, Metadata::Full]),
        ) {
            let at = Timestamp::parse_iso("2026-11-16T08:00:00Z").unwrap();
            let cx = context(level);
            let mut feed = Feed::new(cx, 0);
            let mut expected = Vec::new();
            for (sequence, partition, row, text) in &changes {
                let record = text.as_ref().map(|text| record(text, at));
                let shown = record.as_ref().map(Record::as_ref);
                feed.push(&Change { sequence: *sequence, partition, row, at, record: shown }).unwrap();
                let kind = if record.is_some() { "put" } else { "delete" };
                let mut entity = json!({ "PartitionKey": partition, "RowKey": row, "Timestamp": at.iso().as_str() });
                if let Some(record) = shown {
                    let mut page = Vec::new();
                    let row = Row { partition, row, record };
                    crate::entity::write_page(&mut page, &cx, None, std::iter::once(Ok(row)), usize::MAX).unwrap();
                    let mut page: Value = serde_json::from_slice(&page).unwrap();
                    entity = page["value"][0].take();
                } else if level == Metadata::Full {
                    entity["Timestamp@odata.type"] = "Edm.DateTime".into();
                }
                expected.push(json!({ "sequence": sequence.to_string(), "change": kind, "entity": entity }));
            }
            let answer = parsed(feed);
            prop_assert_eq!(&answer["value"], &Value::Array(expected));
            let next = answer["next"].as_str().and_then(Token::decode);
            prop_assert_eq!(next, Some(NEXT));
        }
    }
}
