-- The store of one node. Instants are microseconds since 1970 in UTC; flags are 0 and 1.

CREATE TABLE node (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    -- The version of the rows that the view `journal` shows.
    journal_version INTEGER NOT NULL
) STRICT;

-- The last number given of each kind. Written once per commit, so numbers cost no index and
-- are never given twice, whatever is removed later. `fence` counts commits that only make
-- sure that a failed one before them can never come back.
CREATE TABLE counter (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    journal INTEGER NOT NULL DEFAULT 0,
    outgoing INTEGER NOT NULL DEFAULT 0,
    entered INTEGER NOT NULL DEFAULT 0,
    incoming INTEGER NOT NULL DEFAULT 0,
    ready INTEGER NOT NULL DEFAULT 0,
    incident INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO counter (id) VALUES (1);

-- Every MessageId that any row names. MessageIds come in random order, so this is the only
-- place that sorts them; all other tables know a message by its number, which grows in time.
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE terms (
    terms_id TEXT PRIMARY KEY,
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sending_channel (
    key TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    next_number INTEGER NOT NULL,
    first_unsettled INTEGER NOT NULL,
    settled TEXT NOT NULL,
    used INTEGER NOT NULL,
    ending INTEGER NOT NULL,
    alone INTEGER NOT NULL,
    suspended INTEGER NOT NULL,
    suspended_reason TEXT NOT NULL,
    suspended_by TEXT,
    paused_until INTEGER NOT NULL,
    last_stamp INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE receiving_channel (
    key TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    furthest INTEGER,
    held TEXT NOT NULL,
    newest_stamp INTEGER NOT NULL,
    previous_stamp INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE outgoing (
    position INTEGER PRIMARY KEY,
    message INTEGER NOT NULL UNIQUE REFERENCES message (id),
    -- The protocol's state.
    terms_id TEXT NOT NULL REFERENCES terms (terms_id),
    submitted_at INTEGER NOT NULL,
    channel TEXT,
    state TEXT NOT NULL,
    epoch INTEGER,
    number INTEGER,
    status TEXT,
    attempts INTEGER NOT NULL,
    attempts_here INTEGER NOT NULL,
    attempts_lost INTEGER NOT NULL,
    transport INTEGER NOT NULL,
    resumes INTEGER NOT NULL,
    first_sent_at INTEGER,
    last_sent_at INTEGER,
    next_attempt_at INTEGER,
    expires_at INTEGER,
    reason TEXT NOT NULL,
    notice_owed INTEGER NOT NULL,
    late INTEGER NOT NULL,
    -- What it is filed under.
    deadline INTEGER,
    due_at INTEGER,
    keep_until INTEGER NOT NULL,
    entered INTEGER NOT NULL,
    -- Facts that never change.
    cpa_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    from_party TEXT NOT NULL,
    to_party TEXT NOT NULL,
    service TEXT NOT NULL,
    action TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    ref_to TEXT,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    split_id TEXT,
    split_number INTEGER,
    split_total INTEGER,
    peer TEXT NOT NULL,
    relayed_from TEXT,
    hop INTEGER NOT NULL,
    held INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX outgoing_state ON outgoing (state);
CREATE INDEX outgoing_due ON outgoing (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outgoing_deadline ON outgoing (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX outgoing_notice ON outgoing (notice_owed) WHERE notice_owed = 1;
CREATE INDEX outgoing_channel ON outgoing (channel, state)
    WHERE channel IS NOT NULL AND state IN ('waiting', 'outstanding', 'suspended');
CREATE INDEX outgoing_response ON outgoing (ref_to, peer) WHERE ref_to IS NOT NULL;
CREATE INDEX outgoing_keep ON outgoing (keep_until)
    WHERE state IN ('delivered', 'not_delivered', 'unknown', 'sent')
      AND notice_owed = 0 AND held = 0;

-- The bytes stay apart: they are written once, while the state changes often.
-- `body` is all that is kept here of the parcel's body, `layout` how it is cut and where
-- spooled files belong (NULL: it is one piece); a draft takes its place before there is one.
CREATE TABLE outgoing_bytes (
    position INTEGER PRIMARY KEY REFERENCES outgoing (position) ON DELETE CASCADE,
    draft BLOB,
    content_type TEXT,
    headers TEXT,
    layout TEXT,
    body BLOB
) STRICT;

CREATE TABLE incoming (
    row INTEGER PRIMARY KEY,
    message INTEGER NOT NULL REFERENCES message (id),
    sender TEXT NOT NULL,
    -- The protocol's state.
    digest TEXT NOT NULL,
    terms_id TEXT NOT NULL REFERENCES terms (terms_id),
    received_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    channel TEXT,
    epoch INTEGER,
    number INTEGER,
    hand_overs INTEGER NOT NULL,
    lease_until INTEGER,
    confirmed_at INTEGER,
    -- What it is filed under.
    position INTEGER NOT NULL,
    keep_until INTEGER NOT NULL,
    answer_id TEXT,
    answer_kind TEXT,
    answer_owed INTEGER NOT NULL DEFAULT 0,
    -- Facts that never change.
    cpa_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    from_party TEXT NOT NULL,
    to_party TEXT NOT NULL,
    service TEXT NOT NULL,
    action TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    ref_to TEXT,
    kind TEXT NOT NULL,
    facts_digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    split_id TEXT,
    split_number INTEGER,
    split_total INTEGER,
    peer TEXT NOT NULL,
    transport TEXT NOT NULL,
    hop INTEGER NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    -- The judge of duplicates.
    UNIQUE (message, sender)
) STRICT;

CREATE INDEX incoming_state ON incoming (state);
CREATE INDEX incoming_ready ON incoming (position) WHERE state = 'ready';
CREATE INDEX incoming_lease ON incoming (lease_until)
    WHERE state = 'handed_over' AND lease_until IS NOT NULL;
CREATE INDEX incoming_answer ON incoming (answer_owed) WHERE answer_owed = 1;
CREATE INDEX incoming_keep ON incoming (keep_until)
    WHERE state IN ('confirmed', 'forwarded', 'refused', 'closed')
      AND answer_owed = 0 AND held = 0;

CREATE TABLE incoming_bytes (
    row INTEGER PRIMARY KEY REFERENCES incoming (row) ON DELETE CASCADE,
    content_type TEXT,
    headers TEXT,
    layout TEXT,
    body BLOB,
    answer_content_type TEXT,
    answer_headers TEXT,
    answer_layout TEXT,
    answer_body BLOB
) STRICT;

CREATE TABLE journal_row (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    mono INTEGER NOT NULL,
    boot TEXT NOT NULL,
    node TEXT NOT NULL,
    kind TEXT NOT NULL,
    message INTEGER REFERENCES message (id),
    ref_to TEXT,
    terms_id TEXT,
    channel TEXT,
    epoch INTEGER,
    sequence_number INTEGER,
    attempt INTEGER,
    hop INTEGER,
    peer TEXT,
    transport TEXT,
    digest TEXT,
    size INTEGER,
    detail TEXT
) STRICT;

CREATE INDEX journal_message ON journal_row (message) WHERE message IS NOT NULL;
CREATE INDEX journal_at ON journal_row (at);

-- The journal as every reader sees it: the columns of `oncewire.journal.row`, in order.
CREATE VIEW journal AS
SELECT seq, at, mono, boot, node, kind, message.message_id AS message_id, ref_to, terms_id,
       channel, epoch, sequence_number, attempt, hop, peer, transport, digest, size, detail
FROM journal_row LEFT JOIN message ON message.id = journal_row.message;

CREATE TABLE incident (
    id INTEGER PRIMARY KEY,
    opened_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message_id TEXT,
    channel TEXT,
    resolved_at INTEGER
) STRICT;

CREATE INDEX incident_message ON incident (message_id) WHERE resolved_at IS NULL;
CREATE INDEX incident_channel ON incident (channel) WHERE resolved_at IS NULL;
