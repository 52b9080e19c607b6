-- Rebuilding from cartridges, SQLite. The same table as in ../postgres/0005_rebuild.sql.
--
-- Parts of bitfiles that were found on a tape while other parts were not: they lie on cartridges that have not been read
-- yet. Once the parts make a whole, it becomes a copy and they are gone from here.
CREATE TABLE stray (
    bitfile INTEGER NOT NULL,
    volume TEXT NOT NULL,
    major INTEGER NOT NULL,
    minor INTEGER NOT NULL,
    skip INTEGER NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    size INTEGER NOT NULL,
    adler32 INTEGER NOT NULL,
    crc32c INTEGER NOT NULL,
    PRIMARY KEY (bitfile, volume, major, minor, skip)
) STRICT, WITHOUT ROWID;

CREATE INDEX stray_volume ON stray (volume);
