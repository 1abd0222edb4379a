//! A role that does not own the schema: what it lacks is told when a server starts, with what to run.

use crate::common;
use crate::common::{database, key, number, open, put, table, try_open};
use rowhouse_store::{Batch, Store as _};
use rowhouse_store_postgres::OpenError;
use rowhouse_testkit::TestPostgres;

#[test]
fn a_role_that_lacks_rights_is_told_which() {
    let server = TestPostgres::shared();
    let url = server.create_database();
    let name = database(&url).to_owned();
    common::run(async {
        open(&url).await.close().await.expect("it closes");
        let role = format!("\"Of {name}\"");
        let (protocol, rest) = url.split_once("://").expect("an address");
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        let as_role = format!("{protocol}://Of%20{name}@{place}");
        let run = |sql: &str| server.execute(&name, sql);
        run(&format!("CREATE ROLE {role} LOGIN"));
        let refused = async || match try_open(&as_role).await {
            Err(OpenError::Rights { role, missing, grants }) => (role, missing, grants),
            other => panic!("it has no rights: {other:?}"),
        };

        let (told, missing, grants) = refused().await;
        assert_eq!(told, role);
        assert!(missing.contains("USAGE on schema rowhouse"), "{missing}");
        let all: Vec<&str> = grants.split("; ").collect();
        let schema = format!("GRANT USAGE ON SCHEMA rowhouse TO {role}");
        let tables = format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rowhouse TO {role}"
        );
        let sequences =
            format!("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA rowhouse TO {role}");
        assert_eq!(all, [&schema, &tables, &sequences]);

        run(&grants);
        let store = try_open(&as_role).await.expect("it may now");
        let table = table(&store).await;
        let written = store.commit(Batch::of(put(table, &key("p", "r"), number(1)))).await;
        written.expect("it may write");
        store.close().await.expect("it closes");

        let cases = [
            ("UPDATE ON rowhouse.entities", "UPDATE on entities", &tables),
            ("SELECT ON rowhouse.schema_version", "SELECT on schema_version", &tables),
            ("SELECT ON SEQUENCE rowhouse.changes_id_seq", "SELECT on changes_id_seq", &sequences),
            ("USAGE ON SCHEMA rowhouse", "USAGE on schema rowhouse", &schema),
        ];
        for (revoked, expected, grant) in cases {
            run(&format!("REVOKE {revoked} FROM {role}"));
            assert_eq!(refused().await, (role.clone(), expected.to_owned(), grant.clone()));
            run(grant);
        }
        // What only the owner does, with a release that has a new schema.
        run(&format!("REVOKE INSERT, UPDATE, DELETE ON rowhouse.schema_version FROM {role}"));
        try_open(&as_role).await.expect("it needs no more").close().await.expect("it closes");
        run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    });
}
