-- The store of one node, as the migrations of SQLite have made it: the same tables, columns and
-- indexes, which say there what they are for. Texts are compared by their bytes.

CREATE TABLE node (
    id bigint PRIMARY KEY CHECK (id = 1),
    name text COLLATE "C" NOT NULL,
    journal_version bigint NOT NULL,
    store_id text COLLATE "C"
);

CREATE TABLE counter (
    id bigint PRIMARY KEY CHECK (id = 1),
    journal bigint NOT NULL DEFAULT 0,
    outgoing bigint NOT NULL DEFAULT 0,
    entered bigint NOT NULL DEFAULT 0,
    incoming bigint NOT NULL DEFAULT 0,
    ready bigint NOT NULL DEFAULT 0,
    incident bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    head bytea,
    outgoing_filed bigint NOT NULL DEFAULT 0,
    incoming_filed bigint NOT NULL DEFAULT 0
);
INSERT INTO counter (id) VALUES (1);

CREATE TABLE message (
    id bigint PRIMARY KEY,
    message_id text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE agreement (
    agreement_id text COLLATE "C" PRIMARY KEY,
    content text COLLATE "C" NOT NULL
);

CREATE TABLE terms (
    terms_id text COLLATE "C" PRIMARY KEY,
    content text COLLATE "C" NOT NULL
);

CREATE TABLE sending_channel (
    key text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    next_number bigint NOT NULL,
    first_unsettled bigint NOT NULL,
    settled text COLLATE "C" NOT NULL,
    used bigint NOT NULL,
    ending bigint NOT NULL,
    alone bigint NOT NULL,
    suspended bigint NOT NULL,
    suspended_reason text COLLATE "C" NOT NULL,
    suspended_by text COLLATE "C",
    paused_until bigint NOT NULL,
    last_stamp bigint NOT NULL,
    numbers text COLLATE "C"
);

CREATE TABLE receiving_channel (
    key text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    expected bigint NOT NULL,
    passed bigint NOT NULL,
    furthest bigint,
    held text COLLATE "C" NOT NULL,
    newest_stamp bigint NOT NULL,
    previous_stamp bigint NOT NULL,
    numbers text COLLATE "C",
    widest bigint NOT NULL DEFAULT 0
);

CREATE TABLE outgoing (
    position bigint PRIMARY KEY,
    message bigint NOT NULL UNIQUE REFERENCES message (id),
    terms_id text COLLATE "C" NOT NULL REFERENCES terms (terms_id),
    submitted_at bigint NOT NULL,
    channel text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    epoch bigint,
    number bigint,
    status text COLLATE "C",
    attempts bigint NOT NULL,
    attempts_here bigint NOT NULL,
    attempts_lost bigint NOT NULL,
    transport bigint NOT NULL,
    resumes bigint NOT NULL,
    first_sent_at bigint,
    last_sent_at bigint,
    next_attempt_at bigint,
    expires_at bigint,
    reason text COLLATE "C" NOT NULL,
    notice_owed bigint NOT NULL,
    late bigint NOT NULL,
    deadline bigint,
    due_at bigint,
    keep_until bigint NOT NULL,
    entered bigint NOT NULL,
    cpa_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    from_party text COLLATE "C" NOT NULL,
    to_party text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    timestamp bigint NOT NULL,
    ref_to text COLLATE "C",
    kind text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    split_id text COLLATE "C",
    split_number bigint,
    split_total bigint,
    peer text COLLATE "C" NOT NULL,
    relayed_from text COLLATE "C",
    hop bigint NOT NULL,
    held bigint NOT NULL DEFAULT 0,
    agreement_id text COLLATE "C" REFERENCES agreement (agreement_id),
    failures bigint NOT NULL DEFAULT 0,
    proved_by text COLLATE "C",
    repeats bigint NOT NULL DEFAULT 0,
    taken_back bigint NOT NULL DEFAULT 0 CHECK (taken_back IN (0, 1))
);

CREATE TABLE outgoing_bytes (
    position bigint PRIMARY KEY REFERENCES outgoing (position) ON DELETE CASCADE,
    draft bytea,
    content_type text COLLATE "C",
    headers text COLLATE "C",
    layout text COLLATE "C",
    body bytea
);

CREATE TABLE incoming (
    row bigint PRIMARY KEY,
    message bigint NOT NULL REFERENCES message (id),
    sender text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    terms_id text COLLATE "C" NOT NULL REFERENCES terms (terms_id),
    received_at bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    channel text COLLATE "C",
    epoch bigint,
    number bigint,
    hand_overs bigint NOT NULL,
    lease_until bigint,
    confirmed_at bigint,
    position bigint NOT NULL,
    keep_until bigint NOT NULL,
    answer_id text COLLATE "C",
    answer_kind text COLLATE "C",
    answer_owed bigint NOT NULL DEFAULT 0,
    cpa_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    from_party text COLLATE "C" NOT NULL,
    to_party text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    timestamp bigint NOT NULL,
    ref_to text COLLATE "C",
    kind text COLLATE "C" NOT NULL,
    facts_digest text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    split_id text COLLATE "C",
    split_number bigint,
    split_total bigint,
    peer text COLLATE "C" NOT NULL,
    transport text COLLATE "C" NOT NULL,
    hop bigint NOT NULL,
    held bigint NOT NULL DEFAULT 0,
    agreement_id text COLLATE "C" REFERENCES agreement (agreement_id),
    UNIQUE (message, sender)
);

CREATE TABLE incoming_bytes (
    row bigint PRIMARY KEY REFERENCES incoming (row) ON DELETE CASCADE,
    content_type text COLLATE "C",
    headers text COLLATE "C",
    layout text COLLATE "C",
    body bytea,
    answer_content_type text COLLATE "C",
    answer_headers text COLLATE "C",
    answer_layout text COLLATE "C",
    answer_body bytea,
    view bytea
);

CREATE TABLE journal_row (
    seq bigint PRIMARY KEY,
    at bigint NOT NULL,
    mono bigint NOT NULL,
    boot text COLLATE "C" NOT NULL,
    node text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    message bigint REFERENCES message (id),
    ref_to text COLLATE "C",
    terms_id text COLLATE "C",
    channel text COLLATE "C",
    epoch bigint,
    sequence_number bigint,
    attempt bigint,
    hop bigint,
    peer text COLLATE "C",
    transport text COLLATE "C",
    digest text COLLATE "C",
    size bigint,
    detail text COLLATE "C",
    since bytea
);

CREATE TABLE incident (
    id bigint PRIMARY KEY,
    opened_at bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    message_id text COLLATE "C",
    channel text COLLATE "C",
    resolved_at bigint
);

CREATE TABLE removed (
    message bigint NOT NULL REFERENCES message (id),
    sender text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    removed_at bigint NOT NULL,
    agreement_id text COLLATE "C" REFERENCES agreement (agreement_id),
    PRIMARY KEY (message, sender)
);

CREATE TABLE refusal (
    code text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    problem text COLLATE "C" NOT NULL,
    message_id text COLLATE "C",
    PRIMARY KEY (code, address)
);

CREATE TABLE receipt (
    position bigint PRIMARY KEY REFERENCES outgoing (position) ON DELETE CASCADE,
    receipt_id text COLLATE "C" NOT NULL,
    received_at bigint NOT NULL,
    content_type text COLLATE "C",
    headers text COLLATE "C",
    layout text COLLATE "C",
    body bytea
);

CREATE TABLE document (
    sender text COLLATE "C" NOT NULL,
    split_id text COLLATE "C" NOT NULL,
    total bigint NOT NULL,
    terms_id text COLLATE "C" NOT NULL REFERENCES terms (terms_id),
    begun_at bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    released bigint NOT NULL,
    done text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    latest_at bigint NOT NULL,
    position bigint NOT NULL,
    last_part text COLLATE "C" NOT NULL,
    channel text COLLATE "C",
    keep_until bigint NOT NULL,
    about text COLLATE "C" NOT NULL DEFAULT '[]',
    PRIMARY KEY (sender, split_id)
);

CREATE TABLE outgoing_word (
    position bigint NOT NULL REFERENCES outgoing (position) ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (position, path, text)
);

CREATE TABLE incoming_word (
    row bigint NOT NULL REFERENCES incoming (row) ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (row, path, text)
);

CREATE TABLE outgoing_term (
    slot bigint NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (slot, position)
);

CREATE TABLE incoming_term (
    slot bigint NOT NULL,
    row bigint NOT NULL,
    PRIMARY KEY (slot, row)
);

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
CREATE INDEX incoming_state ON incoming (state);
CREATE INDEX incoming_ready ON incoming (position) WHERE state = 'ready';
CREATE INDEX incoming_lease ON incoming (lease_until)
    WHERE state = 'handed_over' AND lease_until IS NOT NULL;
CREATE INDEX incoming_answer ON incoming (answer_owed) WHERE answer_owed = 1;
CREATE INDEX incoming_keep ON incoming (keep_until)
    WHERE state IN ('confirmed', 'forwarded', 'refused', 'closed')
      AND answer_owed = 0 AND held = 0;
CREATE INDEX journal_message ON journal_row (message) WHERE message IS NOT NULL;
CREATE INDEX journal_at ON journal_row (at);
CREATE INDEX incident_message ON incident (message_id) WHERE resolved_at IS NULL;
CREATE INDEX incident_channel ON incident (channel) WHERE resolved_at IS NULL;
CREATE INDEX removed_at ON removed (removed_at);
CREATE INDEX outgoing_spooled ON outgoing_bytes (position) WHERE layout IS NOT NULL;
CREATE INDEX incoming_spooled ON incoming_bytes (row) WHERE layout IS NOT NULL;
CREATE INDEX incoming_answer_spooled ON incoming_bytes (row)
    WHERE answer_layout IS NOT NULL;
CREATE INDEX receipt_spooled ON receipt (position) WHERE layout IS NOT NULL;
CREATE INDEX document_open ON document (sender) WHERE state IN ('open', 'joining');
CREATE INDEX incoming_part ON incoming (split_id)
    WHERE split_id IS NOT NULL AND state IN ('held', 'gathered');
CREATE INDEX document_over ON document (keep_until) WHERE state NOT IN ('open', 'joining');
CREATE INDEX outgoing_part_state ON outgoing (state)
    WHERE split_number IS NOT NULL AND relayed_from IS NULL;
CREATE INDEX incoming_part_joined ON incoming (state)
    WHERE split_number IS NOT NULL AND state = 'confirmed';
CREATE INDEX outgoing_time ON outgoing (submitted_at);
CREATE INDEX outgoing_partner ON outgoing (to_party, submitted_at);
CREATE INDEX incoming_time ON incoming (received_at);
CREATE INDEX incoming_partner ON incoming (from_party, received_at);

CREATE VIEW journal AS
SELECT seq, at, mono, boot, node, kind, message.message_id AS message_id, ref_to, terms_id,
       channel, epoch, sequence_number, attempt, hop, peer, transport, digest, size, detail
FROM journal_row LEFT JOIN message ON message.id = journal_row.message;

-- SQLite's word for it.
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN strpos($1, $2);
