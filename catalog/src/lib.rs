//! Penstock's catalogue: names, bitfiles, copies, segments, volumes and the durable work queue, over SQLite or PostgreSQL.
