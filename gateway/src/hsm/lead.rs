//! One gateway at a time runs a service: leases, taken, renewed and given back.
//!
//! Owns the lease while it holds it. Whatever a service writes under it carries the lease's epoch as a fence, so that a
//! gateway that was asleep while its lease ran out changes nothing when it wakes.

use std::{future::Future, time::Duration};

use catalog::Fence;
use daemon::Shutdown;
use tokio::time::Instant;
use tracing::{info, warn};
use wire::id::Epoch;

use super::context::{Context, fence};

/// Competes for a lease until `shutdown`, and runs `service` while it has it.
///
/// The service gets a fence and a shutdown of its own, which is cut when the lease is lost. It ends when that stops.
pub(super) async fn lead<F, S>(context: Context, name: &'static str, shutdown: Shutdown, service: S)
where
    S: Fn(Fence, Shutdown) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let ttl = context.config.lease.duration();
    while !shutdown.is_stopping() {
        match context.catalog.lease(name, &context.holder, ttl).await {
            Ok(Some(epoch)) => {
                info!(service = name, %epoch, "lease taken");
                serve(&context, name, epoch, &shutdown, &service).await;
            }
            Ok(None) => {}
            Err(error) => warn!(service = name, %error, "lease not asked for"),
        }
        tokio::select! {
            () = shutdown.stopping() => {}
            () = tokio::time::sleep(ttl / 3) => {}
        }
    }
    if let Err(error) = context.catalog.release(name, &context.holder).await {
        warn!(service = name, %error, "lease not given back; it runs out by itself");
    }
}

async fn serve<F, S>(context: &Context, name: &'static str, epoch: Epoch, shutdown: &Shutdown, service: &S)
where
    S: Fn(Fence, Shutdown) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let ttl = context.config.lease.duration();
    let scope = shutdown.child();
    let mut running = scope.spawn_until_cut(service(fence(name, epoch), scope.clone()));
    let mut renewed = Instant::now();
    loop {
        tokio::select! {
            ended = &mut running => {
                if let Err(error) = ended {
                    warn!(service = name, %error, "service ended badly");
                }
                break;
            }
            () = tokio::time::sleep(ttl / 3) => {}
        }
        match context.catalog.lease(name, &context.holder, ttl).await {
            Ok(Some(held)) if held == epoch => renewed = Instant::now(),
            Ok(_) => {
                warn!(service = name, %epoch, "lease lost");
                break;
            }
            Err(error) if renewed.elapsed() + ttl / 3 >= ttl => {
                warn!(service = name, %epoch, %error, "lease not renewed in time");
                break;
            }
            Err(error) => warn!(service = name, %error, "lease not renewed yet"),
        }
    }
    if !shutdown.is_stopping() {
        scope.cut();
    }
    scope.finish().await;
}

/// Waits for the bell or for the timer, whichever is first; whether to go on.
pub(super) async fn awake(bell: &tokio::sync::Notify, every: Duration, shutdown: &Shutdown) -> bool {
    tokio::select! {
        biased;
        () = shutdown.stopping() => false,
        () = bell.notified() => true,
        () = tokio::time::sleep(every) => true,
    }
}
