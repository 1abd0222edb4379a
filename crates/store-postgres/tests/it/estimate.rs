//! A view tells about how many rows there are by what the database knows, without counting them.

use crate::common;
use crate::common::{database, key, number, open, put, table, write};
use rowhouse_store::{Estimate, Store};
use rowhouse_testkit::TestPostgres;

async fn told(store: &dyn Store) -> Option<Estimate> {
    let view = store.snapshot().await.expect("a view can be taken");
    view.estimate().await.expect("it can be asked")
}

#[test]
fn rows_are_told_as_the_database_knows_them() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let store = open(&url).await;
        let things = table(&*store).await;
        let put = async |from: i64, to: i64| {
            for row in from..to {
                write(&*store, put(things, &key("p", &row.to_string()), number(row))).await;
            }
        };
        assert_eq!(told(&*store).await, None, "there is nothing");
        let off = "ALTER TABLE rowhouse.entities SET (autovacuum_enabled = off)";
        server.execute(database(&url), off);
        put(0, 500).await;
        assert_eq!(told(&*store).await, None, "nobody has counted");
        server.execute(database(&url), "ANALYZE rowhouse.entities");
        assert_eq!(told(&*store).await, Some(Estimate::Items(500)));
        // What has come since shows in the number of pages.
        put(500, 1000).await;
        let Some(Estimate::Items(rows)) = told(&*store).await else { panic!("it was counted") };
        assert!((900..1100).contains(&rows), "{rows}");
    });
}
