-- What buckets tell of, PostgreSQL. The same tables as in ../sqlite/0007_events.sql.

-- JSON of the rules that say which events go where; NULL where nobody wants to hear of anything.
ALTER TABLE bucket ADD COLUMN notify TEXT COLLATE "C";

CREATE INDEX bucket_notify ON bucket (entry) WHERE notify IS NOT NULL;

-- Events that were not delivered yet, written in the transaction of the change they tell of. number grows in the order
-- of commits. facts: JSON.
CREATE TABLE event (
    destination TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    facts TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (destination, number)
);

INSERT INTO counter (name, next) VALUES ('event', 1);
