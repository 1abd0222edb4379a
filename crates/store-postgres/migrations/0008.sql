-- Servers of older releases may run beside new ones for a while. They do not write the two columns of this step, which is
-- how the database recognises their statements.

-- An old server writes both keys of an account without comparing them with those that it has read, so it could undo a
-- rotation. The constraint refuses that: only servers that compare write the digest. It is a constraint and no trigger
-- because the table is a reference table on a Citus cluster. An account that an old server creates has no digest until a
-- new server changes its keys.
ALTER TABLE rowhouse.accounts ADD COLUMN keys_digest bytea;
UPDATE rowhouse.accounts SET keys_digest = sha256(key1 || key2);
-- In a block, because a Citus cluster sends its nodes the whole text that the statement is in.
DO $$ BEGIN
    ALTER TABLE rowhouse.accounts ADD CONSTRAINT keys_are_changed_by_newer_servers_only
        CHECK (keys_digest = sha256(key1 || key2));
END $$;

-- An old server removes what has expired by its own clock, and begins when the TTL is set. A trigger is possible: on a
-- Citus cluster this table is on the coordinator alone.
ALTER TABLE rowhouse.expiring ADD COLUMN turn bigint NOT NULL DEFAULT 0;    -- rises with every change by a new server

CREATE FUNCTION rowhouse.expiring_by_old_server() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- It sets a TTL, or ends a pass. Both begin the next pass.
    IF TG_OP = 'INSERT' OR NEW.pass <> OLD.pass THEN
        NEW.due := greatest(NEW.due, now() + interval '1 minute');
        RETURN NEW;
    END IF;
    -- It takes the table to remove entities: the row stays as it is, and the server finds nothing to do.
    RETURN NULL;
END
$$;
CREATE TRIGGER expiring_is_set_by_old_server BEFORE INSERT ON rowhouse.expiring
    FOR EACH ROW WHEN (NEW.turn = 0) EXECUTE FUNCTION rowhouse.expiring_by_old_server();
CREATE TRIGGER expiring_is_changed_by_old_server BEFORE UPDATE ON rowhouse.expiring
    FOR EACH ROW WHEN (NEW.turn = OLD.turn) EXECUTE FUNCTION rowhouse.expiring_by_old_server();
