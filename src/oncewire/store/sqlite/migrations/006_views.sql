-- What was accepted of a received message: its verified values, and where in the body its parts
-- lie. NULL: the bytes are read again (what is encrypted, and what earlier versions accepted).
ALTER TABLE incoming_bytes ADD COLUMN view BLOB;
