//! Listings: what is in a folder of the server.
//!
//! Owns the choice between MLSC (on the control connection) and MLSD (on a data connection), and the bounds of both.

use wire::ftp::{Command, EntryKind, Facts, FtpPath, MAX_REPLY_BYTES, TransferMode};

use crate::{
    Client, ClientError, Ready, Result,
    data::{Opening, receive_all},
    names,
};

/// Most entries taken of one folder.
pub const MAX_ENTRIES: usize = 10_000_000;

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder, safe to use locally.
    pub name: String,
    /// What the server says about it.
    pub facts: Facts,
}

/// Whether facts are those of a folder.
pub fn is_folder(facts: &Facts) -> bool {
    matches!(facts.kind, EntryKind::Directory | EntryKind::Current | EntryKind::Parent)
}

/// What a folder holds, and what of the server's answer was left out because it names nothing in it.
#[derive(Debug, Default)]
pub struct Listing {
    /// The entries, by name.
    pub entries: Vec<Entry>,
    /// Names that could have led elsewhere.
    pub refused: Vec<String>,
}

impl Client<Ready> {
    /// Facts of one file or folder.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn facts(&mut self, path: &FtpPath) -> Result<Facts> {
        let reply = self.demand(&Command::Mlst(Some(path.clone()))).await?;
        Ok(reply.as_entry()?.0)
    }

    /// Lists a folder; its own entry and its parent's are left out.
    ///
    /// # Errors
    ///
    /// If the server refuses, or the answer is no listing.
    pub async fn list(&mut self, folder: &FtpPath) -> Result<Listing> {
        if self.features.has("MLSC") {
            let command = Command::Mlsc(Some(folder.clone()));
            let reply = self.ask(&command).await?;
            if !reply.is_success() {
                return Err(ClientError::refused(&command, reply));
            }
            return Ok(sort(reply.as_listing()?, folder.as_str()));
        }
        let command = Command::Mlsd(Some(folder.clone()));
        let text = self.retrieve_text(&command).await?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()).take(MAX_ENTRIES) {
            let parsed = Facts::parse(line);
            let bad = || ClientError::BadData {
                peer: self.control.server().to_owned(),
                reason: format!("{line:?} is no line of a listing"),
            };
            lines.push(parsed.map_err(|_| bad())?);
        }
        Ok(sort(lines, folder.as_str()))
    }

    /// Runs a command whose data is a text, over a passive stream connection.
    async fn retrieve_text(&mut self, command: &Command) -> Result<Vec<u8>> {
        self.set_mode(TransferMode::Stream).await?;
        let address = self.passive_now().await?;
        self.control.queue(command);
        self.control.flush().await?;
        let opening = Opening::of(self);
        let receiving = tokio::task::spawn_blocking(move || {
            let mut stream = opening.connect(address)?;
            receive_all(&mut stream, MAX_REPLY_BYTES, opening.stall_limit)
        });
        let reply = self.control.reply(command.verb(), self.control.limits.begin).await?;
        if !reply.is_preliminary() {
            // The blocking task ends by itself: nothing will come, or its limit passes.
            return Err(ClientError::refused(command, reply));
        }
        let text = receiving.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let reply = self.control.last_reply(command.verb(), self.control.limits.stall).await?;
        if !reply.is_success() {
            return Err(ClientError::refused(command, reply));
        }
        text
    }
}

fn sort(lines: Vec<(Facts, String)>, folder: &str) -> Listing {
    let mut listing = Listing::default();
    for (facts, name) in lines {
        if matches!(facts.kind, EntryKind::Current | EntryKind::Parent) || name == "." || name == ".." {
            continue;
        }
        match names::safe_name(&name, folder) {
            Ok(safe) => listing.entries.push(Entry { name: safe.to_owned(), facts }),
            Err(_) => listing.refused.push(names::printable(&name)),
        }
    }
    listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
    listing.entries.dedup_by(|a, b| a.name == b.name);
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_left_out_and_told() {
        let line = |line: &str| Facts::parse(line).unwrap();
        let lines = vec![
            line("type=file;size=1; b"),
            line("type=cdir; /data"),
            line("type=pdir; .."),
            line("type=file; ../../etc/passwd"),
            line("type=file; /etc/passwd"),
            line("type=dir; /data/a"),
            line("type=file; b"),
            line("type=dir; ."),
        ];
        let listing = sort(lines, "/data");
        let names: Vec<&str> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(listing.refused, ["../../etc/passwd", "/etc/passwd"]);
    }
}
