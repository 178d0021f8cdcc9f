-- Whose word made a message delivered, and how often it failed.
ALTER TABLE outgoing ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outgoing ADD COLUMN proved_by TEXT;

-- Of what was delivered before, the journal tells who said so; where it does not, nobody may
-- take it back.
UPDATE outgoing SET proved_by = 'to_party' WHERE state = 'delivered';
UPDATE outgoing SET proved_by = 'hop'
WHERE state = 'delivered'
  AND EXISTS (
      SELECT 1 FROM journal_row
      WHERE journal_row.message = outgoing.message AND kind = 'acknowledged'
        AND (detail LIKE '%"hop":true%' OR detail LIKE '%"by":"transport"%')
  );
UPDATE outgoing SET failures = 1 WHERE state IN ('not_delivered', 'unknown');
