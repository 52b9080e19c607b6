//! Fetches small files: one session's part of many.
//!
//! Movers connect to us, or we to them where they say they are, and connections are kept. With several movers the order of connections does not say which file
//! a unit is of, so requests are sent ahead only for files whose size and CRC-32C the listing told: a unit *is* the file
//! whose sum it has. Without sums, one file is asked for at a time.

use std::{
    collections::{HashSet, VecDeque},
    fs,
};

use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use wire::{
    checksum::{Algorithm, Sums},
    ftp::{Command, Reply},
};

use super::{
    AHEAD, FetchItem, Job, Leftover, SMALL_BYTES, Work,
    channel::{Channel, Unit},
    has_room,
};
use crate::{Client, ClientError, How, Moved, Ready, Result, data::Opening, get::set_modified, partial::part_path};

/// Most data connections of one session: one a mover is usual.
const MAX_CONNECTIONS: usize = 64;

/// A file that was asked for.
struct Asked {
    item: FetchItem,
    /// The server's last word on it.
    reply: Option<Reply>,
    unit: Option<(Vec<u8>, Sums)>,
}

impl Client<Ready> {
    /// Fetches files of the job until none is left or the session cannot go on.
    pub(super) async fn fetch_small(&mut self, job: &Job<'_, FetchItem>) -> Leftover<FetchItem> {
        let mut window = VecDeque::new();
        let result = self.fetch_window(&mut window, job).await;
        if let Err(error) = &result {
            // Replies to what was asked ahead are still to come.
            tracing::debug!(%error, server = self.control.server(), "a session of many ended early");
        }
        job.leave(result, window.into_iter().map(|asked: Asked| asked.item).collect())
    }

    async fn fetch_window(&mut self, window: &mut VecDeque<Asked>, job: &Job<'_, FetchItem>) -> Result<()> {
        let opening = Opening::of(self);
        let stall = self.control.limits.stall;
        let (sender, mut units) = mpsc::channel::<Result<Unit>>(AHEAD);
        let mut receivers = JoinSet::new();
        let mut known = HashSet::new();
        if job.how.passive {
            self.delay_stripes().await?;
        } else {
            // One address is enough for small files.
            for listener in self.invite(1, &[]).await? {
                receivers.spawn(accept(listener, opening.clone(), sender.clone(), stall));
            }
        }
        loop {
            self.ask_ahead(&job.work, window).await?;
            let Some(waiting) = window.iter().position(|asked| asked.reply.is_none()) else {
                if window.is_empty() {
                    return Ok(());
                }
                // All are answered; some data is still on its way.
                let unit = tokio::select! {
                    unit = tokio::time::timeout(stall, units.recv()) => unit,
                    () = job.cancel.cancelled() => return Err(ClientError::Cancelled),
                };
                let Ok(Some(unit)) = unit else {
                    let awaited = "the data of files it had sent".to_owned();
                    return Err(ClientError::Timeout {
                        server: self.control.server().to_owned(),
                        awaited,
                        limit: stall,
                    });
                };
                place(window, unit?)?;
                settle(window, job);
                continue;
            };
            tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin) => {
                    let reply = reply?;
                    if reply.code() == 129 && job.how.passive {
                        for address in reply.striped_addresses()? {
                            if known.len() < MAX_CONNECTIONS && known.insert(address) {
                                let (opening, units) = (opening.clone(), sender.clone());
                                receivers.spawn(async move {
                                    carry(Channel::connect(&opening, address, stall).await, units).await;
                                });
                            }
                        }
                    } else if !reply.is_preliminary() {
                        let broken = matches!(reply.code(), 425 | 426);
                        let command = Command::Retr(window[waiting].item.remote.clone());
                        window[waiting].reply = Some(reply.clone());
                        if broken {
                            return Err(ClientError::refused(&command, reply));
                        }
                    }
                }
                Some(unit) = units.recv() => place(window, unit?)?,
                () = job.cancel.cancelled() => return Err(ClientError::Cancelled),
            }
            settle(window, job);
        }
    }

    /// Sends requests: ahead where sums tell files apart, else one at a time.
    async fn ask_ahead(&mut self, work: &Work<FetchItem>, window: &mut VecDeque<Asked>) -> Result<()> {
        while has_room(window.iter().map(|asked| asked.item.size_bytes.unwrap_or(SMALL_BYTES))) {
            let told = window.iter().all(|asked| asked.item.crc32c.is_some());
            if !window.is_empty() && !told {
                break;
            }
            let Some(item) = work.take() else { break };
            if !window.is_empty() && item.crc32c.is_none() {
                work.put_back(item);
                break;
            }
            self.control.queue(&Command::Retr(item.remote.clone()));
            window.push_back(Asked { item, reply: None, unit: None });
        }
        self.control.flush().await
    }
}

/// Accepts movers' connections and passes on what they carry.
async fn accept(
    listener: TcpListener,
    opening: Opening,
    units: mpsc::Sender<Result<Unit>>,
    stall: std::time::Duration,
) {
    let mut receivers = JoinSet::new();
    for _ in 0..MAX_CONNECTIONS {
        let Ok((socket, address)) = listener.accept().await else { return };
        let (opening, units) = (opening.clone(), units.clone());
        receivers.spawn(async move { carry(Channel::protect(&opening, socket, address, stall).await, units).await });
    }
    while receivers.join_next().await.is_some() {}
}

/// Passes on what one connection carries, until it ends or nobody wants it.
async fn carry(channel: Result<Channel>, units: mpsc::Sender<Result<Unit>>) {
    let mut channel = match channel {
        Ok(channel) => channel,
        Err(error) => return drop(units.send(Err(error)).await),
    };
    loop {
        match channel.receive().await {
            Ok(Some(unit)) => {
                let closes = unit.closes;
                if units.send(Ok(unit)).await.is_err() || closes {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => return drop(units.send(Err(error)).await),
        }
    }
}

/// Finds the file a unit is of.
fn place(window: &mut VecDeque<Asked>, unit: Unit) -> Result<()> {
    let bad = |reason: &str| ClientError::BadData { peer: "a mover".to_owned(), reason: reason.to_owned() };
    if unit.announced != Some(1) {
        return Err(bad("a small file came over several connections"));
    }
    let sums = Sums::of(&unit.data);
    let size = unit.data.len() as u64;
    let fits = |asked: &Asked| {
        asked.unit.is_none()
            && asked.item.size_bytes.is_none_or(|expected| expected == size)
            && asked.item.crc32c.is_none_or(|expected| expected == sums.crc32c)
    };
    let slot = window.iter_mut().find(|asked| fits(asked));
    let asked = slot.ok_or_else(|| bad("the data is of no file that was asked for: size or checksum differ"))?;
    asked.unit = Some((unit.data, sums));
    Ok(())
}

/// Finishes the files that have both their data and the server's word.
fn settle(window: &mut VecDeque<Asked>, job: &Job<'_, FetchItem>) {
    let mut rest = VecDeque::with_capacity(window.len());
    for mut asked in window.drain(..) {
        let refused = asked.reply.as_ref().is_some_and(|reply| !reply.is_success());
        let result = match (&asked.reply, asked.unit.take()) {
            (Some(reply), _) if refused => {
                Err(ClientError::refused(&Command::Retr(asked.item.remote.clone()), reply.clone()))
            }
            (Some(_), Some((data, sums))) => write(&asked.item, &data, sums, job.how),
            (_, unit) => {
                asked.unit = unit;
                rest.push_back(asked);
                continue;
            }
        };
        job.told(asked.item, result);
    }
    *window = rest;
}

/// Writes a small file under a temporary name, then gives it its own.
fn write(item: &FetchItem, data: &[u8], sums: Sums, how: &How) -> Result<Moved> {
    let part = part_path(&item.local);
    fs::write(&part, data).map_err(ClientError::local("write", &part))?;
    if how.preserve
        && let Some(modified) = item.modified
    {
        set_modified(&part, modified.micros())?;
    }
    fs::rename(&part, &item.local).map_err(ClientError::local("rename to", &item.local))?;
    let verified = item.crc32c.map(|_| Algorithm::Crc32c);
    Ok(Moved { size_bytes: data.len() as u64, kept_bytes: 0, verified, sums: Some(sums) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn asked(name: &str, content: &[u8], told: bool) -> Asked {
        let item = FetchItem {
            remote: name.try_into().unwrap(),
            local: name.into(),
            size_bytes: Some(content.len() as u64),
            crc32c: told.then(|| Sums::of(content).crc32c),
            modified: None,
        };
        Asked { item, reply: None, unit: None }
    }

    fn unit(data: &[u8]) -> Unit {
        Unit { data: data.to_vec(), announced: Some(1), closes: false }
    }

    #[test]
    fn units_of_several_movers_find_their_files_in_any_order() {
        let mut window: VecDeque<Asked> =
            [asked("/a", b"aa", true), asked("/b", b"bb", true), asked("/c", b"aa", true)].into();
        for data in [b"bb", b"aa", b"aa"] {
            place(&mut window, unit(data)).unwrap();
        }
        let got: HashMap<&str, &[u8]> = window
            .iter()
            .map(|asked| (asked.item.remote.as_str(), asked.unit.as_ref().unwrap().0.as_slice()))
            .collect();
        assert_eq!(got, HashMap::from([("/a", &b"aa"[..]), ("/b", b"bb"), ("/c", b"aa")]));
    }

    #[test]
    fn data_of_no_file_that_was_asked_for_is_refused() {
        let mut window: VecDeque<Asked> = [asked("/a", b"aa", true), asked("/b", b"bbb", false)].into();
        assert!(place(&mut window, unit(b"ab")).is_err());
        assert!(place(&mut window, unit(b"")).is_err());
        assert!(place(&mut window, Unit { announced: Some(2), ..unit(b"aa") }).is_err());
        assert!(place(&mut window, unit(b"xyz")).is_ok());
    }
}
