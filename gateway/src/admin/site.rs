//! The site and its parts: status, movers, drives, volumes, classes of service, live transfers.

use std::collections::{BTreeMap, HashMap};

use axum::{Extension, extract::State as Axum};
use catalog::{Medium as Kept, MediumKind, Volume, VolumeState as Held};
use tracing::info;
use wire::{
    admin::{
        Code, Done,
        queue::Kind,
        site::{
            ClassOfService, ClassSpace, Count, Drive, DriveState, Location, Medium, Mover, MoverState, Moving,
            QueueCount, Reason, Service, Status, Transfer, TransferKind, VolumeState,
        },
    },
    checksum::Algorithm,
    id::{DriveId, GatewayId, MoverId, TransferId, VolumeLabel},
};

use super::{
    State,
    door::Caller,
    extract::{Json, Path},
    health,
    refusal::{Answer, Refusal},
};
use crate::{
    hsm::{EXPIRE_LEASE, PURGE_LEASE, RECLAIM_LEASE, TAPE_LEASE},
    movers::{LinkState, MoverView, Snapshot},
    transfer::{Direction, TransferView},
};

/// How the reason of a volume begins that is read and gets nothing new because an operator said so.
const DRAINING: &str = "draining";

pub(super) async fn status(Axum(state): Axum<State>) -> Answer<Status> {
    let statistics = state.catalog.statistics().await?;
    let volumes = state.catalog.volumes().await?;
    let policies = state.catalog.policies().await?;
    let snapshot = snapshot(&state);
    let drives = state.hsm.drives().await;
    let queue = statistics.queues.iter().map(|queue| QueueCount {
        kind: kind_of(queue.kind),
        waiting: queue.items.saturating_sub(queue.running),
        running: queue.running,
        bytes: queue.bytes,
        oldest_us: queue.oldest.map(|oldest| oldest.0),
    });
    let relayed = snapshot.movers.values().map(|view| view.status.relayed_bytes).sum();
    let up = snapshot.movers.values().filter(|view| view.is_up()).count() as u64;
    let leases = state.catalog.leases().await?;
    Ok(Json(Status {
        gateway: state.gateway.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_us: state.catalog.now().0,
        started_us: state.started_us,
        ready: health::readiness(&state).await,
        catalogue: state.catalog.database().await?,
        services: [TAPE_LEASE, PURGE_LEASE, RECLAIM_LEASE, EXPIRE_LEASE]
            .iter()
            .map(|name| service(&state, name, leases.iter().find(|lease| lease.name == *name)))
            .collect(),
        movers: Count { up, total: snapshot.movers.len() as u64 },
        drives: Count {
            up: drives.iter().filter(|drive| drive.state == DriveState::Up).count() as u64,
            total: drives.len() as u64,
        },
        queue: queue.collect(),
        moving: moving(&all_transfers(&state)),
        classes: policies.storage_classes.iter().map(|class| space(class, &volumes, &snapshot)).collect(),
        files: statistics.files,
        bytes: statistics.bytes,
        relayed_bytes: relayed,
    }))
}

fn service(state: &State, name: &str, lease: Option<&catalog::Lease>) -> Service {
    let lease = lease.filter(|lease| lease.until > state.catalog.now());
    let holder = lease.and_then(|lease| lease.holder.as_str().split('/').next().map(str::to_owned));
    let holder = holder.and_then(|name| GatewayId::new(name).ok());
    let doing = match name {
        TAPE_LEASE => "mounts, migrates, recalls and verifies",
        PURGE_LEASE => "keeps disk volumes below their water marks",
        RECLAIM_LEASE => "frees the space of what was deleted",
        _ => "keeps deadlines and lifetimes",
    };
    let doing = if lease.is_some() { doing } else { "nobody runs it" };
    Service {
        name: name.to_owned(),
        here: holder.as_ref() == Some(&state.gateway),
        holder,
        doing: doing.to_owned(),
        active_us: None,
        last_error: None,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn space(class: &catalog::StorageClass, volumes: &[Volume], snapshot: &Snapshot) -> ClassSpace {
    let own: Vec<&Volume> = volumes.iter().filter(|volume| volume.pool == class.pool).collect();
    let percent = |share: f64| (share.clamp(0.0, 1.0) * 100.0).round() as u8;
    let disk = class.kind == MediumKind::Disk;
    ClassSpace {
        class: class.name.clone(),
        medium: if disk { Medium::Disk } else { Medium::Tape },
        capacity_bytes: own.iter().map(|volume| volume.capacity_bytes).sum(),
        unknown_capacity: own.iter().filter(|volume| volume.capacity_bytes == 0).count() as u64,
        used_bytes: own.iter().map(|volume| used(volume, snapshot)).sum(),
        high_percent: disk.then(|| percent(class.high_water)),
        low_percent: disk.then(|| percent(class.low_water)),
        volumes: Count {
            up: own.iter().filter(|volume| volume.state.readable()).count() as u64,
            total: own.len() as u64,
        },
    }
}

fn used(volume: &Volume, snapshot: &Snapshot) -> u64 {
    match &volume.medium {
        Kept::Disk { used_bytes, .. } => {
            snapshot.volume(&volume.label).map_or(*used_bytes, |(_, status)| status.used_bytes)
        }
        Kept::Tape { written_bytes, .. } => *written_bytes,
    }
}

fn snapshot(state: &State) -> std::sync::Arc<Snapshot> {
    state.movers.as_ref().map(crate::movers::Movers::snapshot).unwrap_or_default()
}

pub(super) async fn movers(Axum(state): Axum<State>) -> Answer<Vec<Mover>> {
    let now = state.catalog.now().0;
    Ok(Json(snapshot(&state).movers.values().map(|view| mover(view, now)).collect()))
}

fn mover(view: &MoverView, now_us: i64) -> Mover {
    let (state, reason, since) = match &view.link {
        LinkState::Away { since, why } => (MoverState::Away, Some(why.clone()), since),
        LinkState::Up { since } if view.drained.is_some() => (MoverState::Draining, view.drained.clone(), since),
        LinkState::Up { since } if view.status.draining => {
            (MoverState::Draining, Some("it is shutting down".to_owned()), since)
        }
        LinkState::Up { since } => (MoverState::Up, None, since),
    };
    let elapsed = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
    let status = &view.status;
    Mover {
        mover: view.mover.clone(),
        address: view.address.clone(),
        state,
        reason,
        since_us: Some(now_us.saturating_sub(elapsed)),
        volumes: status.volumes.iter().map(|volume| volume.volume.clone()).collect(),
        drives: status.drives.iter().map(|drive| drive.drive.clone()).collect(),
        libraries: status.libraries.clone(),
        transfers: view.transfers as u64,
        received_bytes: status.received_bytes,
        sent_bytes: status.sent_bytes,
        relayed_bytes: status.relayed_bytes,
    }
}

pub(super) async fn change_mover(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path((name, what)): Path<(MoverId, String)>,
    reason: Option<Json<Reason>>,
) -> Answer<Done> {
    let why = reason.map(|Json(reason)| reason.reason).filter(|why| !why.is_empty());
    let drained = match what.as_str() {
        "drain" => Some(why.unwrap_or_else(|| format!("{} drains it", caller.name))),
        "undrain" => None,
        _ => return Err(unknown(&what, "drain or undrain")),
    };
    let Some(movers) = &state.movers else { return Err(unknown("movers", "a gateway with movers")) };
    movers.drain(&name, drained.clone()).map_err(crate::failure::Failure::from)?;
    info!(principal = caller.name, mover = %name, drained = ?drained, "mover changed");
    let text = if drained.is_some() { "gets nothing new; what moves goes on" } else { "gets work again" };
    Ok(Json(Done::new(format!("mover {name} {text}"))))
}

fn unknown(what: &str, choices: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("{what:?} cannot be done"), format!("say {choices}"))
}

pub(super) async fn drives(Axum(state): Axum<State>) -> Answer<Vec<Drive>> {
    let mut drives = state.hsm.drives().await;
    if drives.is_empty() {
        // Another gateway serves the library: what the movers say.
        drives = snapshot(&state).drives().map(|(view, status)| seen(view, status)).collect();
    }
    Ok(Json(drives))
}

fn seen(view: &MoverView, status: &wire::mover::DriveStatus) -> Drive {
    use wire::mover::DriveHealth as Health;
    let (state, reason) = match (&status.health, view.is_up()) {
        (_, false) => (DriveState::Away, Some(format!("mover {} is not connected", view.mover))),
        (Health::Up, true) => (DriveState::Up, None),
        (Health::Down { reason }, true) => (DriveState::Down, Some(reason.clone())),
        (Health::Cleaning { reason }, true) => (DriveState::Cleaning, Some(reason.clone())),
    };
    Drive {
        drive: status.drive.clone(),
        mover: view.mover.clone(),
        library: status.library.clone(),
        serial: status.serial.clone(),
        state,
        reason,
        since_us: None,
        volume: status.volume.clone(),
        activity: status.activity.clone(),
        purpose: None,
        written_bytes: status.written_bytes,
        read_bytes: status.read_bytes,
        mounts: status.mounts,
    }
}

pub(super) async fn change_drive(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path((drive, what)): Path<(DriveId, String)>,
    reason: Option<Json<Reason>>,
) -> Answer<Done> {
    let reason = reason.map(|Json(reason)| reason.reason).unwrap_or_default();
    let text = match what.as_str() {
        "down" => {
            let reason = if reason.is_empty() { "an operator took it out of use".to_owned() } else { reason };
            state.hsm.set_drive(&drive, Some(reason)).await?;
            "is taken out of use; what it does goes on to its end"
        }
        "up" => {
            state.hsm.set_drive(&drive, None).await?;
            "is in use again"
        }
        _ => return Err(unknown(&what, "up or down")),
    };
    info!(principal = caller.name, %drive, what, "drive changed");
    Ok(Json(Done::new(format!("drive {drive} {text}"))))
}

pub(super) async fn volumes(Axum(state): Axum<State>) -> Answer<Vec<wire::admin::site::Volume>> {
    let volumes = state.catalog.volumes().await?;
    let policies = state.catalog.policies().await?;
    let tapes: Vec<VolumeLabel> =
        volumes.iter().filter(|volume| volume.position().is_some()).map(|volume| volume.label.clone()).collect();
    let places: HashMap<VolumeLabel, Location> = tapes
        .iter()
        .cloned()
        .zip(state.hsm.locations(tapes.clone()).await)
        .filter_map(|(label, place)| Some((label, place?)))
        .collect();
    let classes: BTreeMap<&str, _> =
        policies.storage_classes.iter().map(|class| (class.pool.as_str(), &class.name)).collect();
    let snapshot = snapshot(&state);
    let shown = volumes.iter().filter_map(|volume| {
        let (used_bytes, containers) = match &volume.medium {
            Kept::Disk { .. } => (used(volume, &snapshot), None),
            Kept::Tape { written_bytes, position, .. } => {
                (*written_bytes, Some(position.next_container.saturating_sub(1)))
            }
        };
        let tape = containers.is_some();
        Some(wire::admin::site::Volume {
            volume: volume.label.clone(),
            medium: if tape { Medium::Tape } else { Medium::Disk },
            class: (*classes.get(volume.pool.as_str())?).clone(),
            pool: Some(volume.pool.clone()),
            state: shown_state(volume),
            reason: shown_reason(volume),
            location: match &volume.medium {
                Kept::Disk { mover, .. } => Location::Mover { mover: mover.clone() },
                Kept::Tape { .. } => places.get(&volume.label).cloned().unwrap_or(Location::Unknown),
            },
            capacity_bytes: Some(volume.capacity_bytes).filter(|bytes| *bytes > 0),
            used_bytes,
            dead_bytes: if tape { used_bytes.saturating_sub(volume.live_bytes) } else { 0 },
            segments: volume.live_segments,
            containers,
        })
    });
    Ok(Json(shown.collect()))
}

/// Why it is as it is; that it is draining the state says.
fn shown_reason(volume: &Volume) -> Option<String> {
    let reason = volume.reason.as_ref().filter(|_| !matches!(volume.state, Held::Filling | Held::Empty))?;
    let draining = reason.strip_prefix(DRAINING).and_then(|rest| rest.strip_prefix(": "));
    Some(draining.unwrap_or(reason).to_owned())
}

fn shown_state(volume: &Volume) -> VolumeState {
    match volume.state {
        Held::Empty => VolumeState::Blank,
        Held::Filling => VolumeState::Enabled,
        Held::Full => VolumeState::Full,
        Held::ReadOnly if volume.reason.as_ref().is_some_and(|why| why.starts_with(DRAINING)) => VolumeState::Draining,
        Held::ReadOnly => VolumeState::ReadOnly,
        Held::Disabled => VolumeState::Disabled,
    }
}

pub(super) async fn change_volume(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path((label, what)): Path<(VolumeLabel, String)>,
    reason: Option<Json<Reason>>,
) -> Answer<Done> {
    let Reason { reason, moves } = reason.map(|Json(reason)| reason).unwrap_or_default();
    let why = Some(reason).filter(|why| !why.is_empty());
    let volume = state.catalog.volume(&label).await?;
    // Back in use means: as full as it is.
    let open = match volume.position() {
        Some(position) if position.next_container <= 1 => Held::Empty,
        _ => Held::Filling,
    };
    let by = format!("{} said so", caller.name);
    let (held, why, text) = match what.as_str() {
        "enable" | "undrain" => (open, why.unwrap_or(by), "is in use again"),
        "disable" => (Held::Disabled, why.unwrap_or(by), "is not used any more"),
        "drain" => {
            let why = format!("{DRAINING}: {}", why.unwrap_or(by));
            let text = match volume.position() {
                _ if moves => {
                    "gets nothing new; what is on it moves to other volumes, over restarts, until it is empty"
                }
                Some(_) => "gets nothing new; what is on it stays there and is read from it until it is deleted",
                None => {
                    "gets nothing new; what is on it stays there and is read from it until it is deleted or purged: \
                     `penstock admin purge` drops what has its tape copies"
                }
            };
            (Held::ReadOnly, why, text)
        }
        _ => return Err(unknown(&what, "enable, disable, drain or undrain")),
    };
    state.catalog.set_volume_state(&label, held, &why).await?;
    if moves && what == "drain" {
        state.hsm.drain(&label).await?;
    } else {
        // Whatever else happens to it: nothing is moved away any more.
        state.hsm.stop_drain(&label).await?;
    }
    state.hsm.volumes_changed().await;
    info!(principal = caller.name, volume = %label, what, "volume changed");
    Ok(Json(Done::new(format!("volume {label} {text}"))))
}

pub(super) async fn volume_drain(
    Axum(state): Axum<State>,
    Path((label, what)): Path<(VolumeLabel, String)>,
) -> Answer<wire::admin::site::Drain> {
    if what != "drain" {
        return Err(unknown(&what, "drain"));
    }
    Ok(Json(state.hsm.drain_state(&label).await?))
}

pub(super) async fn rebuild(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(label): Path<VolumeLabel>,
) -> Answer<Done> {
    state.hsm.rebuild(&label).await?;
    info!(principal = caller.name, volume = %label, "volume is rebuilt");
    Ok(Json(Done::new(format!(
        "what is on {label} is taken over by the catalogue, in the background and over restarts"
    ))))
}

pub(super) async fn volume_rebuild(
    Axum(state): Axum<State>,
    Path(label): Path<VolumeLabel>,
) -> Answer<wire::admin::site::Rebuild> {
    Ok(Json(state.hsm.rebuild_state(&label).await?))
}

pub(super) async fn classes(Axum(state): Axum<State>) -> Answer<Vec<ClassOfService>> {
    let policies = state.catalog.policies().await?;
    let shown = policies.classes.iter().map(|class| {
        let hierarchy = policies.hierarchy(&class.hierarchy);
        let disk = hierarchy.and_then(|hierarchy| policies.storage_class(&hierarchy.disk));
        let mut checksums = vec![Algorithm::Adler32, Algorithm::Crc32c];
        checksums.extend(class.extra_sums.md5.then_some(Algorithm::Md5));
        checksums.extend(class.extra_sums.sha256.then_some(Algorithm::Sha256));
        ClassOfService {
            cos: class.name.clone(),
            description: String::new(),
            hierarchy: hierarchy
                .map(|of| {
                    std::iter::once(&of.disk).chain(of.tapes.iter().take(class.copies as usize)).cloned().collect()
                })
                .unwrap_or_default(),
            copies: u8::try_from(class.copies).unwrap_or(u8::MAX),
            checksums,
            stripe_width: disk.map_or(1, |disk| disk.stripe_width),
            waits_for_tape: class.tape_read == catalog::TapeRead::Wait,
            undelete_s: class.undelete_window.as_secs(),
            staged_s: class.stage_lifetime.as_secs(),
            files: None,
        }
    });
    Ok(Json(shown.collect()))
}

pub(super) async fn transfers(Axum(state): Axum<State>) -> Answer<Vec<Transfer>> {
    Ok(Json(all_transfers(&state)))
}

fn all_transfers(state: &State) -> Vec<Transfer> {
    let now = state.catalog.now().0;
    let clients = state.transfers.as_ref().map(crate::transfer::Transfers::running).unwrap_or_default();
    let mut all: Vec<Transfer> = clients.iter().map(|view| of_client(view, now)).collect();
    all.extend(state.hsm.live().moving());
    all
}

fn moving(transfers: &[Transfer]) -> Vec<Moving> {
    let mut kinds: Vec<Moving> = Vec::new();
    for Transfer { what, rate, .. } in transfers {
        match kinds.iter_mut().find(|kind| kind.what == *what) {
            Some(kind) => {
                kind.transfers += 1;
                kind.rate = kind.rate.saturating_add(*rate);
            }
            None => kinds.push(Moving { what: *what, transfers: 1, rate: *rate }),
        }
    }
    kinds
}

fn of_client(view: &TransferView, now_us: i64) -> Transfer {
    let elapsed = view.elapsed.as_micros().max(1);
    let rate = u128::from(view.bytes) * 1_000_000 / elapsed;
    Transfer {
        transfer: TransferId(view.number),
        what: if view.direction == Direction::Store { TransferKind::Store } else { TransferKind::Retrieve },
        account: view.account.clone(),
        path: Some(view.path.clone()),
        bitfile: None,
        movers: view.movers.clone(),
        client: None,
        bytes: view.bytes,
        total_bytes: view.total_bytes,
        rate: u64::try_from(rate).unwrap_or(u64::MAX),
        started_us: now_us.saturating_sub(i64::try_from(elapsed).unwrap_or(i64::MAX)),
    }
}

const fn kind_of(kind: catalog::WorkKind) -> Kind {
    use catalog::WorkKind as Work;
    match kind {
        Work::Migrate => Kind::Migrate,
        Work::Stage => Kind::Stage,
        Work::Purge => Kind::Purge,
        Work::Reclaim => Kind::Reclaim,
        Work::Repack => Kind::Repack,
        Work::Verify => Kind::Verify,
        Work::Rebuild => Kind::Rebuild,
    }
}
