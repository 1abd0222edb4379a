//! The PostgreSQL of the tests: it is real, it can be mistreated, and nothing of it stays behind.

use rowhouse_testkit::TestPostgres;

#[test]
fn databases_are_empty_and_apart() {
    let server = TestPostgres::shared();
    let (one, other) = (server.create_database(), server.create_database());
    assert_ne!(one, other);
    for url in [one, other] {
        let name = url.rsplit('/').next().expect("a path");
        let made = "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2); SELECT n, n + 1 FROM t";
        assert_eq!(server.execute(name, made), "1|2\n2|3");
        assert_eq!(server.execute(name, "SHOW server_encoding"), "UTF8");
    }
}

#[test]
fn settings_and_locale_are_taken() {
    let server = TestPostgres::start_with(&[("work_mem", "1MB"), ("max_connections", "20")]);
    let shown = server.execute("postgres", "SHOW work_mem; SHOW max_connections; SHOW fsync");
    assert_eq!(shown, "1MB\n20\non");
    let server = TestPostgres::start_with_locale("de");
    let url = server.create_database();
    let name = url.rsplit('/').next().expect("a path");
    let sorted = "SELECT x FROM (VALUES ('b'), ('ä'), ('B'), ('a')) AS v (x) ORDER BY x";
    assert_eq!(server.execute(name, sorted), "a\nä\nb\nB");
}
