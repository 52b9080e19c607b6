//! A whole site in one process.
//!
//! Owns the parts of the site and the order of their start. Makes what is missing on the first start
//! ([`crate::setup`]); then every part reads its own configuration file, as it would alone. The only thing that is
//! different from parts on several hosts: movers of one process share the virtual tape library, and the gateway is told
//! which ports its movers were given.

use std::path::Path;

use anyhow::{Context, ensure};
use catalog::NewAccount;
use daemon::{Shutdown, config, pki::SiteCa};
use gateway::{Gateway, config::Config as GatewayConfig};
use mover::{Libraries, Mover, MoverConfig};
use wire::id::{AccountName, GroupName};

use crate::{
    beside,
    cli::Serve,
    folder::{Doors, SiteFolder},
    process,
    setup::{self, NewSite},
};

/// A site that runs in this process. It ends with its [`Shutdown`].
pub struct RunningSite {
    /// Where its doors listen.
    pub doors: Doors,
    /// The account of whoever made the site; certificate and key are in the folder's `users`.
    pub user: String,
    /// The gateway.
    pub gateway: Gateway,
    /// The movers.
    pub movers: Vec<Mover>,
}

/// `penstock serve`.
///
/// # Errors
///
/// If the site cannot be made or started.
pub async fn run(arguments: Serve, shutdown: Shutdown) -> anyhow::Result<()> {
    let folder = SiteFolder::new(std::path::absolute(&arguments.data)?);
    setup::prepare(&folder, &arguments.new)?;
    let config = config::load::<GatewayConfig>(Some(&folder.gateway_configuration()), std::env::vars())?;
    daemon::logging::init(&config.log)?;
    let site = start(&folder, &arguments.new, &shutdown).await?;
    announce(&folder, &site);
    process::supervise(shutdown).await
}

/// Starts the site in `folder`, making what is missing.
///
/// # Errors
///
/// If the folder, a configuration in it, or an address cannot be used.
pub async fn start(folder: &SiteFolder, new: &NewSite, shutdown: &Shutdown) -> anyhow::Result<RunningSite> {
    process::raise_file_limit();
    let ca = setup::prepare(folder, new)?;
    let libraries = Libraries::default();
    let mut movers = Vec::new();
    for path in folder.mover_configurations() {
        let config = load::<MoverConfig>(&path)?;
        let started = process::start_mover(config, &libraries, shutdown).await;
        movers.push(started.with_context(|| format!("start the mover of {}", path.display()))?);
    }
    ensure!(!movers.is_empty(), "{} has no mover1.toml: a site needs a mover", folder.path().display());
    let mut config = load::<GatewayConfig>(&folder.gateway_configuration())?;
    for configured in &mut config.movers {
        if let Some(here) = movers.iter().find(|mover| *mover.name() == configured.name) {
            configured.address = here.address().to_string();
        }
    }
    let gateway = process::start_gateway(&config, beside::neighbours(&movers), shutdown).await?;
    let user = first_user(folder, &ca, &gateway).await?;
    let doors = Doors {
        ftp: gateway.doors.ftp.first().copied().context("the site has no FTP door ([ftp] listen)")?,
        admin: gateway.doors.admin.first().copied().context("the site has no admin door ([admin] listen)")?,
        metrics: gateway.doors.metrics.first().copied(),
        webdav: gateway.doors.webdav.first().copied(),
        process: std::process::id(),
    };
    folder.set_doors(&doors).context("write doors.json")?;
    Ok(RunningSite { doors, user, gateway, movers })
}

fn load<T: config::Settings>(path: &Path) -> anyhow::Result<T> {
    // The environment's overrides are for processes that run one part; here they would hit several.
    Ok(config::load::<T>(Some(path), [])?.settings)
}

/// Makes an account, with a certificate, for the person who starts the site.
async fn first_user(folder: &SiteFolder, ca: &SiteCa, gateway: &Gateway) -> anyhow::Result<String> {
    let name = person();
    let subject = setup::prepare_user(folder, ca, &name)?;
    let account = AccountName::new(name.clone())?;
    if gateway.catalog.account(&account).await?.is_none() {
        let group = GroupName::new(name.clone())?;
        let new = NewAccount {
            name: account.clone(),
            primary_group: group,
            groups: Vec::new(),
            admin: false,
            disabled: false,
            home: None,
        };
        gateway.catalog.put_account(new).await.context("make the first account")?;
        gateway.catalog.map_subject(&subject, &account).await.context("map the first certificate")?;
    }
    Ok(name)
}

/// The name of the person who runs this, as far as it can be an account's.
fn person() -> String {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    user.filter(|name| AccountName::new(name.clone()).is_ok()).unwrap_or_else(|| format!("user{uid}"))
}

fn announce(folder: &SiteFolder, site: &RunningSite) {
    let data = folder.path().display();
    let ftp = site.doors.ftp;
    let host = if ftp.ip().is_loopback() { "localhost".to_owned() } else { ftp.ip().to_string() };
    crate::say(&format!(
        "Penstock serves {data}
  FTP       {ftp} (TLS, client certificate)
  S3        {s3}
  WebDAV    {webdav}
  movers    {movers}
  admin     {admin}
  metrics   {metrics}

  log in    pftp --ca {ca} --cert {credential} {host}:{port}
  operate   penstock admin --data {data} status
  stop      Ctrl-C; what moves is finished first",
        s3 = site.gateway.doors.s3.first().map_or_else(
            || "off".to_owned(),
            |address| format!("{address} (TLS, access key: penstock admin --data {data} key create {})", site.user)
        ),
        webdav = site
            .doors
            .webdav
            .map_or_else(|| "off".to_owned(), |address| format!("{address} (TLS, client certificate; Tape REST)")),
        movers = movers_doors(site),
        admin = site.doors.admin,
        metrics = site.doors.metrics.map_or_else(|| "off".to_owned(), |address| format!("http://{address}/metrics")),
        ca = folder.ca_certificate().display(),
        credential = folder.user_credential(&site.user).display(),
        port = ftp.port(),
    ));
}

/// Where movers serve the clients that a door sends to them.
fn movers_doors(site: &RunningSite) -> String {
    let doors: Vec<_> = site.movers.iter().filter_map(Mover::http).collect();
    if doors.is_empty() {
        return "no HTTP of their own ([http] in mover1.toml)".to_owned();
    }
    format!("{} (data of S3 and WebDAV clients that follow redirects)", doors.join(", "))
}
