//! `penstock cert`: a site's certificates, for sites whose parts run on several hosts.
//!
//! `penstock serve` does the same on its first start, in its own folder.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use daemon::{
    Clock,
    config::TimeSpan,
    pki::{Holder, ProxyOptions, SiteCa, make_proxy},
    role::Role,
    tls::Credential,
};

/// Arguments of `penstock cert`.
#[derive(Debug, Args)]
pub struct Cert {
    /// What to make.
    #[command(subcommand)]
    command: CertCommand,
}

/// Where the authority is.
#[derive(Debug, Args)]
struct Authority {
    /// The folder with the site's CA: `DIR/certificates` of a site on one machine.
    #[arg(long, value_name = "DIR", env = "PENSTOCK_AUTHORITY")]
    authority: PathBuf,
}

/// A certificate to make.
#[derive(Debug, Args)]
struct Part {
    #[command(flatten)]
    authority: Authority,
    /// Its name in the site.
    name: String,
    /// Host names and addresses it is reached by.
    #[arg(long = "host", value_name = "NAME", required = true)]
    hosts: Vec<String>,
    /// The file to write: certificate and key, readable by its owner only. NAME.pem if left out.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Somebody to make a certificate for.
#[derive(Debug, Args)]
struct Person {
    #[command(flatten)]
    authority: Authority,
    /// The person's name.
    name: String,
    /// The file to write: certificate and key, readable by its owner only. NAME.pem if left out.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CertCommand {
    /// Make a site's CA in a folder.
    Init {
        /// The folder.
        folder: PathBuf,
        /// The site's name.
        #[arg(long, default_value = "local")]
        site: String,
    },
    /// Make a gateway's certificate.
    Gateway(Part),
    /// Make a mover's certificate.
    Mover(Part),
    /// Make an operator's certificate, for the admin door.
    Admin(Person),
    /// Make a person's certificate.
    User(Person),
    /// Put the site's CA into a folder in the IGTF layout, for clients that want one.
    Trust {
        #[command(flatten)]
        authority: Authority,
        /// The folder.
        folder: PathBuf,
    },
    /// Make a short-lived proxy certificate (RFC 3820) of a person's certificate.
    Proxy {
        /// The person's certificate and key.
        credential: PathBuf,
        /// The file to write.
        out: PathBuf,
        /// How long it is good for.
        #[arg(long, default_value = "12h")]
        lifetime: TimeSpan,
        /// A limited proxy: it may move data, and nothing else.
        #[arg(long)]
        limited: bool,
    },
}

/// Makes what was asked for.
///
/// # Errors
///
/// If a name cannot be in a certificate, or a file is there already or cannot be written.
pub fn run(cert: Cert) -> anyhow::Result<Vec<String>> {
    let clock = Clock::real();
    Ok(match cert.command {
        CertCommand::Init { folder, site } => {
            let ca = SiteCa::open_or_create(&folder, &site, &clock)?;
            vec![format!("the CA of the site {} is in {}", ca.site(), folder.display())]
        }
        CertCommand::Gateway(part) => vec![make_part(Role::Gateway, &part, &clock)?],
        CertCommand::Mover(part) => vec![make_part(Role::Mover, &part, &clock)?],
        CertCommand::Admin(person) => {
            let holder = Holder::Part { role: Role::Admin, name: &person.name, hosts: &[] };
            vec![issue(&person.authority, &holder, &person.name, person.out.as_deref(), &clock)?]
        }
        CertCommand::User(person) => {
            let holder = Holder::User { name: &person.name };
            let made = issue(&person.authority, &holder, &person.name, person.out.as_deref(), &clock)?;
            let ca = SiteCa::open(&person.authority.authority)?;
            let subject = user_subject(&ca, &person.name);
            vec![made, format!("let it log in with: penstock admin map add {subject:?} ACCOUNT")]
        }
        CertCommand::Trust { authority, folder } => {
            SiteCa::open(&authority.authority)?.write_trust_folder(&folder, None)?;
            vec![format!("{} holds the site's CA; use it as X509_CERT_DIR", folder.display())]
        }
        CertCommand::Proxy { credential, out, lifetime, limited } => {
            let issuer = Credential::from_files(&credential, &credential)?;
            let options = ProxyOptions { lifetime: lifetime.duration(), limited, ..ProxyOptions::default() };
            make_proxy(&issuer, options, &clock)?.replace(&out)?;
            let hours = Duration::as_secs_f64(&lifetime.duration()) / 3600.0;
            vec![format!("{} is a proxy of {}, good for {hours:.1} hours", out.display(), issuer.subject())]
        }
    })
}

fn make_part(role: Role, part: &Part, clock: &Clock) -> anyhow::Result<String> {
    let holder = Holder::Part { role, name: &part.name, hosts: &part.hosts };
    issue(&part.authority, &holder, &part.name, part.out.as_deref(), clock)
}

fn issue(
    authority: &Authority,
    holder: &Holder<'_>,
    name: &str,
    out: Option<&Path>,
    clock: &Clock,
) -> anyhow::Result<String> {
    let ca = SiteCa::open(&authority.authority)
        .with_context(|| format!("open the CA in {}", authority.authority.display()))?;
    let out = out.map_or_else(|| PathBuf::from(format!("{name}.pem")), Path::to_owned);
    ca.issue(holder, clock)?.create(&out)?;
    Ok(format!("{} holds the new certificate and its key", out.display()))
}

/// The subject of a person's certificate of this CA.
#[must_use]
pub fn user_subject(ca: &SiteCa, name: &str) -> String {
    format!("/O=Penstock site {}/OU=user/CN={name}", ca.site())
}
