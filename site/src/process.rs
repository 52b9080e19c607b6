//! One process of a site: its configuration, its log, its certificates, its end.
//!
//! What `penstock gateway`, `penstock mover` and `penstock serve` have in common lies here, so that a part starts the same
//! way alone and among others.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use catalog::{Catalog, Options as CatalogOptions};
use daemon::{
    Shutdown,
    config::{self, Loaded, Settings},
    lifecycle::Ending,
    tls::{self, HotCredential, Reload, Trust, TrustSource},
    trust::{Requirement, TrustOptions},
};
use gateway::{Gateway, config::Config as GatewayConfig, movers::Neighbours};
use mover::{Libraries, Mover, MoverConfig, MoverTls};

use crate::cli::Process;

/// `penstock gateway`.
///
/// # Errors
///
/// If the configuration is wrong, or what it names cannot be used.
pub async fn gateway(arguments: Process, shutdown: Shutdown) -> anyhow::Result<()> {
    let Some(config) = load::<GatewayConfig>(&arguments)? else { return Ok(()) };
    daemon::logging::init(&config.log)?;
    raise_file_limit();
    start_gateway(&config, Neighbours::default(), &shutdown).await?;
    supervise(shutdown).await
}

/// `penstock mover`.
///
/// # Errors
///
/// If the configuration is wrong, or what it names cannot be used.
pub async fn mover(arguments: Process, shutdown: Shutdown) -> anyhow::Result<()> {
    let Some(config) = load::<MoverConfig>(&arguments)? else { return Ok(()) };
    daemon::logging::init(&config.log)?;
    raise_file_limit();
    let metrics = config.settings.metrics.listen;
    start_mover(config.settings, &Libraries::default(), &shutdown).await?;
    if let Some(address) = metrics {
        crate::metrics::serve(address, &shutdown).await.with_context(|| format!("serve metrics on {address}"))?;
    }
    supervise(shutdown).await
}

/// Reads a configuration; `None` if it was only to be printed or checked, which is done then.
fn load<T: Settings>(arguments: &Process) -> anyhow::Result<Option<Loaded<T>>> {
    if arguments.print_config {
        crate::say(T::TEMPLATE.trim_end());
        return Ok(None);
    }
    let path = arguments.config.as_deref().context("name the configuration with --config FILE")?;
    let loaded = config::load::<T>(Some(path), std::env::vars())?;
    if arguments.check {
        crate::say(&format!("{} is good", path.display()));
        return Ok(None);
    }
    Ok(Some(loaded))
}

/// Starts a gateway over its catalogue, and beside the movers of this process.
pub(crate) async fn start_gateway(
    config: &GatewayConfig,
    neighbours: Neighbours,
    shutdown: &Shutdown,
) -> anyhow::Result<Gateway> {
    if let Some(path) = config.catalogue.url.strip_prefix("sqlite:").map(Path::new) {
        let folder = path.parent().context("the catalogue's file lies in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let options = CatalogOptions { readers: config.catalogue.readers, ..CatalogOptions::default() };
    let catalog = Catalog::open(&config.catalogue.url, options).await.context("open the catalogue")?;
    Ok(Gateway::start(config, catalog, neighbours, shutdown).await?)
}

/// Starts a mover. Movers of one process share `libraries`.
pub(crate) async fn start_mover(
    config: MoverConfig,
    libraries: &Libraries,
    shutdown: &Shutdown,
) -> anyhow::Result<Mover> {
    let files = &config.tls;
    // The site's CA is one PEM file of ours, without a signing policy beside it.
    let options = TrustOptions { signing_policy: Requirement::IfPresent, ..TrustOptions::default() };
    let tls = MoverTls {
        credential: HotCredential::from_files(&files.certificate, &files.key)
            .context("load the mover's certificate ([tls] certificate, key)")?,
        site: Trust::load(TrustSource::at(&files.site_ca), options).context("load the site's CA ([tls] site_ca)")?,
        clients: Trust::load(TrustSource::at(&files.clients), TrustOptions::default())
            .context("load the CAs of clients ([tls] clients)")?,
    };
    let watched: Vec<Arc<dyn Reload>> =
        vec![Arc::new(tls.credential.clone()), Arc::new(tls.site.clone()), Arc::new(tls.clients.clone())];
    tls::watch(shutdown, files.reload.duration(), watched);
    Ok(Mover::start(config, tls, libraries, shutdown).await?)
}

/// Waits for the end: a signal, or a part that cannot go on.
pub(crate) async fn supervise(shutdown: Shutdown) -> anyhow::Result<()> {
    match shutdown.supervise().await? {
        Ending::Clean => tracing::info!("everything has ended in order"),
        ending => tracing::warn!(?ending, "ended before everything was finished"),
    }
    Ok(())
}

/// A session, a data connection and a segment each take a file descriptor; the usual soft limit of 1,024 is for programs
/// that use `select`.
pub(crate) fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, hard, "the limit of open files could not be raised");
    }
}
