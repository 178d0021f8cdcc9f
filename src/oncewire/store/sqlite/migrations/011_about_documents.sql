-- What the first part that came says of its document, as JSON: all others have to say the same.
ALTER TABLE document ADD COLUMN about TEXT NOT NULL DEFAULT '[]';
