-- What the retention sweep removed: enough to know a late copy, and to say since when it is gone.
-- It goes with the last journal row that names the message.
CREATE TABLE removed (
    message INTEGER NOT NULL REFERENCES message (id),
    -- The From Party, by the key of duplicates; empty: it was sent from here.
    sender TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL,
    PRIMARY KEY (message, sender)
) STRICT, WITHOUT ROWID;

CREATE INDEX removed_at ON removed (removed_at);

-- Messages with files in the spool are few among many; finding them must not read the others.
CREATE INDEX outgoing_spooled ON outgoing_bytes (layout) WHERE layout IS NOT NULL;
CREATE INDEX incoming_spooled ON incoming_bytes (layout) WHERE layout IS NOT NULL;
CREATE INDEX incoming_answer_spooled ON incoming_bytes (answer_layout)
    WHERE answer_layout IS NOT NULL;
