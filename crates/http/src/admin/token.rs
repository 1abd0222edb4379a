//! Tokens of the admin API: who may do what.
//!
//! A file holds one token per line, alone or followed by its scopes: `TOKEN`, or `TOKEN
//! read,operate`. A bare token may do everything. Empty lines and lines that begin with `#` say
//! nothing. In memory a token is only a keyed digest, compared in constant time.

use ring::{digest, hmac};
use rowhouse_env::Random;
use rowhouse_types::limits;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// See health, figures, what accounts there are and what the data is kept in.
    Read,
    /// Create and remove.
    Operate,
    /// See, set and rotate keys.
    Keys,
    /// Take backups, which hold all data of all accounts, and their keys as they are stored.
    Backup,
}

impl Scope {
    const ALL: [Self; 4] = [Self::Read, Self::Operate, Self::Keys, Self::Backup];

    /// The word in a token file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Keys => "keys",
            Self::Backup => "backup",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// Why a token file cannot be used. Never tells a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot {doing} the admin token file {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line does not hold a token.
    #[error("line {line} of the admin token file {}: {offence}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        offence: &'static str,
    },
    /// No line holds a token.
    #[error("the admin token file {} holds no token: put one on a line", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// All tokens that are valid: those in a file, as it was when it could last be used.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    key: hmac::Key,
    bearers: RwLock<Vec<Arc<Bearer>>>,
    /// Digest of what the file held when it was last read; none if it could not be read.
    seen: Mutex<Option<Vec<u8>>>,
}

/// Somebody who sent a valid token.
#[derive(Debug)]
pub(super) struct Bearer {
    tag: hmac::Tag,
    scopes: Vec<Scope>,
    fingerprint: String,
}

impl Bearer {
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Tells tokens apart in the log without telling them.
    pub(super) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl Tokens {
    /// Reads a file.
    pub fn load(path: &Path, random: &dyn Random) -> Result<Self, TokenError> {
        Self::parse(&read(path)?, path, random)
    }

    /// Reads the file again if it has changed. What cannot be used is logged, once, and changes nothing.
    pub fn reload(&self) {
        let text = read(&self.path);
        let digest = text.as_ref().ok().map(|text| digest_of(text));
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == digest {
                return;
            }
            *seen = digest;
        }
        match text.and_then(|text| parse_file(&self.key, &text, &self.path)) {
            Ok(bearers) => {
                let file = self.path.display();
                tracing::info!(target: "audit", tokens = bearers.len(), %file, "admin tokens read again");
                *self.bearers.write().unwrap_or_else(PoisonError::into_inner) = bearers;
            }
            Err(error) => tracing::error!(%error, "the admin tokens stay as they were"),
        }
    }

    /// Reads a file, after making one with a new token that only its owner can read if there is
    /// none.
    pub fn load_or_create(path: &Path, random: &dyn Random) -> Result<Self, TokenError> {
        match create(path, random) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(TokenError::File { doing: "write", path: path.to_owned(), source })
            }
            Ok(()) | Err(_) => Self::load(path, random),
        }
    }

    /// The text of a file; `path` is only for messages.
    fn parse(text: &str, path: &Path, random: &dyn Random) -> Result<Self, TokenError> {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let bearers = RwLock::new(parse_file(&key, text, path)?);
        let seen = Mutex::new(Some(digest_of(text)));
        Ok(Self { path: path.to_owned(), key, bearers, seen })
    }

    /// Who sent this token. Takes as long for a wrong token as for a right one in its place.
    pub(super) fn find(&self, token: &str) -> Option<Arc<Bearer>> {
        let bearers = self.bearers.read().unwrap_or_else(PoisonError::into_inner);
        let found = bearers.iter().fold(None, |found, bearer| {
            let equal = hmac::verify(&self.key, token.as_bytes(), bearer.tag.as_ref()).is_ok();
            if equal { Some(bearer) } else { found }
        });
        found.cloned()
    }
}

fn read(path: &Path) -> Result<String, TokenError> {
    fs::read_to_string(path).map_err(|source| TokenError::File {
        doing: "read",
        path: path.to_owned(),
        source,
    })
}

fn digest_of(text: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec()
}

fn parse_file(key: &hmac::Key, text: &str, path: &Path) -> Result<Vec<Arc<Bearer>>, TokenError> {
    let mut bearers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (token, scopes) = parse_line(line).map_err(|offence| TokenError::Line {
            path: path.to_owned(),
            line: index + 1,
            offence,
        })?;
        bearers.push(Arc::new(Bearer {
            tag: hmac::sign(key, token.as_bytes()),
            scopes,
            fingerprint: hex(&digest_of(token)[..4]),
        }));
    }
    if bearers.is_empty() { Err(TokenError::Empty { path: path.to_owned() }) } else { Ok(bearers) }
}

fn parse_line(line: &str) -> Result<(&str, Vec<Scope>), &'static str> {
    let (token, scopes) = match line.split_once(char::is_whitespace) {
        None => (line, Scope::ALL.into()),
        Some((token, scopes)) => {
            let scopes: Option<Vec<Scope>> =
                scopes.split(',').map(|scope| Scope::parse(scope.trim())).collect();
            (token, scopes.ok_or("scopes are read, operate, keys and backup, separated by commas")?)
        }
    };
    if token.len() < limits::ADMIN_TOKEN_CHARS_MIN {
        return Err("a token has at least 16 characters");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token is made of printable ASCII characters");
    }
    Ok((token, scopes))
}

/// Writes a new token to a file that must not exist.
fn create(path: &Path, random: &dyn Random) -> io::Result<()> {
    let mut file = create_owner_only(path)?;
    let mut token = [0; 32];
    random.fill(&mut token);
    let written = writeln!(file, "{}", hex(&token)).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a token must not be taken for one at the next start.
        let _ = fs::remove_file(path);
    }
    written
}

fn create_owner_only(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rowhouse_env::SeededRandom;

    fn parse(text: &str) -> Result<Tokens, TokenError> {
        Tokens::parse(text, Path::new("tokens"), &SeededRandom::new(1))
    }

    #[test]
    fn lines_give_tokens_their_scopes() {
        let file = "# operators\n\nall-of-it-0123456789\nreader-0123456789  read\r\n\
                    both-0123456789ab\tread, keys\nnightly-0123456789 backup\n";
        let tokens = parse(file).unwrap();
        let cases: [(&str, Option<[bool; 4]>); 6] = [
            ("all-of-it-0123456789", Some([true, true, true, true])),
            ("reader-0123456789", Some([true, false, false, false])),
            ("both-0123456789ab", Some([true, false, true, false])),
            ("nightly-0123456789", Some([false, false, false, true])),
            ("both-0123456789a", None),
            ("", None),
        ];
        for (token, expected) in cases {
            let may = tokens.find(token).map(|bearer| Scope::ALL.map(|scope| bearer.may(scope)));
            assert_eq!(may, expected, "{token}");
        }
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let cases = [
            ("", "holds no token"),
            ("# nothing\n", "holds no token"),
            ("\nshort\n", "line 2"),
            ("long-enough-0123456 root\n", "scopes are read, operate, keys and backup"),
            ("long-enough-0123456 read,\n", "scopes are read, operate, keys and backup"),
            ("long-enough-012345é\n", "printable ASCII"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_token_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin-token");
        Tokens::load_or_create(&path, &SeededRandom::new(1)).unwrap();
        let token = fs::read_to_string(&path).unwrap();
        assert_eq!(token.trim().len(), 64);
        let tokens = Tokens::load_or_create(&path, &SeededRandom::new(2)).unwrap();
        assert!(tokens.find(token.trim()).is_some());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let nowhere = directory.path().join("absent/admin-token");
        assert!(Tokens::load_or_create(&nowhere, &SeededRandom::new(3)).is_err());
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let (old, new) = ("old-token-0123456789", "new-token-0123456789");
        fs::write(&path, old).unwrap();
        let tokens = Tokens::load(&path, &SeededRandom::new(1)).unwrap();
        let valid = || [old, new].map(|token| tokens.find(token).is_some());
        tokens.reload();
        assert_eq!(valid(), [true, false]);
        fs::write(&path, format!("{new} read")).unwrap();
        tokens.reload();
        assert_eq!(valid(), [false, true]);
        assert!(!tokens.find(new).unwrap().may(Scope::Keys), "scopes are those of the file");
        for broken in ["", "short", "new-token-0123456789 root"] {
            fs::write(&path, broken).unwrap();
            tokens.reload();
            assert_eq!(valid(), [false, true], "{broken:?}");
        }
        fs::remove_file(&path).unwrap();
        tokens.reload();
        assert_eq!(valid(), [false, true]);
        fs::write(&path, format!("{old}\n{new}")).unwrap();
        tokens.reload();
        assert_eq!(valid(), [true, true]);
    }

    proptest! {
        /// Any text is a list of tokens or an error, and what was no token opens nothing.
        #[test]
        fn any_file_is_judged(text in "[a-f# ,\n\té]{0,80}", token in "[a-f]{0,20}") {
            if let Ok(tokens) = parse(&text)
                && tokens.find(&token).is_some()
            {
                prop_assert!(text.split_whitespace().any(|word| word == token));
            }
        }
    }
}
