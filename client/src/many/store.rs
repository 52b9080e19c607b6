//! Sends small files: one session's part of many.
//!
//! A thread reads files ahead and adds up their sums; `SCKS` tells the server the sum before the file, so that it
//! publishes nothing else and no further question is needed.
//!
//! # Data ahead of the reply
//!
//! A server that commits file after file costs a session the time of a commit each. So once a file was stored with its
//! sum, data of the next ones follow their commands at once, and their commits overlap. If one of them is refused before
//! it was read, its bytes lie in the connection where the next file's should: the session is *astray*. Sums keep the
//! server from publishing them under the next name. The connection is dropped, every file whose bytes were on the way is
//! heard to its end, and those that were not stored are sent again, each after the server's 125 or 150, until one is
//! stored.
//!
//! Invariant: a file counts as stored only by its own 2yz, and data go ahead only of files whose sum the server knows.

use std::{collections::VecDeque, fs::File, io::Read as _, sync::Arc};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::{Algorithm, Sums},
    ftp::{Command, Reply, Text},
    mode_e::HEADER_BYTES,
};

use super::{
    Job, Leftover, SMALL_BYTES, StoreItem, Work,
    channel::{self, Channel},
    has_room,
};
use crate::{Client, ClientError, Moved, Ready, Result, data::Opening};

/// Files that are read before the session has room for them.
const READ_AHEAD: usize = 16;

/// A file that was read.
struct Loaded {
    item: StoreItem,
    content: Result<Content>,
}

/// What is sent of a file.
struct Content {
    block: Bytes,
    sums: Sums,
}

/// A file whose commands are sent.
struct Sent {
    item: StoreItem,
    content: Content,
    /// The server compares.
    with_sum: bool,
    given: Given,
}

/// How far the data of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// With us.
    No,
    /// In the connection, before the server said that it takes them.
    Ahead,
    /// In the connection, and the server takes them.
    Asked,
}

/// One session's files on their way.
struct Stream {
    window: VecDeque<Sent>,
    /// Those that are sent again.
    again: VecDeque<Sent>,
    channel: Option<Channel>,
    with_sum: bool,
    /// Data go ahead.
    bold: bool,
    /// What is in the connection is not what the server takes it for.
    astray: bool,
}

/// What the server said of a file.
enum Answer {
    Stored,
    Refused(Reply),
}

impl Client<Ready> {
    /// Sends files of the job until none is left or the session cannot go on.
    pub(super) async fn store_small(&mut self, job: &Job<'_, StoreItem>) -> Leftover<StoreItem> {
        let mut stream = Stream {
            window: VecDeque::new(),
            again: VecDeque::new(),
            channel: None,
            with_sum: job.how.verify && self.features.has("SCKS"),
            bold: false,
            astray: false,
        };
        let mut loaded = load(job.work.clone(), job.cancel.clone());
        let result = self.store_stream(&mut loaded, &mut stream, job).await;
        let mut left: Vec<StoreItem> = stream.window.into_iter().chain(stream.again).map(|sent| sent.item).collect();
        // What was read ahead and not sent.
        loaded.close();
        while let Some(unsent) = loaded.recv().await {
            left.push(unsent.item);
        }
        job.leave(result, left)
    }

    async fn store_stream(
        &mut self,
        loaded: &mut mpsc::Receiver<Loaded>,
        stream: &mut Stream,
        job: &Job<'_, StoreItem>,
    ) -> Result<()> {
        let mut more = true;
        loop {
            while !stream.astray && stream.has_room() {
                let Some(sent) = stream.next(loaded, &mut more, job).await else { break };
                // A new port would drop what is still on the way: only with nothing ahead.
                if stream.channel.is_none() && stream.window.is_empty() {
                    let address = self.passive_blocks().await?;
                    let opening = Opening::of(self);
                    stream.channel = Some(Channel::connect(&opening, address, self.control.limits.stall).await?);
                }
                self.queue_store(&sent)?;
                stream.window.push_back(sent);
            }
            if stream.window.is_empty() {
                if std::mem::take(&mut stream.astray) || more || !stream.again.is_empty() {
                    continue;
                }
                return Ok(());
            }
            stream.give_ahead();
            self.control.flush().await?;
            let answer = self.answer_of_first(stream, job.cancel).await?;
            stream.settle(answer, job)?;
        }
    }

    fn queue_store(&mut self, sent: &Sent) -> Result<()> {
        if sent.with_sum {
            let value = Text::new(format!("{:08x}", sent.content.sums.crc32c))?;
            self.control.queue(&Command::Scks { algorithm: Algorithm::Crc32c, value });
        }
        self.control.queue(&Command::Stor(sent.item.remote.clone()));
        Ok(())
    }

    /// Takes the first file of the window through its replies. An error ends the session's work.
    async fn answer_of_first(&mut self, stream: &mut Stream, cancel: &CancellationToken) -> Result<Answer> {
        if stream.first().with_sum {
            let reply = loop {
                let reply = self.reply_while_sending(stream, cancel).await?;
                if !reply.is_preliminary() {
                    break reply;
                }
            };
            if !reply.is_success() {
                // A refusal only means that nobody compares; then nothing may go ahead.
                stream.with_sum = false;
                stream.bold = false;
                stream.first().with_sum = false;
                if stream.window.iter().any(|sent| sent.given == Given::Ahead) {
                    stream.go_astray("the server does not take sums any more");
                }
            }
        }
        loop {
            let reply = self.reply_while_sending(stream, cancel).await?;
            match reply.code() {
                125 | 150 => stream.give_first(),
                100..200 => {}
                _ if reply.is_success() => return Ok(Answer::Stored),
                _ => return Ok(Answer::Refused(reply)),
            }
        }
    }

    /// The next reply; sends data meanwhile, so that neither side waits for the other.
    async fn reply_while_sending(&mut self, stream: &mut Stream, cancel: &CancellationToken) -> Result<Reply> {
        let limit = self.control.limits.begin;
        loop {
            let unsent = stream.channel.as_mut().filter(|channel| channel.has_unsent());
            let sends = unsent.is_some();
            let sending = async {
                match unsent {
                    Some(channel) => channel.send().await,
                    None => Ok(()),
                }
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ClientError::Cancelled),
                // The server says what it means for each file.
                sent = sending, if sends => if let Err(error) = sent { stream.go_astray(&error.chain()) },
                reply = self.control.reply("the transfer", limit) => return reply,
            }
        }
    }
}

impl Stream {
    /// The file to send next; `None` if there is none now. `more` says whether one may come.
    async fn next(
        &mut self,
        loaded: &mut mpsc::Receiver<Loaded>,
        more: &mut bool,
        job: &Job<'_, StoreItem>,
    ) -> Option<Sent> {
        if let Some(sent) = self.again.pop_front() {
            return Some(sent);
        }
        while *more {
            let idle = self.window.is_empty();
            let Some(Loaded { item, content }) = (if idle { loaded.recv().await } else { loaded.try_recv().ok() })
            else {
                *more = !idle && !loaded.is_closed();
                break;
            };
            match content {
                Ok(content) => return Some(Sent { item, content, with_sum: self.with_sum, given: Given::No }),
                Err(error) => job.told(item, Err(error)),
            }
        }
        None
    }

    /// Whether another file may be sent ahead.
    fn has_room(&self) -> bool {
        has_room(self.window.iter().map(|sent| sent.item.size_bytes))
    }

    fn first(&mut self) -> &mut Sent {
        self.window.front_mut().expect("a file is in the window")
    }

    /// The server takes the data of the first file.
    fn give_first(&mut self) {
        let Self { window, channel, .. } = self;
        let Some(first) = window.front_mut() else { return };
        if let (Given::No, Some(channel)) = (first.given, channel) {
            channel.put(first.content.block.clone());
        }
        first.given = Given::Asked;
    }

    /// Gives data of all files in the window to the connection, if they may go ahead.
    fn give_ahead(&mut self) {
        let Self { window, channel: Some(channel), bold: true, .. } = self else { return };
        for sent in window.iter_mut().filter(|sent| sent.given == Given::No) {
            channel.put(sent.content.block.clone());
            sent.given = Given::Ahead;
        }
    }

    /// Drops the connection, and goes on carefully once everything in the window is answered.
    fn go_astray(&mut self, why: &str) {
        tracing::debug!(why, "data connection dropped");
        self.channel = None;
        self.bold = false;
        self.astray = true;
    }

    /// Takes the first file, which was answered, out of the window.
    fn settle(&mut self, answer: Answer, job: &Job<'_, StoreItem>) -> Result<()> {
        let Some(mut sent) = self.window.pop_front() else { return Ok(()) };
        let reply = match answer {
            Answer::Stored => {
                self.bold = sent.with_sum && !self.astray;
                let verified = sent.with_sum.then_some(Algorithm::Crc32c);
                let size_bytes = sent.item.size_bytes;
                let moved = Moved { size_bytes, kept_bytes: 0, verified, sums: Some(sent.content.sums) };
                job.told(sent.item, Ok(moved));
                return Ok(());
            }
            Answer::Refused(reply) => reply,
        };
        // A connection that broke takes what is ahead of it along.
        let broke = matches!(reply.code(), 425 | 426);
        let ahead = sent.given == Given::Ahead || self.window.iter().any(|sent| sent.given == Given::Ahead);
        if self.astray || (broke && ahead) {
            self.go_astray("the server lost it");
            sent.given = Given::No;
            self.again.push_back(sent);
            return Ok(());
        }
        let refused = ClientError::refused(&Command::Stor(sent.item.remote.clone()), reply);
        if broke {
            self.window.push_front(sent);
            return Err(refused);
        }
        if sent.given == Given::Ahead {
            self.go_astray("a file was refused whose data were on the way");
        }
        job.told(sent.item, Err(refused));
        Ok(())
    }
}

/// Reads files ahead, in a thread of its own.
fn load(work: Arc<Work<StoreItem>>, cancel: CancellationToken) -> mpsc::Receiver<Loaded> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || {
        while !cancel.is_cancelled() && !sender.is_closed() {
            let Some(mut item) = work.take() else { return };
            let content = read(&mut item);
            if let Err(unsent) = sender.blocking_send(Loaded { item, content }) {
                work.put_back(unsent.0.item);
                return;
            }
        }
    });
    receiver
}

/// Reads a file and its size.
fn read(item: &mut StoreItem) -> Result<Content> {
    let read = || {
        let file = File::open(&item.local)?;
        let mut buffer = Vec::with_capacity(HEADER_BYTES + item.size_bytes as usize + HEADER_BYTES);
        buffer.resize(HEADER_BYTES, 0);
        file.take(SMALL_BYTES + 1).read_to_end(&mut buffer)?;
        Ok(buffer)
    };
    let buffer = read().map_err(ClientError::local("read", &item.local))?;
    if buffer.len() as u64 > HEADER_BYTES as u64 + SMALL_BYTES {
        return Err(ClientError::Changed { path: item.local.clone() });
    }
    item.size_bytes = (buffer.len() - HEADER_BYTES) as u64;
    let sums = Sums::of(&buffer[HEADER_BYTES..]);
    Ok(Content { block: channel::block(buffer), sums })
}
