//! HMAC-SHA256 in Base64: the one operation behind every signature of the protocol.

use crate::AuthError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use std::fmt;

/// A signature as presented: 32 bytes that are compared in constant time and never shown.
#[derive(Clone)]
pub(crate) struct Signature([u8; 32]);

impl Signature {
    pub(crate) fn parse(base64: &str) -> Result<Self, AuthError> {
        // As many as 44 digits may stand for; more digits do not fit and are refused.
        let mut bytes = [0; 33];
        let length = STANDARD.decode_slice(base64, &mut bytes).ok();
        let bytes = length.and_then(|length| bytes[..length].try_into().ok());
        bytes.map(Self).ok_or(AuthError::Failed("the signature is not 32 bytes in Base64"))
    }

    /// As it was sent.
    pub(crate) fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// True if one of the keys made this signature of the text. An empty key makes none.
    pub(crate) fn matches(&self, keys: &[&[u8]], text: &str) -> bool {
        keys.iter().filter(|key| !key.is_empty()).any(|key| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::verify(&key, text.as_bytes(), &self.0).is_ok()
        })
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature")
    }
}

/// The signature of a text, in Base64.
pub(crate) fn sign(key: &[u8], text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    STANDARD.encode(hmac::sign(&key, text.as_bytes()))
}
