-- Of a step that processes of an older version cannot live with, the reason; NULL: they can.

ALTER TABLE migration ADD COLUMN breaking text COLLATE "C";
