-- Which spool holds the documents that this store names: a file there has the same name.

CREATE TABLE spool (
    id bigint PRIMARY KEY CHECK (id = 1),
    mark text COLLATE "C" NOT NULL
);
