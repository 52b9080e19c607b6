-- Rebuilding from cartridges, PostgreSQL. The same table as in ../sqlite/0005_rebuild.sql.
--
-- Parts of bitfiles that were found on a tape while other parts were not: they lie on cartridges that have not been read
-- yet. Once the parts make a whole, it becomes a copy and they are gone from here.
CREATE TABLE stray (
    bitfile BIGINT NOT NULL,
    volume TEXT COLLATE "C" NOT NULL,
    major BIGINT NOT NULL,
    minor BIGINT NOT NULL,
    skip BIGINT NOT NULL,
    start BIGINT NOT NULL,
    length BIGINT NOT NULL,
    size BIGINT NOT NULL,
    adler32 BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    PRIMARY KEY (bitfile, volume, major, minor, skip)
);

CREATE INDEX stray_volume ON stray (volume);
