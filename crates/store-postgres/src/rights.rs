//! Whether the role may do what a server does, asked before anything is done.
//!
//! Without it, a right that is missing shows when somebody needs it, and only in the log. What a server needs is what
//! `docs/operating/postgres.md` grants to a role that does not own the schema.

use crate::fault::Fault;
use crate::options::OpenError;
use crate::pool::Session;

/// So many of the rights that are missing are named.
const NAMED_MAX: usize = 5;
/// One row for each right on the schema, its tables and its sequences that the role does not have; none if there is no schema.
const MISSING: &str = "
    SELECT quote_ident(current_user::text), kind, needed || ' on ' || name
    FROM (
        SELECT 'schema' AS kind, 'schema rowhouse' AS name, 'USAGE' AS needed, 0 AS place,
            has_schema_privilege(n.oid, 'USAGE') AS granted
        FROM pg_catalog.pg_namespace n WHERE n.nspname = 'rowhouse'
        UNION ALL
        SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname::text, r.needed, r.place,
            CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, r.needed)
                ELSE has_table_privilege(c.oid, r.needed) END
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL unnest(
            CASE WHEN c.relkind = 'S' THEN ARRAY['USAGE', 'SELECT']
                WHEN c.relname = 'schema_version' THEN ARRAY['SELECT']
                ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END
        ) WITH ORDINALITY AS r(needed, place)
        WHERE n.nspname = 'rowhouse' AND c.relkind IN ('r', 'p', 'S')
    ) AS rights
    WHERE NOT granted
    ORDER BY kind, name, place";

/// Refuses a role that lacks something, and says what to run.
pub(crate) async fn check(session: &Session) -> Result<(), OpenError> {
    let rows = session.rows(MISSING, &[]).await.map_err(Fault::of_opening)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let role: String = first.get(0);
    let kinds: Vec<String> = rows.iter().map(|row| row.get(1)).collect();
    let mut missing: Vec<String> = rows.iter().take(NAMED_MAX).map(|row| row.get(2)).collect();
    if NAMED_MAX < rows.len() {
        missing.push(format!("and {} more", rows.len() - NAMED_MAX));
    }
    let grants = [
        ("schema", "USAGE ON SCHEMA rowhouse"),
        ("table", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rowhouse"),
        ("sequence", "USAGE, SELECT ON ALL SEQUENCES IN SCHEMA rowhouse"),
    ];
    let grants = grants.iter().filter(|(kind, _)| kinds.iter().any(|missing| missing == kind));
    let grants: Vec<_> = grants.map(|(_, what)| format!("GRANT {what} TO {role}")).collect();
    Err(OpenError::Rights { role, missing: missing.join(", "), grants: grants.join("; ") })
}
