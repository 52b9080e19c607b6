-- What buckets tell of, SQLite. The same tables as in ../postgres/0007_events.sql.

-- JSON of the rules that say which events go where; NULL where nobody wants to hear of anything.
ALTER TABLE bucket ADD COLUMN notify TEXT;

CREATE INDEX bucket_notify ON bucket (entry) WHERE notify IS NOT NULL;

-- Events that were not delivered yet, written in the transaction of the change they tell of. number grows in the order
-- of commits. facts: JSON.
CREATE TABLE event (
    destination TEXT NOT NULL,
    number INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (destination, number)
) STRICT, WITHOUT ROWID;

INSERT INTO counter (name, next) VALUES ('event', 1);
