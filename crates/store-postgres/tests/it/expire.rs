//! Every removal of entities that have expired is counted in a line of the log.

use crate::common;
use crate::common::{account, commit, put, record};
use rowhouse_env::{SystemClock, SystemRandom};
use rowhouse_store::conformance::indexed::{ready, unique_of};
use rowhouse_store::{Placement, Store, Ttl};
use rowhouse_store_postgres::{Options, PostgresStore};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{Timestamp, ValueRef};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What this process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Of the whole process: engines log on threads of their own. Other tests in it use other tables.
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::set_global_default(lines.finish()).expect("no other test logs");
        log
    }

    /// What its lines say was removed from a table.
    fn removed(&self, table: &str) -> Vec<usize> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let of_table = format!("table=\"{table}\"");
        let lines = text.lines().filter(|line| {
            line.contains("expired entities were removed") && line.contains(&of_table)
        });
        lines.map(|line| line.rsplit("removed=").next().unwrap().trim().parse().unwrap()).collect()
    }
}

/// Building a unique index removes what has expired, which must not keep others from having its values.
#[test]
fn what_an_index_removes_is_logged() {
    common::run(async {
        let log = Log::start();
        let url = TestPostgres::shared().create_database();
        // Long enough that nothing else removes entities.
        let options = Options { ttl_grace: Duration::from_hours(1), ..common::options(&url) };
        let store =
            PostgresStore::open(options, Arc::new(SystemClock), Arc::new(SystemRandom)).await;
        let store = store.expect("the store opens");
        let (account, name) = (account(&store).await, common::name("Cleared"));
        let table = store.create_table(account, &name, Placement::default()).await;
        let table = table.expect("the table is new").id;
        let long_ago = Timestamp::parse_iso("2001-01-01T00:00:00Z").expect("a time");
        let (until, value) = (ValueRef::DateTime(long_ago), ValueRef::String("same"));
        let mut commands =
            vec![put(table, &common::key("p", "stays"), record(&[("Value", value)]))];
        for row in ["1", "2", "3"] {
            let gone = record(&[("Value", value), ("Until", until)]);
            commands.push(put(table, &common::key("p", row), gone));
        }
        commit(&store, commands).await.expect("the batch succeeds");
        let ttl = Ttl { property: Some("Until".into()), after: Duration::ZERO };
        store.set_ttl(table, Some(ttl)).await.expect("it can be set");
        ready(&store, table, "value", unique_of(&["Value"])).await;
        assert_eq!(log.removed("Cleared"), [3]);
    });
}
