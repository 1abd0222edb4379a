//! Certificates: from files that may change while the server runs, or made here for development.
//!
//! A [`Tls`] always holds a certificate that works. Files that change are loaded again; when the
//! new ones do not load, the old certificate stays in use and the log says why.

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rowhouse_types::Timestamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto};

/// File of the generated certificate, in the data directory: what clients are told to trust.
const CERTIFICATE_FILE: &str = "tls-cert.pem";
/// File of its key, readable by the owner only. Its first line says what the certificate is good
/// for.
const KEY_FILE: &str = "tls-key.pem";
/// Names that every generated certificate is good for. The wildcard covers all accounts in the host
/// style; the development account is named once more for clients that refuse wildcards.
const OWN_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "*.table.localhost",
    "devstoreaccount1.table.localhost",
    "*.queue.localhost",
    "devstoreaccount1.queue.localhost",
];
/// How long a generated certificate is good, in days: the most that browsers take.
const VALID_DAYS: u64 = 397;
/// A generated certificate that ends sooner than this is replaced at the next start, in days.
const RENEW_DAYS: u64 = 30;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A certificate with its key, kept up to date. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<ServerConfig>,
    seen: Mutex<[Option<Stamp>; 2]>,
}

/// Why there is no usable certificate. Each message is a sentence that names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} does not hold {expected} in PEM form", path.display())]
    Pem {
        /// What was looked for.
        expected: &'static str,
        /// In which file.
        path: PathBuf,
    },
    /// The certificate and the key do not work, or not together.
    #[error(
        "the certificate {} cannot be used with the key {}: {source}",
        certificate.display(),
        key.display()
    )]
    Unusable {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// What the library said.
        source: rustls::Error,
    },
    /// A certificate for development could not be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

impl Tls {
    /// Loads a certificate chain and its key from PEM files.
    pub fn from_files(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let seen = [Stamp::of(&certificate), Stamp::of(&key)];
        let config = load(&certificate, &key)?;
        Ok(Self(Arc::new(Inner {
            certificate,
            key,
            current: ArcSwap::from_pointee(config),
            seen: Mutex::new(seen),
        })))
    }

    /// Makes a certificate for this machine that signs itself, or takes the one made earlier.
    ///
    /// It is good for `localhost`, the loopback addresses, every account under `table.localhost`
    /// and `queue.localhost`, and `names`. The certificate lies in `directory` as `tls-cert.pem`, so that clients can be
    /// told to trust it.
    pub fn self_signed(
        directory: &Path,
        names: &[String],
        now: Timestamp,
    ) -> Result<Self, TlsError> {
        let (certificate, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        let mut all: Vec<String> = OWN_NAMES.map(str::to_owned).into();
        all.extend(names.iter().filter(|name| !OWN_NAMES.contains(&name.as_str())).cloned());
        if !is_good(&key, &all, now) {
            generate(&certificate, &key, all, now)?;
        }
        Self::from_files(certificate, key)
    }

    /// Where the certificate lies.
    pub fn certificate_file(&self) -> &Path {
        &self.0.certificate
    }

    /// What the next handshake uses.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.current.load_full())
    }

    /// Loads the files again if they are not as they were at the last look.
    pub(super) fn reload_if_changed(&self) {
        let Inner { certificate, key, current, seen } = &*self.0;
        // The stamps are taken before the files are read: what changes in between is seen at the
        // next look.
        let now = [Stamp::of(certificate), Stamp::of(key)];
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        match load(certificate, key) {
            Ok(config) => {
                current.store(Arc::new(config));
                tracing::info!(certificate = %certificate.display(), "certificate loaded again");
            }
            Err(error) => tracing::warn!(%error, "keeping the old certificate"),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.0.certificate).finish()
    }
}

/// Tells one state of a file from another.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    file: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let file = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let file = 0;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len(), file })
    }
}

fn load(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|source| TlsError::File {
            doing: "read",
            path: path.to_owned(),
            source,
        })
    };
    let chain: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_slice_iter(&read(certificate)?).collect();
    let chain = chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| TlsError::Pem { expected: "a certificate", path: certificate.to_owned() })?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|_| TlsError::Pem { expected: "a private key", path: key.to_owned() })?;
    let unusable = |source| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    };
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn generate(
    certificate: &Path,
    key: &Path,
    names: Vec<String>,
    now: Timestamp,
) -> Result<(), TlsError> {
    let until = now.plus_seconds(VALID_DAYS * DAY_SECONDS);
    let first_line = describe(&names, until);
    let pair = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Rowhouse development");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    // A client whose clock is behind ours should not find it too new.
    let since = now.ticks().saturating_sub(DAY_SECONDS * 10_000_000);
    let (year, month, day) = date(Timestamp::from_ticks(since).unwrap_or(now));
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = date(until);
    params.not_after = rcgen::date_time_ymd(year, month, day);
    let signed = params.self_signed(&pair)?;
    // The key goes first: a certificate is never there without it.
    write(key, &format!("{first_line}\n{}", pair.serialize_pem()), 0o600)?;
    write(certificate, &signed.pem(), 0o644)
}

/// Whether a certificate made earlier is good for the same names and for some time to come.
fn is_good(key: &Path, names: &[String], now: Timestamp) -> bool {
    let Ok(text) = fs::read_to_string(key) else { return false };
    let first_line = text.lines().next().unwrap_or_default();
    let until =
        first_line.rsplit_once(" until ").and_then(|(_, until)| Timestamp::parse_iso(until).ok());
    until.is_some_and(|until| {
        first_line == describe(names, until) && now.plus_seconds(RENEW_DAYS * DAY_SECONDS) < until
    })
}

fn describe(names: &[String], until: Timestamp) -> String {
    format!("Made by Rowhouse for {} until {}", names.join(" "), until.iso7())
}

/// The day, from the text form that begins with it.
fn date(time: Timestamp) -> (i32, u8, u8) {
    let text = time.iso7();
    let mut parts = text.get(..10).unwrap_or_default().split('-');
    let mut next = || parts.next().and_then(|part| part.parse::<u16>().ok()).unwrap_or(1);
    let (year, month, day) = (next(), next(), next());
    let small = |number: u16| u8::try_from(number).unwrap_or(1);
    (i32::from(year), small(month), small(day))
}

/// Writes beside the file and moves it there: nobody reads half of it, and an old file's mode does
/// not stay.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let beside = path.with_extension("pem.new");
    let attempt = || {
        let _ = fs::remove_file(&beside);
        let mut file = create(&beside, mode)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    attempt().map_err(|source| TlsError::File { doing: "write", path: path.to_owned(), source })
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse_iso(text).unwrap()
    }

    #[test]
    fn a_generated_certificate_is_kept_until_it_no_longer_fits() {
        let directory = tempfile::tempdir().unwrap();
        let make = |names: &[&str], now| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let tls = Tls::self_signed(directory.path(), &names, time(now)).unwrap();
            fs::read_to_string(tls.certificate_file()).unwrap()
        };
        let first = make(&[], "2026-03-01T10:00:00Z");
        assert_eq!(make(&[], "2027-01-01T10:00:00Z"), first, "still good");
        let second = make(&["*.storage.example"], "2027-01-01T10:00:00Z");
        assert_ne!(second, first, "another name");
        let third = make(&["*.storage.example"], "2028-01-20T10:00:00Z");
        assert_ne!(third, second, "about to end");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let key = fs::metadata(directory.path().join(KEY_FILE)).unwrap();
            assert_eq!(key.permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn unusable_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        Tls::self_signed(directory.path(), &[], time("2026-03-01T10:00:00Z")).unwrap();
        let (certificate, key) = (path(CERTIFICATE_FILE), path(KEY_FILE));
        let other = tempfile::tempdir().unwrap();
        Tls::self_signed(other.path(), &[], time("2026-03-01T10:00:00Z")).unwrap();
        fs::write(path("empty"), "").unwrap();
        let cases = [
            (path("absent"), key.clone(), "cannot read"),
            (path("empty"), key.clone(), "does not hold a certificate"),
            (certificate.clone(), path("empty"), "does not hold a private key"),
            (certificate.clone(), other.path().join(KEY_FILE), "cannot be used with the key"),
        ];
        for (certificate, key, expected) in cases {
            let error = Tls::from_files(certificate, key).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Tls::from_files(certificate, key).is_ok());
    }
}
