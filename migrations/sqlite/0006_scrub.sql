-- Scrubs and what they found, SQLite. The same tables as in ../postgres/0006_scrub.sql.

-- cos: the class of service whose files are listed, page by page; place: the name after which the listing goes on,
-- until listed is 1. rate: the most bytes a second. total and done count segments; bad: of those read, damaged ones.
CREATE TABLE scrub (
    id INTEGER NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    cos TEXT,
    place TEXT,
    listed INTEGER NOT NULL,
    rate INTEGER,
    total INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    done INTEGER NOT NULL,
    done_bytes INTEGER NOT NULL,
    bad INTEGER NOT NULL,
    started_us INTEGER NOT NULL,
    ended_us INTEGER
) STRICT;

-- One segment that was read; number counts from 1 in each scrub. problem: NULL if its sums were right.
CREATE TABLE scrub_result (
    scrub INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bitfile INTEGER NOT NULL,
    volume TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    problem TEXT,
    checked_us INTEGER NOT NULL,
    PRIMARY KEY (scrub, number)
) STRICT, WITHOUT ROWID;

-- Of a verification: the scrub it belongs to, and how far a whole volume has been read.
ALTER TABLE work ADD COLUMN scrub INTEGER;
ALTER TABLE work ADD COLUMN place TEXT;

CREATE INDEX work_scrub ON work (scrub, due_us) WHERE scrub IS NOT NULL;
