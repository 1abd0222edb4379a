//! Pop receipts: what a client shows to change a message that it was given.
//!
//! The receipt of the store in Base64, and opaque to clients. Base64 that is none of ours is well formed and belongs to no
//! message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_types::Timestamp;

/// Not Base64 at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receipt is not in Base64")]
pub struct ReceiptError;

/// The receipt as clients see it.
pub fn encode(receipt: Timestamp) -> String {
    STANDARD.encode(receipt.ticks().to_be_bytes())
}

/// Reads a receipt; `None` if nobody was ever given it.
pub fn decode(text: &str) -> Result<Option<Timestamp>, ReceiptError> {
    // Some clients do not encode a plus, which then reads as a blank.
    let text = text.replace(' ', "+");
    if text.is_empty() {
        return Err(ReceiptError);
    }
    let bytes = STANDARD.decode(text).map_err(|_| ReceiptError)?;
    let ticks = bytes.as_slice().try_into().ok().map(u64::from_be_bytes);
    Ok(ticks.and_then(Timestamp::from_ticks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strangers() {
        assert_eq!(decode("AgAAAAMAAAAAAAAAdUgTn0do1QE="), Ok(None), "one of the original's");
        assert_eq!(decode("//////////8="), Ok(None), "beyond all times");
        for bad in ["", "invalid", "a", "====", "AAA", "Zm9v!", "Zm 9v=="] {
            assert_eq!(decode(bad), Err(ReceiptError), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ticks in 0..=Timestamp::MAX.ticks()) {
            let receipt = Timestamp::from_ticks(ticks).unwrap();
            let text = encode(receipt);
            prop_assert_eq!(decode(&text), Ok(Some(receipt)));
            prop_assert_eq!(decode(&text.replace('+', " ")), Ok(Some(receipt)));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,24}|[A-Za-z0-9+/= ]{0,24}") {
            let _ = decode(&text);
        }
    }
}
