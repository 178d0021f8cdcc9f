-- What strangers sent and nobody took: counted by what was wrong and where it came from, with the
-- last of them as a sample. The writer keeps it small; address '' stands for all that had no row.
CREATE TABLE refusal (
    code TEXT NOT NULL,
    address TEXT NOT NULL,
    count INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    problem TEXT NOT NULL,
    message_id TEXT,
    PRIMARY KEY (code, address)
) STRICT, WITHOUT ROWID;
