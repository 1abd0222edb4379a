//! Keys of accounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_env::Random;
use rowhouse_types::limits;
use std::fmt;
use std::str::FromStr;

/// The account that every development tool knows.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// The key of that account, published by the original service: it protects nothing.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Length of the keys that we make, in bytes: as long as those of the original service.
const GENERATED_BYTES: usize = 64;

/// A key of an account: whoever has it may do everything in the account. Never empty.
///
/// No `Display` and no `PartialEq` on purpose: a key is shown by [`AccountKey::to_base64`] to whoever may see it, and
/// signatures are compared instead of keys.
#[derive(Clone)]
pub struct AccountKey(Box<[u8]>);

/// Why a text or bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not standard Base64 with padding.
    #[error("an account key must be standard Base64")]
    Base64,
    /// Nothing in it.
    #[error("an account key must not be empty")]
    Empty,
    /// Too few bytes for a new key.
    #[error("an account key must have at least {} bytes", limits::ACCOUNT_KEY_BYTES_MIN)]
    Short,
}

impl AccountKey {
    /// A new random key.
    pub fn generate(random: &dyn Random) -> Self {
        let mut bytes = [0; GENERATED_BYTES];
        random.fill(&mut bytes);
        Self(bytes.into())
    }

    /// Takes over a key that was made elsewhere, if it is long enough for a new key.
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        let key = Self::from_bytes(STANDARD.decode(text).map_err(|_| KeyError::Base64)?)?;
        let long = limits::ACCOUNT_KEY_BYTES_MIN <= key.0.len();
        if long { Ok(key) } else { Err(KeyError::Short) }
    }

    /// A stored key, of any length: those of earlier releases may be shorter than a new one.
    pub(crate) fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        if bytes.is_empty() { Err(KeyError::Empty) } else { Ok(Self(bytes)) }
    }

    /// The key as it stands in a connection string.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.0)
    }

    /// The key as signatures need it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows nothing of the key.
impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey")
    }
}

/// Which of an account's two keys. In text `key1` and `key2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySlot {
    /// `key1`
    First,
    /// `key2`
    Second,
}

impl KeySlot {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// Its place in [`crate::AccountView::keys`].
    pub fn index(self) -> usize {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "key1",
            Self::Second => "key2",
        }
    }
}

impl fmt::Display for KeySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text names no key of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an account has the keys key1 and key2")]
pub struct KeySlotError;

impl FromStr for KeySlot {
    type Err = KeySlotError;

    fn from_str(text: &str) -> Result<Self, KeySlotError> {
        Self::ALL.into_iter().find(|slot| slot.as_str() == text).ok_or(KeySlotError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_env::SeededRandom;

    #[test]
    fn keys_in_text() {
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap();
        assert_eq!(key.as_bytes().len(), GENERATED_BYTES);
        assert_eq!(key.to_base64(), DEVELOPMENT_KEY);
        let cases = [
            ("", KeyError::Empty),
            ("?", KeyError::Base64),
            ("AAA", KeyError::Base64),
            ("AAAA ", KeyError::Base64),
            ("AA==", KeyError::Short),
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==", KeyError::Short),
        ];
        for (text, error) in cases {
            assert_eq!(AccountKey::from_base64(text).map(drop), Err(error), "{text:?}");
        }
        let shortest = AccountKey::from_base64("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        assert_eq!(shortest.unwrap().as_bytes(), [0; 32]);
        assert_eq!(AccountKey::from_bytes(*b"k").unwrap().as_bytes(), b"k", "stored before");
    }

    #[test]
    fn generated_keys_differ_and_are_not_shown() {
        let random = SeededRandom::new(1);
        let (a, b) = (AccountKey::generate(&random), AccountKey::generate(&random));
        assert_eq!(a.as_bytes().len(), GENERATED_BYTES);
        assert_ne!(a.as_bytes(), b.as_bytes());
        assert_eq!(format!("{a:?}"), "AccountKey");
    }

    #[test]
    fn slots_in_text() {
        for slot in KeySlot::ALL {
            assert_eq!(slot.to_string().parse(), Ok(slot));
        }
        for bad in ["", "key", "key0", "key3", "KEY1", "key1 "] {
            assert_eq!(bad.parse::<KeySlot>(), Err(KeySlotError), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = AccountKey::from_base64(&text);
            let _ = text.parse::<KeySlot>();
        }
    }
}
