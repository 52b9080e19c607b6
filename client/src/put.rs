//! Uploads of single files, striped over the movers that the server names.
//!
//! Owns one transfer from its command to the compared sums. Talks to the server on the control connection, and to sending
//! threads. We always connect, so a firewall around us does not matter.

use std::{
    fs::{File, Metadata},
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage},
    ftp::{Command, FtpPath, FtpTime, Reply, RestartPoint, TransferMode},
};

use crate::{
    Client, ClientError, How, Meter, Moved, Ready, Result,
    data::{DataStream, Opening},
    get::{Watch, finish},
    runs::Runs,
    send::{Queue, Sending},
};

/// Movers' regions begin at multiples of this.
const REGION_UNIT_BYTES: u64 = 1 << 20;

/// Most ranges that a `REST` line can carry.
const MAX_REST_RANGES: usize = 180;

/// One file to send.
#[derive(Debug, Clone)]
pub struct Push {
    /// The local file.
    pub local: PathBuf,
    /// Its name on the server.
    pub remote: FtpPath,
}

impl Client<Ready> {
    /// Sends one file. With [`How::resume`], only what the server does not hold of a cut upload is sent; the sums of the
    /// whole are compared all the same.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`]; a server with Penstock's extension keeps what came of a cut upload.
    pub async fn put(&mut self, push: &Push, how: &How, meter: &Meter, cancel: &CancellationToken) -> Result<Moved> {
        let (how, begun) = (&self.with_streams(how), std::time::Instant::now());
        let file = File::open(&push.local).map_err(ClientError::local("open", &push.local))?;
        let before = file.metadata().map_err(ClientError::local("open", &push.local))?;
        if !before.is_file() {
            let source = std::io::Error::other("not a regular file");
            return Err(ClientError::local("send", &push.local)(source));
        }
        let size_bytes = before.len();
        let whole = ByteRange::between(0, size_bytes)
            .map_err(|error| ClientError::local("send", &push.local)(std::io::Error::other(error)))?;
        let have = if how.resume { bounded(&self.partial(&push.remote).await?, whole) } else { Coverage::new() };
        let kept_bytes = have.bytes();
        meter.moved(kept_bytes);
        let verify = how.verify && self.state.algorithm.is_some();
        let sending = Arc::new(Sending {
            file,
            path: push.local.clone(),
            block_bytes: how.block_bytes,
            meter: meter.clone(),
            sums: verify.then(|| Mutex::new(Runs::new())),
        });
        // What was sent before is read once more, beside the transfer, for the sums of the whole.
        let reading = (verify && kept_bytes > 0).then(|| read_kept(&sending, &have));
        self.send(push, how, &sending, whole, &have, cancel).await?;
        self.note_rate(size_bytes - kept_bytes, how.streams, begun.elapsed());
        if let Some(reading) = reading {
            reading.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        }
        let after = sending.file.metadata().map_err(ClientError::local("read", &push.local))?;
        if changed(&before, &after) {
            return Err(ClientError::Changed { path: push.local.clone() });
        }
        if how.preserve {
            let time = FtpTime::from_seconds(before.mtime());
            // Not every server sets times; the bytes are there.
            self.ask(&Command::Mfmt { time, path: push.remote.clone() }).await?;
        }
        let sums = sending
            .sums
            .as_ref()
            .and_then(|sums| sums.lock().unwrap_or_else(PoisonError::into_inner).whole(size_bytes));
        let verified = self.compare(&push.remote, sums).await?;
        Ok(Moved { size_bytes, kept_bytes, verified, sums })
    }

    /// Compares the sums of what was sent with the server's catalogue.
    async fn compare(&mut self, remote: &FtpPath, sums: Option<Sums>) -> Result<Option<wire::checksum::Algorithm>> {
        let Some(sums) = sums else { return Ok(None) };
        let Some((algorithm, there)) = self.known_sum(remote).await? else { return Ok(None) };
        match sums.hex(algorithm) {
            Some(here) if here != there => {
                let next = "the file on the server is not the local one: put it again";
                let name = remote.to_string();
                Err(ClientError::Mismatch { name, algorithm: algorithm.name(), here, there, next })
            }
            _ => Ok(Some(algorithm)),
        }
    }

    async fn send(
        &mut self,
        push: &Push,
        how: &How,
        sending: &Arc<Sending>,
        whole: ByteRange,
        have: &Coverage,
        cancel: &CancellationToken,
    ) -> Result<()> {
        // A file of one block is not worth a stripe.
        let addresses = self.upload_addresses(whole.length(), whole.length() > how.block_bytes as u64).await?;
        if have.bytes() > 0 {
            self.restart(RestartPoint::Ranges(have.clone())).await?;
        }
        let command = Command::Stor(push.remote.clone());
        self.control.queue(&command);
        self.control.flush().await?;
        let opening = Opening::of(self);
        let plan = Plan::new(&addresses, whole, have, how);
        let connecting = plan.connect(&opening);
        let first = self.control.reply("the transfer", self.control.limits.begin).await;
        let first = first.inspect_err(|_| opening.stops.stop())?;
        if !first.is_preliminary() {
            opening.stops.stop();
            return Err(ClientError::refused(&command, first));
        }
        let senders = plan.start(connecting, sending);
        self.follow(&command, senders, &opening, &sending.meter, cancel).await
    }

    /// Waits for the sending threads and for the server's last word.
    pub(crate) async fn follow(
        &mut self,
        command: &Command,
        senders: Vec<Sender>,
        opening: &Opening,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let mut senders: FuturesUnordered<Sender> = senders.into_iter().collect();
        let mut kept = Vec::new();
        let mut failure: Option<ClientError> = None;
        let mut last: Option<Reply> = None;
        let stall = self.control.limits.stall;
        let mut watch = Watch::new(meter.clone(), stall, stall);
        while last.is_none() {
            tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin) => {
                    let reply = reply.inspect_err(|_| opening.stops.stop())?;
                    if !reply.is_preliminary() {
                        last = Some(reply);
                    }
                }
                Some(sent) = senders.next() => {
                    match sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
                        Ok(stream) => kept.push(stream),
                        Err(error) => {
                            // The server answers when it sees its connections break.
                            opening.stops.stop();
                            failure.get_or_insert(error);
                            watch.limit(std::time::Duration::from_secs(30));
                        }
                    }
                }
                () = watch.stalled() => break,
                () = cancel.cancelled(), if failure.is_none() => {
                    failure = Some(ClientError::Cancelled);
                    break;
                }
            }
        }
        meter.connections(opening.stops.figures());
        let refused = last.as_ref().is_none_or(|reply| !reply.is_success());
        if refused {
            opening.stops.stop();
        }
        while let Some(sent) = senders.next().await {
            if let Ok(Err(error)) = sent {
                failure.get_or_insert(error);
            }
        }
        if last.is_none() {
            let limit = self.control.limits.stall;
            failure.get_or_insert_with(|| ClientError::Timeout {
                server: self.control.server().to_owned(),
                awaited: "it to take our data".to_owned(),
                limit,
            });
            self.abort().await?;
        }
        drop(kept);
        finish(command, last, failure)
    }

    /// Adds a file to the end of one on the server, over one connection.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`].
    pub async fn append(&mut self, push: &Push, how: &How, meter: &Meter, cancel: &CancellationToken) -> Result<Moved> {
        let file = File::open(&push.local).map_err(ClientError::local("open", &push.local))?;
        let size_bytes = file.metadata().map_err(ClientError::local("open", &push.local))?.len();
        let whole = ByteRange::between(0, size_bytes)
            .map_err(|error| ClientError::local("send", &push.local)(std::io::Error::other(error)))?;
        self.set_mode(TransferMode::Stream).await?;
        let address = self.passive_now().await?;
        let command = Command::Appe(push.remote.clone());
        self.control.queue(&command);
        self.control.flush().await?;
        let opening = Opening::of(self);
        let connecting = {
            let opening = opening.clone();
            tokio::task::spawn_blocking(move || opening.connect(address))
        };
        let first = self.control.reply("the transfer", self.control.limits.begin).await?;
        if !first.is_preliminary() {
            opening.stops.stop();
            return Err(ClientError::refused(&command, first));
        }
        let (path, meter) = (push.local.clone(), meter.clone());
        let sending = Arc::new(Sending { file, path, block_bytes: how.block_bytes, meter: meter.clone(), sums: None });
        let sender = tokio::spawn(async move {
            let stream = connecting.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            let sent = tokio::task::spawn_blocking(move || sending.range(stream, whole)).await;
            sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        });
        self.follow(&command, vec![sender], &opening, &meter, cancel).await?;
        Ok(Moved { size_bytes, kept_bytes: 0, verified: None, sums: None })
    }
}

/// A connection on its way, then a thread that sends over it; gives the connection back.
pub(crate) type Sender = tokio::task::JoinHandle<Result<DataStream>>;

/// Who gets which bytes over how many connections.
struct Plan {
    shares: Vec<(SocketAddr, Arc<Queue>, u64)>,
}

impl Plan {
    fn new(addresses: &[SocketAddr], whole: ByteRange, have: &Coverage, how: &How) -> Self {
        let count = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
        let regions = whole.regions(count, REGION_UNIT_BYTES);
        let share = |(index, address): (usize, &SocketAddr)| {
            // A mover for which nothing is left still must be told so.
            let missing = regions.get(index).map(|region| have.missing_in(*region)).unwrap_or_default();
            let blocks: u64 = missing.iter().map(|range| range.length().div_ceil(how.block_bytes as u64)).sum();
            let streams = blocks.clamp(1, u64::from(how.streams.max(1)));
            (*address, Arc::new(Queue::new(missing)), streams)
        };
        Self { shares: addresses.iter().enumerate().map(share).collect() }
    }

    /// Opens all connections, while the server looks at the command.
    fn connect(&self, opening: &Opening) -> Vec<tokio::task::JoinHandle<Result<DataStream>>> {
        let streams = self.shares.iter().flat_map(|(address, _, streams)| (0..*streams).map(|_| *address));
        let connect = |address| {
            let opening = opening.clone();
            tokio::task::spawn_blocking(move || opening.connect(address))
        };
        streams.map(connect).collect()
    }

    /// Starts the sending threads.
    fn start(self, connecting: Vec<Sender>, sending: &Arc<Sending>) -> Vec<Sender> {
        let mut connecting = connecting.into_iter();
        let mut senders = Vec::new();
        for (_, queue, streams) in self.shares {
            for index in 0..streams {
                let Some(stream) = connecting.next() else { break };
                let (queue, sending) = (queue.clone(), sending.clone());
                let announce = (index == 0).then_some(streams);
                senders.push(tokio::spawn(async move {
                    let stream = stream.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
                    let sent = tokio::task::spawn_blocking(move || sending.blocks(stream, &queue, announce)).await;
                    sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
                }));
            }
        }
        senders
    }
}

/// What of a cut upload is kept: inside the file, and so many ranges as a line can carry.
fn bounded(have: &Coverage, whole: ByteRange) -> Coverage {
    let mut ranges: Vec<ByteRange> = have.ranges().filter_map(|range| range.intersection(whole)).collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.length()));
    ranges.truncate(MAX_REST_RANGES);
    let mut kept = Coverage::new();
    for range in ranges {
        // They were separate in `have`.
        let _ = kept.merge(range);
    }
    kept
}

fn read_kept(sending: &Arc<Sending>, have: &Coverage) -> tokio::task::JoinHandle<Result<()>> {
    let (sending, have) = (sending.clone(), have.clone());
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; sending.block_bytes];
        for range in have.ranges() {
            let count = range.length().div_ceil(sending.block_bytes as u64);
            let mut at = range.offset();
            for _ in 0..count {
                let end = range.end().min(at + sending.block_bytes as u64);
                let block = ByteRange::between(at, end).expect("inside a range that was valid");
                sending.read(block, &mut buffer[..block.length() as usize])?;
                at = end;
            }
        }
        Ok(())
    })
}

fn changed(before: &Metadata, after: &Metadata) -> bool {
    before.len() != after.len() || (before.mtime(), before.mtime_nsec()) != (after.mtime(), after.mtime_nsec())
}
