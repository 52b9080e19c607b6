-- A word of the operator's on each access key, PostgreSQL. The same changes as in ../sqlite/0008_key_direct.sql.

-- Whether clients that sign with the key are sent to movers (1) or served by the door (0); NULL: that depends on the
-- client.
ALTER TABLE access_key ADD COLUMN direct BIGINT;

-- Temporary keys are not kept: what it takes to check one comes with each request.
ALTER TABLE access_key DROP COLUMN expires_us;
ALTER TABLE access_key DROP COLUMN session;
