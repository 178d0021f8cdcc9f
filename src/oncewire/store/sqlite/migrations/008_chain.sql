-- The chain over the journal (`oncewire.journal.chain`): with each row the head before it, and the
-- head behind the last. Rows that were there before are not chained.
ALTER TABLE journal_row ADD COLUMN since BLOB;
ALTER TABLE counter ADD COLUMN head BLOB;
