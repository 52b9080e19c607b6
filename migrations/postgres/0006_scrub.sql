-- Scrubs and what they found, PostgreSQL. The same tables as in ../sqlite/0006_scrub.sql.

-- cos: the class of service whose files are listed, page by page; place: the name after which the listing goes on,
-- until listed is 1. rate: the most bytes a second. total and done count segments; bad: of those read, damaged ones.
CREATE TABLE scrub (
    id BIGINT NOT NULL PRIMARY KEY,
    scope TEXT COLLATE "C" NOT NULL,
    cos TEXT COLLATE "C",
    place TEXT COLLATE "C",
    listed BIGINT NOT NULL,
    rate BIGINT,
    total BIGINT NOT NULL,
    total_bytes BIGINT NOT NULL,
    done BIGINT NOT NULL,
    done_bytes BIGINT NOT NULL,
    bad BIGINT NOT NULL,
    started_us BIGINT NOT NULL,
    ended_us BIGINT
);

-- One segment that was read; number counts from 1 in each scrub. problem: NULL if its sums were right.
CREATE TABLE scrub_result (
    scrub BIGINT NOT NULL,
    number BIGINT NOT NULL,
    bitfile BIGINT NOT NULL,
    volume TEXT COLLATE "C" NOT NULL,
    bytes BIGINT NOT NULL,
    problem TEXT COLLATE "C",
    checked_us BIGINT NOT NULL,
    PRIMARY KEY (scrub, number)
);

-- Of a verification: the scrub it belongs to, and how far a whole volume has been read.
ALTER TABLE work ADD COLUMN scrub BIGINT;
ALTER TABLE work ADD COLUMN place TEXT COLLATE "C";

CREATE INDEX work_scrub ON work (scrub, due_us) WHERE scrub IS NOT NULL;
