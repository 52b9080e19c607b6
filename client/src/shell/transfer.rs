//! `get`, `put` and their kin: which files go where, and what is shown of it.
//!
//! Owns the meaning of the arguments. The bytes are moved by the library.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use serde_json::json;
use wire::ftp::{Command, FtpPath};

use super::{
    app::{App, Done, Trouble},
    command::Given,
    output,
    walk::{self, Tree},
};
use crate::{
    ClientError, How, Meter, Push,
    listing::is_folder,
    many::{FetchItem, Outcome, Report, StoreItem},
    names,
};

/// With more files than this, only failures and the sum are shown.
const SHOWN_EACH: usize = 20;

/// What became of all files of a command.
#[derive(Debug, Default)]
struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    bytes: AtomicU64,
}

impl App {
    /// How a command moves files.
    fn manner(&self, given: &Given) -> How {
        let name = given.command.name;
        let parallel = self.autop || matches!(name, "pget" | "pput" | "mpget" | "mpput");
        How {
            streams: if parallel { self.width } else { 1 },
            resume: matches!(name, "reget" | "reput"),
            preserve: self.how.preserve || given.has('p'),
            ..self.how.clone()
        }
    }

    pub(super) async fn get(&mut self, given: &Given) -> Done {
        let many = matches!(given.command.name, "mget" | "mpget");
        let (sources, local) = if many { (&given.words[..], None) } else { (&given.words[..1], given.word(1)) };
        let mut tree: Tree<FetchItem, PathBuf> = Tree::new();
        let mut found = Vec::new();
        for word in sources {
            found.extend(self.expand(word).await?);
        }
        let several = found.len() > 1;
        for (path, facts) in found {
            let facts = match facts {
                Some(facts) => facts,
                None => self.session().await?.facts(&path).await?,
            };
            let name = names::base(path.as_str());
            let target = local_target(local, name, several)?;
            if !is_folder(&facts) {
                tree.add(path, target, &facts);
            } else if given.has('r') {
                tree.extend(self.walk_remote(&path, &target).await?);
            } else {
                tree.left_out.push(format!("{path}: a folder; use {} -r", given.command.name));
            }
        }
        for folder in &tree.folders {
            fs::create_dir_all(folder).map_err(ClientError::local("make", folder))?;
        }
        self.left_out(&tree.left_out);
        if tree.on_tape > 0 {
            let files = tree.files.len();
            self.output
                .note(&format!("{} of {files} files come from tape first; stage says where they stand", tree.on_tape));
        }
        let how = self.manner(given);
        let meter = Meter::new();
        let bytes = tree.files.iter().filter_map(|file| file.size_bytes).sum();
        meter.expect(tree.files.len() as u64, bytes);
        let (report, tally) = self.report("get", tree.files.len());
        let (started, cancel) = (Instant::now(), self.cancel());
        let progress = self.output.watch(&meter);
        let session = self.session().await?;
        let result = session.get_many(tree.files, &how, &meter, &cancel, &report).await;
        progress.end().await;
        self.show_connections(&meter, started.elapsed());
        self.sum_up("get", &tally, started, tree.left_out.len(), result)
    }

    pub(super) async fn put(&mut self, given: &Given) -> Done {
        self.forget_names();
        let many = matches!(given.command.name, "mput" | "mpput");
        let (sources, remote) = if many { (&given.words[..], None) } else { (&given.words[..1], given.word(1)) };
        let mut found = Vec::new();
        for word in sources {
            if word.quoted || !names::is_pattern(&word.text) {
                found.push(PathBuf::from(&word.text));
                continue;
            }
            let matches = glob::glob(&word.text)
                .map_err(|error| Trouble::Said(format!("the pattern {:?} cannot be used: {error}", word.text)))?;
            let before = found.len();
            found.extend(matches.filter_map(Result::ok));
            if found.len() == before {
                return Err(Trouble::Said(format!("{}: nothing here matches", word.text)));
            }
        }
        let several = found.len() > 1;
        let mut tree: Tree<StoreItem, FtpPath> = Tree::new();
        for path in found {
            let facts = fs::metadata(&path).map_err(ClientError::local("open", &path))?;
            let target = self.remote_target(remote, &path, several).await?;
            if facts.is_file() {
                tree.files.push(StoreItem { local: path, remote: target, size_bytes: facts.len() });
            } else if facts.is_dir() && given.has('r') {
                tree.extend(walk::local(&path, target.as_str())?);
            } else if facts.is_dir() {
                tree.left_out.push(format!("{}: a folder; use {} -r", path.display(), given.command.name));
            } else {
                tree.left_out.push(format!("{}: neither a file nor a folder", path.display()));
            }
        }
        self.make_remote_folders(&tree.folders).await?;
        self.left_out(&tree.left_out);
        let how = self.manner(given);
        let meter = Meter::new();
        meter.expect(tree.files.len() as u64, tree.files.iter().map(|file| file.size_bytes).sum());
        let (report, tally) = self.report("put", tree.files.len());
        let (started, cancel) = (Instant::now(), self.cancel());
        let progress = self.output.watch(&meter);
        let session = self.session().await?;
        let result = session.put_many(tree.files, &how, &meter, &cancel, &report).await;
        progress.end().await;
        self.show_connections(&meter, started.elapsed());
        self.sum_up("put", &tally, started, tree.left_out.len(), result)
    }

    pub(super) async fn append(&mut self, given: &Given) -> Done {
        let push = Push { local: PathBuf::from(&given.words[0].text), remote: self.remote(&given.words[1].text)? };
        let meter = Meter::new();
        let size = fs::metadata(&push.local).map_err(ClientError::local("open", &push.local))?.len();
        meter.expect(1, size);
        let (report, tally) = self.report("append", 1);
        let (how, cancel, started) = (self.how.clone(), self.cancel(), Instant::now());
        let progress = self.output.watch(&meter);
        let result = self.session().await?.append(&push, &how, &meter, &cancel).await;
        progress.end().await;
        self.show_connections(&meter, started.elapsed());
        report(Outcome { remote: push.remote, local: push.local, result });
        self.sum_up("append", &tally, started, 0, Ok(()))
    }

    /// Where a local file goes.
    async fn remote_target(&mut self, remote: Option<&str>, local: &Path, several: bool) -> Result<FtpPath, Trouble> {
        let name = match local.file_name() {
            Some(name) => name.to_owned(),
            // `.` and `..` have names too, seen from outside.
            None => {
                let whole = local.canonicalize().map_err(ClientError::local("find", local))?;
                whole.file_name().map(ToOwned::to_owned).unwrap_or_default()
            }
        };
        let Some(name) = name.to_str().filter(|name| !name.is_empty()) else {
            return Err(Trouble::Said(format!("{}: its name is not UTF-8; rename it first", local.display())));
        };
        let Some(text) = remote else { return self.remote(name) };
        let path = self.remote(text)?;
        if several || text.ends_with('/') || self.session().await?.is_folder(&path).await? {
            return Ok(names::below(path.as_str(), name)?);
        }
        Ok(path)
    }

    /// Makes the folders of a tree: the first with those above it, the rest in flights.
    async fn make_remote_folders(&mut self, folders: &[FtpPath]) -> Done {
        let cancel = self.cancel();
        for folder in folders {
            if cancel.is_cancelled() {
                return Err(ClientError::Cancelled.into());
            }
            let session = self.session().await?;
            let reply = session.ask(&Command::Mkd(folder.clone())).await?;
            if !reply.is_success() {
                session.make_folders(folder).await?;
            }
        }
        Ok(())
    }

    fn left_out(&self, reasons: &[String]) {
        for reason in reasons {
            let reason = names::printable(reason);
            self.output.error(&format!("left out: {reason}"), || json!({"event": "left_out", "reason": reason}));
        }
    }

    /// Tells of each file as it is done, and counts.
    fn report(&self, action: &'static str, files: usize) -> (Report, Arc<Tally>) {
        let tally = Arc::new(Tally::default());
        let (counts, output, each) = (tally.clone(), self.output.clone(), self.verbose || files <= SHOWN_EACH);
        let started = Instant::now();
        let report = move |outcome: Outcome| {
            let (remote, local) = (outcome.remote.as_str(), outcome.local.display().to_string());
            match &outcome.result {
                Ok(moved) => {
                    counts.done.fetch_add(1, Relaxed);
                    let fresh = moved.size_bytes - moved.kept_bytes;
                    counts.bytes.fetch_add(fresh, Relaxed);
                    let verified = moved.verified.map(wire::checksum::Algorithm::name);
                    let elapsed = started.elapsed();
                    if each || output.is_json() {
                        let kept = if moved.kept_bytes > 0 {
                            format!(", {} had come before", output::bytes(moved.kept_bytes))
                        } else {
                            String::new()
                        };
                        let checked = verified.map_or("not compared".to_owned(), |name| format!("{name} agrees"));
                        let (from, to) =
                            if action == "get" { (remote, local.as_str()) } else { (local.as_str(), remote) };
                        let text = format!(
                            "{} -> {}: {} {}{kept}, {checked}",
                            names::printable(from),
                            names::printable(to),
                            output::bytes(moved.size_bytes),
                            output::rate(fresh, elapsed),
                        );
                        output.result(&text, || {
                            json!({"event": "file", "action": action, "remote": remote, "local": local,
                                "bytes": moved.size_bytes, "kept_bytes": moved.kept_bytes,
                                "seconds": elapsed.as_secs_f64(), "verified": verified,
                                "adler32": moved.sums.map(|sums| format!("{:08x}", sums.adler32)),
                                "crc32c": moved.sums.map(|sums| format!("{:08x}", sums.crc32c))})
                        });
                    }
                }
                Err(ClientError::Cancelled) => {
                    counts.cancelled.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    counts.failed.fetch_add(1, Relaxed);
                    let text = names::printable(&error.chain());
                    let remedy = format!("{:?}", error.remedy()).to_ascii_lowercase();
                    output.error(&format!("{}: {text}", names::printable(remote)), || {
                        json!({"event": "file_failed", "action": action, "remote": remote, "local": local,
                            "message": text, "remedy": remedy})
                    });
                }
            }
        };
        (Arc::new(report), tally)
    }

    fn sum_up(
        &mut self,
        action: &'static str,
        tally: &Tally,
        started: Instant,
        left_out: usize,
        result: crate::Result<()>,
    ) -> Done {
        let (done, failed, cancelled, bytes) = (
            tally.done.load(Relaxed),
            tally.failed.load(Relaxed),
            tally.cancelled.load(Relaxed),
            tally.bytes.load(Relaxed),
        );
        let elapsed = started.elapsed();
        if done + failed + cancelled > 1 || self.output.is_json() {
            let files_per_second = done as f64 / elapsed.as_secs_f64().max(1e-9);
            let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            let stopped = if cancelled > 0 { format!(", {cancelled} not done") } else { String::new() };
            let rate = output::rate(bytes, elapsed);
            let text = format!(
                "{done} files, {} {rate}, {files_per_second:.0} files/s{failures}{stopped}",
                output::bytes(bytes)
            );
            self.output.result(&text, || {
                json!({"event": "summary", "action": action, "files": done, "failed": failed, "cancelled": cancelled,
                    "left_out": left_out, "bytes": bytes, "seconds": elapsed.as_secs_f64()})
            });
        }
        if cancelled > 0 {
            self.output.note(&format!("stopped; re{} goes on where it stopped", action.trim_start_matches("re")));
        }
        result?;
        if failed > 0 || cancelled > 0 || left_out > 0 { Err(Trouble::Told) } else { Ok(()) }
    }
}

/// Where a file of the server goes.
fn local_target(local: Option<&str>, name: &str, several: bool) -> Result<PathBuf, Trouble> {
    let Some(text) = local else {
        if name.is_empty() {
            return Err(Trouble::Said("name a local folder for the server's whole tree: get -r / FOLDER".to_owned()));
        }
        return Ok(PathBuf::from(names::safe_name(name, "/")?));
    };
    let path = PathBuf::from(text);
    if name.is_empty() {
        return Ok(path);
    }
    let into = several || text.ends_with('/') || path.is_dir();
    Ok(if into { path.join(names::safe_name(name, "/")?) } else { path })
}
