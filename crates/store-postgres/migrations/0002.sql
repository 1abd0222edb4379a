-- Who serves since when, and what the servers ask of each shard. Kept where the leases are: on a Citus cluster on the
-- coordinator alone.

ALTER TABLE rowhouse.servers ADD COLUMN since timestamptz NOT NULL DEFAULT '-infinity';

-- What a server asked of a shard in a second, on average since it last said so. Rows whose server has gone, or is
-- silent, mean nothing.
CREATE TABLE rowhouse.load (
    slot smallint NOT NULL,
    holder bigint NOT NULL,         -- as in servers: whoever takes the slot later is another
    shard bigint NOT NULL,          -- as Citus numbers them; 0 for several at once, and without Citus
    reads double precision NOT NULL,
    writes double precision NOT NULL,
    rows_read double precision NOT NULL,
    rows_written double precision NOT NULL,
    busy_ms double precision NOT NULL,  -- how long the server waited for answers
    since timestamptz NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (slot, shard)
) WITH (fillfactor = 50);
