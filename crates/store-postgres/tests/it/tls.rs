//! TLS to the database: a certificate that someone trusted vouches for, and no other.

use crate::common;
use rowhouse_store::Store as _;
use rowhouse_store_postgres::{OpenError, Options, PostgresStore};
use rowhouse_testkit::TestPostgres;
use std::fs;
use std::process::Command;
use std::sync::Arc;

async fn open(url: String, authorities: Option<Vec<u8>>) -> Result<PostgresStore, OpenError> {
    let options = Options { authorities, connections: 2, ..Options::new(url) };
    let (clock, random) = (rowhouse_env::SystemClock, rowhouse_env::SystemRandom);
    PostgresStore::open(options, Arc::new(clock), Arc::new(random)).await
}

#[tokio::test]
async fn the_certificate_is_checked() {
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("made");
    let (right, other) = (made("localhost"), made("localhost"));
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory can be made");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (certificate, key) = (path("certificate"), path("key"));
    fs::write(&certificate, right.cert.pem()).expect("written");
    fs::write(&key, right.signing_key.serialize_pem()).expect("written");
    // PostgreSQL reads its key only if nobody else can; as root it runs as a user of its own.
    let own = format!(
        "chmod 711 {0} && chmod 600 {key} && if [ $(id -u) = 0 ]; then chown postgres {key}; fi",
        directory.path().display()
    );
    assert!(Command::new("sh").args(["-c", &own]).status().expect("sh runs").success());
    let settings = [("ssl", "on"), ("ssl_cert_file", &certificate), ("ssl_key_file", &key)];
    let postgres = TestPostgres::start_with(&settings);
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
