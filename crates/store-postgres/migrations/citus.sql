-- What a Citus cluster needs beyond the schema. Accounts and tables are on every node, so that a statement finds its
-- table where its entity is. Leases and the version of the catalogue stay on the coordinator alone: a table on every
-- node could not be written while one of them is down.
SELECT create_reference_table('rowhouse.accounts');
SELECT create_reference_table('rowhouse.account_settings');
SELECT create_reference_table('rowhouse.tables');
SELECT create_distributed_table('rowhouse.entities', 'dk');
