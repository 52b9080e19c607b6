-- Drives that operators have taken out of use, SQLite. The same table as in ../postgres/0012_drives.sql.

-- They stay so, whichever gateway runs the tape service, until they are put into use again.
CREATE TABLE drive_down (
    drive TEXT NOT NULL PRIMARY KEY,
    reason TEXT NOT NULL,
    since_us INTEGER NOT NULL
) STRICT;
