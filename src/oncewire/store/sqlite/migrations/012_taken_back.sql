-- A handler on the way reported that it could not deliver the message: no hub's word counts any more.
ALTER TABLE outgoing ADD COLUMN taken_back INTEGER NOT NULL DEFAULT 0 CHECK (taken_back IN (0, 1));
