-- A handler on the way reported that it could not deliver the message: no hub's word counts any more.
ALTER TABLE outgoing ADD COLUMN taken_back INTEGER NOT NULL DEFAULT 0 CHECK (taken_back IN (0, 1));

-- Of what is under way the journal tells whether that was reported before.
UPDATE outgoing SET taken_back = 1
WHERE ifnull(proved_by, '') <> 'to_party'
  AND EXISTS (
      SELECT 1 FROM journal_row
      WHERE journal_row.message = outgoing.message AND kind IN ('warned', 'rejected')
        AND detail LIKE '%"code":"DeliveryFailure"%'
  );
