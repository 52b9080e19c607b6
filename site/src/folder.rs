//! Where a site that lives on one machine keeps what it has.
//!
//! ```text
//! DIR/gateway.toml           its gateway's configuration, written on the first start
//! DIR/mover1.toml, …         its movers'
//! DIR/doors.json             where its doors listen, while it runs
//! DIR/catalogue.sqlite       names, bitfiles, work
//! DIR/disk1, DIR/disk2       disk volumes, one for each mover
//! DIR/tape                   the virtual tape library
//! DIR/certificates           the site's CA and the certificates of its parts
//! DIR/certificates/trusted   whom its doors trust: a folder in the IGTF layout; add grid CAs here
//! DIR/users                  certificates of people
//! ```

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The FTP door's usual port, as GridFTP's (IANA: gsiftp).
pub const FTP_PORT: u16 = 2811;
/// The admin door's usual port.
pub const ADMIN_PORT: u16 = 2812;
/// The usual port of `/metrics` and `/healthz`.
pub const METRICS_PORT: u16 = 2813;
/// Where the S3 door of a new site listens: behind the control ports of as many movers as one machine may have.
pub const S3_PORT: u16 = 2840;
/// Where the WebDAV door of a new site listens.
pub const WEBDAV_PORT: u16 = 2842;
/// Where the first mover of a new site serves clients by HTTP; the others take the next ports.
pub const MOVER_HTTP_PORT: u16 = 2843;

/// The folder of a site on one machine.
#[derive(Clone, Debug)]
pub struct SiteFolder(PathBuf);

/// Where a running site's doors listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doors {
    /// The FTP door.
    pub ftp: SocketAddr,
    /// The admin door.
    pub admin: SocketAddr,
    /// `/metrics` and `/healthz`; `None` if they are switched off.
    pub metrics: Option<SocketAddr>,
    /// The WebDAV door; `None` if it is switched off.
    #[serde(default)]
    pub webdav: Option<SocketAddr>,
    /// The process that listens.
    pub process: u32,
}

impl SiteFolder {
    /// The site in `folder`, which need not exist yet.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its gateway's configuration.
    #[must_use]
    pub fn gateway_configuration(&self) -> PathBuf {
        self.0.join("gateway.toml")
    }

    /// The configuration of mover `number`, counted from 1.
    #[must_use]
    pub fn mover_configuration(&self, number: usize) -> PathBuf {
        self.0.join(format!("mover{number}.toml"))
    }

    /// The configurations of all its movers, in order.
    #[must_use]
    pub fn mover_configurations(&self) -> Vec<PathBuf> {
        (1..).map(|number| self.mover_configuration(number)).take_while(|path| path.exists()).collect()
    }

    /// Certificate and key of a part: `gateway1`, `mover1`.
    #[must_use]
    pub fn part_credential(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.pem"))
    }

    /// The catalogue's database.
    #[must_use]
    pub fn catalogue(&self) -> PathBuf {
        self.0.join("catalogue.sqlite")
    }

    /// The disk volume of mover `number`, counted from 1.
    #[must_use]
    pub fn disk(&self, number: usize) -> PathBuf {
        self.0.join(format!("disk{number}"))
    }

    /// The virtual tape library.
    #[must_use]
    pub fn tape(&self) -> PathBuf {
        self.0.join("tape")
    }

    /// The site's CA and the certificates of its parts.
    #[must_use]
    pub fn certificates(&self) -> PathBuf {
        self.0.join("certificates")
    }

    /// The CA's certificate.
    #[must_use]
    pub fn ca_certificate(&self) -> PathBuf {
        self.certificates().join("ca.pem")
    }

    /// CAs whose certificates the doors take, in the IGTF layout.
    #[must_use]
    pub fn trusted(&self) -> PathBuf {
        self.certificates().join("trusted")
    }

    /// Certificate and key of the site's operator.
    #[must_use]
    pub fn admin_credential(&self) -> PathBuf {
        self.certificates().join("admin.pem")
    }

    /// Certificate and key of a person.
    #[must_use]
    pub fn user_credential(&self, name: &str) -> PathBuf {
        self.0.join("users").join(format!("{name}.pem"))
    }

    /// Where the doors listen.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do, if the site has never run or the file cannot be read.
    pub fn doors(&self) -> Result<Doors, String> {
        let path = self.0.join("doors.json");
        let text = fs::read(&path).map_err(|error| {
            format!(
                "{} cannot be read ({error}): start the site with `penstock serve --data {}`",
                path.display(),
                self.0.display()
            )
        })?;
        serde_json::from_slice(&text).map_err(|error| format!("{} is damaged: {error}", path.display()))
    }

    /// Says where the doors listen.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_doors(&self, doors: &Doors) -> std::io::Result<()> {
        let path = self.0.join("doors.json");
        let temporary = path.with_extension("new");
        fs::write(&temporary, serde_json::to_vec_pretty(doors)?)?;
        fs::rename(temporary, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_never_ran_says_how_to_start_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = SiteFolder::new(folder.path().to_owned()).doors().expect_err("it never ran");
        assert!(error.contains("penstock serve --data"), "{error}");
    }

    #[test]
    fn where_the_doors_listen_is_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = SiteFolder::new(folder.path().to_owned());
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let doors = Doors { ftp: address(1), admin: address(2), metrics: None, webdav: None, process: 3 };
        site.set_doors(&doors).expect("written");
        assert_eq!(site.doors(), Ok(doors));
    }
}
