//! The site and its parts: status, movers, drives, volumes, classes of service, transfers, what happens.

use std::time::{Duration, Instant};

use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use wire::admin::{
    Done,
    events::{Event, Stamped},
    site::{
        ClassOfService, ClassSpace, Count, Drain, Drive, Location, Mover, Readiness, Reason, Rebuild, Status, Transfer,
        TransferKind, Volume,
    },
};

use super::{
    AdminError, Connection, Output, Target,
    command::SiteCommand,
    show::{bytes, list, now_us, or_dash, percent, span, table, word, write},
};

/// How often a site that is being started is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often something that is waited for is asked about.
const POLL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(command: SiteCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    match command {
        SiteCommand::Status => output.print(&connection.get::<Status>("/v1/status").await?, show_status),
        SiteCommand::Wait { .. } => unreachable!("it is not tied to one connection: `wait` below"),
        SiteCommand::Movers => output.print(&connection.get("/v1/movers").await?, show_movers),
        SiteCommand::Drives => output.print(&connection.get("/v1/drives").await?, show_drives),
        SiteCommand::Volumes => output.print(&connection.get("/v1/volumes").await?, show_volumes),
        SiteCommand::Cos => output.print(&connection.get("/v1/cos").await?, show_classes),
        SiteCommand::Transfers => output.print(&connection.get("/v1/transfers").await?, show_transfers),
        SiteCommand::DriveUp { drive, reason } => {
            change(connection, output, &format!("/v1/drives/{drive}/up"), reason).await
        }
        SiteCommand::DriveDown { drive, reason } => {
            change(connection, output, &format!("/v1/drives/{drive}/down"), reason).await
        }
        SiteCommand::VolumeEnable { volume, reason } => {
            change(connection, output, &format!("/v1/volumes/{volume}/enable"), reason).await
        }
        SiteCommand::VolumeDisable { volume, reason } => {
            change(connection, output, &format!("/v1/volumes/{volume}/disable"), reason).await
        }
        SiteCommand::Drain { mover, volume, moves, wait, reason } => {
            let path = format!("{}/drain", part(mover, volume));
            let done: Done = connection.send(Method::POST, &path, &Reason { reason, moves }).await?;
            output.print(&done, |done| done.message.clone())?;
            if wait { wait_until_empty(connection, &path, output).await } else { Ok(()) }
        }
        SiteCommand::Undrain { mover, volume } => {
            change(connection, output, &format!("{}/undrain", part(mover, volume)), String::new()).await
        }
        SiteCommand::Rebuild { volume, wait } => {
            let path = format!("/v1/volumes/{volume}/rebuild");
            let done: Done = connection.send(Method::POST, &path, &Reason::default()).await?;
            if wait {
                return wait_until_rebuilt(connection, &path, output).await;
            }
            output.print(&done, |done| done.message.clone())
        }
        SiteCommand::Bucket(command) => super::buckets::run(command, connection, output).await,
        SiteCommand::Watch => watch(connection, output).await,
    }
}

/// Waits for a site that is being started: for its folder, its door, and what it needs to take work.
pub(super) async fn wait(target: &Target, limit: Duration, output: Output) -> Result<(), AdminError> {
    let deadline = Instant::now() + limit;
    loop {
        let status = match Connection::open(target).await {
            Ok(mut connection) => connection.get::<Status>("/v1/status").await,
            Err(error) => Err(error),
        };
        match status {
            Ok(status) => match &status.ready {
                Readiness::Ready => return output.print(&status, |_| "ready".to_owned()),
                Readiness::Degraded { reason } => return output.print(&status, |_| format!("ready, but {reason}")),
                Readiness::NotReady { reason } if Instant::now() >= deadline => {
                    return Err(AdminError::NotThere(format!("the site is not ready: {reason}")));
                }
                Readiness::Unknown if Instant::now() >= deadline => {
                    let text = "the site is in a state that only a newer penstock knows: use its own version";
                    return Err(AdminError::NotThere(text.to_owned()));
                }
                Readiness::NotReady { .. } | Readiness::Unknown => {}
            },
            Err(error) if Instant::now() >= deadline || !error.may_pass() => return Err(error),
            Err(_) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The route of a mover or a volume; the command line has made sure that there is one of them.
fn part(mover: Option<wire::id::MoverId>, volume: Option<wire::id::VolumeLabel>) -> String {
    match (mover, volume) {
        (Some(mover), _) => format!("/v1/movers/{mover}"),
        (None, Some(volume)) => format!("/v1/volumes/{volume}"),
        (None, None) => "/v1/movers/-".to_owned(),
    }
}

async fn change(connection: &mut Connection, output: Output, path: &str, reason: String) -> Result<(), AdminError> {
    let done: Done = connection.send(Method::POST, path, &Reason { reason, moves: false }).await?;
    output.print(&done, |done| done.message.clone())
}

/// Shows how far a drain is, until the volume is empty or somebody ends the drain.
async fn wait_until_empty(connection: &mut Connection, path: &str, output: Output) -> Result<(), AdminError> {
    let style = "{spinner} {wide_bar} {bytes} of {total_bytes}, {msg}";
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(style).expect("a legal template"));
    loop {
        let drain: Drain = connection.get(path).await?;
        let total = drain.total_bytes.unwrap_or(drain.left_bytes);
        bar.set_length(total);
        bar.set_position(total.saturating_sub(drain.left_bytes));
        let reason = drain.reason.as_ref().filter(|_| drain.failing > 0 || drain.left_segments > 0);
        let waits = reason.map(|reason| format!("; {}", super::show::printable(reason))).unwrap_or_default();
        bar.set_message(format!("{} segments left{waits}", drain.left_segments));
        if !drain.moving {
            bar.finish_and_clear();
            if drain.left_segments > 0 {
                let text =
                    format!("the drain was ended; {} segments are on {} still", drain.left_segments, drain.volume);
                return Err(AdminError::NotThere(text));
            }
            return output.add(&format!("{} is empty", drain.volume));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Shows how far a rebuild is, until it has ended.
async fn wait_until_rebuilt(connection: &mut Connection, path: &str, output: Output) -> Result<(), AdminError> {
    let style = ProgressStyle::with_template("{spinner} {wide_bar} {msg}").expect("a legal template");
    let bar = ProgressBar::new(0).with_style(style);
    loop {
        let state: Rebuild = connection.get(path).await?;
        bar.set_length(u64::from(state.containers));
        bar.set_position(u64::from(state.container));
        let waits = state.reason.as_deref().map(|why| format!("; {}", super::show::printable(why)));
        bar.set_message(format!("{} files{}", state.files + state.lost + state.joined, waits.unwrap_or_default()));
        if !state.working {
            bar.finish_and_clear();
            output.print(&state, show_rebuild)?;
            return match &state.reason {
                Some(why) => Err(AdminError::NotThere(format!("the rebuild of {} was given up: {why}", state.volume))),
                None => Ok(()),
            };
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn show_rebuild(state: &Rebuild) -> String {
    let Rebuild { volume, members, containers, files, lost, joined, known, waiting_parts, refused, .. } = state;
    let mut text = format!(
        "{volume}: {members} members in {containers} containers, {} taken over\n\
         {files} files are back under their names, {lost} are below /lost+found/{volume}\n\
         {joined} further copies, {known} known before, {waiting_parts} parts wait for other cartridges, {refused} refused",
        bytes(state.bytes)
    );
    for problem in &state.problems {
        text.push('\n');
        text.push_str(&super::show::printable(problem));
    }
    text
}

async fn watch(connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    connection
        .lines("/v1/events", |line| {
            if line.is_empty() {
                return Ok(true);
            }
            if output.json {
                write(&String::from_utf8_lossy(line))?;
                return Ok(true);
            }
            let stamped: Stamped = serde_json::from_slice(line).map_err(AdminError::Unreadable)?;
            if let Some(text) = describe(&stamped.event) {
                write(&format!("{}  {text}", clock(stamped.at_us)))?;
            }
            Ok(true)
        })
        .await
}

/// The time of day, UTC.
fn clock(at_us: i64) -> String {
    let seconds = at_us.div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// An event in one line; `None` for one that this version does not know.
pub(crate) fn describe(event: &Event) -> Option<String> {
    Some(match event {
        Event::Hello { gateway } => format!("watching {gateway}"),
        Event::Missed { events } => format!("… {events} events were missed: this side was too slow"),
        Event::Mover { message, .. } | Event::Volume { message, .. } => message.clone(),
        Event::Drive { drive, message, volume, .. } => match volume {
            Some(volume) => format!("{drive} ({volume}): {message}"),
            None => format!("{drive}: {message}"),
        },
        Event::Work { kind, message, .. } => format!("{kind}: {message}"),
        Event::Batch { kind, message, files, bytes: moved, .. } => {
            format!("{kind}: {message} ({files} files, {})", bytes(*moved))
        }
        Event::Transfer(transfer) => format!(
            "{} {} {} at {}/s",
            word(&transfer.what),
            or_dash(transfer.path.as_ref()),
            progress(transfer),
            bytes(transfer.rate)
        ),
        _ => return None,
    })
}

fn up_of(count: Count) -> String {
    format!("{} of {} up", count.up, count.total)
}

/// What a class holds: a cartridge that was never in a drive has not told how much it takes.
fn capacity(class: &ClassSpace) -> String {
    match (class.unknown_capacity, class.capacity_bytes) {
        (0, known) => bytes(known),
        (_, 0) => "unknown".to_owned(),
        (_, known) => format!("{} and more", bytes(known)),
    }
}

fn show_status(status: &Status) -> String {
    let ready = match &status.ready {
        Readiness::Ready => "ready".to_owned(),
        Readiness::Degraded { reason } => format!("ready, but {reason}"),
        Readiness::NotReady { reason } => format!("not ready: {reason}"),
        Readiness::Unknown => "in a state this version does not know".to_owned(),
    };
    let mut text = format!(
        "{} {}, {ready}, up {}\ncatalogue  {}\nfiles      {} with {}\nmovers     {}\ndrives     {}\nrelayed    {}\n",
        status.gateway,
        status.version,
        span(status.started_us, status.now_us),
        status.catalogue,
        status.files,
        bytes(status.bytes),
        up_of(status.movers),
        up_of(status.drives),
        bytes(status.relayed_bytes),
    );
    text.push_str("\nSpace\n");
    text.push_str(&table(
        ["class", "medium", "used ", "capacity ", "full ", "water marks", "volumes"],
        status.classes.iter().map(|class| {
            let marks = match (class.low_percent, class.high_percent) {
                (Some(low), Some(high)) => format!("{low} – {high} %"),
                _ => "-".to_owned(),
            };
            [
                class.class.to_string(),
                word(&class.medium),
                bytes(class.used_bytes),
                capacity(class),
                if class.unknown_capacity == 0 {
                    percent(class.used_bytes, class.capacity_bytes)
                } else {
                    "?".to_owned()
                },
                marks,
                up_of(class.volumes),
            ]
        }),
    ));
    text.push_str("\n\nQueue\n");
    text.push_str(&table(
        ["kind", "waiting ", "running ", "bytes ", "oldest "],
        status.queue.iter().map(|queue| {
            [
                queue.kind.to_string(),
                queue.waiting.to_string(),
                queue.running.to_string(),
                bytes(queue.bytes),
                or_dash(queue.oldest_us.map(|oldest| span(oldest, status.now_us))),
            ]
        }),
    ));
    text.push_str("\n\nMoving\n");
    if status.moving.is_empty() {
        text.push_str("nothing");
    } else {
        text.push_str(&table(
            ["what", "transfers ", "rate "],
            status
                .moving
                .iter()
                .map(|moving| [word(&moving.what), moving.transfers.to_string(), format!("{}/s", bytes(moving.rate))]),
        ));
    }
    text.push_str("\n\nServices\n");
    text.push_str(&table(
        ["service", "held by", "doing", "last error"],
        status.services.iter().map(|service| {
            [
                service.name.clone(),
                or_dash(service.holder.as_ref()),
                service.doing.clone(),
                or_dash(service.last_error.as_ref()),
            ]
        }),
    ));
    text
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_movers(movers: &Vec<Mover>) -> String {
    table(
        ["mover", "state", "reason", "address", "volumes", "drives", "transfers ", "received ", "sent ", "relayed "],
        movers.iter().map(|mover| {
            [
                mover.mover.to_string(),
                word(&mover.state),
                or_dash(mover.reason.as_ref()),
                mover.address.clone(),
                list(&mover.volumes),
                list(&mover.drives),
                mover.transfers.to_string(),
                bytes(mover.received_bytes),
                bytes(mover.sent_bytes),
                bytes(mover.relayed_bytes),
            ]
        }),
    )
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_drives(drives: &Vec<Drive>) -> String {
    table(
        ["drive", "state", "reason", "mover", "volume", "activity", "for", "written ", "read ", "mounts "],
        drives.iter().map(|drive| {
            [
                drive.drive.to_string(),
                word(&drive.state),
                or_dash(drive.reason.as_ref()),
                drive.mover.to_string(),
                or_dash(drive.volume.as_ref()),
                drive.activity.clone(),
                or_dash(drive.purpose),
                bytes(drive.written_bytes),
                bytes(drive.read_bytes),
                drive.mounts.to_string(),
            ]
        }),
    )
}

fn place(location: &Location) -> String {
    match location {
        Location::Mover { mover } => mover.to_string(),
        Location::Slot { library, element } => format!("{library} slot {element}"),
        Location::Drive { drive } => format!("in {drive}"),
        Location::Outside => "outside".to_owned(),
        Location::Unknown => "?".to_owned(),
    }
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_volumes(volumes: &Vec<Volume>) -> String {
    table(
        [
            "volume",
            "medium",
            "class",
            "state",
            "reason",
            "place",
            "used ",
            "dead ",
            "capacity ",
            "full ",
            "containers ",
        ],
        volumes.iter().map(|volume| {
            [
                volume.volume.to_string(),
                word(&volume.medium),
                volume.class.to_string(),
                word(&volume.state),
                or_dash(volume.reason.as_ref()),
                place(&volume.location),
                bytes(volume.used_bytes),
                bytes(volume.dead_bytes),
                volume.capacity_bytes.map_or_else(|| "unknown".to_owned(), bytes),
                percent(volume.used_bytes, volume.capacity_bytes.unwrap_or(0)),
                or_dash(volume.containers),
            ]
        }),
    )
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_classes(classes: &Vec<ClassOfService>) -> String {
    table(
        ["cos", "hierarchy", "copies ", "stripe ", "checksums", "a read of tape", "staged for", "undelete", "files "],
        classes.iter().map(|class| {
            [
                class.cos.to_string(),
                class.hierarchy.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → "),
                class.copies.to_string(),
                class.stripe_width.to_string(),
                list(&class.checksums),
                if class.waits_for_tape { "waits" } else { "is refused" }.to_owned(),
                span(0, i64::try_from(class.staged_s).unwrap_or(i64::MAX).saturating_mul(1_000_000)),
                span(0, i64::try_from(class.undelete_s).unwrap_or(i64::MAX).saturating_mul(1_000_000)),
                or_dash(class.files),
            ]
        }),
    )
}

fn progress(transfer: &Transfer) -> String {
    match transfer.total_bytes {
        Some(total) => format!("{} of {}", bytes(transfer.bytes), bytes(total)),
        None => bytes(transfer.bytes),
    }
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_transfers(transfers: &Vec<Transfer>) -> String {
    let now = now_us();
    table(
        ["transfer", "what", "account", "path", "movers", "client", "moved", "rate ", "age "],
        transfers.iter().map(|transfer| {
            [
                transfer.transfer.to_string(),
                if transfer.what == TransferKind::Unknown { "?".to_owned() } else { word(&transfer.what) },
                or_dash(transfer.account.as_ref()),
                or_dash(transfer.path.as_ref()),
                list(&transfer.movers),
                or_dash(transfer.client),
                progress(transfer),
                format!("{}/s", bytes(transfer.rate)),
                span(transfer.started_us, now),
            ]
        }),
    )
}
