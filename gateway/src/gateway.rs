//! The assembly: builds every part of a gateway, hands out their handles, and takes them down in the right order.
//!
//! ```text
//! start:  certificates ─► catalogue ─► movers ─► transfers, hierarchy ─► doors
//! end:    doors ─► transfers, hierarchy ─► movers
//! ```
//!
//! Owns the order, and nothing after the start.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use catalog::{Catalog, CatalogError, Holder, MediumKind, QuotaSubject};
use daemon::{
    Clock, Shutdown,
    telemetry::Telemetry,
    tls::{self, CredentialError, HotCredential, Reload, Trust, TrustSource},
    trust::{TrustLoadError, TrustOptions},
};
use futures::future::BoxFuture;
use tracing::info;
use wire::id::VolumeLabel;

use crate::{
    admin,
    config::{self, Config, QuotaConfig},
    failure::Failure,
    files::Files,
    ftp,
    hsm::{self, Hsm},
    identity::Identities,
    movers::{self, Movers, Neighbours},
    s3::{self, secrets::Sealer},
    transfer::{Stager, Transfers},
    webdav,
};

/// How long doors wait for movers to answer when everything starts at the same time.
const MOVERS_LIMIT: Duration = Duration::from_secs(2);
/// How long the last words to movers may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A gateway that runs. All handles are cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    /// The catalogue.
    pub catalog: Catalog,
    /// Who is behind a certificate.
    pub identities: Identities,
    /// Names.
    pub files: Files,
    /// Movers.
    pub movers: Movers,
    /// What moves.
    pub transfers: Transfers,
    /// Hierarchical storage.
    pub hsm: Hsm,
    /// Where the doors listen.
    pub doors: Doors,
}

/// Where the doors listen: what the configuration said, with the ports that were chosen where it said 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doors {
    /// The FTP door.
    pub ftp: Vec<SocketAddr>,
    /// The S3 door, with TLS.
    pub s3: Vec<SocketAddr>,
    /// The S3 door, without TLS.
    pub s3_clear: Vec<SocketAddr>,
    /// The WebDAV door.
    pub webdav: Vec<SocketAddr>,
    /// The admin door.
    pub admin: Vec<SocketAddr>,
    /// Metrics and health.
    pub metrics: Vec<SocketAddr>,
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The gateway's certificate or key cannot be used.
    #[error("load the gateway's certificate ([tls] certificate, key)")]
    Credential(#[from] CredentialError),
    /// There is nobody to trust.
    #[error("load the trusted authorities ({section})")]
    Trust {
        /// Which section of the configuration names them.
        section: &'static str,
        /// What is wrong.
        source: TrustLoadError,
    },
    /// The catalogue does not answer, or refuses what the configuration says.
    #[error("use the catalogue")]
    Catalogue(#[from] CatalogError),
    /// The file with the key that seals access keys' secrets cannot be used.
    #[error("open the sealing key {path}")]
    Sealing {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A configured name cannot be used.
    #[error("prepare the name space ([names])")]
    Names(#[from] Failure),
    /// A door's address cannot be bound.
    #[error("open the {door} door")]
    Door {
        /// Which door.
        door: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The steps in which a gateway ends: each stops when the one before has.
struct Steps {
    doors: Shutdown,
    work: Shutdown,
    movers: Shutdown,
}

impl Gateway {
    /// Starts a gateway over an open catalogue, and beside these movers. When it returns, the doors are open.
    ///
    /// It ends with `shutdown`: at the soft step the doors take nobody new and what moves is finished; the movers hear
    /// what they have to hear last.
    ///
    /// # Errors
    ///
    /// [`StartError`]; what was started by then ends with `shutdown`.
    pub fn start<'a>(
        config: &'a Config,
        catalog: Catalog,
        neighbours: Neighbours,
        shutdown: &'a Shutdown,
    ) -> BoxFuture<'a, Result<Self, StartError>> {
        // Boxed, so that all that a gateway does is compiled in this crate, and not again in each that starts one.
        Box::pin(Self::open(config, catalog, neighbours, shutdown))
    }

    async fn open(
        config: &Config,
        catalog: Catalog,
        neighbours: Neighbours,
        shutdown: &Shutdown,
    ) -> Result<Self, StartError> {
        let credential = HotCredential::from_files(&config.tls.certificate, &config.tls.key)?;
        let door = match (&config.tls.door_certificate, &config.tls.door_key) {
            (None, None) => credential.clone(),
            (certificate, key) => {
                let certificate = certificate.as_ref().unwrap_or(&config.tls.certificate);
                HotCredential::from_files(certificate, key.as_ref().unwrap_or(certificate))?
            }
        };
        let site = trust("[tls] site_ca", TrustSource::Bundle(config.tls.site_ca.clone()))?;
        let users = trust("[identity] trust", TrustSource::at(&config.identity.trust))?;

        catalog.put_policies(config::policies(config)).await?;
        for quota in &config.quotas {
            set_quota(&catalog, quota).await?;
        }
        let epoch = catalog.begin_run(&config.name).await?;
        info!(gateway = %config.name, %epoch, "gateway starts");

        let steps = Steps { doors: shutdown.child(), work: shutdown.child(), movers: Shutdown::new(LAST_WORDS) };
        let options = movers::Options {
            gateway: config.name.clone(),
            epoch,
            movers: config.movers.clone(),
            storage: config.storage(),
            credential: credential.clone(),
            trust: site.clone(),
            grace: config.limits.mover_grace.duration(),
            orphan_grace: config.limits.orphan_grace.duration(),
        };
        let movers = Movers::connect(options, catalog.clone(), &steps.movers).await?;
        let transfers =
            Transfers::new(config, catalog.clone(), movers.clone(), credential.clone(), site.clone(), &steps.work);
        let storage = config.storage();
        let parts = hsm::Parts {
            catalog: catalog.clone(),
            fleet: Arc::new(movers.clone()),
            gateway: config.name.clone(),
            holder: Holder::new(&config.name, epoch),
            config: config.hsm.clone(),
            pools: Arc::new(move |label: &VolumeLabel| storage.place(MediumKind::Tape, label).map(|place| place.pool)),
        };
        let hsm = Hsm::start(parts, &steps.work);
        let stager: Arc<dyn Stager> = Arc::new(hsm.clone());
        transfers.set_stager(Arc::clone(&stager));
        transfers.set_neighbours(neighbours);
        let files = Files::exported(catalog.clone(), &config.names)?;
        let files = {
            let hsm = hsm.clone();
            files.telling(move || hsm.deleted())
        };
        files.prepare().await?;
        let identities = Identities::new(catalog.clone(), config.identity.gridmap.clone());
        movers.settled(MOVERS_LIMIT).await;

        let services = ftp::Services {
            identities: identities.clone(),
            files: files.clone(),
            transfers: transfers.clone(),
            stager: Arc::clone(&stager),
            catalog: catalog.clone(),
            clock: Clock::real(),
        };
        let opened = ftp::open(&config.ftp, &door, &users, services, &steps.doors).await;
        let opened = opened.map_err(|source| StartError::Door { door: "FTP", source })?;
        let path = config.data.join("s3-secrets.key");
        let sealer = match config.s3.is_open() {
            false => None,
            true => {
                let opened = Sealer::open(&path);
                let path = path.display().to_string();
                Some(Arc::new(opened.map_err(|source| StartError::Sealing { path, source })?))
            }
        };
        let (mut s3_secure, mut s3_clear) = (Vec::new(), Vec::new());
        if let Some(sealer) = &sealer {
            let services = s3::Services {
                catalog: catalog.clone(),
                identities: identities.clone(),
                transfers: transfers.clone(),
                hsm: hsm.clone(),
                stager: Arc::clone(&stager),
                root: files.export().clone(),
                sealer: Arc::clone(sealer),
            };
            let opened = s3::open(&config.s3, &door, &users, services, &steps.doors).await;
            (s3_secure, s3_clear) = opened.map_err(|source| StartError::Door { door: "S3", source })?;
        }
        let services = webdav::Services {
            site: config.name.to_string(),
            catalog: catalog.clone(),
            identities: identities.clone(),
            files: files.clone(),
            transfers: transfers.clone(),
            hsm: hsm.clone(),
        };
        let webdav = webdav::open(&config.webdav, &door, &users, services, &steps.doors).await;
        let webdav = webdav.map_err(|source| StartError::Door { door: "WebDAV", source })?;
        let keys = admin::Keys { credential: credential.clone(), site: site.clone(), users: users.clone() };
        let services = admin::Services {
            gateway: config.name.clone(),
            catalog: catalog.clone(),
            identities: identities.clone(),
            movers: Some(movers.clone()),
            transfers: Some(transfers.clone()),
            hsm: hsm.clone(),
            sealer,
            homes: config.names.homes.clone(),
            telemetry: Telemetry::install().ok(),
        };
        let administration = admin::open(&config.admin, keys, services, &steps.doors).await;
        let administration = administration.map_err(|source| StartError::Door { door: "admin", source })?;
        let doors = Doors {
            ftp: opened.addresses().to_vec(),
            s3: s3_secure,
            s3_clear,
            webdav,
            admin: administration.admin,
            metrics: administration.metrics,
        };

        let watched: Vec<Arc<dyn Reload>> = vec![Arc::new(credential), Arc::new(door), Arc::new(site), Arc::new(users)];
        tls::watch(shutdown, config.tls.reload.duration(), watched);
        end_in_order(shutdown, steps);
        Ok(Self { catalog, identities, files, movers, transfers, hsm, doors })
    }
}

fn trust(section: &'static str, source: TrustSource) -> Result<Trust, StartError> {
    Trust::load(source, TrustOptions::default()).map_err(|source| StartError::Trust { section, source })
}

async fn set_quota(catalog: &Catalog, quota: &QuotaConfig) -> Result<(), CatalogError> {
    let account = quota.account.clone().map(QuotaSubject::Account);
    let Some(subject) = account.or_else(|| quota.group.clone().map(QuotaSubject::Group)) else { return Ok(()) };
    catalog.set_quota(subject, quota.bytes.map(|bytes| bytes.bytes()), quota.files).await
}

/// Takes everything down when `shutdown` says so: first who may start something, then what moves, then the movers.
fn end_in_order(shutdown: &Shutdown, steps: Steps) {
    let all = shutdown.clone();
    shutdown.spawn(async move {
        all.stopping().await;
        let orderly = async {
            tokio::join!(steps.doors.finish(), steps.work.finish());
            steps.movers.finish().await
        };
        tokio::select! {
            ending = orderly => info!(?ending, "gateway has ended"),
            () = all.cutting() => steps.movers.cut(),
        }
    });
}
