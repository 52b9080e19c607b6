//! One task for each key of the durable queue: classes of service, or volumes.
//!
//! Owns which keys are worked on. When the bell rings, or the timer says so, what is due of a kind is looked at, and each
//! key that nobody works on gets a task, if the service says that it is time. What a task does is the service's.

use std::{collections::BTreeSet, future::Future};

use catalog::{PoolDemand, WorkKind};
use daemon::Shutdown;
use tokio::sync::{Notify, mpsc};
use tracing::warn;

use super::{
    context::{Context, Wakes},
    lead::awake,
};

/// How many tasks may have ended since the queue was looked at last.
const ENDED: usize = 64;

/// Runs until `shutdown`. `begin` gives the work for what is due of a key; `None` if it is not time, or not for us.
pub(super) async fn by_key<B, G, F>(
    context: &Context,
    kind: WorkKind,
    bell: fn(&Wakes) -> &Notify,
    shutdown: &Shutdown,
    mut begin: B,
) where
    B: FnMut(PoolDemand) -> G + Send,
    G: Future<Output = Option<F>> + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let (ended_to, mut ended) = mpsc::channel::<String>(ENDED);
    let mut active: BTreeSet<String> = BTreeSet::new();
    while awake(bell(&context.wakes), context.config.look_every.duration(), shutdown).await {
        while let Ok(key) = ended.try_recv() {
            active.remove(&key);
        }
        let demands = match context.catalog.demand(kind).await {
            Ok(demands) => demands,
            Err(error) => {
                warn!(kind = kind.name(), %error, "work queue not looked at");
                continue;
            }
        };
        for demand in demands {
            let key = demand.pool.clone();
            if active.contains(&key) {
                continue;
            }
            let Some(work) = begin(demand).await else { continue };
            active.insert(key.clone());
            let (ended, context) = (ended_to.clone(), context.clone());
            shutdown.spawn_until_cut(async move {
                work.await;
                let _ = ended.send(key).await;
                // What is left, or came meanwhile, gets another turn.
                bell(&context.wakes).notify_one();
            });
        }
    }
}
