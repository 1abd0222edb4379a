-- Queues and their messages.

ALTER TABLE rowhouse.catalogue ADD COLUMN last_queue bigint NOT NULL DEFAULT 0;    -- ids are never used again

CREATE TABLE rowhouse.queues (
    qid bigint PRIMARY KEY,
    account bigint NOT NULL,
    name text COLLATE "C" NOT NULL,     -- '!' and the id once it is dropped
    created bigint NOT NULL,
    metadata_names text[] COLLATE "C" NOT NULL DEFAULT '{}',
    metadata_values text[] COLLATE "C" NOT NULL DEFAULT '{}',
    policy_ids text[] NOT NULL DEFAULT '{}',
    policy_starts bigint[] NOT NULL DEFAULT '{}',
    policy_expiries bigint[] NOT NULL DEFAULT '{}',
    policy_permissions text[] NOT NULL DEFAULT '{}',
    dropped timestamptz                 -- messages of a dropped queue are swept, then its own row
);
-- Not of the living only: then it would seem to serve the question whether a queue lives.
CREATE UNIQUE INDEX queues_by_name ON rowhouse.queues (account, name);
CREATE INDEX queues_to_sweep ON rowhouse.queues (dropped) WHERE dropped IS NOT NULL;

-- Messages are written two or three times and gone within seconds, and whoever takes one reads past what is left of
-- those before it: so it is cleared away often, and as fast as it can be.
CREATE TABLE rowhouse.messages (
    qid bigint NOT NULL,
    id bytea NOT NULL,              -- 16 bytes, in the order in which a GUID shows them
    visible bigint NOT NULL,        -- nobody takes it before, by the clock of the database
    seq bigint NOT NULL,            -- which comes first of those that become visible at once: a tick
    receipt bigint NOT NULL,        -- a tick; rises whenever the message is taken or updated
    inserted bigint NOT NULL,
    expires bigint NOT NULL,        -- 3155378975999999999 if never
    taken bigint NOT NULL,          -- how often
    text bytea NOT NULL,            -- UTF-8
    PRIMARY KEY (qid, id) INCLUDE (expires)
) WITH (fillfactor = 90, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1);
-- Of qid + 0, so that it never seems to serve the search for one message, in a queue that was empty when someone counted.
CREATE INDEX messages_to_take ON rowhouse.messages ((qid + 0), visible, seq);
CREATE INDEX messages_to_sweep ON rowhouse.messages (expires) WHERE expires < 3155378975999999999;

-- Compressing costs less than half with lz4, where the database was built with it.
DO $$
BEGIN
    ALTER TABLE rowhouse.messages ALTER COLUMN text SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- When the statement came in, in ticks.
CREATE FUNCTION rowhouse.clock() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM statement_timestamp()) * 10000000)::bigint + 621355968000000000
$$;

-- The id of a queue that is there; RH003 if it is not. Volatile, so that no plan keeps what it said.
CREATE FUNCTION rowhouse.live_queue(id bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM rowhouse.queues WHERE qid = id AND dropped IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RH003', MESSAGE = 'the queue does not exist';
    END IF;
    RETURN id;
END
$$;
