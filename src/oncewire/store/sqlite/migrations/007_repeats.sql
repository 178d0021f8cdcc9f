-- How often a response was given once more to a copy of the request that it answers: copies of it
-- that are under way beside its own attempts.
ALTER TABLE outgoing ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0;
