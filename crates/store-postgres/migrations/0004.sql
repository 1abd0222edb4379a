-- Secondary indexes. Their entries are rows of one table that all share, each where its entity is.

ALTER TABLE rowhouse.catalogue ADD COLUMN last_index bigint NOT NULL DEFAULT 0;    -- ids are never used again

-- Another number, never the same twice, whenever what writes of the table have to keep changes; 0 if that is no index.
ALTER TABLE rowhouse.tables ADD COLUMN indexing bigint NOT NULL DEFAULT 0;

CREATE TABLE rowhouse.indexes (
    iid bigint PRIMARY KEY,
    tid bigint NOT NULL,
    name text COLLATE "C" NOT NULL,     -- '!' and the id once it is dropped
    properties text[] COLLATE "C" NOT NULL,
    is_unique boolean NOT NULL,
    state smallint NOT NULL,            -- 0 declared, 1 being built, 2 ready, 3 not unique
    place_kp bytea NOT NULL DEFAULT '', -- every entity up to this key has been entered
    place_rest bytea NOT NULL DEFAULT '',
    examined bigint NOT NULL DEFAULT 0, -- so many entities were looked at
    expected bigint,                    -- so many there were when that began
    dropped timestamptz                 -- entries of a dropped index are swept, then its own row
);
CREATE UNIQUE INDEX indexes_by_name ON rowhouse.indexes (tid, name);

-- An index of PostgreSQL holds at most some 2,700 bytes of a row, and an entry has up to 1,052: so 1,400 bytes of the
-- key and a hash of longer ones.
CREATE TABLE rowhouse.index_entries (
    dk bigint NOT NULL,             -- as the entity's
    iid bigint NOT NULL,
    entry bytea NOT NULL,           -- what the entity is entered under
    kp bytea NOT NULL,              -- the first 1,400 bytes of the entity's key
    kh bytea NOT NULL,              -- of longer keys 16 bytes of their hash, else nothing
    rest bytea NOT NULL,            -- the bytes beyond
    is_unique boolean NOT NULL,     -- as the index is
    PRIMARY KEY (iid, entry, kp, kh, dk)
);
CREATE UNIQUE INDEX index_entries_unique ON rowhouse.index_entries (iid, entry) WHERE is_unique;

-- The id of a table that is there and has no indexes; RH001 if that is not so: then only a transaction can tell.
CREATE OR REPLACE FUNCTION rowhouse.live(id bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM rowhouse.tables WHERE tid = id AND dropped IS NULL AND indexing = 0;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RH001', MESSAGE = 'the table does not exist';
    END IF;
    RETURN id;
END
$$;

-- The id of a table that is there and whose indexes are those that the server knows of; RH001 if that is not so.
CREATE FUNCTION rowhouse.keeping(id bigint, known bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM rowhouse.tables WHERE tid = id AND dropped IS NULL AND indexing = known;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RH001', MESSAGE = 'the table does not exist';
    END IF;
    RETURN id;
END
$$;
