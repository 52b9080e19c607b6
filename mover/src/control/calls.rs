//! Short questions with one answer.
//!
//! Talks to volumes, drives and robots. Each call runs in a task of its own, so a slow robot delays nobody else.

use wire::mover::{Answer, Call, Fault, FaultKind, VolumeFile};

use crate::job::Env;

/// The most files of one [`Call::Files`] page.
const MAX_PAGE: u32 = 10_000;

/// Answers a question; [`Call::Status`] is the hub's.
pub(super) async fn answer(env: &Env, call: Call) -> Result<Answer, Fault> {
    match call {
        Call::Status => Err(Fault::new(FaultKind::BadRequest, "the status is known to the hub")),
        Call::Remove { files } => blocking(env, move |env| Ok(remove(env, files))).await,
        Call::Files { volume, after, limit } => {
            blocking(env, move |env| {
                let limit = usize::try_from(limit.min(MAX_PAGE)).expect("a small number");
                Ok(Answer::Files { files: env.volumes.get(&volume)?.list(after, limit)? })
            })
            .await
        }
        Call::Inventory { library } => {
            Ok(Answer::Inventory { slots: env.drives.library(&library)?.inventory().await? })
        }
        Call::Move { library, volume, to } => {
            env.drives.library(&library)?.move_to(volume, to).await?;
            Ok(Answer::Done)
        }
        Call::Attach { drive, volume, epoch, label_blank, pool } => {
            env.drives.drive(&drive)?.attach(volume, epoch, label_blank, pool).await.map(Answer::Attached)
        }
        Call::Scan { drive, volume, from, limit } => {
            env.drives.drive(&drive)?.scan(volume, from, limit).await.map(Answer::Scanned)
        }
        Call::Detach { drive } => {
            env.drives.drive(&drive)?.detach().await?;
            Ok(Answer::Done)
        }
    }
}

fn remove(env: &Env, files: Vec<VolumeFile>) -> Answer {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for file in files {
        let result = env.volumes.get(&file.volume).and_then(|volume| volume.remove(file.file).map_err(Fault::from));
        match result {
            Ok(()) => removed.push(file),
            Err(fault) => failed.push((file, fault)),
        }
    }
    Answer::Removed { removed, failed }
}

async fn blocking(
    env: &Env,
    call: impl FnOnce(&Env) -> Result<Answer, Fault> + Send + 'static,
) -> Result<Answer, Fault> {
    let inner = env.clone();
    let done = env.shutdown.spawn_blocking(move || call(&inner)).await;
    done.unwrap_or_else(|error| {
        Err(Fault::new(FaultKind::Medium, format!("internal error, please report it: {error}")))
    })
}
