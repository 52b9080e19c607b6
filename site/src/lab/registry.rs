//! Which labs run: a folder with a file for each, locked by the process that keeps it.
//!
//! Invariant: a file that nobody has locked belongs to a lab that is gone, however it ended; whoever finds it removes it
//! and what lies beside it.

use std::{
    fmt, fs,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::Ipv4Addr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};
use serde::{Deserialize, Serialize};

/// How long a lab may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The folder.
#[derive(Clone, Debug)]
pub struct Registry(PathBuf);

/// A lab that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Running {
    /// Its name.
    pub name: String,
    /// The process that keeps it.
    pub process: u32,
    /// The process is in a user namespace of its own.
    pub user_namespace: bool,
    /// The link, for people.
    pub link: String,
    /// Its hosts.
    pub hosts: Vec<RunningHost>,
    /// The folder of the Penstock site in it, if there is one.
    pub site: Option<PathBuf>,
}

/// A host of a lab that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningHost {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its network namespace.
    pub namespace: PathBuf,
}

/// The right to keep a lab of this name. Ends with the process, at the latest.
#[derive(Debug)]
pub struct Claim {
    file: File,
    registry: Registry,
    name: String,
}

/// A name that can be a file's.
///
/// # Errors
///
/// A sentence, if it cannot.
pub fn name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=32).contains(&text.len()) && text.chars().all(good) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no name for a lab: 1 to 32 lower-case letters, digits and `-`"))
    }
}

impl Registry {
    /// `$PENSTOCK_LABS`; or `/run/penstock-labs` for root, `penstock-labs` in `$XDG_RUNTIME_DIR`, or a folder in `/tmp`.
    #[must_use]
    pub fn usual() -> Self {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(folder) = given("PENSTOCK_LABS") {
            return Self(folder);
        }
        let uid = Uid::effective();
        if uid.is_root() {
            return Self(PathBuf::from("/run/penstock-labs"));
        }
        let folder = given("XDG_RUNTIME_DIR").map(|folder| folder.join("penstock-labs"));
        Self(folder.unwrap_or_else(|| std::env::temp_dir().join(format!("penstock-labs-{uid}"))))
    }

    /// In a folder of one's own.
    #[must_use]
    pub const fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// Where a lab of this name may keep files; they go with it.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What the process that keeps a lab says.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }

    /// Makes the folder, for its owner only.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn create(&self) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.with_context(|| format!("make {}", self.0.display()))
    }

    /// Takes a name, if no lab has it.
    ///
    /// # Errors
    ///
    /// If one has, or the folder cannot be written.
    pub fn claim(&self, name: &str) -> anyhow::Result<Claim> {
        self.create()?;
        let path = self.file(name);
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.with_context(|| format!("open {}", path.display()))?;
            if file.try_lock().is_err() {
                bail!("a lab called {name} runs already: `penstock lab down {name}` ends it");
            }
            // Whoever removed what a dead lab left may have removed this file between opening and locking.
            let same = |there: &fs::Metadata| file.metadata().is_ok_and(|here| here.ino() == there.ino());
            if fs::metadata(&path).is_ok_and(|there| same(&there)) {
                let _ = fs::remove_dir_all(self.folder(name));
                file.set_len(0).with_context(|| format!("empty {}", path.display()))?;
                return Ok(Claim { file, registry: self.clone(), name: name.to_owned() });
            }
        }
    }

    /// A lab that runs.
    ///
    /// # Errors
    ///
    /// A sentence that says how to start it, if it does not.
    pub fn open(&self, name: &str) -> anyhow::Result<Running> {
        match self.look(name)? {
            Some(running) => Ok(running),
            None => bail!("no lab called {name} runs: `penstock lab up {name}` starts one"),
        }
    }

    /// All labs that run.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn all(&self) -> anyhow::Result<Vec<Running>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("read {}", self.0.display()))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "json") && name(stem).is_ok() {
                all.extend(self.look(stem)?);
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Reads a lab's file; one that nobody keeps is removed.
    fn look(&self, name: &str) -> anyhow::Result<Option<Running>> {
        let path = self.file(name);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.with_context(|| format!("open {}", path.display()))?,
        };
        if file.try_lock_shared().is_ok() {
            self.forget(name);
            return Ok(None);
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("read {}", path.display()))?;
        ensure!(!text.is_empty(), "the lab {name} is just starting: try again");
        let running = serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        Ok(Some(running))
    }

    fn forget(&self, name: &str) {
        let _ = fs::remove_dir_all(self.folder(name));
        let _ = fs::remove_file(self.log(name));
        let _ = fs::remove_file(self.file(name));
    }

    /// Returns when the lab is gone, however it went.
    ///
    /// # Errors
    ///
    /// If its file cannot be read.
    pub fn wait(&self, name: &str) -> io::Result<()> {
        match File::open(self.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            file => file?.lock_shared(),
        }
    }

    /// Ends a lab: asks it to, and after a while does not ask any more.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or it cannot be ended.
    pub fn end(&self, name: &str) -> anyhow::Result<()> {
        let running = self.open(name)?;
        let process = Pid::from_raw(i32::try_from(running.process).context("a process's number")?);
        // The lock says that this process lives, so its number is still its own.
        kill(process, Signal::SIGTERM).with_context(|| format!("end process {process}"))?;
        let asked = Instant::now();
        while self.look(name)?.is_some() {
            if asked.elapsed() > END_LIMIT {
                kill(process, Signal::SIGKILL).with_context(|| format!("kill process {process}"))?;
                self.wait(name)?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Claim {
    /// Says what runs, to whoever looks.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn publish(&mut self, running: &Running) -> anyhow::Result<()> {
        // In one write: who reads in between finds nothing, or all of it.
        self.file.write_all(&serde_json::to_vec_pretty(running)?).context("say what runs")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.forget(&self.name);
    }
}

impl Running {
    /// The host of that name.
    ///
    /// # Errors
    ///
    /// A sentence that names those that are there.
    pub fn host(&self, name: &str) -> anyhow::Result<&RunningHost> {
        self.hosts.iter().find(|host| host.name == name).with_context(|| {
            let names: Vec<_> = self.hosts.iter().map(|host| host.name.as_str()).collect();
            format!("{} has no host {name}; it has {}", self.name, names.join(", "))
        })
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, process {}", self.name, self.link, self.process)?;
        for host in &self.hosts {
            write!(f, "\n  {:<12} {}", host.name, host.address)?;
        }
        if let Some(site) = self.site.as_deref().map(Path::display) {
            write!(f, "\n  site in {site}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(name: &str) -> Running {
        Running {
            name: name.to_owned(),
            process: std::process::id(),
            user_namespace: false,
            link: "3.5 ms".to_owned(),
            hosts: Vec::new(),
            site: None,
        }
    }

    #[test]
    fn a_name_is_had_by_one_lab_and_free_again_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path().join("labs"));
        assert!(registry.all().expect("none").is_empty());
        let mut claim = registry.claim("one").expect("free");
        assert!(registry.claim("one").expect_err("taken").to_string().contains("lab down one"));
        assert!(registry.open("one").expect_err("not there yet").to_string().contains("just starting"));
        claim.publish(&running("one")).expect("written");
        assert_eq!(registry.open("one").expect("it runs"), running("one"));
        fs::create_dir(registry.folder("one")).expect("a folder of its own");
        drop(claim);
        assert!(registry.open("one").expect_err("gone").to_string().contains("lab up one"));
        assert!(!registry.folder("one").exists(), "its files went with it");
    }

    #[test]
    fn what_a_killed_lab_left_is_removed_by_whoever_looks() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path().to_owned());
        fs::write(registry.file("dead"), serde_json::to_vec(&running("dead")).expect("json")).expect("written");
        fs::create_dir(registry.folder("dead")).expect("a folder");
        assert!(registry.all().expect("read").is_empty());
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 0);
    }

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for bad in ["", "..", "a/b", "A", "-a", "a.b", &"x".repeat(33)] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(name("wan-1"), Ok("wan-1".to_owned()));
    }
}
