//! Keys at rest: sealed under a master key that is not kept beside the data.
//!
//! A stored key is an envelope whose first byte names its form:
//!
//! | First byte | What follows |
//! |---|---|
//! | 0 | the key itself: there was no master key |
//! | 1 | a nonce of 12 bytes, then the key under ChaCha20-Poly1305 with the tag of 16 bytes |
//! | 2 | nothing: there is no key, because a backup left it out |
//!
//! The account's name and the slot are associated data: a key copied into another account or slot does
//! not open. Unsealed keys open with or without a master key, so that one can be introduced later; from
//! then on whatever is written is sealed.
//!
//! A backup holds no key that can be read ([`Sealer::for_backup`]): what is not sealed is sealed for it, or left out where
//! there is no master key. The public key of the development account is no secret, and stays.

use crate::error::AccountError;
use crate::key::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, KeySlot};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rowhouse_env::Random;
use rowhouse_types::AccountName;
use std::fmt;

const UNSEALED: u8 = 0;
const CHACHA20: u8 = 1;
const ABSENT: u8 = 2;

/// How an account's key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Nobody has it: a backup left it out.
    Absent,
    /// The public key of the development account, which is no secret.
    Public,
    /// Whoever has the bytes has the key.
    Readable,
    /// Of use only with the master key, or to a later release.
    Sealed,
}

impl KeyForm {
    /// The form of a stored key of that account.
    pub fn of(account: &AccountName, envelope: &[u8]) -> Self {
        match envelope {
            [UNSEALED, key @ ..] if is_public(account, key) => Self::Public,
            [UNSEALED, ..] => Self::Readable,
            [ABSENT] => Self::Absent,
            _ => Self::Sealed,
        }
    }
}

fn is_public(account: &AccountName, key: &[u8]) -> bool {
    account.as_str() == DEVELOPMENT_ACCOUNT
        && AccountKey::from_base64(DEVELOPMENT_KEY).is_ok_and(|public| public.as_bytes() == key)
}

/// Seals and opens keys of accounts.
#[derive(Default)]
pub struct Sealer {
    /// Seals, and opens.
    current: Option<LessSafeKey>,
    /// Only open: what was sealed before the master key was replaced, or by a server that has its replacement already.
    others: Vec<LessSafeKey>,
}

fn master_key(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has 32 bytes");
    LessSafeKey::new(key)
}

impl Sealer {
    /// Seals under a master key.
    pub fn with_master_key(key: [u8; 32]) -> Self {
        Self::with_master_keys(&key, &[])
    }

    /// Seals under a master key, and opens what others have sealed, while one is replaced by another.
    pub fn with_master_keys(current: &[u8; 32], others: &[[u8; 32]]) -> Self {
        let others = others.iter().map(master_key).collect();
        Self { current: Some(master_key(current)), others }
    }

    /// Stores keys as they are. The caller warns whoever runs the server, and keeps the files for their owner only.
    pub fn unsealed() -> Self {
        Self::default()
    }

    /// Whether there is a master key.
    pub(crate) fn seals(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a stored key is as it would be sealed now: absent, or under the current master key.
    pub(crate) fn is_current(&self, account: &AccountName, slot: KeySlot, envelope: &[u8]) -> bool {
        match (envelope, &self.current) {
            ([ABSENT], _) => true,
            ([CHACHA20, rest @ ..], Some(master)) => {
                let parts = rest.split_first_chunk();
                parts.is_some_and(|(nonce, sealed)| {
                    open_with(master, account, slot, *nonce, sealed).is_some()
                })
            }
            _ => false,
        }
    }

    pub(crate) fn seal(
        &self,
        random: &dyn Random,
        account: &AccountName,
        slot: KeySlot,
        key: Option<&AccountKey>,
    ) -> Box<[u8]> {
        let Some(key) = key else { return [ABSENT].into() };
        let Some(master) = &self.current else {
            return [&[UNSEALED], key.as_bytes()].concat().into();
        };
        let mut nonce = [0; NONCE_LEN];
        random.fill(&mut nonce);
        let mut secret = key.as_bytes().to_vec();
        master
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                context(account, slot),
                &mut secret,
            )
            .expect("a key is far shorter than the cipher's limit");
        [&[CHACHA20], &nonce[..], &secret].concat().into()
    }

    /// What a backup holds in the place of a stored key: never a secret that can be read.
    pub(crate) fn for_backup(
        &self,
        random: &dyn Random,
        account: &AccountName,
        slot: KeySlot,
        envelope: &[u8],
    ) -> Box<[u8]> {
        match (KeyForm::of(account, envelope), envelope) {
            (KeyForm::Readable, [UNSEALED, key @ ..]) if self.seals() => {
                self.seal(random, account, slot, AccountKey::from_bytes(key).ok().as_ref())
            }
            (KeyForm::Readable, _) => [ABSENT].into(),
            (KeyForm::Absent | KeyForm::Public | KeyForm::Sealed, _) => envelope.into(),
        }
    }

    /// The key in an envelope; none if it was left out of the backup that it came from.
    pub(crate) fn open(
        &self,
        account: &AccountName,
        slot: KeySlot,
        envelope: &[u8],
    ) -> Result<Option<AccountKey>, AccountError> {
        let corrupt = |what| AccountError::Corrupt(format!("{slot} of account {account} {what}"));
        let bytes = match envelope {
            [UNSEALED, key @ ..] => key.to_vec(),
            [CHACHA20, rest @ ..] => {
                let (nonce, sealed) =
                    rest.split_first_chunk().ok_or_else(|| corrupt("is cut short"))?;
                if !self.seals() {
                    return Err(AccountError::Sealed(format!(
                        "the keys of account {account} are sealed: start the server with the \
                         master key they were sealed with"
                    )));
                }
                let mut masters = self.current.iter().chain(&self.others);
                let open = |master| open_with(master, account, slot, *nonce, sealed);
                masters.find_map(open).ok_or_else(|| {
                    AccountError::Sealed(format!(
                        "the keys of account {account} do not open with this master key: start \
                         the server with the one they were sealed with"
                    ))
                })?
            }
            [ABSENT] => return Ok(None),
            [] => return Err(corrupt("is empty")),
            _ => return Err(corrupt("was sealed by a later release")),
        };
        AccountKey::from_bytes(bytes).map(Some).map_err(|_| corrupt("is empty"))
    }
}

/// The bytes that this master key has sealed; none if it was another one.
fn open_with(
    master: &LessSafeKey,
    account: &AccountName,
    slot: KeySlot,
    nonce: [u8; NONCE_LEN],
    sealed: &[u8],
) -> Option<Vec<u8>> {
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let opened = master.open_in_place(nonce, context(account, slot), &mut sealed).ok()?;
    Some(opened.to_vec())
}

/// What a sealed key is bound to. A name holds no U+0000, so no two contexts are equal.
fn context(account: &AccountName, slot: KeySlot) -> Aad<Vec<u8>> {
    Aad::from(format!("rowhouse account key\0{account}\0{slot}").into_bytes())
}

/// Shows nothing of the master key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.seals() { "Sealer(sealing)" } else { "Sealer(unsealed)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_env::SeededRandom;

    fn name(text: &str) -> AccountName {
        text.parse().unwrap()
    }

    fn key() -> AccountKey {
        AccountKey::from_bytes(*b"secret").unwrap()
    }

    #[test]
    fn sealed_keys_open_only_where_they_belong() {
        let sealer = Sealer::with_master_key([7; 32]);
        let random = SeededRandom::new(1);
        let seal = || sealer.seal(&random, &name("acct"), KeySlot::First, Some(&key()));
        let envelope = seal();
        assert_ne!(envelope, seal(), "a nonce is never used twice");
        assert!(!envelope.windows(6).any(|part| part == b"secret"));
        let open = |sealer: &Sealer, account: &str, slot| {
            let opened = sealer.open(&name(account), slot, &envelope);
            opened.map(|key| key.unwrap().as_bytes().to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(open(&sealer, "acct", KeySlot::First).unwrap(), b"secret");
        let wrong = "the keys of account acct do not open with this master key: start the server \
                     with the one they were sealed with";
        let none = "the keys of account acct are sealed: start the server with the master key they \
                    were sealed with";
        let other = Sealer::with_master_key([8; 32]);
        assert_eq!(open(&other, "acct", KeySlot::First).unwrap_err(), wrong);
        assert_eq!(open(&Sealer::unsealed(), "acct", KeySlot::First).unwrap_err(), none);
        assert!(open(&sealer, "acct", KeySlot::Second).is_err());
        assert!(open(&sealer, "acct2", KeySlot::First).is_err());
        for index in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[index] ^= 0x40;
            assert!(sealer.open(&name("acct"), KeySlot::First, &changed).is_err(), "{index}");
        }
    }

    /// The form on disk must not change: later releases open it.
    #[test]
    fn frozen_envelopes() {
        let random = SeededRandom::new(1);
        let plain = Sealer::unsealed().seal(&random, &name("acct"), KeySlot::First, Some(&key()));
        assert_eq!(&*plain, b"\0secret");
        let envelope = [
            1, 193, 92, 2, 137, 236, 45, 10, 145, 103, 236, 142, 101, 185, 195, 81, 215, 151, 174,
            131, 72, 14, 43, 204, 205, 235, 222, 232, 77, 161, 147, 38, 226, 181, 50,
        ];
        let sealer = Sealer::with_master_key([7; 32]);
        let again = sealer.seal(&random, &name("acct"), KeySlot::First, Some(&key()));
        assert_eq!(*again, envelope);
        for (sealer, envelope) in
            [(&sealer, &plain[..]), (&sealer, &envelope), (&Sealer::unsealed(), &plain)]
        {
            let opened = sealer.open(&name("acct"), KeySlot::First, envelope).unwrap().unwrap();
            assert_eq!(opened.as_bytes(), b"secret");
        }
    }

    /// With a master key what lay open is sealed for a backup; without one it is left out.
    #[test]
    fn a_backup_holds_nothing_that_can_be_read() {
        let (open, sealing) = (Sealer::unsealed(), Sealer::with_master_key([7; 32]));
        let random = SeededRandom::new(1);
        let (slot, other) = (KeySlot::First, name("acct"));
        let stored = open.seal(&random, &other, slot, Some(&key()));
        assert_eq!(*open.for_backup(&random, &other, slot, &stored), [ABSENT]);
        let sealed = sealing.for_backup(&random, &other, slot, &stored);
        assert_eq!(KeyForm::of(&other, &sealed), KeyForm::Sealed);
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        let opened = sealing.open(&other, slot, &sealed).unwrap().unwrap();
        assert_eq!(opened.as_bytes(), b"secret");
        for sealer in [&open, &sealing] {
            // What is sealed stays as it is, byte for byte, and what is absent stays absent.
            assert_eq!(sealer.for_backup(&random, &other, slot, &sealed), sealed);
            assert_eq!(*sealer.for_backup(&random, &other, slot, &[ABSENT]), [ABSENT]);
            // A key of no bytes is none that could be kept.
            assert_eq!(*sealer.for_backup(&random, &other, slot, &[UNSEALED]), [ABSENT]);
        }
    }

    #[test]
    fn only_the_public_key_is_no_secret() {
        let open = Sealer::unsealed();
        let random = SeededRandom::new(1);
        let public = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap();
        let cases = [
            (DEVELOPMENT_ACCOUNT, &public, KeyForm::Public),
            (DEVELOPMENT_ACCOUNT, &key(), KeyForm::Readable),
            ("acct", &public, KeyForm::Readable),
        ];
        for (account, key, form) in cases {
            let account = name(account);
            let stored = open.seal(&random, &account, KeySlot::First, Some(key));
            assert_eq!(KeyForm::of(&account, &stored), form, "{account}");
            let kept = open.for_backup(&random, &account, KeySlot::First, &stored);
            assert_eq!(kept == stored, form == KeyForm::Public, "{account}");
        }
    }

    #[test]
    fn an_absent_key_opens_as_none() {
        for sealer in [Sealer::unsealed(), Sealer::with_master_key([7; 32])] {
            let envelope = sealer.seal(&SeededRandom::new(1), &name("acct"), KeySlot::First, None);
            assert_eq!(*envelope, [2], "the form on disk must not change");
            assert!(sealer.open(&name("acct"), KeySlot::First, &envelope).unwrap().is_none());
            // Something behind it is of a later release.
            assert!(sealer.open(&name("acct"), KeySlot::First, b"\x02more").is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes in prop::collection::vec(any::<u8>(), 0..60), form in 0..4u8) {
            if let Some(first) = bytes.first_mut() {
                *first = form;
            }
            let _ = Sealer::unsealed().open(&name("acct"), KeySlot::First, &bytes);
            let sealer = Sealer::with_master_key([7; 32]);
            let _ = sealer.open(&name("acct"), KeySlot::First, &bytes);
        }
    }
}
