//! Somebody with a certificate, and a session of theirs through the FTP door.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use client::{Client, Fetch, How, Identity, Limits, Meter, Moved, Options, Push, Ready, Target};
use daemon::{
    Clock,
    pki::Holder,
    tls::{HotCredential, Trust},
};
use tokio_util::sync::CancellationToken;
use wire::ftp::FtpPath;

use crate::Site;

/// Somebody with a certificate.
#[derive(Clone, Debug)]
pub struct User {
    name: String,
    /// Certificate and key in one file, for clients nobody here wrote.
    pub certificate: PathBuf,
    credential: HotCredential,
    trust: Trust,
    door: SocketAddr,
    folder: PathBuf,
}

/// A session of theirs.
pub struct Session {
    /// The client, for everything that is not below.
    pub client: Client<Ready>,
    /// How files are moved.
    pub how: How,
    /// Stops what moves.
    pub cancel: CancellationToken,
    folder: PathBuf,
}

impl User {
    pub(crate) fn new(site: &Site, name: &str) -> Self {
        let issued = site.ca.issue(&Holder::User { name }, &Clock::real()).expect("issued");
        let certificate = site.folder().join(format!("{name}.pem"));
        issued.replace(&certificate).expect("written");
        Self {
            name: name.to_owned(),
            certificate,
            credential: HotCredential::fixed(issued.credential().expect("loads")),
            trust: site.trust(),
            door: site.ftp(),
            folder: site.folder(),
        }
    }

    /// The certificate's subject.
    #[must_use]
    pub fn subject(&self) -> String {
        self.credential.current().subject().to_owned()
    }

    /// How a session of theirs is opened.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            target: Target { user: None, host: self.door.ip().to_string(), port: self.door.port() },
            identity: Some(Identity {
                credential: Some(self.credential.clone()),
                trust: self.trust.clone(),
                origin: self.name.clone(),
            }),
            password: None,
            private_data: false,
            class_of_service: None,
            limits: Limits::default(),
            trace: None,
        }
    }

    /// Logs in.
    ///
    /// # Panics
    ///
    /// If that does not work.
    pub async fn login(&self) -> Session {
        let client = Client::open(Arc::new(self.options())).await.expect("a session");
        Session { client, how: How::default(), cancel: CancellationToken::new(), folder: self.folder.clone() }
    }
}

impl Session {
    /// Stores these bytes.
    ///
    /// # Errors
    ///
    /// As [`Client::put`].
    pub async fn put(&mut self, remote: &str, data: &[u8]) -> client::Result<Moved> {
        let local = tempfile::NamedTempFile::new_in(&self.folder).expect("a local file");
        std::fs::write(local.path(), data).expect("written");
        let push = Push { local: local.path().to_owned(), remote: path(remote) };
        self.client.put(&push, &self.how, &Meter::new(), &self.cancel).await
    }

    /// Fetches a file.
    ///
    /// # Errors
    ///
    /// As [`Client::get`].
    pub async fn get(&mut self, remote: &str) -> client::Result<Vec<u8>> {
        let folder = tempfile::tempdir_in(&self.folder).expect("a local folder");
        let local = folder.path().join("file");
        let fetch = Fetch { remote: path(remote), local: local.clone() };
        self.client.get(&fetch, &self.how, &Meter::new(), &self.cancel).await?;
        Ok(std::fs::read(&local).expect("fetched"))
    }
}

/// A path as the FTP door takes it.
fn path(text: &str) -> FtpPath {
    FtpPath::new(text).expect("a good path")
}
