//! Tape drives that operators have taken out of use: they stay so whichever gateway has the library, and over restarts.

use wire::id::DriveId;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::sql::{args, statements};

statements! {
    DRIVES_DOWN = "SELECT drive, reason FROM drive_down ORDER BY drive";

    TAKE_DOWN =
        "INSERT INTO drive_down (drive, reason, since_us) VALUES ($1, $2, $3)
        ON CONFLICT (drive) DO UPDATE SET reason = excluded.reason, since_us = excluded.since_us";

    PUT_UP = "DELETE FROM drive_down WHERE drive = $1";
}

impl Catalog {
    /// Keeps that a drive is out of use, and why; or forgets it.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn set_drive_down(&self, drive: &DriveId, reason: Option<String>) -> Result<()> {
        self.write((drive.clone(), reason), |(drive, reason), tx| {
            Box::pin(async move {
                let now = tx.now;
                match reason {
                    Some(reason) => tx.execute(&TAKE_DOWN, args![drive.as_str(), reason, now]).await.map(drop),
                    None => tx.execute(&PUT_UP, args![drive.as_str()]).await.map(drop),
                }
            })
        })
        .await
    }

    /// The drives that are out of use, by name, each with the reason.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn drives_down(&self) -> Result<Vec<(DriveId, String)>> {
        let rows = self.rows(&DRIVES_DOWN, &[]).await?;
        let read = |row: &crate::sql::Row| {
            let mut row = row.cursor();
            Ok((row.name()?, row.text()?))
        };
        rows.iter().map(read).collect()
    }
}
