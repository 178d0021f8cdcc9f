-- What messages are found by (`oncewire.store.search`). The texts are written with the message; the
-- terms some commits later, for many messages at once and in their order, which costs a fraction.
-- `slot`: (position >> 15) << 32 | term. So the terms of messages that came together lie together,
-- and filing the newest never touches the pages of the old ones.
CREATE TABLE outgoing_word (
    position INTEGER NOT NULL REFERENCES outgoing (position) ON DELETE CASCADE,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (position, path, text)
) STRICT, WITHOUT ROWID;

CREATE TABLE incoming_word (
    row INTEGER NOT NULL REFERENCES incoming (row) ON DELETE CASCADE,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (row, path, text)
) STRICT, WITHOUT ROWID;

CREATE TABLE outgoing_term (
    slot INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (slot, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE incoming_term (
    slot INTEGER NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (slot, row)
) STRICT, WITHOUT ROWID;

-- The last message of each direction that is filed under its terms.
ALTER TABLE counter ADD COLUMN outgoing_filed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN incoming_filed INTEGER NOT NULL DEFAULT 0;

CREATE INDEX outgoing_time ON outgoing (submitted_at);
CREATE INDEX outgoing_partner ON outgoing (to_party, submitted_at);
CREATE INDEX incoming_time ON incoming (received_at);
CREATE INDEX incoming_partner ON incoming (from_party, received_at);
