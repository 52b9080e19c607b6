-- What lies in each bucket, as it was counted last, PostgreSQL. The same table as in ../sqlite/0011_bucket_usage.sql.

-- bucket: its directory. objects: current versions; hidden: those that are not; markers: delete markers; parts: of
-- uploads under way. counted_us: when the count began.
CREATE TABLE bucket_usage (
    bucket BIGINT NOT NULL PRIMARY KEY,
    objects BIGINT NOT NULL,
    object_bytes BIGINT NOT NULL,
    hidden BIGINT NOT NULL,
    hidden_bytes BIGINT NOT NULL,
    markers BIGINT NOT NULL,
    uploads BIGINT NOT NULL,
    parts BIGINT NOT NULL,
    part_bytes BIGINT NOT NULL,
    counted_us BIGINT NOT NULL
);
