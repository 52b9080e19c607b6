//! The recall queue's manager: which cartridges are wanted, in what order, and who takes care of each.
//!
//! Owns the fair share and one recall session per wanted cartridge ([`super::recall`]). Talks to the catalogue's one
//! queue under all doors, and to the mount service. Runs where the lease of the tape service is held.
//!
//! Invariant: at most one session per cartridge; a cartridge that is wanted has a session, or a reason on the board.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use catalog::Fence;
use daemon::Shutdown;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wire::id::{AccountName, VolumeLabel};

use super::{
    context::{Context, SessionState},
    policy::recall::{FairShare, Recall},
    recall::{Session, Turn},
};
use crate::mounts::MountService;

/// So many cartridges more than there are drives wait with the mount service, so that a robot is never idle.
const AHEAD: usize = 2;

/// How long a cartridge rests whose files found no room on disk, unless room is made earlier.
const REST: Duration = Duration::from_secs(10);

/// What a session tells its manager.
pub(super) enum Report {
    /// So much was brought to disk for an account.
    Served(AccountName, u64, u64),
    /// It is over.
    Ended {
        /// Its cartridge.
        volume: VolumeLabel,
        /// It found no room on disk: let it rest.
        no_room: bool,
    },
}

struct Running {
    turn: watch::Sender<Turn>,
    unwanted: CancellationToken,
}

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, fence: Fence, mounts: MountService, shutdown: Shutdown) {
    let (report, mut reports) = mpsc::channel(1024);
    let mut share = FairShare::new(context.config.shares.clone());
    let mut sessions: BTreeMap<VolumeLabel, Running> = BTreeMap::new();
    let mut resting: BTreeMap<VolumeLabel, Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.stopping() => break,
            Some(told) = reports.recv() => match told {
                Report::Served(account, files, bytes) => {
                    share.charge(&account, files, bytes);
                    continue;
                }
                Report::Ended { volume, no_room } => {
                    sessions.remove(&volume);
                    context.change_board(|board| {
                        board.sessions.remove(&volume);
                    });
                    if no_room {
                        resting.insert(volume, Instant::now() + REST);
                    }
                }
            },
            // Rung by new requests, and by room that was made.
            () = context.wakes.stage.notified() => resting.clear(),
            () = tokio::time::sleep(context.config.look_every.duration()) => {}
        }
        resting.retain(|_, until| *until > Instant::now());
        let demands = match context.catalog.stage_demand().await {
            Ok(demands) => demands,
            Err(error) => {
                warn!(%error, "recall queue not looked at");
                continue;
            }
        };
        let drives = mounts.look(|mounts, _| mounts.drives_up()).await.unwrap_or(0);
        let mut ranked = share.rank(&demands);
        // What is being read stays in front: it is where the next estimate begins.
        ranked.sort_by_key(|recall| !sessions.contains_key(&recall.volume));
        context.change_board(|board| {
            board.ranked.clone_from(&ranked);
            board.drives = drives;
        });
        end_unwanted(&mut sessions, &ranked);
        let mut open = drives.saturating_add(AHEAD).saturating_sub(sessions.len());
        for (rank, recall) in ranked.into_iter().enumerate() {
            let turn = Turn { priority: recall.priority, rank: rank as u64, since: recall.since };
            if let Some(running) = sessions.get(&recall.volume) {
                running.turn.send_replace(turn);
                continue;
            }
            if open == 0 || resting.contains_key(&recall.volume) {
                continue;
            }
            open -= 1;
            let running = start(&context, &fence, &mounts, &shutdown, &report, recall.volume.clone(), turn);
            context.change_board(|board| {
                board.sessions.insert(recall.volume.clone(), SessionState::Waiting(None));
            });
            sessions.insert(recall.volume, running);
        }
    }
}

/// Sessions whose requests were all cancelled stop waiting for a mount.
fn end_unwanted(sessions: &mut BTreeMap<VolumeLabel, Running>, ranked: &[Recall]) {
    for (volume, running) in sessions {
        if !ranked.iter().any(|recall| recall.volume == *volume) {
            running.unwanted.cancel();
        }
    }
}

fn start(
    context: &Context,
    fence: &Fence,
    mounts: &MountService,
    shutdown: &Shutdown,
    report: &mpsc::Sender<Report>,
    volume: VolumeLabel,
    turn: Turn,
) -> Running {
    let (turn_to, turn) = watch::channel(turn);
    let unwanted = CancellationToken::new();
    let session = Session {
        context: context.clone(),
        fence: fence.clone(),
        mounts: mounts.clone(),
        shutdown: shutdown.clone(),
        report: report.clone(),
        volume: volume.clone(),
        turn,
        unwanted: unwanted.clone(),
    };
    let report = report.clone();
    shutdown.spawn_until_cut(async move {
        let no_room = session.run().await;
        let _ = report.send(Report::Ended { volume, no_room }).await;
    });
    Running { turn: turn_to, unwanted }
}
