-- The S3 door's part of the catalogue, PostgreSQL. The same tables as in ../sqlite/0002_s3.sql.
--
-- An object's current version is an entry of the tree like any other file's name, so that every door sees it. What is
-- here belongs to S3 alone: access keys, buckets, what S3 says of a bitfile, versions that are not current, and
-- multipart uploads.

-- Access keys of accounts. sealed: the secret, encrypted with the site's key. session: of temporary keys, likewise.
CREATE TABLE access_key (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    sealed TEXT COLLATE "C" NOT NULL,
    disabled BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    expires_us BIGINT,
    session TEXT COLLATE "C"
);

CREATE INDEX access_key_account ON access_key (account, id);

-- Buckets: directories with attributes. versioning: off, enabled, suspended. settings: JSON of the door's.
CREATE TABLE bucket (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    entry BIGINT NOT NULL UNIQUE,
    owner TEXT COLLATE "C" NOT NULL,
    created_us BIGINT NOT NULL,
    versioning TEXT COLLATE "C" NOT NULL,
    locking BIGINT NOT NULL,
    settings TEXT COLLATE "C" NOT NULL
);

CREATE INDEX bucket_owner ON bucket (owner, name);

-- What S3 says of a bitfile. A file that another door wrote has no row. number orders the versions of a key, newest
-- highest; plain: the version whose identifier is `null`. attributes: JSON of the door's; parts: of a multipart object.
CREATE TABLE object (
    bitfile BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    plain BIGINT NOT NULL,
    etag TEXT COLLATE "C" NOT NULL,
    storage_class TEXT COLLATE "C",
    attributes TEXT COLLATE "C" NOT NULL,
    parts TEXT COLLATE "C",
    hold BIGINT NOT NULL,
    retain_us BIGINT,
    retain_mode TEXT COLLATE "C"
);

-- Versions that have no name in the tree: those that are not current, and delete markers (bitfile is NULL). rank is
-- the negative number, so that a scan finds the newest of a key first.
CREATE TABLE version (
    bucket BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    rank BIGINT NOT NULL,
    plain BIGINT NOT NULL,
    bitfile BIGINT,
    owner TEXT COLLATE "C" NOT NULL,
    grp TEXT COLLATE "C" NOT NULL,
    mode BIGINT NOT NULL,
    acl TEXT COLLATE "C",
    modified_us BIGINT NOT NULL,
    PRIMARY KEY (bucket, key, rank)
);

CREATE INDEX version_bitfile ON version (bitfile) WHERE bitfile IS NOT NULL;

-- Directories that exist only because keys lie in them: they go with the last.
CREATE TABLE prefix (
    entry BIGINT NOT NULL PRIMARY KEY
);

-- Multipart uploads and their parts. A part's segments are kept under its own number until the upload is complete.
CREATE TABLE upload (
    id BIGINT NOT NULL PRIMARY KEY,
    bucket BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    account TEXT COLLATE "C" NOT NULL,
    cos TEXT COLLATE "C" NOT NULL,
    created_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    attributes TEXT COLLATE "C" NOT NULL
);

CREATE INDEX upload_key ON upload (bucket, key, id);
CREATE INDEX upload_expires ON upload (expires_us);

CREATE TABLE part (
    upload BIGINT NOT NULL,
    number BIGINT NOT NULL,
    id BIGINT NOT NULL UNIQUE,
    storage_class TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    adler32 BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    etag TEXT COLLATE "C" NOT NULL,
    created_us BIGINT NOT NULL,
    attributes TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (upload, number)
);
