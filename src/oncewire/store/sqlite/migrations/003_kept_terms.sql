-- The agreement a message was accepted under, as a whole: copies of it and answers to it are
-- judged by that one, even when its file is changed or gone. NULL: accepted before this version.
CREATE TABLE agreement (
    agreement_id TEXT PRIMARY KEY,
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE outgoing ADD COLUMN agreement_id TEXT REFERENCES agreement (agreement_id);
ALTER TABLE incoming ADD COLUMN agreement_id TEXT REFERENCES agreement (agreement_id);
ALTER TABLE removed ADD COLUMN agreement_id TEXT REFERENCES agreement (agreement_id);

-- The range an epoch began with, [first, last], and the largest window in it. NULL and 0: not noted.
ALTER TABLE sending_channel ADD COLUMN numbers TEXT;
ALTER TABLE receiving_channel ADD COLUMN numbers TEXT;
ALTER TABLE receiving_channel ADD COLUMN widest INTEGER NOT NULL DEFAULT 0;
