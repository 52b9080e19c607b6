-- Stage requests for many files under one number (WLCG Tape REST), SQLite. The same tables as in
-- ../postgres/0003_tape_rest.sql.

-- ended_us: noted once every file has come to an end.
CREATE TABLE bulk (
    id TEXT NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    ended_us INTEGER
) STRICT;

CREATE INDEX bulk_open ON bulk (account) WHERE ended_us IS NULL;
CREATE INDEX bulk_created ON bulk (created_us);

-- Its files, in the order in which they were named. path: as the client wrote it. request: the stage request that was
-- made for it; where none could be made, reason says why.
CREATE TABLE bulk_file (
    bulk TEXT NOT NULL,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    request INTEGER,
    reason TEXT,
    PRIMARY KEY (bulk, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX bulk_file_request ON bulk_file (request) WHERE request IS NOT NULL;

-- When whoever asked gave the copy back: a completed request holds it until then, or for its lifetime.
ALTER TABLE request ADD COLUMN released_us INTEGER;

CREATE INDEX request_promise ON request (bitfile) WHERE outcome = 'completed';
