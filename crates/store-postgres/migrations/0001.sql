-- The first schema. `docs/formats/postgres.md` describes it for people. What was released never changes: a later
-- schema is a file of its own.

CREATE TABLE rowhouse.catalogue (
    id integer PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL,        -- rises with every change of an account or a table
    last_account bigint NOT NULL,   -- ids are never used again
    last_table bigint NOT NULL
);
INSERT INTO rowhouse.catalogue VALUES (1, 1, 0, 0);

-- Whoever serves this database holds a row: a lease on what it caches, and a share of the ticks.
CREATE TABLE rowhouse.servers (
    slot smallint PRIMARY KEY,
    holder bigint NOT NULL,         -- a random number, new with every start
    expires timestamptz NOT NULL,
    seen bigint NOT NULL,           -- version of the catalogue that the holder acts on at least
    high bigint NOT NULL            -- no tick beyond has been given out
);
INSERT INTO rowhouse.servers SELECT slot, 0, '-infinity', 0, 0 FROM generate_series(0, 63) AS slot;

CREATE TABLE rowhouse.accounts (
    id bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    created bigint NOT NULL,
    key1 bytea NOT NULL,
    key2 bytea NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE rowhouse.account_settings (
    account bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (account, name)
);

CREATE TABLE rowhouse.tables (
    tid bigint PRIMARY KEY,
    account bigint NOT NULL,
    folded text COLLATE "C" NOT NULL,   -- '!' and the id once it is dropped
    name text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    placement_group text COLLATE "C",
    route_chars bigint,
    policy_ids text[] NOT NULL DEFAULT '{}',
    policy_starts bigint[] NOT NULL DEFAULT '{}',
    policy_expiries bigint[] NOT NULL DEFAULT '{}',
    policy_permissions text[] NOT NULL DEFAULT '{}',
    dropped timestamptz             -- rows of a dropped table are swept, then its own
);
-- Not of the living only: then it would seem to serve the question whether a table lives.
CREATE UNIQUE INDEX tables_by_name ON rowhouse.tables (account, folded);
CREATE INDEX tables_to_sweep ON rowhouse.tables (dropped) WHERE dropped IS NOT NULL;

-- The key is one text of bytes, PartitionKey 00 RowKey, whose order is that of the keys. An index holds at most some
-- 2,700 bytes of a row, so it has the first 2,000 and a hash of longer ones.
CREATE TABLE rowhouse.entities (
    dk bigint NOT NULL,             -- where the partition lives
    tid bigint NOT NULL,
    kp bytea NOT NULL,              -- the first 2,000 bytes of the key
    kh bytea NOT NULL,              -- of longer keys 16 bytes of their hash, else nothing
    rest bytea NOT NULL,            -- the bytes beyond
    pl smallint NOT NULL,           -- how many bytes of the key are the PartitionKey
    ts bigint NOT NULL,             -- ticks of 100 ns: Timestamp and ETag
    size integer NOT NULL,          -- the entity is at most so large
    names text[] COLLATE "C" NOT NULL,  -- of the properties, in the client's order
    props jsonb NOT NULL,           -- {"name": ["type", value]}
    PRIMARY KEY (tid, kp, kh, dk)
) WITH (fillfactor = 90);

-- Compressing costs less than half with lz4, where the database was built with it.
DO $$
BEGIN
    ALTER TABLE rowhouse.entities ALTER COLUMN props SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- The names of both, those that are new last.
CREATE FUNCTION rowhouse.merged_names(old text[], new text[]) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF new <@ old THEN
        RETURN old;
    END IF;
    RETURN old || ARRAY(SELECT n FROM unnest(new) WITH ORDINALITY AS added(n, place)
                        WHERE n <> ALL (old) ORDER BY place);
END
$$;

-- The id of a table that is there; RH001 if it is not. Volatile, so that no plan keeps what it said.
CREATE FUNCTION rowhouse.live(id bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM rowhouse.tables WHERE tid = id AND dropped IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RH001', MESSAGE = 'the table does not exist';
    END IF;
    RETURN id;
END
$$;

-- The number if the condition holds; RH002 if it does not, which undoes the statement.
CREATE FUNCTION rowhouse.require(holds boolean, number bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF holds THEN
        RETURN number;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'RH002', MESSAGE = 'a condition does not hold';
END
$$;
