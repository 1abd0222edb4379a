-- Entities that expire.

-- How long after, in ticks of 100 ns: after the Timestamp, or after what the property says. None if they never do.
ALTER TABLE rowhouse.tables ADD COLUMN ttl bigint;
ALTER TABLE rowhouse.tables ADD COLUMN ttl_property text COLLATE "C";

-- How far the tables of such entities are looked through. Kept where the leases are: on a Citus cluster on the coordinator
-- alone.
CREATE TABLE rowhouse.expiring (
    tid bigint PRIMARY KEY,
    due timestamptz NOT NULL,           -- when a server goes on with it; whoever does moves it
    pass bigint NOT NULL DEFAULT 0,     -- another number whenever it starts anew
    place_kp bytea NOT NULL DEFAULT '', -- every entity up to this key has been looked at
    place_rest bytea NOT NULL DEFAULT '',
    earliest bigint,                    -- when the first of those that stayed expires
    took_ms bigint NOT NULL DEFAULT 0   -- how long looking took so far
) WITH (fillfactor = 50);
