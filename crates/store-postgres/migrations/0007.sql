-- The index tells whether a message has expired: whoever takes steps over those that wait to be swept without reading
-- their rows.
DROP INDEX rowhouse.messages_to_take;
CREATE INDEX messages_to_take ON rowhouse.messages ((qid + 0), visible, seq, expires);
