//! The key that seals account keys at rest: from a file or the environment, never beside the data.

use crate::error::ServerError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_service_account::Sealer;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the master key comes from.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum MasterKey {
    /// There is none: account keys are stored as they are, in files of their owner only.
    #[default]
    None,
    /// The text of the key.
    Text(String),
    /// A file that holds the text: one key, or several while one is replaced.
    File(PathBuf),
}

/// Shows where the key comes from, never the key.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl MasterKey {
    /// Makes the sealer; `data` is where the key must not lie.
    pub(crate) fn sealer(&self, data: &Path) -> Result<Sealer, ServerError> {
        let refuse = |sentence: String| Err(ServerError::MasterKey(sentence));
        let form =
            "32 bytes in Base64 or hexadecimal; 'head -c 32 /dev/urandom | base64' makes one";
        match self {
            Self::None => Ok(Sealer::unsealed()),
            Self::Text(text) => match sealer(text) {
                Some(sealer) => Ok(sealer),
                None => refuse(format!("ROWHOUSE_MASTER_KEY must hold {form}")),
            },
            Self::File(path) => {
                if lies_in(path, data) {
                    return refuse(format!(
                        "the master key file {} lies in the data directory, where it protects \
                         nothing: keep it elsewhere",
                        path.display()
                    ));
                }
                match fs::read_to_string(path).map(|text| sealer(&text)) {
                    Ok(Some(sealer)) => Ok(sealer),
                    Ok(None) => {
                        refuse(format!("the master key file {} must hold {form}", path.display()))
                    }
                    Err(error) => refuse(format!(
                        "cannot read the master key file {} ({error}): check --master-key-file",
                        path.display()
                    )),
                }
            }
        }
    }
}

/// The first key seals; those that follow only open, while one is replaced by another.
fn sealer(text: &str) -> Option<Sealer> {
    let keys: Vec<_> = text.split_whitespace().map(parse).collect::<Option<_>>()?;
    let (current, others) = keys.split_first()?;
    Some(Sealer::with_master_keys(current, others))
}

/// Hexadecimal first: 64 digits are Base64 too, of 48 bytes.
fn parse(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    let bytes = from_hex(text).or_else(|| STANDARD.decode(text).ok())?;
    bytes.try_into().ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

fn lies_in(path: &Path, directory: &Path) -> bool {
    match (path.canonicalize(), directory.canonicalize()) {
        (Ok(path), Ok(directory)) => path.starts_with(directory),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_are_taken() {
        let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let hex = "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F".to_owned();
        for text in [hex.clone(), hex.to_lowercase(), STANDARD.encode(bytes), format!(" {hex}\n")] {
            assert_eq!(parse(&text), Some(bytes), "{text}");
        }
        for text in
            ["", "00", &hex[..62], &STANDARD.encode(&bytes[..31]), &format!("+{}", &hex[1..])]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_beside_the_data_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let key = STANDARD.encode([7; 32]);
        let (inside, outside) = (data.join("key"), directory.path().join("key"));
        fs::write(&inside, &key).unwrap();
        fs::write(&outside, &key).unwrap();
        let sentence = |path: &Path| {
            MasterKey::File(path.to_owned()).sealer(&data).err().map(|error| error.to_string())
        };
        assert!(sentence(&inside).is_some_and(|text| text.contains("keep it elsewhere")));
        assert_eq!(sentence(&outside), None);
        assert!(sentence(&data.join("absent")).is_some_and(|text| text.contains("cannot read")));
        fs::write(&outside, "short").unwrap();
        assert!(sentence(&outside).is_some_and(|text| text.contains("32 bytes")));
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_none(text in "\\PC{0,70}") {
            let _ = parse(&text);
        }
    }
}
