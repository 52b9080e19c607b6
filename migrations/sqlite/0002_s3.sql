-- The S3 door's part of the catalogue, SQLite. The same tables as in ../postgres/0002_s3.sql.
--
-- An object's current version is an entry of the tree like any other file's name, so that every door sees it. What is
-- here belongs to S3 alone: access keys, buckets, what S3 says of a bitfile, versions that are not current, and
-- multipart uploads.

-- Access keys of accounts. sealed: the secret, encrypted with the site's key. session: of temporary keys, likewise.
CREATE TABLE access_key (
    id TEXT NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    sealed TEXT NOT NULL,
    disabled INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER,
    session TEXT
) STRICT;

CREATE INDEX access_key_account ON access_key (account, id);

-- Buckets: directories with attributes. versioning: off, enabled, suspended. settings: JSON of the door's.
CREATE TABLE bucket (
    name TEXT NOT NULL PRIMARY KEY,
    entry INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    versioning TEXT NOT NULL,
    locking INTEGER NOT NULL,
    settings TEXT NOT NULL
) STRICT;

CREATE INDEX bucket_owner ON bucket (owner, name);

-- What S3 says of a bitfile. A file that another door wrote has no row. number orders the versions of a key, newest
-- highest; plain: the version whose identifier is `null`. attributes: JSON of the door's; parts: of a multipart object.
CREATE TABLE object (
    bitfile INTEGER NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    plain INTEGER NOT NULL,
    etag TEXT NOT NULL,
    storage_class TEXT,
    attributes TEXT NOT NULL,
    parts TEXT,
    hold INTEGER NOT NULL,
    retain_us INTEGER,
    retain_mode TEXT
) STRICT;

-- Versions that have no name in the tree: those that are not current, and delete markers (bitfile is NULL). rank is
-- the negative number, so that a scan finds the newest of a key first.
CREATE TABLE version (
    bucket INTEGER NOT NULL,
    key TEXT NOT NULL,
    rank INTEGER NOT NULL,
    plain INTEGER NOT NULL,
    bitfile INTEGER,
    owner TEXT NOT NULL,
    grp TEXT NOT NULL,
    mode INTEGER NOT NULL,
    acl TEXT,
    modified_us INTEGER NOT NULL,
    PRIMARY KEY (bucket, key, rank)
) STRICT, WITHOUT ROWID;

CREATE INDEX version_bitfile ON version (bitfile) WHERE bitfile IS NOT NULL;

-- Directories that exist only because keys lie in them: they go with the last.
CREATE TABLE prefix (
    entry INTEGER NOT NULL PRIMARY KEY
) STRICT;

-- Multipart uploads and their parts. A part's segments are kept under its own number until the upload is complete.
CREATE TABLE upload (
    id INTEGER NOT NULL PRIMARY KEY,
    bucket INTEGER NOT NULL,
    key TEXT NOT NULL,
    account TEXT NOT NULL,
    cos TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    attributes TEXT NOT NULL
) STRICT;

CREATE INDEX upload_key ON upload (bucket, key, id);
CREATE INDEX upload_expires ON upload (expires_us);

CREATE TABLE part (
    upload INTEGER NOT NULL,
    number INTEGER NOT NULL,
    id INTEGER NOT NULL UNIQUE,
    storage_class TEXT NOT NULL,
    size INTEGER NOT NULL,
    adler32 INTEGER NOT NULL,
    crc32c INTEGER NOT NULL,
    etag TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    PRIMARY KEY (upload, number)
) STRICT, WITHOUT ROWID;
