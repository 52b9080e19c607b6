//! Giving staged copies back, for one of several who asked for them.
//!
//! A copy is promised until the last moment that any completed request wants it. Who gives it back takes its own requests
//! out of that, and nobody else's.

use wire::id::{AccountName, BitfileId, RequestId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::sql::{Row, args, bitfile_rows, statements};
use crate::staging::{STAGE_PIN, request_rows};

/// Until when any completed request that was not given back wants a copy. A lifetime of more than 100,000 years is
/// forever, and would not add up.
macro_rules! wanted_until {
    ($bitfile:literal) => {
        concat!(
            "COALESCE((SELECT MAX(CASE WHEN q.lifetime_us > 4000000000000000000 THEN 9223372036854775807
                ELSE q.finished_us + q.lifetime_us END)
            FROM request q WHERE q.bitfile = ",
            $bitfile,
            " AND q.outcome = 'completed' AND q.released_us IS NULL), $2)"
        )
    };
}

statements! {
    LOCK_RELEASED (id bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    RELEASE_REQUESTS (id bigint) =
        "UPDATE request SET released_us = $2 WHERE id IN (SELECT r.id FROM r) AND outcome = 'completed'
            AND released_us IS NULL AND (CAST($3 AS TEXT) IS NULL OR account = $3)
        RETURNING bitfile";

    RELEASE_FOR (id bigint) =
        "UPDATE request SET released_us = $2 WHERE bitfile IN (SELECT r.id FROM r) AND outcome = 'completed'
            AND released_us IS NULL AND account = $3
        RETURNING bitfile";

    /// A promise is made shorter only, and one that is over stays over.
    SHORTEN_PROMISES (id bigint) = concat!(
        "UPDATE copy SET expires_us = ", wanted_until!("copy.bitfile"),
        " WHERE number = 0 AND expires_us > $2 AND bitfile IN (SELECT r.id FROM r)
            AND expires_us > ", wanted_until!("copy.bitfile")
    );

    SHORTEN_PINS (id bigint) = concat!(
        "UPDATE pin SET until_us = ", wanted_until!("pin.bitfile"),
        " WHERE holder = $3 AND until_us > $2 AND bitfile IN (SELECT r.id FROM r)
            AND until_us > ", wanted_until!("pin.bitfile")
    );
}

impl Catalog {
    /// Gives back the copies that these completed requests are promised, only those of `account` if it is given. What
    /// another request wants stays as long as that one wants it. Returns the bitfiles that were given back.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release_requests(
        &self,
        requests: Vec<RequestId>,
        account: Option<AccountName>,
    ) -> Result<Vec<BitfileId>> {
        self.write((requests, account), |(requests, account), tx| {
            Box::pin(async move {
                let (rows, now, account) = (request_rows(requests)?, tx.now, account.as_ref().map(AccountName::as_str));
                let released = tx.rows(&RELEASE_REQUESTS, args![&rows, now, account]).await?;
                shorten(&released, tx).await
            })
        })
        .await
    }

    /// Gives back the copies of these bitfiles as far as requests of this account hold them.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release_for(&self, bitfiles: Vec<BitfileId>, account: AccountName) -> Result<Vec<BitfileId>> {
        self.write((bitfiles, account), |(bitfiles, account), tx| {
            Box::pin(async move {
                let (rows, now) = (bitfile_rows(bitfiles)?, tx.now);
                let released = tx.rows(&RELEASE_FOR, args![&rows, now, &*account]).await?;
                shorten(&released, tx).await
            })
        })
        .await
    }
}

async fn shorten(released: &[Row], tx: &mut Tx) -> Result<Vec<BitfileId>> {
    let mut bitfiles = released.iter().map(|row| row.cursor().bitfile()).collect::<Result<Vec<_>>>()?;
    bitfiles.sort_unstable();
    bitfiles.dedup();
    if bitfiles.is_empty() {
        return Ok(bitfiles);
    }
    let (rows, now) = (bitfile_rows(&bitfiles)?, tx.now);
    tx.lock(&LOCK_RELEASED, args![&rows]).await?;
    tx.execute(&SHORTEN_PROMISES, args![&rows, now]).await?;
    tx.execute(&SHORTEN_PINS, args![&rows, now, STAGE_PIN]).await?;
    Ok(bitfiles)
}
