//! The admin door: JSON over HTTP with mutual TLS ([`wire::admin`] has the bodies and the table of routes), and beside
//! it, in clear, `/metrics` and `/healthz`.
//!
//! - `door`: listeners, TLS, who is let in.
//! - `extract`, `refusal`: what a request brings, and every refusal as JSON.
//! - `site`, `queue`, `people`, `keys`, `buckets`, `files`: the handlers, by what they are about.
//! - `events`: the live stream.
//! - `health`: metrics and health, for machines.
//!
//! Owns nothing but connections. Talks to every handle of the gateway. Lets nobody in but administrators, so that no
//! handler checks a permission.

mod buckets;
mod config;
mod door;
mod events;
mod extract;
mod files;
mod health;
mod keys;
mod people;
mod queue;
mod refusal;
mod site;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post, put},
};
use catalog::Catalog;
use daemon::telemetry::Telemetry;
use wire::id::GatewayId;

pub use self::{
    config::AdminConfig,
    door::{Doors, Keys, open},
};
use crate::{hsm::Hsm, identity::Identities, movers::Movers, transfer::Transfers};

/// The largest body: [`wire::admin::queue::MAX_PATHS`] paths of a usual length.
const MAX_BODY_BYTES: usize = 16 << 20;

/// What the door's handlers work with.
#[derive(Clone)]
pub struct Services {
    /// This gateway.
    pub gateway: GatewayId,
    /// The catalogue.
    pub catalog: Catalog,
    /// Who is behind a certificate.
    pub identities: Identities,
    /// The movers; `None` where the handlers are tested without.
    pub movers: Option<Movers>,
    /// What clients move; `None` where the handlers are tested without.
    pub transfers: Option<Transfers>,
    /// Hierarchical storage.
    pub hsm: Hsm,
    /// Seals access keys; `None` where there is no S3 door.
    pub sealer: Option<Arc<crate::s3::secrets::Sealer>>,
    /// Below which directory an account's home is, unless it has one of its own; `None` where none is made.
    pub homes: Option<String>,
    /// The process's metrics.
    pub telemetry: Option<Telemetry>,
}

/// What every handler gets.
#[derive(Clone)]
struct State {
    services: Arc<Services>,
    started_us: i64,
}

impl std::ops::Deref for State {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

fn router(services: Services) -> Router {
    let started_us = services.catalog.now().0;
    let state = State { services: Arc::new(services), started_us };
    Router::new()
        .route("/v1/status", get(site::status))
        .route("/v1/movers", get(site::movers))
        .route("/v1/movers/{mover}/{what}", post(site::change_mover))
        .route("/v1/drives", get(site::drives))
        .route("/v1/drives/{drive}/{what}", post(site::change_drive))
        .route("/v1/volumes", get(site::volumes))
        .route("/v1/volumes/{volume}/rebuild", get(site::volume_rebuild).post(site::rebuild))
        .route("/v1/volumes/{volume}/{what}", get(site::volume_drain).post(site::change_volume))
        .route("/v1/cos", get(site::classes))
        .route("/v1/transfers", get(site::transfers))
        .route("/v1/queue", get(queue::page))
        .route("/v1/requests/{request}", get(queue::request))
        .route("/v1/stage", post(queue::stage))
        .route("/v1/release", post(queue::release))
        .route("/v1/pin", post(queue::pin))
        .route("/v1/unpin", post(queue::unpin))
        .route("/v1/migrate", post(queue::migrate))
        .route("/v1/purge", post(queue::purge))
        .route("/v1/replicate", post(queue::replicate))
        .route("/v1/cancel", post(queue::cancel))
        .route("/v1/scrubs", get(queue::scrubs).post(queue::start_scrub))
        .route("/v1/scrubs/{scrub}", get(queue::scrub))
        .route("/v1/scrubs/{scrub}/results", get(queue::scrub_results))
        .route("/v1/users", get(people::users))
        .route("/v1/users/{account}", put(people::put_user).delete(people::remove_user))
        .route("/v1/groups", get(people::groups))
        .route("/v1/groups/{group}", put(people::put_group).delete(people::remove_group))
        .route("/v1/quotas", get(people::quotas))
        .route("/v1/quotas/{account}", put(people::set_quota).delete(people::remove_quota))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route("/v1/keys/{key}", put(keys::set).delete(keys::remove))
        .route("/v1/keys/{key}/{what}", post(keys::change))
        .route("/v1/buckets", get(buckets::list))
        .route("/v1/buckets/{bucket}", get(buckets::show))
        .route("/v1/maps", get(people::maps).post(people::map).delete(people::unmap))
        .route("/v1/files", get(files::info))
        .route("/v1/deleted", get(files::deleted))
        .route("/v1/deleted/{bitfile}/restore", post(files::restore))
        .route("/v1/events", get(events::stream))
        .fallback(refusal::no_route)
        .method_not_allowed_fallback(refusal::no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(state)
}
