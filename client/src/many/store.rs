//! Sends small files: one session's part of many.
//!
//! A thread reads files ahead and adds up their sums; `SCKS` tells the server the sum before the file, so that it
//! publishes nothing else and no further question is needed. Data follows the server's 125 or 150, never earlier: bytes
//! of a refused file would be taken for the next one's.

use std::{collections::VecDeque, fs::File, io::Read as _, sync::Arc};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::{Algorithm, Sums},
    ftp::{Command, Text, TransferMode},
    mode_e::HEADER_BYTES,
};

use super::{AHEAD, Job, Leftover, SMALL_BYTES, StoreItem, Work, channel::Channel};
use crate::{Client, ClientError, Moved, Ready, Result, data::Opening};

/// A file that was read: room for a header, then its bytes.
struct Loaded {
    item: StoreItem,
    content: Result<(Vec<u8>, Sums)>,
}

/// A file whose commands are sent.
struct Sent {
    item: StoreItem,
    buffer: Vec<u8>,
    sums: Sums,
    with_sum: bool,
}

impl Client<Ready> {
    /// Sends files of the job until none is left or the session cannot go on.
    pub(super) async fn store_small(&mut self, job: &Job<'_, StoreItem>) -> Leftover<StoreItem> {
        let mut window = VecDeque::new();
        let mut loaded = load(job.work.clone(), job.cancel.clone());
        let result = self.store_window(&mut loaded, &mut window, job).await;
        let mut left: Vec<StoreItem> = window.into_iter().map(|sent: Sent| sent.item).collect();
        // What was read ahead and not sent.
        loaded.close();
        while let Some(unsent) = loaded.recv().await {
            left.push(unsent.item);
        }
        job.leave(result, left)
    }

    async fn store_window(
        &mut self,
        loaded: &mut mpsc::Receiver<Loaded>,
        window: &mut VecDeque<Sent>,
        job: &Job<'_, StoreItem>,
    ) -> Result<()> {
        self.set_mode(TransferMode::Extended).await?;
        let with_sum = job.how.verify && self.features.has("SCKS");
        let mut channel: Option<Channel> = None;
        let mut more = true;
        loop {
            while more && window.len() < AHEAD {
                let next = if window.is_empty() { loaded.recv().await } else { loaded.try_recv().ok() };
                let Some(Loaded { item, content }) = next else {
                    more = !window.is_empty() && !loaded.is_closed();
                    break;
                };
                match content {
                    Ok((buffer, sums)) => {
                        // A new port would drop what is still on the way: only with nothing ahead.
                        if channel.is_none() && window.is_empty() {
                            let address = self.passive_now().await?;
                            let opening = Opening::of(self);
                            channel = Some(Channel::connect(&opening, address, self.control.limits.stall).await?);
                        }
                        window.push_back(Sent { item, buffer, sums, with_sum });
                        self.queue_store(window.back().expect("pushed just now"))?;
                    }
                    Err(error) => job.told(item, Err(error)),
                }
            }
            if window.is_empty() {
                if more { continue } else { return Ok(()) }
            }
            self.control.flush().await?;
            if job.cancel.is_cancelled() {
                return Err(ClientError::Cancelled);
            }
            let connected = channel.as_mut().expect("opened before the first command");
            let stored = self.store_one(connected, window, job.cancel).await?;
            let sent = window.pop_front().expect("the one that was stored");
            let verified = sent.with_sum.then_some(Algorithm::Crc32c);
            let size_bytes = sent.item.size_bytes;
            let moved = stored.map(|()| Moved { size_bytes, kept_bytes: 0, verified, sums: Some(sent.sums) });
            job.told(sent.item, moved);
        }
    }

    fn queue_store(&mut self, sent: &Sent) -> Result<()> {
        if sent.with_sum {
            let value = Text::new(format!("{:08x}", sent.sums.crc32c))?;
            self.control.queue(&Command::Scks { algorithm: Algorithm::Crc32c, value });
        }
        self.control.queue(&Command::Stor(sent.item.remote.clone()));
        Ok(())
    }

    /// Takes the first file of the window through its replies. The outer error ends the session's work; the inner one is
    /// the file's.
    async fn store_one(
        &mut self,
        channel: &mut Channel,
        window: &mut VecDeque<Sent>,
        cancel: &CancellationToken,
    ) -> Result<Result<()>> {
        let sent = window.front_mut().expect("a file is in the window");
        let command = Command::Stor(sent.item.remote.clone());
        if sent.with_sum {
            // A refusal only means that nobody checks.
            let reply = self.control.last_reply("SCKS", self.control.limits.reply).await?;
            sent.with_sum = reply.is_success();
        }
        loop {
            let reply = tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin) => reply?,
                () = cancel.cancelled() => return Err(ClientError::Cancelled),
            };
            match reply.code() {
                125 | 150 => {
                    let buffer = std::mem::take(&mut sent.buffer);
                    if buffer.is_empty() {
                        continue;
                    }
                    channel.send(buffer).await?;
                }
                100..200 => {}
                _ if reply.is_success() => return Ok(Ok(())),
                // A connection that broke takes what is ahead of it along.
                425 | 426 => return Err(ClientError::refused(&command, reply)),
                _ => return Ok(Err(ClientError::refused(&command, reply))),
            }
        }
    }
}

/// Reads files ahead, in a thread of its own.
fn load(work: Arc<Work<StoreItem>>, cancel: CancellationToken) -> mpsc::Receiver<Loaded> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        while !cancel.is_cancelled() && !sender.is_closed() {
            let Some(item) = work.take() else { return };
            let content = read(&item);
            let mut item = item;
            if let Ok((buffer, _)) = &content {
                item.size_bytes = (buffer.len() - HEADER_BYTES) as u64;
            }
            if let Err(unsent) = sender.blocking_send(Loaded { item, content }) {
                work.put_back(unsent.0.item);
                return;
            }
        }
    });
    receiver
}

fn read(item: &StoreItem) -> Result<(Vec<u8>, Sums)> {
    let failed = |error| ClientError::local("read", &item.local)(error);
    let file = File::open(&item.local).map_err(failed)?;
    let mut buffer = Vec::with_capacity(HEADER_BYTES + item.size_bytes as usize + HEADER_BYTES);
    buffer.resize(HEADER_BYTES, 0);
    let failed = |error| ClientError::local("read", &item.local)(error);
    file.take(SMALL_BYTES + 1).read_to_end(&mut buffer).map_err(failed)?;
    if buffer.len() as u64 > HEADER_BYTES as u64 + SMALL_BYTES {
        return Err(ClientError::Changed { path: item.local.clone() });
    }
    let sums = Sums::of(&buffer[HEADER_BYTES..]);
    Ok((buffer, sums))
}
