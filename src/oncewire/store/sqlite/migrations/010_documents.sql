-- How far documents are that travel in parts. `sender` is empty where the document is sent from
-- here. `done`: runs of ordinals, as JSON.
CREATE TABLE document (
    sender TEXT NOT NULL,
    split_id TEXT NOT NULL,
    total INTEGER NOT NULL,
    terms_id TEXT NOT NULL REFERENCES terms (terms_id),
    begun_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    released INTEGER NOT NULL,
    done TEXT NOT NULL,
    size INTEGER NOT NULL,
    latest_at INTEGER NOT NULL,
    position INTEGER NOT NULL,
    last_part TEXT NOT NULL,
    channel TEXT,
    keep_until INTEGER NOT NULL,
    PRIMARY KEY (sender, split_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX document_open ON document (sender) WHERE state IN ('open', 'joining');
CREATE INDEX incoming_part ON incoming (split_id)
    WHERE split_id IS NOT NULL AND state IN ('held', 'gathered');
CREATE INDEX document_over ON document (keep_until) WHERE state NOT IN ('open', 'joining');
