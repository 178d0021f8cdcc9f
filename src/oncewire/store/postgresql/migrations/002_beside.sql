-- Handlers that work with one store beside each other, and what each of them is busy with.

CREATE TABLE handler (
    name text COLLATE "C" PRIMARY KEY,
    -- Given in order of the beginnings, and never twice.
    number bigint NOT NULL UNIQUE,
    host text COLLATE "C" NOT NULL,
    -- The boot of the machine and the space of its process numbers; empty: unknown.
    machine text COLLATE "C" NOT NULL,
    pid bigint NOT NULL,
    -- What tells it from a later process with the same number.
    born text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    leased_until bigint NOT NULL,
    draining bigint NOT NULL DEFAULT 0,
    ended bigint NOT NULL DEFAULT 0
);

CREATE SEQUENCE handler_number;

-- One row for each thing that a handler does and no other may do meanwhile, or that a connection
-- waits for at it.
CREATE TABLE claim (
    handler text COLLATE "C" NOT NULL REFERENCES handler (name) ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (handler, kind, sender, message_id)
);

-- The one clock of leases: the server's, so that handlers need not agree about the time.
CREATE FUNCTION lease_time() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
