//! Certificates, trusted authorities and revocation lists that change while a process runs.
//!
//! Owns the current snapshot of each and the memory of what its files looked like. Talks to the
//! file system in [`watch`], off the async threads. Never replaces a good snapshot by a bad one:
//! a file that does not load is a warning, and the old one stays.
//!
//! Invariant: a reader sees a whole snapshot, the old or the new.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use std::{fmt, fs};

use tracing::{info, warn};

use super::credential::{Credential, CredentialError};
use crate::trust::{TrustLoadError, TrustOptions, TrustStore, timestamp};
use crate::{Clock, Shutdown};

/// Operators want two weeks to renew a certificate.
const EXPIRY_WARNING_US: i64 = 14 * 86_400 * 1_000_000;

/// Something that can be read again from its files.
pub trait Reload: fmt::Debug + Send + Sync {
    /// Reads again if a file changed since the last attempt. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// Why the new files cannot be used. The old snapshot stays, and the same files are not tried
    /// again.
    fn reload(&self) -> Result<Reloaded, String>;

    /// What it is, for the log.
    fn describe(&self) -> String;

    /// Microseconds since the epoch after which it is worthless, if it ever is.
    fn expires_us(&self) -> Option<i64> {
        None
    }
}

/// What [`Reload::reload`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The files are as they were.
    Unchanged,
    /// A new snapshot holds.
    Changed,
}

/// What a file looked like: a rewrite or a rename over it changes at least one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    path: PathBuf,
    /// Inode, length, and time of last modification in nanoseconds.
    file: Option<(u64, u64, i128)>,
}

fn look(path: &Path) -> Look {
    let file = fs::metadata(path)
        .ok()
        .map(|m| (m.ino(), m.len(), i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec())));
    Look { path: path.to_owned(), file }
}

/// A snapshot and where it came from.
struct Hot<T, S> {
    current: RwLock<Arc<T>>,
    /// `None` if it was made in memory and never changes.
    source: Option<S>,
    looks: Mutex<Vec<Look>>,
}

impl<T, S> Hot<T, S> {
    fn current(&self) -> Arc<T> {
        // A panic cannot happen while the lock is held: only an `Arc` is swapped.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reload(
        &self,
        looks: impl Fn(&S) -> Vec<Look>,
        load: impl Fn(&S) -> Result<T, String>,
    ) -> Result<Reloaded, String> {
        let Some(source) = &self.source else {
            return Ok(Reloaded::Unchanged);
        };
        // Looked at before loading: a change in between is seen as a change next time.
        let seen = looks(source);
        {
            let mut known = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            if *known == seen {
                return Ok(Reloaded::Unchanged);
            }
            *known = seen;
        }
        let fresh = Arc::new(load(source)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(Reloaded::Changed)
    }
}

/// A credential that follows its files. Cheap to clone; clones share the snapshot.
#[derive(Clone)]
pub struct HotCredential(Arc<Hot<Credential, CredentialFiles>>);

struct CredentialFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CredentialFiles {
    fn looks(&self) -> Vec<Look> {
        vec![look(&self.certificate), look(&self.key)]
    }
}

impl HotCredential {
    /// Loads from PEM files, and again when they change and [`watch`] sees it.
    ///
    /// # Errors
    ///
    /// As [`Credential::from_files`].
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, CredentialError> {
        let files = CredentialFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        let looks = files.looks();
        let credential = Credential::from_files(certificate, key)?;
        Ok(Self(Arc::new(Hot {
            current: RwLock::new(Arc::new(credential)),
            source: Some(files),
            looks: Mutex::new(looks),
        })))
    }

    /// One that never changes.
    #[must_use]
    pub fn fixed(credential: Credential) -> Self {
        Self(Arc::new(Hot { current: RwLock::new(Arc::new(credential)), source: None, looks: Mutex::default() }))
    }

    /// The snapshot that holds now.
    #[must_use]
    pub fn current(&self) -> Arc<Credential> {
        self.0.current()
    }
}

impl Reload for HotCredential {
    fn reload(&self) -> Result<Reloaded, String> {
        self.0.reload(CredentialFiles::looks, |files| {
            Credential::from_files(&files.certificate, &files.key).map_err(|error| chain_text(&error))
        })
    }

    fn describe(&self) -> String {
        format!("certificate of {}", self.current().subject())
    }

    fn expires_us(&self) -> Option<i64> {
        Some(self.current().not_after_us())
    }
}

impl fmt::Debug for HotCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}

/// Where trusted authorities come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustSource {
    /// A folder in the IGTF layout.
    Folder(PathBuf),
    /// One PEM file.
    Bundle(PathBuf),
}

impl TrustSource {
    /// A folder if `path` is one, else a bundle.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        if path.is_dir() { Self::Folder(path.to_owned()) } else { Self::Bundle(path.to_owned()) }
    }

    fn load(&self, options: TrustOptions) -> Result<TrustStore, TrustLoadError> {
        match self {
            Self::Folder(path) => TrustStore::from_folder(path, options),
            Self::Bundle(path) => TrustStore::from_bundle(path, options),
        }
    }

    /// The files of a folder are looked at one by one: rewriting one in place does not touch the
    /// folder itself.
    fn looks(&self) -> Vec<Look> {
        match self {
            Self::Bundle(path) => vec![look(path)],
            Self::Folder(path) => {
                let mut files: Vec<_> =
                    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| look(&entry.path())).collect();
                files.sort_by(|a, b| a.path.cmp(&b.path));
                files
            }
        }
    }
}

/// Trusted authorities that follow their files. Cheap to clone; clones share the snapshot.
#[derive(Clone)]
pub struct Trust(Arc<Hot<TrustStore, (TrustSource, TrustOptions)>>);

impl Trust {
    /// Loads from files, and again when they change and [`watch`] sees it.
    ///
    /// # Errors
    ///
    /// If there is no usable authority at all. Single bad files are logged.
    pub fn load(source: TrustSource, options: TrustOptions) -> Result<Self, TrustLoadError> {
        let looks = source.looks();
        let store = source.load(options)?;
        report(&store, &source);
        Ok(Self(Arc::new(Hot {
            current: RwLock::new(Arc::new(store)),
            source: Some((source, options)),
            looks: Mutex::new(looks),
        })))
    }

    /// Authorities that never change.
    #[must_use]
    pub fn fixed(store: TrustStore) -> Self {
        Self(Arc::new(Hot { current: RwLock::new(Arc::new(store)), source: None, looks: Mutex::default() }))
    }

    /// The snapshot that holds now.
    #[must_use]
    pub fn current(&self) -> Arc<TrustStore> {
        self.0.current()
    }
}

impl Reload for Trust {
    fn reload(&self) -> Result<Reloaded, String> {
        self.0.reload(
            |(source, _)| source.looks(),
            |(source, options)| {
                let store = source.load(*options).map_err(|error| chain_text(&error))?;
                report(&store, source);
                Ok(store)
            },
        )
    }

    fn describe(&self) -> String {
        match &self.0.source {
            Some((TrustSource::Folder(path) | TrustSource::Bundle(path), _)) => {
                format!("trusted authorities in {}", path.display())
            }
            None => "trusted authorities in memory".to_owned(),
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("source", &self.0.source).field("roots", &self.current().roots()).finish()
    }
}

fn report(store: &TrustStore, source: &TrustSource) {
    for problem in store.problems() {
        warn!(?source, problem, "trust file not used");
    }
}

/// An error and its sources in one line.
fn chain_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Starts a task that looks at the files of `things` every `period` and reloads what changed.
///
/// The gauge `penstock_certificate_expiry_seconds` (seconds since the epoch, by subject) and a
/// warning tell of certificates that end soon.
///
/// Polling, not notification: it also works for files that are renamed into place, and on network
/// file systems.
pub fn watch(shutdown: &Shutdown, period: Duration, things: Vec<Arc<dyn Reload>>) {
    let until = shutdown.clone();
    shutdown.spawn(async move {
        let mut warned = vec![None; things.len()];
        loop {
            for (thing, warned) in things.iter().zip(&mut warned) {
                tell_expiry(thing.as_ref(), warned);
            }
            tokio::select! {
                () = until.stopping() => return,
                () = tokio::time::sleep(period) => {}
            }
            let things = things.clone();
            let round = until.spawn_blocking(move || things.iter().for_each(|thing| reload_one(thing.as_ref())));
            if round.await.is_err() {
                warn!("a reload panicked; the old certificates stay");
            }
        }
    });
}

fn reload_one(thing: &dyn Reload) {
    match thing.reload() {
        Ok(Reloaded::Unchanged) => {}
        Ok(Reloaded::Changed) => info!(what = thing.describe(), "reloaded"),
        Err(reason) => warn!(what = thing.describe(), reason, "changed files cannot be used, the old ones stay"),
    }
}

/// Sets the gauge, and warns of each expiry once.
fn tell_expiry(thing: &dyn Reload, warned: &mut Option<i64>) {
    let Some(expires_us) = thing.expires_us() else { return };
    let seconds = expires_us.div_euclid(1_000_000);
    metrics::gauge!("penstock_certificate_expiry_seconds", "certificate" => thing.describe()).set(seconds as f64);
    if expires_us - Clock::real().now_us() < EXPIRY_WARNING_US && *warned != Some(expires_us) {
        *warned = Some(expires_us);
        warn!(what = thing.describe(), expires = timestamp(seconds), "expires soon, renew it");
    }
}
