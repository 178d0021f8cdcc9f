-- What the first part that came says of its document, as JSON: all others have to say the same.
ALTER TABLE document ADD COLUMN about TEXT NOT NULL DEFAULT '[]';

-- Parts that are not counted, because their document is.
CREATE INDEX outgoing_part_state ON outgoing (state)
    WHERE split_number IS NOT NULL AND relayed_from IS NULL;
CREATE INDEX incoming_part_joined ON incoming (state)
    WHERE split_number IS NOT NULL AND state = 'confirmed';
