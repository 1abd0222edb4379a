-- The changes of entities, for as long as someone wants them. The trigger that notes them is there only while they are kept.

ALTER TABLE rowhouse.catalogue
    ADD COLUMN retention interval,                      -- how long changes are kept, if they are
    ADD COLUMN changes_after bigint NOT NULL DEFAULT 0; -- all after this one are there, if they are kept

CREATE TABLE rowhouse.changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- drawn while the entity is locked: in the order of its changes
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    tid bigint NOT NULL,
    key bytea NOT NULL,                 -- PartitionKey 00 RowKey, whole
    pl smallint NOT NULL,               -- how many bytes of the key are the PartitionKey
    ts bigint NOT NULL,                 -- the Timestamp; of a deleted entity the one after its last
    names text[] COLLATE "C",           -- none if the entity was deleted
    props jsonb
);

CREATE FUNCTION rowhouse.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        -- What a transaction puts there only to meet others has no size, and is taken away again.
        IF NEW.size >= 0 THEN
            INSERT INTO rowhouse.changes (tid, key, pl, ts, names, props)
            VALUES (NEW.tid, NEW.kp || NEW.rest, NEW.pl, NEW.ts, NEW.names, NEW.props);
        END IF;
    ELSIF OLD.size >= 0 AND current_setting('rowhouse.sweeping', true) IS DISTINCT FROM 'on' THEN
        INSERT INTO rowhouse.changes (tid, key, pl, ts)
        VALUES (OLD.tid, OLD.kp || OLD.rest, OLD.pl, OLD.ts + 1);
    END IF;
    RETURN NULL;
END
$$;
