-- Penstock's catalogue, PostgreSQL. The same tables as in ../sqlite/0001_catalog.sql.
--
-- Times are microseconds since the epoch. Texts compare as bytes (COLLATE "C"), as SQLite's do.

-- Identifiers are handed out in blocks from one counter; the first ones are reserved (1 is the root directory).
CREATE TABLE counter (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    next BIGINT NOT NULL
);

INSERT INTO counter (name, next) VALUES ('id', 1024);

-- The tree of names. A directory's name ends in '/', a file's does not; the root's is empty and its parent is 0.
-- A directory has no bitfile.
CREATE TABLE entry (
    id BIGINT NOT NULL PRIMARY KEY,
    parent BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    grp TEXT COLLATE "C" NOT NULL,
    mode BIGINT NOT NULL,
    acl TEXT COLLATE "C",
    created_us BIGINT NOT NULL,
    modified_us BIGINT NOT NULL,
    changed_us BIGINT NOT NULL,
    bitfile BIGINT,
    UNIQUE (parent, name)
);

INSERT INTO entry (id, parent, name, owner, grp, mode, created_us, modified_us, changed_us)
VALUES (1, 0, '', 'root', 'root', 493, 0, 0, 0);

-- A file's bytes, apart from its name. entry is NULL in the undelete window. on_disk, tapes: complete copies,
-- counted here so that a listing needs no other table.
CREATE TABLE bitfile (
    id BIGINT NOT NULL PRIMARY KEY,
    entry BIGINT,
    size BIGINT NOT NULL,
    cos TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    grp TEXT COLLATE "C" NOT NULL,
    adler32 BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    md5 TEXT COLLATE "C",
    sha256 TEXT COLLATE "C",
    generation BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    on_disk BIGINT NOT NULL,
    tapes BIGINT NOT NULL,
    tapes_wanted BIGINT NOT NULL
);

-- Copies: number 0 is on disk, 1 and up are on tape. volume is where the first segment lies; purgeable: a disk copy
-- whose bitfile has all its tape copies.
CREATE TABLE copy (
    bitfile BIGINT NOT NULL,
    number BIGINT NOT NULL,
    storage_class TEXT COLLATE "C" NOT NULL,
    complete BIGINT NOT NULL,
    purgeable BIGINT NOT NULL,
    volume TEXT COLLATE "C",
    created_us BIGINT NOT NULL,
    used_us BIGINT NOT NULL,
    expires_us BIGINT,
    PRIMARY KEY (bitfile, number)
);

CREATE INDEX copy_purgeable ON copy (volume, used_us) WHERE number = 0 AND purgeable = 1;
CREATE INDEX copy_expires ON copy (expires_us) WHERE number = 0 AND expires_us IS NOT NULL;

-- Segments. On disk: major is the file, minor the offset in it, skip is NULL. On tape: major is the container, minor
-- the block, skip the bytes of that block before the data. A partial upload has segments before it has a bitfile.
CREATE TABLE segment (
    bitfile BIGINT NOT NULL,
    copy BIGINT NOT NULL,
    start BIGINT NOT NULL,
    length BIGINT NOT NULL,
    volume TEXT COLLATE "C" NOT NULL,
    major BIGINT NOT NULL,
    minor BIGINT NOT NULL,
    skip BIGINT,
    adler32 BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    PRIMARY KEY (bitfile, copy, start)
);

CREATE INDEX segment_place ON segment (volume, major, minor, skip);

-- The undelete window.
CREATE TABLE deleted (
    bitfile BIGINT NOT NULL PRIMARY KEY,
    parent BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    mode BIGINT NOT NULL,
    acl TEXT COLLATE "C",
    created_us BIGINT NOT NULL,
    modified_us BIGINT NOT NULL,
    deleted_us BIGINT NOT NULL,
    reclaim_us BIGINT NOT NULL
);

CREATE INDEX deleted_reclaim ON deleted (reclaim_us);
CREATE INDEX deleted_parent ON deleted (parent, deleted_us);

-- Cut uploads that may be resumed. id is the bitfile it will become and under which its segments are kept.
CREATE TABLE partial (
    id BIGINT NOT NULL PRIMARY KEY,
    parent BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    account TEXT COLLATE "C" NOT NULL,
    cos TEXT COLLATE "C" NOT NULL,
    expected BIGINT,
    created_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    UNIQUE (parent, name, account)
);

CREATE INDEX partial_expires ON partial (expires_us);

CREATE TABLE pin (
    bitfile BIGINT NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (bitfile, holder)
);

CREATE INDEX pin_until ON pin (until_us);

-- Volumes. mover and used belong to disks; library, next_container, next_block, label_epoch, written and mounts to
-- cartridges.
CREATE TABLE volume (
    label TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    pool TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C",
    capacity BIGINT NOT NULL,
    live_bytes BIGINT NOT NULL,
    live_segments BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    changed_us BIGINT NOT NULL,
    mover TEXT COLLATE "C",
    used BIGINT NOT NULL,
    library TEXT COLLATE "C",
    next_container BIGINT NOT NULL,
    next_block BIGINT NOT NULL,
    label_epoch BIGINT NOT NULL,
    written BIGINT NOT NULL,
    mounts BIGINT NOT NULL
);

CREATE INDEX volume_pool ON volume (pool, state);

-- Storage classes, hierarchies, classes of service: records of the configuration as JSON.
CREATE TABLE policy (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE account (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    primary_group TEXT COLLATE "C" NOT NULL,
    admin BIGINT NOT NULL,
    disabled BIGINT NOT NULL,
    home TEXT COLLATE "C",
    created_us BIGINT NOT NULL
);

CREATE TABLE membership (
    account TEXT COLLATE "C" NOT NULL,
    grp TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (account, grp)
);

CREATE TABLE mapping (
    subject TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    created_us BIGINT NOT NULL
);

CREATE INDEX mapping_account ON mapping (account);

-- What accounts and groups have, counted by whoever changes it, and may have.
CREATE TABLE usage (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    bytes BIGINT NOT NULL,
    files BIGINT NOT NULL,
    limit_bytes BIGINT,
    limit_files BIGINT,
    PRIMARY KEY (kind, name)
);

-- The work queue. An item may be claimed when due_us has passed: its start, its next attempt, or the end of the
-- claim's lease; never (2^63 - 1) if it was given up. epoch counts claims and fences stale ones.
CREATE TABLE work (
    id BIGINT NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    pool TEXT COLLATE "C" NOT NULL,
    bitfile BIGINT,
    volume TEXT COLLATE "C",
    file BIGINT,
    bytes BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    due_us BIGINT NOT NULL,
    deadline_us BIGINT,
    epoch BIGINT NOT NULL,
    holder TEXT COLLATE "C",
    failures BIGINT NOT NULL,
    reason TEXT COLLATE "C"
);

CREATE INDEX work_due ON work (kind, pool, due_us, id);
CREATE UNIQUE INDEX work_bitfile ON work (bitfile, kind) WHERE bitfile IS NOT NULL;
CREATE UNIQUE INDEX work_file ON work (volume, file, kind) WHERE file IS NOT NULL;
CREATE UNIQUE INDEX work_volume ON work (volume, kind) WHERE volume IS NOT NULL AND file IS NULL;
CREATE INDEX work_deadline ON work (deadline_us) WHERE deadline_us IS NOT NULL;

-- Stage requests. Open while outcome is NULL; the work they wait for is the stage item of the same bitfile.
CREATE TABLE request (
    id BIGINT NOT NULL PRIMARY KEY,
    bitfile BIGINT NOT NULL,
    size BIGINT NOT NULL,
    account TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    deadline_us BIGINT NOT NULL,
    lifetime_us BIGINT NOT NULL,
    outcome TEXT COLLATE "C",
    reason TEXT COLLATE "C",
    finished_us BIGINT
);

CREATE INDEX request_open ON request (id) WHERE outcome IS NULL;
CREATE INDEX request_bitfile ON request (bitfile) WHERE outcome IS NULL;
CREATE INDEX request_account ON request (account, id);
CREATE INDEX request_deadline ON request (deadline_us) WHERE outcome IS NULL;
CREATE INDEX request_finished ON request (finished_us) WHERE finished_us IS NOT NULL;

CREATE TABLE lease (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    holder TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    until_us BIGINT NOT NULL
);

-- Runs of gateways: each start gets a number of its own.
CREATE TABLE run (
    gateway TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    started_us BIGINT NOT NULL
);
