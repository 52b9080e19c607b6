-- Stage requests for many files under one number (WLCG Tape REST), PostgreSQL. The same tables as in
-- ../sqlite/0003_tape_rest.sql.

-- ended_us: noted once every file has come to an end.
CREATE TABLE bulk (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    created_us BIGINT NOT NULL,
    ended_us BIGINT
);

CREATE INDEX bulk_open ON bulk (account) WHERE ended_us IS NULL;
CREATE INDEX bulk_created ON bulk (created_us);

-- Its files, in the order in which they were named. path: as the client wrote it. request: the stage request that was
-- made for it; where none could be made, reason says why.
CREATE TABLE bulk_file (
    bulk TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    request BIGINT,
    reason TEXT COLLATE "C",
    PRIMARY KEY (bulk, number)
);

CREATE INDEX bulk_file_request ON bulk_file (request) WHERE request IS NOT NULL;

-- When whoever asked gave the copy back: a completed request holds it until then, or for its lifetime.
ALTER TABLE request ADD COLUMN released_us BIGINT;

CREATE INDEX request_promise ON request (bitfile) WHERE outcome = 'completed';
