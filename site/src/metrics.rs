//! `/metrics` and `/healthz` of a mover that runs alone: plain HTTP for a trusted network.
//!
//! A gateway serves its own, with what it knows of its movers.

use std::{io, net::SocketAddr};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use daemon::{Shutdown, telemetry};
use tokio::net::TcpListener;

/// Serves the process's metrics until it stops; returns where.
///
/// # Errors
///
/// If the address cannot be bound, or another recorder of metrics is installed in this process.
pub async fn serve(address: SocketAddr, shutdown: &Shutdown) -> io::Result<SocketAddr> {
    let recorded = telemetry::Telemetry::install().map_err(io::Error::other)?;
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/metrics", get(move || async move { ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], recorded.render()) }))
        // A mover that answers is healthy: what is wrong with its devices is in its status, for each of them.
        .route("/healthz", get(async || "ready\n"));
    let stopping = shutdown.clone();
    shutdown.spawn(async move {
        let until = async move { stopping.stopping().await };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
            tracing::warn!(%error, "metrics are not served any more");
        }
    });
    tracing::info!(%address, "metrics served");
    Ok(address)
}
