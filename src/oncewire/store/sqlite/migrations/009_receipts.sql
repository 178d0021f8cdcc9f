-- Signed acknowledgements that proved the receipt of a message of ours, as they came: evidence,
-- kept as long as the message. `layout` and `body` as in `outgoing_bytes`.
CREATE TABLE receipt (
    position INTEGER PRIMARY KEY REFERENCES outgoing (position) ON DELETE CASCADE,
    receipt_id TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    content_type TEXT,
    headers TEXT,
    layout TEXT,
    body BLOB
) STRICT;

CREATE INDEX receipt_spooled ON receipt (layout) WHERE layout IS NOT NULL;
