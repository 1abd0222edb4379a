//! TLS to the database: a certificate that someone trusted vouches for, and no other.

use crate::common;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use rowhouse_store::Store as _;
use rowhouse_store_postgres::{OpenError, Options, PostgresStore};
use rowhouse_testkit::TestPostgres;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

async fn open(url: String, authorities: Option<Vec<u8>>) -> Result<PostgresStore, OpenError> {
    let options = Options { authorities, connections: 2, ..Options::new(url) };
    let (clock, random) = (rowhouse_env::SystemClock, rowhouse_env::SystemRandom);
    PostgresStore::open(options, Arc::new(clock), Arc::new(random)).await
}

type Settings = Vec<(&'static str, String)>;

/// What a database is told so that it has this certificate, and where its files are.
fn offering(certificate: &str, key: &KeyPair) -> (TempDir, Settings) {
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory can be made");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (certificate_file, key_file) = (path("certificate"), path("key"));
    fs::write(&certificate_file, certificate).expect("written");
    fs::write(&key_file, key.serialize_pem()).expect("written");
    // PostgreSQL reads its key only if nobody else can; as root it runs as a user of its own.
    let own = format!(
        "chmod 711 {0} && chmod 600 {key_file} && if [ $(id -u) = 0 ]; then chown postgres {key_file}; fi",
        directory.path().display()
    );
    assert!(Command::new("sh").args(["-c", &own]).status().expect("sh runs").success());
    let on = ("ssl", "on".to_owned());
    let settings = vec![on, ("ssl_cert_file", certificate_file), ("ssl_key_file", key_file)];
    (directory, settings)
}

fn borrowed<'a>(settings: &'a [(&str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A certificate of version 1 in PEM, as a node of Citus makes for itself: no extensions, no name of a host, and already
/// expired.
fn of_version_1(key: &KeyPair) -> String {
    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).expect("it is short").to_be_bytes();
        [&[tag, 0x82][..], &length, &content].concat()
    }
    const SEQUENCE: u8 = 0x30;
    // ecdsa-with-SHA256
    let algorithm = der(SEQUENCE, &[&[0x06, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2]]);
    let common_name = der(SEQUENCE, &[&[0x06, 3, 0x55, 4, 3], &der(0x0C, &[b"node"])]);
    let name = der(SEQUENCE, &[&der(0x31, &[&common_name])]);
    let time = der(0x17, &[b"260101000000Z"]);
    let validity = der(SEQUENCE, &[&time, &time]);
    let public = key.subject_public_key_info();
    let serial = [0x02, 1, 1];
    let signed = der(SEQUENCE, &[&serial, &algorithm, &name, &validity, &name, &public]);
    let signature = key.sign(&signed).expect("it signs");
    let certificate = der(SEQUENCE, &[&signed, &algorithm, &der(0x03, &[&[0], &signature])]);
    let text = STANDARD.encode(certificate);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[tokio::test]
async fn the_certificate_is_checked() {
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("made");
    let (right, other) = (made("localhost"), made("localhost"));
    let (_directory, settings) = offering(&right.cert.pem(), &right.signing_key);
    let postgres = TestPostgres::start_with(&borrowed(&settings));
    let plain = postgres.create_database();
    let with_mode = |host: &str, mode: &str| {
        let url = plain.replace("127.0.0.1", host);
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}sslmode={mode}")
    };
    let named = |host: &str| with_mode(host, "require");
    let trusted = || Some(right.cert.pem().into_bytes());

    let store = open(named("localhost"), trusted()).await.expect("it is trusted");
    let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE a.application_name = 'rowhouse'";
    let are_encrypted = || postgres.execute("postgres", sql).trim().to_owned();
    assert_eq!(are_encrypted(), "t");
    store.close().await.expect("closed");
    // The name in the certificate is localhost; 0.0.0.0 is this machine too, but not a name of it.
    for url in [
        with_mode("localhost", "verify-full"),
        with_mode("localhost", "verify-ca"),
        with_mode("127.0.0.1", "verify-ca"),
        with_mode("127.0.0.1", "prefer"),
        with_mode("0.0.0.0", "prefer"),
        plain.replace("127.0.0.1", "0.0.0.0"),
        plain.clone(),
    ] {
        let store = open(url.clone(), trusted()).await.unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(are_encrypted(), "t", "{url}");
        store.close().await.expect("closed");
    }
    let store = open(with_mode("0.0.0.0", "disable"), trusted()).await.expect("plain text");
    assert_eq!(are_encrypted(), "f");
    store.close().await.expect("closed");

    let untrusted = [
        open(named("localhost"), Some(other.cert.pem().into_bytes())).await,
        open(named("localhost"), None).await,
        open(named("127.0.0.1"), trusted()).await,
        open(with_mode("127.0.0.1", "verify-full"), trusted()).await,
        open(with_mode("localhost", "verify-ca"), Some(other.cert.pem().into_bytes())).await,
        open(with_mode("localhost", "verify-ca"), None).await,
    ];
    for refused in untrusted {
        let error = refused.expect_err("nobody vouches for it");
        assert!(matches!(error, OpenError::Misconfigured(_)), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let none = open(named("localhost"), Some(b"nothing".to_vec())).await;
    assert!(matches!(none, Err(OpenError::Authorities(_))), "{none:?}");
    let store = open(plain.clone(), None).await.expect("no authority is needed");
    store.close().await.expect("closed");

    let without = TestPostgres::start();
    let url = format!("{}?sslmode=require", without.create_database());
    let refused = open(url, trusted()).await.expect_err("it speaks no TLS");
    assert!(matches!(refused, OpenError::Misconfigured(_)), "{refused}");
}

/// Where no certificate is checked, it need not even be one that could be: what Citus makes on every node has version 1.
#[tokio::test]
async fn a_certificate_that_nobody_checks_may_have_any_version() {
    let key = KeyPair::generate().expect("made");
    let (_directory, settings) = offering(&of_version_1(&key), &key);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let only = [("ssl_min_protocol_version", version), ("ssl_max_protocol_version", version)];
        let postgres = TestPostgres::start_with(&[&borrowed(&settings)[..], &only].concat());
        let url = postgres.create_database();
        let store = open(url.clone(), None).await.unwrap_or_else(|e| panic!("{version}: {e}"));
        let sql = "SELECT DISTINCT s.version FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
            WHERE a.application_name = 'rowhouse'";
        assert_eq!(postgres.execute("postgres", sql).trim(), version);
        store.close().await.expect("closed");
        let url = format!("{url}{}sslmode=verify-ca", if url.contains('?') { '&' } else { '?' });
        let trusted = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let refused = open(url, Some(trusted.cert.pem().into_bytes())).await;
        assert!(matches!(refused, Err(OpenError::Misconfigured(_))), "{refused:?}");
    }
}

/// Plain text stays on this machine unless the address says otherwise.
#[tokio::test]
async fn a_remote_database_without_tls_is_refused() {
    let url = TestPostgres::shared().create_database();
    // Nothing knows it for this machine.
    let remote = url.replace("127.0.0.1", "0.0.0.0");
    let refused = open(remote.clone(), None).await.expect_err("it offers no TLS");
    assert!(matches!(refused, OpenError::PlainText), "{refused}");
    assert!(refused.to_string().contains("sslmode=disable"), "{refused}");
    for url in [format!("{remote}?sslmode=disable"), format!("{url}?sslmode=prefer"), url] {
        let store = common::try_open(&url).await.unwrap_or_else(|e| panic!("{url}: {e}"));
        store.close().await.expect("closed");
    }
}
