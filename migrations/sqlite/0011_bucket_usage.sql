-- What lies in each bucket, as it was counted last, SQLite. The same table as in ../postgres/0011_bucket_usage.sql.

-- bucket: its directory. objects: current versions; hidden: those that are not; markers: delete markers; parts: of
-- uploads under way. counted_us: when the count began.
CREATE TABLE bucket_usage (
    bucket INTEGER NOT NULL PRIMARY KEY,
    objects INTEGER NOT NULL,
    object_bytes INTEGER NOT NULL,
    hidden INTEGER NOT NULL,
    hidden_bytes INTEGER NOT NULL,
    markers INTEGER NOT NULL,
    uploads INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    part_bytes INTEGER NOT NULL,
    counted_us INTEGER NOT NULL
) STRICT;
