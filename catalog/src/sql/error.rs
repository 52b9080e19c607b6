//! What an error of a database means for a caller: busy or away, or broken.

use std::sync::Arc;

use crate::error::CatalogError;
use crate::sql::Statement;

/// Sorts an error of the driver or the database.
///
/// PostgreSQL's classes: 08 connection, 40 transaction rollback (deadlock), 53 and 57 resources and intervention,
/// 55 lock not available, 23505 unique violation (two gateways made the same row; the loser looks again). SQLite's
/// primary codes: 5 busy, 6 locked, 10 I/O, 13 full, 14 cannot open, 8 read-only.
pub(crate) fn classify(error: sqlx::Error, statement: Option<&Statement>) -> CatalogError {
    let name = statement.map_or("connection", |statement| statement.name);
    let away = match &error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            match code.parse::<u32>() {
                // SQLite's extended codes keep the primary code in the low byte; PostgreSQL's have five characters.
                Ok(code) if database.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() => {
                    matches!(code & 0xff, 5 | 6 | 8 | 10 | 13 | 14)
                }
                _ => code == "23505" || ["08", "40", "53", "55", "57"].iter().any(|class| code.starts_with(class)),
            }
        }
        _ => false,
    };
    if away {
        CatalogError::Unavailable { source: Arc::new(error) }
    } else {
        CatalogError::corrupt(format!("{name}: {error}"))
    }
}
