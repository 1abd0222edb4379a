-- What a Citus cluster needs for secondary indexes. Entries are on the node of their entity, so a unique index is one
-- of a partition.
SELECT create_reference_table('rowhouse.indexes');
DROP INDEX rowhouse.index_entries_unique;
CREATE UNIQUE INDEX index_entries_unique ON rowhouse.index_entries (iid, entry, dk) WHERE is_unique;
SELECT create_distributed_table('rowhouse.index_entries', 'dk', colocate_with := 'rowhouse.entities');
