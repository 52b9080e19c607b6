//! Volumes: registration, state, space, position, choice of a cartridge to append to.

use serde::Serialize;
use wire::id::{BitfileId, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::leases::check_fence;
use crate::record::{AppendWish, Fence, Home, Located, MAX_PAGE, Medium, NewVolume, TapePosition, Volume, VolumeState};
use crate::sql::{Cursor, args, column, json, statements};

macro_rules! volume_columns {
    () => {
        "label, pool, state, reason, capacity, live_bytes, live_segments, errors, created_us, changed_us, mover, used, \
         library, next_container, next_block, label_epoch, written, mounts"
    };
}

statements! {
    REGISTER_VOLUMES (label text, pool text, state text, capacity bigint, mover text, library text) =
        "INSERT INTO volume (label, pool, state, capacity, live_bytes, live_segments, errors, created_us, changed_us,
            mover, used, library, next_container, next_block, label_epoch, written, mounts)
        SELECT r.label, r.pool, r.state, r.capacity, 0, 0, 0, CAST($2 AS BIGINT), CAST($2 AS BIGINT), r.mover, 0,
            r.library, 1, 0, 0, 0, 0 FROM r WHERE true
        ON CONFLICT (label) DO UPDATE SET pool = excluded.pool, capacity = excluded.capacity, mover = excluded.mover,
            library = excluded.library
        WHERE (volume.mover IS NULL) = (excluded.mover IS NULL)";

    ALL_VOLUMES = concat!("SELECT ", volume_columns!(), " FROM volume ORDER BY label");

    ONE_VOLUME = concat!("SELECT ", volume_columns!(), " FROM volume WHERE label = $1");

    LOCKED_VOLUME = concat!("SELECT ", volume_columns!(), " FROM volume WHERE label = $1"),
        concat!("SELECT ", volume_columns!(), " FROM volume WHERE label = $1 FOR UPDATE");

    SET_STATE = "UPDATE volume SET state = $2, reason = $3, changed_us = $4 WHERE label = $1";

    REPORT_SPACE (label text, capacity bigint, used bigint) =
        "UPDATE volume SET capacity = r.capacity, used = r.used FROM r WHERE volume.label = r.label";

    COUNT_MOUNT = "UPDATE volume SET mounts = mounts + 1 WHERE label = $1";

    COUNT_ERROR = "UPDATE volume SET errors = errors + 1 WHERE label = $1 RETURNING errors";

    CHOOSE_FOR_APPEND (label text) = concat!(
        "SELECT ", volume_columns!(), " FROM volume
        WHERE pool = $2 AND state IN ('filling', 'empty') AND library IS NOT NULL AND capacity - written >= $3
            AND label NOT IN (SELECT r.label FROM r)
        ORDER BY CASE state WHEN 'filling' THEN 0 ELSE 1 END, written DESC, label LIMIT 1"
    );

    RELABEL =
        "UPDATE volume SET state = 'empty', reason = NULL, next_container = 1, next_block = $2, written = 0,
            label_epoch = label_epoch + 1, changed_us = $3
        WHERE label = $1 RETURNING label_epoch";

    ON_VOLUME =
        "SELECT s.bitfile, s.major, s.minor, COALESCE(s.skip, 0) FROM segment s
        WHERE s.volume = $1 AND (s.major, s.minor) >= ($2, $3)
            AND (s.major > $2 OR s.minor > $3 OR COALESCE(s.skip, 0) > $4
                OR (COALESCE(s.skip, 0) = $4 AND s.bitfile > $5))
        ORDER BY s.major, s.minor, s.skip, s.bitfile LIMIT $6";
}

impl Catalog {
    /// Makes volumes known, or notes where known ones are now and how large. State and position of known ones stay.
    ///
    /// # Errors
    ///
    /// `Inconsistent` if a disk volume would become a cartridge or the other way round.
    pub async fn register_volumes(&self, volumes: Vec<NewVolume>) -> Result<()> {
        self.write(volumes, |volumes, tx| Box::pin(register(volumes, tx))).await
    }

    /// All volumes, by label.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.rows(&ALL_VOLUMES, &[]).await?.iter().map(|row| read_volume(&mut row.cursor())).collect()
    }

    /// One volume.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn volume(&self, label: &VolumeLabel) -> Result<Volume> {
        let row = self.row(&ONE_VOLUME, args![label]).await?.ok_or_else(|| no_volume(label))?;
        read_volume(&mut row.cursor())
    }

    /// Says what may be done with a volume from now on, and why.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn set_volume_state(&self, label: &VolumeLabel, state: VolumeState, reason: &str) -> Result<()> {
        self.write((label.clone(), state, reason.to_owned()), |(label, state, reason), tx| {
            Box::pin(async move {
                let (now, reason) = (tx.now, Some(reason.as_str()).filter(|reason| !reason.is_empty()));
                changed(tx.execute(&SET_STATE, args![label, state.name(), reason, now]).await?, label)
            })
        })
        .await
    }

    /// Takes a mover's word for how large its volumes are and how much of them is used: (label, capacity, used), in
    /// bytes.
    ///
    /// # Errors
    ///
    /// Only those of the database. Unknown volumes are passed over.
    pub async fn report_space(&self, reports: Vec<(VolumeLabel, u64, u64)>) -> Result<()> {
        self.write(reports, |reports, tx| Box::pin(report_space(reports, tx))).await
    }

    /// Counts a mount of a cartridge.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn count_mount(&self, label: &VolumeLabel) -> Result<()> {
        self.write(label.clone(), |label, tx| {
            Box::pin(async move { changed(tx.execute(&COUNT_MOUNT, args![label]).await?, label) })
        })
        .await
    }

    /// Counts an error of a volume and returns how many there are now.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn count_error(&self, label: &VolumeLabel) -> Result<u64> {
        self.write(label.clone(), |label, tx| {
            Box::pin(async move {
                let row = tx.row(&COUNT_ERROR, args![label]).await?.ok_or_else(|| no_volume(label))?;
                row.cursor().number()
            })
        })
        .await
    }

    /// The cartridge to append to: one that is being filled before an empty one, the fullest first, so that few are
    /// open. `None` if no writable one has room.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn volume_for_append(&self, wish: &AppendWish) -> Result<Option<Volume>> {
        #[derive(Serialize)]
        struct Label<'a> {
            label: &'a str,
        }
        let avoid: Vec<_> = wish.avoid.iter().map(|label| Label { label: label.as_str() }).collect();
        let row = self.row(&CHOOSE_FOR_APPEND, args![&json(&avoid)?, &wish.pool, column(wish.room_bytes)]).await?;
        row.map(|row| read_volume(&mut row.cursor())).transpose()
    }

    /// Notes that a cartridge has been labelled (anew): it is empty, its first container begins at `first_block`.
    /// Returns the new label epoch.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InUse` while bitfiles have segments on it, those in the undelete window too; `Stale` if the
    /// fence's lease is lost; `Inconsistent` for a disk volume.
    pub async fn relabel(&self, label: &VolumeLabel, first_block: u64, fence: Option<Fence>) -> Result<u64> {
        self.write((label.clone(), first_block, fence), |(label, first_block, fence), tx| {
            Box::pin(relabel(label, *first_block, fence.as_ref(), tx))
        })
        .await
    }

    /// Bitfiles with a segment on this volume, in the order in which they lie there, behind `after` (as the last
    /// page gave it), at most `limit`: for repack, drain, verify. With each page comes where to go on. A bitfile
    /// with many segments there may be on several pages.
    ///
    /// # Errors
    ///
    /// Only those of the database; `Inconsistent` for an `after` that no page gave.
    pub async fn bitfiles_on(
        &self,
        volume: &VolumeLabel,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Located>, Option<String>)> {
        let limit = limit.clamp(1, MAX_PAGE);
        let [major, minor, skip, bitfile] = after.map_or(Ok([0, 0, 0, -1]), parse_place)?;
        let rows = self.rows(&ON_VOLUME, args![volume, major, minor, skip, bitfile, limit]).await?;
        let mut order: Vec<BitfileId> = Vec::new();
        let mut next = None;
        for row in &rows {
            let mut row = row.cursor();
            let bitfile = row.bitfile()?;
            next = Some(format!("{} {} {} {bitfile}", row.int()?, row.int()?, row.int()?));
            if order.last() != Some(&bitfile) {
                order.push(bitfile);
            }
        }
        let mut found: std::collections::HashMap<_, _> =
            self.locate(&order).await?.into_iter().map(|located| (located.bitfile.id, located)).collect();
        let located = order.iter().filter_map(|bitfile| found.remove(bitfile)).collect();
        Ok((located, next.filter(|_| rows.len() == limit as usize)))
    }
}

fn parse_place(after: &str) -> Result<[i64; 4]> {
    let numbers: Vec<i64> = after.split(' ').map_while(|number| number.parse().ok()).collect();
    numbers
        .try_into()
        .map_err(|_| CatalogError::inconsistent(format!("{after:?} is not where a page of a volume ended")))
}

async fn register(volumes: &[NewVolume], tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct VolumeRow<'a> {
        label: &'a str,
        pool: &'a str,
        state: &'static str,
        capacity: i64,
        mover: Option<&'a str>,
        library: Option<&'a str>,
    }
    let rows: Vec<_> = volumes
        .iter()
        .map(|volume| {
            let (state, mover, library) = match &volume.home {
                Home::Mover(mover) => (VolumeState::Filling, Some(mover.as_str()), None),
                Home::Library(library) => (VolumeState::Empty, None, Some(library.as_str())),
            };
            let (label, capacity) = (volume.label.as_str(), column(volume.capacity_bytes));
            VolumeRow { label, pool: &volume.pool, state: state.name(), capacity, mover, library }
        })
        .collect();
    let now = tx.now;
    let taken = tx.execute(&REGISTER_VOLUMES, args![&json(&rows)?, now]).await?;
    if taken < rows.len() as u64 {
        return Err(CatalogError::inconsistent("a disk volume and a cartridge cannot have the same label"));
    }
    Ok(())
}

async fn report_space(reports: &[(VolumeLabel, u64, u64)], tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct Report<'a> {
        label: &'a str,
        capacity: i64,
        used: i64,
    }
    let mut rows: Vec<_> = reports
        .iter()
        .map(|(label, capacity, used)| Report {
            label: label.as_str(),
            capacity: column(*capacity),
            used: column(*used),
        })
        .collect();
    rows.sort_unstable_by_key(|row| row.label);
    tx.execute(&REPORT_SPACE, args![&json(&rows)?]).await.map(drop)
}

async fn relabel(label: &VolumeLabel, first_block: u64, fence: Option<&Fence>, tx: &mut Tx) -> Result<u64> {
    check_fence(fence, tx).await?;
    let volume = locked_volume(label, tx).await?;
    if volume.position().is_none() {
        return Err(CatalogError::inconsistent(format!("{label} is a disk volume: it has no label to write")));
    }
    if volume.live_segments > 0 {
        let reason = format!("it holds {} live segments", volume.live_segments);
        return Err(CatalogError::InUse { what: format!("volume {label}"), reason });
    }
    let now = tx.now;
    let row = tx.row(&RELABEL, args![label, column(first_block), now]).await?.ok_or_else(|| no_volume(label))?;
    row.cursor().number()
}

/// A volume that nobody else changes until the transaction ends.
pub(crate) async fn locked_volume(label: &VolumeLabel, tx: &mut Tx) -> Result<Volume> {
    let row = tx.row(&LOCKED_VOLUME, args![label]).await?.ok_or_else(|| no_volume(label))?;
    read_volume(&mut row.cursor())
}

fn no_volume(label: &VolumeLabel) -> CatalogError {
    CatalogError::not_found("volume", label)
}

fn changed(rows: u64, label: &VolumeLabel) -> Result<()> {
    if rows == 0 { Err(no_volume(label)) } else { Ok(()) }
}

fn read_volume(row: &mut Cursor<'_>) -> Result<Volume> {
    let (label, pool) = (row.name()?, row.text()?);
    let state = row.text()?;
    let state = VolumeState::from_name(&state)
        .ok_or_else(|| CatalogError::corrupt(format!("volume {label} is in state {state:?}")))?;
    let (reason, capacity_bytes) = (row.maybe_text()?, row.number()?);
    let (live_bytes, live_segments, errors) = (row.number()?, row.number()?, row.number()?);
    let (created, changed) = (row.time()?, row.time()?);
    let (mover, used_bytes) = (row.maybe_name()?, row.number()?);
    let library = row.maybe_name()?;
    let position = TapePosition { next_container: row.small()?, next_block: row.number()? };
    let (label_epoch, written_bytes, mounts) = (row.number()?, row.number()?, row.number()?);
    let medium = match (mover, library) {
        (Some(mover), None) => Medium::Disk { mover, used_bytes },
        (None, Some(library)) => Medium::Tape { library, position, label_epoch, written_bytes, mounts },
        _ => return Err(CatalogError::corrupt(format!("volume {label} is neither a disk nor a cartridge"))),
    };
    Ok(Volume {
        label,
        pool,
        state,
        reason,
        capacity_bytes,
        live_bytes,
        live_segments,
        errors,
        created,
        changed,
        medium,
    })
}
