//! TLS to the database: a certificate that someone trusted vouches for, and no other.

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
    let named = |host: &str| {
        let url = plain.replace("127.0.0.1", host);
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}sslmode=require")
    };
    let trusted = || Some(right.cert.pem().into_bytes());

    let store = open(named("localhost"), trusted()).await.expect("it is trusted");
    let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE a.application_name = 'rowhouse'";
    assert_eq!(postgres.execute("postgres", sql).trim(), "t");
    store.close().await.expect("closed");

    let untrusted = [
        open(named("localhost"), Some(other.cert.pem().into_bytes())).await,
        open(named("localhost"), None).await,
        open(named("127.0.0.1"), trusted()).await,
    ];
    for refused in untrusted {
        let error = refused.expect_err("nobody vouches for it");
        assert!(matches!(error, OpenError::Misconfigured(_)), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let none = open(named("localhost"), Some(b"nothing".to_vec())).await;
    assert!(matches!(none, Err(OpenError::Authorities(_))), "{none:?}");
    let store = open(plain.clone(), None).await.expect("TLS was not asked for");
    store.close().await.expect("closed");

    let without = TestPostgres::start();
    let url = format!("{}?sslmode=require", without.create_database());
    let refused = open(url, trusted()).await.expect_err("it speaks no TLS");
    assert!(matches!(refused, OpenError::Misconfigured(_)), "{refused}");
}
