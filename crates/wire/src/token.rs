//! Continuation tokens: a key, written so that it survives headers and query strings.
//!
//! A token is `1!<length>!<text>`, the text being Base64 with `-` as padding. It holds only letters,
//! digits and `! . _ -`, and is never empty, even for an empty key: clients take an empty token for the
//! end of the results, join two tokens with a blank and do not always escape what they send back.

use base64::Engine as _;
use base64::alphabet::{Alphabet, Symbol};
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use rowhouse_types::Direction;

/// Base64 whose last two digits are not among the characters that URLs give a meaning, nor `-`, which
/// is the padding.
const ALPHABET: Alphabet = {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._";
    let padding = Symbol::new(b'-').expect("printable ASCII");
    match Alphabet::new_with_padding(digits, padding) {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("the digits are 64 different printable characters"),
    }
};
const BASE64: GeneralPurpose = GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new());

/// Writes any text as a token.
pub fn encode(key: &str) -> String {
    let text = BASE64.encode(key);
    format!("1!{}!{text}", text.len())
}

/// What the tokens of an answer in descending order begin with: no key holds U+0000. A version, and the direction.
const DESCENDING: &str = "\u{0}1d";

/// Writes a key as a token of an answer in that order.
pub fn encode_in(direction: Direction, key: &str) -> String {
    match direction {
        Direction::Ascending => encode(key),
        Direction::Descending => encode(&[DESCENDING, key].concat()),
    }
}

/// Reads back what [`encode_in`] wrote for the same order; nothing for any other text.
pub fn decode_in(direction: Direction, text: &str) -> Option<String> {
    let key = decode(text)?;
    match direction {
        Direction::Ascending if key.starts_with('\0') => None,
        Direction::Ascending => Some(key),
        Direction::Descending => key.strip_prefix(DESCENDING).map(str::to_owned),
    }
}

/// What the tokens of an answer in the order of a property begin with: a version; the direction follows.
const ORDERED: &str = "\u{0}2";

/// A place in an answer that is in the order of a property: what the next entity is entered under, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderToken {
    /// Which end comes first.
    pub direction: Direction,
    /// The property.
    pub property: String,
    /// Of which index, by its id; none where entities are sorted.
    pub index: Option<u64>,
    /// What the next entity is entered under.
    pub entry: Vec<u8>,
    /// Its PartitionKey.
    pub partition: String,
    /// Its RowKey.
    pub row: String,
}

impl OrderToken {
    /// The two texts for clients, in place of the PartitionKey and of the RowKey.
    pub fn encode(&self) -> (String, String) {
        let way = match self.direction {
            Direction::Ascending => "a",
            Direction::Descending => "d",
        };
        let index = self.index.map(|id| id.to_string()).unwrap_or_default();
        let entry = BASE64.encode(&self.entry);
        let fields = [index.as_str(), &self.property, &entry, &self.partition].join("\0");
        let place = [ORDERED, way, &fields].concat();
        (encode(&place), encode(&[ORDERED, way, &self.row].concat()))
    }

    /// Reads back what [`OrderToken::encode`] wrote; nothing for any other texts.
    pub fn decode(partition: &str, row: &str) -> Option<Self> {
        let (place, end) = (decode(partition)?, decode(row)?);
        let (place, row) = (place.strip_prefix(ORDERED)?, end.strip_prefix(ORDERED)?);
        let way = |text: &str| match text.as_bytes().first()? {
            b'a' => Some(Direction::Ascending),
            b'd' => Some(Direction::Descending),
            _ => None,
        };
        let direction = way(place)?;
        if way(row)? != direction {
            return None;
        }
        let mut fields = place[1..].splitn(4, '\0');
        let index = match fields.next()? {
            "" => None,
            digits => Some(digits.parse().ok()?),
        };
        let property = fields.next()?.to_owned();
        let entry = BASE64.decode(fields.next()?).ok()?;
        let (partition, row) = (fields.next()?.to_owned(), row[1..].to_owned());
        Some(Self { direction, property, index, entry, partition, row })
    }
}

/// Reads back what [`encode`] wrote; nothing for any other text.
pub fn decode(text: &str) -> Option<String> {
    let (length, text) = text.strip_prefix("1!")?.split_once('!')?;
    if length != text.len().to_string() {
        return None;
    }
    String::from_utf8(BASE64.decode(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tokens that the original service was seen to send.
    #[test]
    fn recorded_tokens() {
        let cases = [
            ("pk801016e8", "1!16!cGs4MDEwMTZlOA--"),
            ("p", "1!4!cA--"),
            ("r3", "1!4!cjM-"),
            ("", "1!0!"),
        ];
        for (key, token) in cases {
            assert_eq!(encode(key), token);
            assert_eq!(decode(token).as_deref(), Some(key));
        }
    }

    /// A token of one order is none of the other.
    #[test]
    fn tokens_of_orders() {
        use Direction::{Ascending, Descending};
        for key in ["", "p", "é😀"] {
            assert_eq!(encode_in(Ascending, key), encode(key));
            for (written, read) in [(Ascending, Descending), (Descending, Ascending)] {
                let token = encode_in(written, key);
                assert_eq!(decode_in(written, &token).as_deref(), Some(key));
                assert_eq!(decode_in(read, &token), None);
            }
        }
    }

    /// A place in the order of a property is none in the order of keys, and the other way round.
    #[test]
    fn tokens_of_properties() {
        let token = OrderToken {
            direction: Direction::Descending,
            property: "Name".to_owned(),
            index: Some(7),
            entry: vec![0, 1, 0xFF],
            partition: "p".to_owned(),
            row: "r".to_owned(),
        };
        let (partition, row) = token.encode();
        assert_eq!(OrderToken::decode(&partition, &row), Some(token.clone()));
        for direction in [Direction::Ascending, Direction::Descending] {
            assert_eq!(decode_in(direction, &partition), None);
            let (p, r) = (encode_in(direction, "p"), encode_in(direction, "r"));
            assert_eq!(OrderToken::decode(&p, &r), None);
        }
        let (_, other) = OrderToken { direction: Direction::Ascending, ..token }.encode();
        assert_eq!(OrderToken::decode(&partition, &other), None);
    }

    #[test]
    fn what_is_not_a_token() {
        let cases = [
            "",
            "1",
            "1!",
            "1!!",
            "1!4",
            "2!4!cA--",
            "1!5!cA--",
            "1!04!cA--",
            "1!4!cA==",
            "1!4!c---",
            "1!4!cA-=",
            "1!3!cA-",
            "1!4!/w--",
            "1!4!_w--",
            "1!4!cB--",
            " 1!4!cA--",
            "1!4!cA-- ",
        ];
        for text in cases {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_key_survives(key in any::<String>(), nul in any::<bool>()) {
            let key = if nul { format!("{key}\0") } else { key };
            let token = encode(&key);
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"!._-".contains(&b);
            prop_assert!(!token.is_empty() && token.bytes().all(plain));
            prop_assert_eq!(decode(&token), Some(key));
        }

        #[test]
        fn any_place_survives(
            (descending, index) in (any::<bool>(), any::<Option<u64>>()),
            property in "[A-Za-zé]{1,8}",
            entry in prop::collection::vec(any::<u8>(), 0..40),
            partition in any::<String>(),
            row in any::<String>(),
        ) {
            let direction =
                if descending { Direction::Descending } else { Direction::Ascending };
            let token = OrderToken { direction, property, index, entry, partition, row };
            let (partition, row) = token.encode();
            prop_assert_eq!(OrderToken::decode(&partition, &row), Some(token));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,30}|1![0-9]{1,2}![A-Za-z0-9._-]{0,20}") {
            if let Some(key) = decode(&text) {
                prop_assert_eq!(encode(&key), text);
            }
        }
    }
}
