//! Commands that look at or change names and files without moving data.

use std::path::Path;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wire::{
    checksum::Algorithm,
    ftp::{Command, Facts, FtpPath, Locality, Reply, SiteCommand, Text},
};

use super::{
    app::{App, Done, Trouble},
    command::Given,
    words::Word,
};
use crate::{ClientError, listing::is_folder, names};

/// A name on the server that a word stands for, with its facts if a listing told them.
pub(super) type Found = (FtpPath, Option<Facts>);

impl App {
    pub(super) async fn change_folder(&mut self, given: &Given) -> Done {
        if given.command.name == "cd" {
            let path = self.remote(given.word(0).unwrap_or(&self.home))?;
            let session = self.session().await?;
            session.demand(&Command::Cwd(path)).await?;
            self.folder = session.folder().await?.into_string();
        } else {
            let session = self.session().await?;
            self.folder = session.folder().await?.into_string();
        }
        let folder = names::printable(&self.folder);
        self.output.result(&folder, || json!({"event": "folder", "path": folder}));
        Ok(())
    }

    pub(super) fn change_local(&mut self, given: &Given) -> Done {
        if given.command.name == "lcd" {
            let home = std::env::home_dir();
            let path = given.word(0).map(Path::new).or(home.as_deref()).unwrap_or(Path::new("/"));
            std::env::set_current_dir(path).map_err(ClientError::local("go to", path))?;
        }
        let here = std::env::current_dir().map_err(ClientError::local("find", "."))?;
        self.output.result(&here.display().to_string(), || json!({"event": "local_folder", "path": here}));
        Ok(())
    }

    pub(super) async fn local_list(&mut self, given: &Given) -> Done {
        let mut command = tokio::process::Command::new("ls");
        command.args(given.words.iter().map(|word| &word.text));
        let status = command.status().await.map_err(ClientError::local("run", "ls"))?;
        if status.success() { Ok(()) } else { Err(Trouble::Told) }
    }

    /// The names a word stands for: itself, or all that match a pattern.
    pub(super) async fn expand(&mut self, word: &Word) -> Result<Vec<Found>, Trouble> {
        if word.quoted || !names::is_pattern(&word.text) {
            return Ok(vec![(self.remote(&word.text)?, None)]);
        }
        let whole = self.remote(&word.text)?.into_string();
        let parts: Vec<&str> = whole.split('/').filter(|part| !part.is_empty()).collect();
        let mut found: Vec<Found> = vec![(FtpPath::new("/")?, None)];
        for (depth, part) in parts.iter().enumerate() {
            let last = depth + 1 == parts.len();
            let mut next = Vec::new();
            for (folder, _) in found {
                if !names::is_pattern(part) {
                    next.push((names::below(folder.as_str(), part)?, None));
                    continue;
                }
                let pattern = glob::Pattern::new(part)
                    .map_err(|error| Trouble::Said(format!("the pattern {part:?} cannot be used: {error}")))?;
                for entry in self.session().await?.list(&folder).await?.entries {
                    let hidden = entry.name.starts_with('.') && !part.starts_with('.');
                    if pattern.matches(&entry.name) && !hidden && (last || is_folder(&entry.facts)) {
                        next.push((names::below(folder.as_str(), &entry.name)?, Some(entry.facts)));
                    }
                }
            }
            found = next;
        }
        if found.is_empty() {
            return Err(Trouble::Said(format!("{}: nothing on the server matches", names::printable(&word.text))));
        }
        Ok(found)
    }

    async fn expand_all(&mut self, words: &[Word]) -> Result<Vec<Found>, Trouble> {
        let mut found = Vec::new();
        for word in words {
            found.extend(self.expand(word).await?);
        }
        Ok(found)
    }

    pub(super) async fn list(&mut self, given: &Given) -> Done {
        let long = given.has('l') || given.command.name == "dir";
        let found = if given.words.is_empty() {
            vec![(FtpPath::new(self.folder.clone())?, None)]
        } else {
            self.expand_all(&given.words).await?
        };
        let many = found.len() > 1;
        for (path, facts) in found {
            let facts = match facts {
                Some(facts) => facts,
                None if path.as_str() == "/" => Facts::new(wire::ftp::EntryKind::Directory),
                None => self.session().await?.facts(&path).await?,
            };
            if !is_folder(&facts) {
                self.show(path.as_str(), &facts, long);
                continue;
            }
            if many {
                self.output.note(&format!("{}:", names::printable(path.as_str())));
            }
            let listing = self.session().await?.list(&path).await?;
            for name in listing.refused {
                self.output.note(&format!("left out: the server lists {name:?}, which is no name in this folder"));
            }
            for entry in listing.entries {
                self.show(&entry.name, &entry.facts, long);
            }
        }
        Ok(())
    }

    fn show(&self, name: &str, facts: &Facts, long: bool) {
        let slash = if is_folder(facts) { "/" } else { "" };
        let printed = names::printable(name);
        let text = if long {
            format!(
                "{}{} {} {:>3} {:>8} {:>8} {:>14} {} {printed}{slash}",
                if is_folder(facts) { 'd' } else { '-' },
                permissions(facts.unix_mode.unwrap_or(0)),
                place(facts),
                facts.cos.as_deref().map_or("-".to_owned(), names::printable),
                facts.owner.as_deref().map_or("-".to_owned(), names::printable),
                facts.group.as_deref().map_or("-".to_owned(), names::printable),
                facts.size_bytes.map_or("-".to_owned(), |size| size.to_string()),
                facts.modified.map_or("-".to_owned(), written),
            )
        } else {
            format!("{printed}{slash}")
        };
        self.output.result(&text, || describe(name, facts));
    }

    pub(super) async fn change_names(&mut self, given: &Given) -> Done {
        self.forget_names();
        let name = given.command.name;
        if name == "rename" {
            let (from, to) = (self.remote(&given.words[0].text)?, self.remote(&given.words[1].text)?);
            return Ok(self.session().await?.rename(&from, &to).await?);
        }
        let (mode, words) = match name {
            "chmod" => {
                let mode = u32::from_str_radix(&given.words[0].text, 8).ok().filter(|mode| *mode <= 0o7777);
                let mode = mode.ok_or_else(|| Trouble::Said("MODE is octal, such as 640".to_owned()))?;
                (mode, &given.words[1..])
            }
            _ => (0, &given.words[..]),
        };
        for word in words {
            let found =
                if name == "mkdir" { vec![(self.remote(&word.text)?, None)] } else { self.expand(word).await? };
            for (path, facts) in found {
                match name {
                    "mkdir" if given.has('p') => self.session().await?.make_folders(&path).await?,
                    "delete" if given.has('r') => self.delete_all(path, facts, 0).await?,
                    _ => {
                        let command = match name {
                            "mkdir" => Command::Mkd(path),
                            "rmdir" => Command::Rmd(path),
                            "chmod" => Command::Site(SiteCommand::Chmod { mode, path }),
                            _ => Command::Dele(path),
                        };
                        self.session().await?.demand(&command).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes a folder and everything in it.
    fn delete_all(&mut self, path: FtpPath, facts: Option<Facts>, depth: usize) -> BoxFuture<'_, Done> {
        Box::pin(async move {
            let facts = match facts {
                Some(facts) => facts,
                None => self.session().await?.facts(&path).await?,
            };
            if !is_folder(&facts) {
                self.session().await?.demand(&Command::Dele(path)).await?;
                return Ok(());
            }
            if depth >= names::MAX_DEPTH {
                return Err(Trouble::Said(format!("{path}: more than {} folders deep", names::MAX_DEPTH)));
            }
            for entry in self.session().await?.list(&path).await?.entries {
                let inner = names::below(path.as_str(), &entry.name)?;
                self.delete_all(inner, Some(entry.facts), depth + 1).await?;
            }
            self.session().await?.demand(&Command::Rmd(path)).await?;
            Ok(())
        })
    }

    pub(super) async fn ask_about(&mut self, given: &Given) -> Done {
        let name = given.command.name;
        let algorithm = given.value('a').map(|text| {
            Algorithm::from_name(text).ok_or_else(|| {
                let known: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
                Trouble::Said(format!("{text} is no checksum; there are {}", known.join(", ")))
            })
        });
        let algorithm = algorithm.transpose()?.unwrap_or(Algorithm::Adler32);
        let wait = given
            .value('w')
            .map(|text| text.parse::<u64>().map_err(|_| Trouble::Said("the seconds of -w are a number".to_owned())));
        let wait_seconds = wait.transpose()?;
        for (path, _) in self.expand_all(&given.words).await? {
            let shown = names::printable(path.as_str());
            match name {
                "size" => {
                    let size = self.session().await?.size(&path).await?;
                    self.output.result(
                        &format!("{size} {shown}"),
                        || json!({"event": "size", "path": path.as_str(), "bytes": size}),
                    );
                }
                "cksum" => {
                    let sum = self.session().await?.checksum(algorithm, &path).await?;
                    let algorithm = algorithm.name();
                    self.output.result(
                        &format!("{algorithm} {sum} {shown}"),
                        || json!({"event": "checksum", "path": path.as_str(), "algorithm": algorithm, "value": sum}),
                    );
                }
                "stat" => {
                    let facts = self.session().await?.facts(&path).await?;
                    self.output.result(&details(path.as_str(), &facts), || describe(path.as_str(), &facts));
                }
                _ => {
                    let command = Command::Site(SiteCommand::Stage { wait_seconds, path: path.clone() });
                    let reply = self.session().await?.demand(&command).await?;
                    self.told(&reply, Some(path.as_str()));
                }
            }
        }
        Ok(())
    }

    /// Shows what a server said.
    fn told(&self, reply: &Reply, path: Option<&str>) {
        let text: Vec<String> = reply.text().lines().map(names::printable).collect();
        let text = text.join("\n");
        self.output.result(&text, || json!({"event": "reply", "code": reply.code(), "text": text, "path": path}));
    }

    pub(super) async fn say(&mut self, given: &Given) -> Done {
        let reply = match given.command.name {
            "setcos" => {
                let class = Text::new(given.word(0).unwrap_or_default())?;
                let reply = self.session().await?.set_class_of_service(class.clone()).await?;
                self.set_class_of_service(class);
                reply
            }
            "lscos" => self.session().await?.demand(&Command::Site(SiteCommand::ListCos)).await?,
            name => {
                let line = if name == "site" { format!("SITE {}", given.rest) } else { given.rest.clone() };
                let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
                let moves = [
                    "RETR", "STOR", "STOU", "APPE", "ERET", "ESTO", "LIST", "NLST", "MLSD", "GET", "PUT", "PORT",
                    "PASV", "AUTH",
                ];
                if moves.contains(&verb.as_str()) {
                    let text =
                        format!("{verb} needs a data connection or changes the session itself; use get, put or ls");
                    return Err(Trouble::Said(text));
                }
                let reply = self.session().await?.quote(&Text::new(line)?).await?;
                if !reply.is_success() && !matches!(reply.code(), 300..=399) {
                    self.told(&reply, None);
                    return Err(Trouble::Told);
                }
                reply
            }
        };
        self.told(&reply, None);
        Ok(())
    }
}

fn permissions(mode: u32) -> String {
    let letter = |bit: u32, letter: char| if mode & bit != 0 { letter } else { '-' };
    [
        (0o400, 'r'),
        (0o200, 'w'),
        (0o100, 'x'),
        (0o040, 'r'),
        (0o020, 'w'),
        (0o010, 'x'),
        (0o004, 'r'),
        (0o002, 'w'),
        (0o001, 'x'),
    ]
    .iter()
    .map(|(bit, name)| letter(*bit, *name))
    .collect()
}

/// Where the bytes are: on disk, on tape, on both.
fn place(facts: &Facts) -> &'static str {
    match facts.locality {
        Some(Locality::Online) => "disk",
        Some(Locality::Nearline) => "tape",
        Some(Locality::Both) => "both",
        Some(Locality::Unavailable) => "gone",
        None => "   -",
    }
}

fn written(time: wire::ftp::FtpTime) -> String {
    let (year, month, day, hour, minute, _) = time.civil();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

fn details(path: &str, facts: &Facts) -> String {
    let mut lines = vec![names::printable(path)];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("  {name}: {}", names::printable(&value)));
        }
    };
    add("kind", Some(if is_folder(facts) { "folder" } else { "file" }.to_owned()));
    add("size", facts.size_bytes.map(|size| format!("{size} bytes")));
    add("modified", facts.modified.map(written));
    add("mode", facts.unix_mode.map(|mode| format!("{mode:04o} {}", permissions(mode))));
    add("owner", facts.owner.clone());
    add("group", facts.group.clone());
    add("bytes are on", facts.locality.map(|_| place(facts).to_owned()));
    add("class of service", facts.cos.clone());
    add("CRC32C", facts.crc32c.map(|sum| format!("{sum:08x}")));
    lines.join("\n")
}

fn describe(name: &str, facts: &Facts) -> Value {
    json!({
        "event": "entry",
        "name": name,
        "kind": if is_folder(facts) { "folder" } else { "file" },
        "bytes": facts.size_bytes,
        "modified": facts.modified.map(|time| time.seconds()),
        "mode": facts.unix_mode.map(|mode| format!("{mode:04o}")),
        "owner": facts.owner,
        "group": facts.group,
        "locality": facts.locality.map(Locality::as_str),
        "cos": facts.cos,
        "crc32c": facts.crc32c.map(|sum| format!("{sum:08x}")),
    })
}
