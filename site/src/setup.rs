//! A site's first start: certificates and configuration files for everything in one folder.
//!
//! Writes what is missing and never changes what is there, so the files are the operator's from then on. They are the
//! same files that `penstock gateway` and `penstock mover` read: a site that outgrows its machine moves them.

use std::{fmt::Write as _, fs, net::IpAddr, path::Path};

use anyhow::Context;
use clap::Args;
use daemon::{
    Clock,
    config::ByteSize,
    pki::{Holder, SiteCa},
    role::Role,
};

use crate::folder::{ADMIN_PORT, FTP_PORT, METRICS_PORT, MOVER_HTTP_PORT, S3_PORT, SiteFolder, WEBDAV_PORT};

/// What a new site is like.
#[derive(Clone, Debug, Args)]
pub struct NewSite {
    /// First start: the site's name.
    #[arg(long, default_value = "local")]
    pub name: String,
    /// First start: the address its doors and movers listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// First start: the FTP door's port; the admin door and the metrics take the next two. 0 takes free ones.
    #[arg(long, value_name = "PORT", default_value_t = FTP_PORT)]
    pub port: u16,
    /// First start: names by which clients reach it, for its certificates.
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// First start: how many movers, each with a disk volume and, as far as they go round, a drive.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub movers: u16,
    /// First start: how much each disk volume may hold; left out, what its file system has.
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<ByteSize>,
    /// First start: tape drives of the virtual library.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub drives: u16,
    /// First start: cartridges in it.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=999))]
    pub cartridges: u16,
    /// First start: how much each cartridge holds.
    #[arg(long, value_name = "SIZE", default_value = "100GiB")]
    pub cartridge: ByteSize,
    /// First start: how old a file must be before it is migrated.
    #[arg(long, value_name = "AGE", default_value = "10m")]
    pub migration_age: daemon::config::TimeSpan,
}

impl Default for NewSite {
    fn default() -> Self {
        Self {
            name: "local".to_owned(),
            listen: IpAddr::from([127, 0, 0, 1]),
            port: FTP_PORT,
            hosts: Vec::new(),
            movers: 2,
            disk: None,
            drives: 2,
            cartridges: 10,
            cartridge: ByteSize::gib(100),
            migration_age: daemon::config::TimeSpan::seconds(600),
        }
    }
}

/// The gateway's name on a site of one machine.
pub const GATEWAY: &str = "gateway1";

/// Makes what is missing in the site's folder.
///
/// # Errors
///
/// If the folder cannot be written, or holds something else.
pub fn prepare(folder: &SiteFolder, new: &NewSite) -> anyhow::Result<SiteCa> {
    let path = folder.path();
    fs::create_dir_all(path).with_context(|| format!("make the site's folder {}", path.display()))?;
    let clock = Clock::real();
    let ca = SiteCa::open_or_create(&folder.certificates(), &new.name, &clock)?;
    ca.write_trust_folder(&folder.trusted(), None)?;
    let hosts = host_names(new);
    issue_part(folder, &ca, Role::Gateway, GATEWAY, &hosts)?;
    issue_part(folder, &ca, Role::Admin, "admin", &[])?;
    if !folder.gateway_configuration().exists() {
        for number in 1..=usize::from(new.movers) {
            write_new(&folder.mover_configuration(number), &mover_configuration(folder, new, number))?;
        }
        // Last, since it is what says that the first start is over.
        write_new(&folder.gateway_configuration(), &gateway_configuration(folder, new))?;
    }
    for (index, _) in folder.mover_configurations().iter().enumerate() {
        issue_part(folder, &ca, Role::Mover, &mover_name(index + 1), &hosts)?;
    }
    Ok(ca)
}

/// Makes a person's certificate, unless there is one; returns its subject.
///
/// # Errors
///
/// If it cannot be written.
pub fn prepare_user(folder: &SiteFolder, ca: &SiteCa, name: &str) -> anyhow::Result<String> {
    let credential = folder.user_credential(name);
    if !credential.exists() {
        let users = credential.parent().context("a user's certificate lies in a folder")?;
        fs::create_dir_all(users).with_context(|| format!("make {}", users.display()))?;
        ca.issue(&Holder::User { name }, &Clock::real())?.create(&credential)?;
    }
    Ok(crate::certificates::user_subject(ca, name))
}

/// Makes a part's certificate, or renews one that is about to end.
fn issue_part(folder: &SiteFolder, ca: &SiteCa, role: Role, name: &str, hosts: &[String]) -> anyhow::Result<()> {
    ca.keep_current(&folder.part_credential(name), &Holder::Part { role, name, hosts }, &Clock::real())?;
    Ok(())
}

fn mover_name(number: usize) -> String {
    format!("mover{number}")
}

/// The names clients may know this machine by.
fn host_names(new: &NewSite) -> Vec<String> {
    let mut names: Vec<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    names.extend(fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()));
    if !new.listen.is_unspecified() {
        names.push(new.listen.to_string());
    }
    names.extend(new.hosts.iter().cloned());
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, text).with_context(|| format!("write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("write {}", path.display()))
}

/// A TOML string.
fn quoted(text: impl ToString) -> String {
    serde_json::Value::String(text.to_string()).to_string()
}

fn gateway_configuration(folder: &SiteFolder, new: &NewSite) -> String {
    let port = |usual: u16| if new.port == 0 { 0 } else { new.port.saturating_add(usual - FTP_PORT) };
    let address = |usual| quoted(std::net::SocketAddr::new(new.listen, port(usual)));
    let credential = quoted(folder.part_credential(GATEWAY).display());
    let mut text = format!(
        r#"# The gateway of this site. What is not here keeps its default: `penstock gateway --print-config` prints all keys.
name = "{GATEWAY}"
data = {data}

[catalogue]
url = {catalogue}

[tls]
certificate = {credential}
key = {credential}
site_ca = {ca}

[identity]
# CAs whose certificates users may log in with. Add those of your grid here, in the IGTF layout.
trust = {trusted}

[ftp]
listen = [{ftp}]

[s3]
listen = [{s3}]

[webdav]
listen = [{webdav}]

[admin]
listen = [{admin}]
metrics = [{metrics}]
"#,
        data = quoted(folder.path().join("gateway").display()),
        catalogue = quoted(format!("sqlite:{}", folder.catalogue().display())),
        ca = quoted(folder.ca_certificate().display()),
        trusted = quoted(folder.trusted().display()),
        ftp = address(FTP_PORT),
        s3 = address(S3_PORT),
        webdav = address(WEBDAV_PORT),
        admin = address(ADMIN_PORT),
        metrics = address(METRICS_PORT),
    );
    for number in 1..=usize::from(new.movers) {
        let name = mover_name(number);
        let address = quoted(std::net::SocketAddr::new(new.listen, control_port(new, number)));
        let _ = write!(text, "\n[[movers]]\nname = \"{name}\"\naddress = {address}\n");
    }
    let _ = write!(text, "{}", classes(new));
    text
}

/// The default classes, but for the migration age that was asked for.
fn classes(new: &NewSite) -> String {
    let age = quoted(new.migration_age);
    let mut text = String::from(
        "\n[[storage_class]]\nname = \"disk\"\nkind = \"disk\"\nvolumes = [\"*.disk*\"]\nstripe_width = 4\n\
         \n[[storage_class]]\nname = \"tape\"\nkind = \"tape\"\nvolumes = [\"*\"]\n\
         \n[[hierarchy]]\nname = \"disk-only\"\ndisk = \"disk\"\n\
         \n[[hierarchy]]\nname = \"disk-tape\"\ndisk = \"disk\"\ntapes = [\"tape\", \"tape\"]\n",
    );
    for (name, copies) in [("standard", 2), ("single", 1)] {
        let _ = write!(
            text,
            "\n[[cos]]\nname = \"{name}\"\nhierarchy = \"disk-tape\"\ncopies = {copies}\nmigration_age = {age}\n"
        );
    }
    text + "\n[[cos]]\nname = \"disk\"\nhierarchy = \"disk-only\"\ncopies = 0\n"
}

/// Movers' control ports follow the doors'.
fn control_port(new: &NewSite, number: usize) -> u16 {
    mover_port(new, METRICS_PORT, number)
}

/// The port of a mover: `number` behind `usual`, as far as the site's ports are shifted.
fn mover_port(new: &NewSite, usual: u16, number: usize) -> u16 {
    if new.port == 0 {
        return 0;
    }
    u16::try_from(number).map_or(0, |number| new.port.saturating_add(usual - FTP_PORT).saturating_add(number))
}

fn mover_configuration(folder: &SiteFolder, new: &NewSite, number: usize) -> String {
    let name = mover_name(number);
    let mut text = format!(
        r#"# A mover of this site. What is not here keeps its default: `penstock mover --print-config` prints all keys.
name = "{name}"

[control]
listen = {control}

[tls]
certificate = {credential}
key = {credential}
site_ca = {ca}
clients = {trusted}

[data]
listen = [{listen}]

[http]
listen = {http}

[[volumes]]
label = "{name}.disk1"
folder = {disk}
create = true
"#,
        control = quoted(std::net::SocketAddr::new(new.listen, control_port(new, number))),
        credential = quoted(folder.part_credential(&name).display()),
        ca = quoted(folder.ca_certificate().display()),
        trusted = quoted(folder.trusted().display()),
        listen = quoted(new.listen),
        http = quoted(std::net::SocketAddr::new(new.listen, mover_port(new, MOVER_HTTP_PORT, number - 1))),
        disk = quoted(folder.disk(number).display()),
    );
    if let Some(capacity) = new.disk {
        let _ = writeln!(text, "capacity = {}\nkeep_free = \"64 MiB\"", quoted(capacity));
    }
    let cartridges: Vec<_> = (1..=new.cartridges).map(|number| format!("\"PEN{number:03}L8\"")).collect();
    let drives: Vec<_> = (0..new.drives).filter(|drive| usize::from(drive % new.movers) + 1 == number).collect();
    if number == 1 || !drives.is_empty() {
        let _ = write!(
            text,
            r#"
[[libraries]]
name = "library1"
robot = {robot}

[libraries.kind]
type = "virtual"
folder = {tape}
drives = {count}
cartridges = [{cartridges}]
capacity = {capacity}
"#,
            robot = number == 1,
            tape = quoted(folder.tape().display()),
            count = new.drives,
            cartridges = cartridges.join(", "),
            capacity = quoted(new.cartridge),
        );
    }
    for drive in drives {
        let _ = write!(text, "\n[[drives]]\nname = \"drive{}\"\nlibrary = \"library1\"\nindex = {drive}\n", drive + 1);
    }
    text
}

#[cfg(test)]
mod tests {
    use daemon::config;

    use super::*;

    #[test]
    fn the_files_of_a_first_start_are_good_configurations() {
        let folder = SiteFolder::new("/srv/it's \"here\"".into());
        let new = NewSite { disk: Some(ByteSize::gib(2)), drives: 3, ..NewSite::default() };
        let gateway =
            config::parse::<gateway::config::Config>("gateway.toml", &gateway_configuration(&folder, &new), []);
        let gateway = gateway.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(gateway.movers.len(), 2);
        let drives: Vec<_> = (1..=2)
            .map(|number| {
                let text = mover_configuration(&folder, &new, number);
                let mover = config::parse::<mover::MoverConfig>("mover.toml", &text, []);
                mover.unwrap_or_else(|error| panic!("{error}\n{text}")).drives.len()
            })
            .collect();
        assert_eq!(drives, [2, 1], "drives go round");
    }

    #[test]
    fn movers_of_a_new_site_serve_http_each_at_its_port() {
        let folder = SiteFolder::new("/srv/site".into());
        let listen = |new: &NewSite, number| {
            let text = mover_configuration(&folder, new, number);
            let mover = config::parse::<mover::MoverConfig>("mover.toml", &text, []);
            let http = mover.unwrap_or_else(|error| panic!("{error}\n{text}")).settings.http;
            http.listen.map(|address| address.to_string())
        };
        assert_eq!(listen(&NewSite::default(), 1).as_deref(), Some("127.0.0.1:2843"));
        assert_eq!(listen(&NewSite::default(), 2).as_deref(), Some("127.0.0.1:2844"));
        assert_eq!(listen(&NewSite { port: 0, ..NewSite::default() }, 2).as_deref(), Some("127.0.0.1:0"));
    }

    #[test]
    fn a_second_start_changes_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = SiteFolder::new(root.path().join("site"));
        prepare(&folder, &NewSite::default()).expect("a first start");
        let read = || fs::read_to_string(folder.gateway_configuration()).expect("written");
        let before = read();
        let other = NewSite { name: "other".to_owned(), port: 9999, ..NewSite::default() };
        let ca = prepare(&folder, &other).expect("a second start");
        assert_eq!(read(), before);
        assert_eq!(ca.site(), "local");
    }
}
