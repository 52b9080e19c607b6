-- Replicas, PostgreSQL. The same as in ../sqlite/0004_replicas.sql.

-- Copies from number 64 on are replicas: further copies on disk, on other movers than the first. They are looked for by
-- the volume that needs room.
CREATE INDEX copy_replicas ON copy (volume) WHERE number >= 64;
