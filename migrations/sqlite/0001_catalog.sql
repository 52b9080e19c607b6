-- Penstock's catalogue, SQLite. The same tables as in ../postgres/0001_catalog.sql.
--
-- Times are microseconds since the epoch. Names compare as bytes (BINARY is SQLite's default). Tables whose rows are
-- looked up by a composite key are WITHOUT ROWID: a lookup is one descent and a listing is one contiguous scan.

-- Identifiers are handed out in blocks from one counter; the first ones are reserved (1 is the root directory).
CREATE TABLE counter (
    name TEXT NOT NULL PRIMARY KEY,
    next INTEGER NOT NULL
) STRICT;

INSERT INTO counter (name, next) VALUES ('id', 1024);

-- The tree of names. A directory's name ends in '/', a file's does not; the root's is empty and its parent is 0.
-- A directory has no bitfile.
CREATE TABLE entry (
    id INTEGER NOT NULL UNIQUE,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    grp TEXT NOT NULL,
    mode INTEGER NOT NULL,
    acl TEXT,
    created_us INTEGER NOT NULL,
    modified_us INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    bitfile INTEGER,
    PRIMARY KEY (parent, name)
) STRICT, WITHOUT ROWID;

INSERT INTO entry (id, parent, name, owner, grp, mode, created_us, modified_us, changed_us)
VALUES (1, 0, '', 'root', 'root', 493, 0, 0, 0);

-- A file's bytes, apart from its name. entry is NULL in the undelete window. on_disk, tapes: complete copies,
-- counted here so that a listing needs no other table.
CREATE TABLE bitfile (
    id INTEGER NOT NULL PRIMARY KEY,
    entry INTEGER,
    size INTEGER NOT NULL,
    cos TEXT NOT NULL,
    owner TEXT NOT NULL,
    grp TEXT NOT NULL,
    adler32 INTEGER NOT NULL,
    crc32c INTEGER NOT NULL,
    md5 TEXT,
    sha256 TEXT,
    generation INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    on_disk INTEGER NOT NULL,
    tapes INTEGER NOT NULL,
    tapes_wanted INTEGER NOT NULL
) STRICT;

-- Copies: number 0 is on disk, 1 and up are on tape. volume is where the first segment lies; purgeable: a disk copy
-- whose bitfile has all its tape copies.
CREATE TABLE copy (
    bitfile INTEGER NOT NULL,
    number INTEGER NOT NULL,
    storage_class TEXT NOT NULL,
    complete INTEGER NOT NULL,
    purgeable INTEGER NOT NULL,
    volume TEXT,
    created_us INTEGER NOT NULL,
    used_us INTEGER NOT NULL,
    expires_us INTEGER,
    PRIMARY KEY (bitfile, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX copy_purgeable ON copy (volume, used_us) WHERE number = 0 AND purgeable = 1;
CREATE INDEX copy_expires ON copy (expires_us) WHERE number = 0 AND expires_us IS NOT NULL;

-- Segments. On disk: major is the file, minor the offset in it, skip is NULL. On tape: major is the container, minor
-- the block, skip the bytes of that block before the data. A partial upload has segments before it has a bitfile.
CREATE TABLE segment (
    bitfile INTEGER NOT NULL,
    copy INTEGER NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    volume TEXT NOT NULL,
    major INTEGER NOT NULL,
    minor INTEGER NOT NULL,
    skip INTEGER,
    adler32 INTEGER NOT NULL,
    crc32c INTEGER NOT NULL,
    PRIMARY KEY (bitfile, copy, start)
) STRICT, WITHOUT ROWID;

CREATE INDEX segment_place ON segment (volume, major, minor, skip);

-- The undelete window.
CREATE TABLE deleted (
    bitfile INTEGER NOT NULL PRIMARY KEY,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    mode INTEGER NOT NULL,
    acl TEXT,
    created_us INTEGER NOT NULL,
    modified_us INTEGER NOT NULL,
    deleted_us INTEGER NOT NULL,
    reclaim_us INTEGER NOT NULL
) STRICT;

CREATE INDEX deleted_reclaim ON deleted (reclaim_us);
CREATE INDEX deleted_parent ON deleted (parent, deleted_us);

-- Cut uploads that may be resumed. id is the bitfile it will become and under which its segments are kept.
CREATE TABLE partial (
    id INTEGER NOT NULL PRIMARY KEY,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    account TEXT NOT NULL,
    cos TEXT NOT NULL,
    expected INTEGER,
    created_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    UNIQUE (parent, name, account)
) STRICT;

CREATE INDEX partial_expires ON partial (expires_us);

CREATE TABLE pin (
    bitfile INTEGER NOT NULL,
    holder TEXT NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (bitfile, holder)
) STRICT, WITHOUT ROWID;

CREATE INDEX pin_until ON pin (until_us);

-- Volumes. mover and used belong to disks; library, next_container, next_block, label_epoch, written and mounts to
-- cartridges.
CREATE TABLE volume (
    label TEXT NOT NULL PRIMARY KEY,
    pool TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    capacity INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    live_segments INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    mover TEXT,
    used INTEGER NOT NULL,
    library TEXT,
    next_container INTEGER NOT NULL,
    next_block INTEGER NOT NULL,
    label_epoch INTEGER NOT NULL,
    written INTEGER NOT NULL,
    mounts INTEGER NOT NULL
) STRICT;

CREATE INDEX volume_pool ON volume (pool, state);

-- Storage classes, hierarchies, classes of service: records of the configuration as JSON.
CREATE TABLE policy (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE account (
    name TEXT NOT NULL PRIMARY KEY,
    primary_group TEXT NOT NULL,
    admin INTEGER NOT NULL,
    disabled INTEGER NOT NULL,
    home TEXT,
    created_us INTEGER NOT NULL
) STRICT;

CREATE TABLE membership (
    account TEXT NOT NULL,
    grp TEXT NOT NULL,
    PRIMARY KEY (account, grp)
) STRICT, WITHOUT ROWID;

CREATE TABLE mapping (
    subject TEXT NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;

CREATE INDEX mapping_account ON mapping (account);

-- What accounts and groups have, counted by whoever changes it, and may have.
CREATE TABLE usage (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    files INTEGER NOT NULL,
    limit_bytes INTEGER,
    limit_files INTEGER,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- The work queue. An item may be claimed when due_us has passed: its start, its next attempt, or the end of the
-- claim's lease; never (2^63 - 1) if it was given up. epoch counts claims and fences stale ones.
CREATE TABLE work (
    id INTEGER NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    pool TEXT NOT NULL,
    bitfile INTEGER,
    volume TEXT,
    file INTEGER,
    bytes INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    deadline_us INTEGER,
    epoch INTEGER NOT NULL,
    holder TEXT,
    failures INTEGER NOT NULL,
    reason TEXT
) STRICT;

CREATE INDEX work_due ON work (kind, pool, due_us, id);
CREATE UNIQUE INDEX work_bitfile ON work (bitfile, kind) WHERE bitfile IS NOT NULL;
CREATE UNIQUE INDEX work_file ON work (volume, file, kind) WHERE file IS NOT NULL;
CREATE UNIQUE INDEX work_volume ON work (volume, kind) WHERE volume IS NOT NULL AND file IS NULL;
CREATE INDEX work_deadline ON work (deadline_us) WHERE deadline_us IS NOT NULL;

-- Stage requests. Open while outcome is NULL; the work they wait for is the stage item of the same bitfile.
CREATE TABLE request (
    id INTEGER NOT NULL PRIMARY KEY,
    bitfile INTEGER NOT NULL,
    size INTEGER NOT NULL,
    account TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    deadline_us INTEGER NOT NULL,
    lifetime_us INTEGER NOT NULL,
    outcome TEXT,
    reason TEXT,
    finished_us INTEGER
) STRICT;

CREATE INDEX request_open ON request (id) WHERE outcome IS NULL;
CREATE INDEX request_bitfile ON request (bitfile) WHERE outcome IS NULL;
CREATE INDEX request_account ON request (account, id);
CREATE INDEX request_deadline ON request (deadline_us) WHERE outcome IS NULL;
CREATE INDEX request_finished ON request (finished_us) WHERE finished_us IS NOT NULL;

CREATE TABLE lease (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_us INTEGER NOT NULL
) STRICT;

-- Runs of gateways: each start gets a number of its own.
CREATE TABLE run (
    gateway TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    started_us INTEGER NOT NULL
) STRICT;
