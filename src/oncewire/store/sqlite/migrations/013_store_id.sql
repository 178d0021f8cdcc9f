-- Which store it is, whatever its file is called and wherever it lies: a party's folder notes it, so
-- that no other store is taken for it. A new store gets its id together with its node.
ALTER TABLE node ADD COLUMN store_id TEXT;
UPDATE node SET store_id = lower(hex(randomblob(16)));
