-- What a Citus cluster needs for queues. The messages of a queue are in one shard; which, follows from its id, as it does
-- for a partition that lives there.
SELECT create_reference_table('rowhouse.queues');
SELECT create_distributed_table('rowhouse.messages', 'qid', colocate_with := 'rowhouse.entities');
