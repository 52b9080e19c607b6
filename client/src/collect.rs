//! One file over MODE E connections, whoever makes them: the movers to us, or we to the movers.
//!
//! Owns one transfer from its command to the last byte. Talks to the server on the control connection, and to receiving
//! threads. Never knows what the file is for.
//!
//! *Push*: we listen, at several addresses if this machine has them (SPOR), and the movers connect as often as we asked
//! for. *Pull*, for clients that cannot be connected to:
//! the server names every mover that holds a part of the file once it knows which (a delayed SPAS, reply 129), and we
//! connect to each as often as we like. Either way bytes come straight from where they are, and a file striped over
//! movers is not relayed.

use std::{collections::HashSet, net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};

use futures::future::{FutureExt as _, select_all};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wire::ftp::{Command, CommandOption, Reply, RestartPoint};

use crate::{
    Client, ClientError, Fetch, How, Ready, Result,
    data::{DataStream, Opening},
    get::{Watch, finish, parallelism},
    receive::{Receiving, Source},
};

/// How often what has come is made durable, so that a killed client can go on.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How long after the last reply the last bytes may take from the sockets to the file, while they still move.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// How long connections may go on when the transfer has failed: what they hold is kept.
const GRACE: Duration = Duration::from_secs(5);

/// Most data connections of one transfer.
const MAX_CONNECTIONS: usize = 1024;

/// The connections of one transfer, each received by a thread of its own.
struct Connections {
    opening: Opening,
    receiving: Arc<Receiving>,
    ended: mpsc::Sender<Result<()>>,
    made: usize,
    running: usize,
}

impl Connections {
    fn room(&self) -> bool {
        self.made < MAX_CONNECTIONS
    }

    /// Receives over a connection that `open` makes.
    fn add(&mut self, source: Source, open: impl FnOnce(&Opening) -> Result<DataStream> + Send + 'static) {
        self.made += 1;
        self.running += 1;
        let (opening, receiving, ended) = (self.opening.clone(), self.receiving.clone(), self.ended.clone());
        tokio::task::spawn_blocking(move || {
            let result = open(&opening).and_then(|stream| receiving.blocks(stream, source, opening.stall_limit));
            let _ = ended.blocking_send(result);
        });
    }

    /// Connects to movers that we are not connected to yet.
    fn connect(&mut self, addresses: &[SocketAddr], known: &mut HashSet<SocketAddr>, streams: u64) {
        self.receiving.expect(addresses.iter().map(|address| Source::At(*address)));
        for address in addresses.iter().filter(|address| known.insert(**address)) {
            let address = *address;
            for _ in (0..streams).take(MAX_CONNECTIONS.saturating_sub(self.made)) {
                self.add(Source::At(address), move |opening| opening.connect(address));
            }
        }
    }
}

impl Client<Ready> {
    /// Receives what is missing of one file.
    pub(crate) async fn collect(
        &mut self,
        fetch: &Fetch,
        how: &How,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let listeners = if how.passive {
            self.delay_stripes().await?;
            Vec::new()
        } else {
            self.invite(how.streams, &how.listen).await?
        };
        receiving.expect((0..listeners.len()).map(Source::Here));
        let have = receiving.file.coverage();
        let missing = receiving.file.size_bytes().saturating_sub(have.bytes());
        if have.bytes() > 0 {
            self.restart(RestartPoint::Ranges(have)).await?;
        }
        let command = Command::Retr(fetch.remote.clone());
        self.control.queue(&command);
        self.control.flush().await?;

        let (ended, mut ends) = mpsc::channel::<Result<()>>(MAX_CONNECTIONS);
        let opening = Opening::of(self);
        let stops = opening.stops.clone();
        let mut connections = Connections { opening, receiving: receiving.clone(), ended, made: 0, running: 0 };
        let mut known = HashSet::new();
        let mut last: Option<Reply> = None;
        let mut begun = false;
        let mut failure: Option<ClientError> = None;
        let limits = self.control.limits;
        // Before the first byte a file may have to come from tape.
        let mut watch = Watch::new(receiving.meter.clone(), limits.begin, limits.stall);
        let mut save = tokio::time::interval_at(Instant::now() + SAVE_EVERY, SAVE_EVERY);
        save.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(reply) = &last
                && (receiving.is_whole() || failure.is_some() || !reply.is_success())
            {
                break;
            }
            tokio::select! {
                reply = self.control.reply("the transfer", limits.begin), if last.is_none() => {
                    let reply = reply.inspect_err(|_| stops.stop())?;
                    if reply.code() == 129 && how.passive {
                        let addresses = reply.striped_addresses().inspect_err(|_| stops.stop())?;
                        let streams = streams(missing, addresses.len(), how);
                        connections.connect(&addresses, &mut known, streams);
                    } else if reply.is_preliminary() {
                        begun = true;
                    } else {
                        watch.limit(DRAIN_LIMIT);
                        last = Some(reply);
                    }
                }
                (number, accepted) = accept(&listeners), if connections.room() && failure.is_none() => {
                    // A connection that is gone again before it was accepted is none of ours.
                    let Ok((socket, address)) = accepted else { continue };
                    let Ok(socket) = socket.into_std() else { continue };
                    connections.add(Source::Here(number), move |opening| opening.protect(socket, address));
                }
                Some(result) = ends.recv() => {
                    connections.running -= 1;
                    if let Err(error) = result {
                        // The others may still bring what is already on its way; the server will say why.
                        if !matches!(error, ClientError::Data { .. }) {
                            stops.stop();
                        }
                        watch.limit(GRACE);
                        failure.get_or_insert(error);
                    }
                }
                _ = save.tick() => {
                    let file = receiving.file.clone();
                    tokio::task::spawn_blocking(move || file.save());
                }
                () = watch.stalled(), if begun || last.is_some() => {
                    let limit = watch.at_most();
                    stops.stop();
                    if last.is_none() {
                        failure.get_or_insert_with(|| ClientError::Timeout {
                            server: self.control.server().to_owned(),
                            awaited: "data from its movers".to_owned(),
                            limit,
                        });
                    }
                    break;
                }
                () = cancel.cancelled(), if failure.is_none() => {
                    failure = Some(ClientError::Cancelled);
                    stops.stop();
                    break;
                }
            }
        }
        drop(listeners);
        if receiving.is_whole() {
            // Connections that the movers had no use for.
            stops.stop();
        }
        let grace = Instant::now() + GRACE;
        // What the sockets hold of a cut transfer need not be sent again.
        while connections.running > 0 && !matches!(failure, Some(ClientError::Cancelled)) {
            match tokio::time::timeout_at(grace, ends.recv()).await {
                Ok(Some(_)) => connections.running -= 1,
                _ => break,
            }
        }
        stops.stop();
        while connections.running > 0 && ends.recv().await.is_some() {
            connections.running -= 1;
        }
        receiving.meter.connections(stops.figures());
        if last.is_none() {
            self.abort().await?;
        }
        finish(&command, last, failure)
    }

    /// Listens at these addresses, or where the server knows us, and says in one flight how and where: over a long path
    /// each command by itself would cost a round trip.
    pub(crate) async fn invite(&mut self, streams: u16, at: &[IpAddr]) -> Result<Vec<TcpListener>> {
        let (listeners, where_we_are) = self.listeners(at)?;
        let mut flight = self.blocks_wanted();
        if self.state.streams != streams {
            // A server that does not know it opens as many as it likes.
            flight.push((Command::Opts(parallelism(streams)), false));
        }
        flight.push((where_we_are, true));
        self.together(&flight).await?;
        self.state.streams = streams;
        Ok(listeners)
    }

    /// Asks the server, in one flight, to name all movers that hold a file when it is asked for, over MODE E.
    pub(crate) async fn delay_stripes(&mut self) -> Result<()> {
        let mut flight = self.blocks_wanted();
        if !self.state.stripes {
            flight.push((Command::Opts(CommandOption::AllowDelayedStripes(true)), true));
        }
        let command = Command::Spas { extended: self.control.peer.is_ipv6() };
        flight.push((command.clone(), true));
        let reply = self.together(&flight).await?.pop();
        self.state.stripes = true;
        match reply {
            // What is told now is told before the file is known: it would be another mover's.
            Some(reply) if reply.code() != 200 => Err(ClientError::refused(&command, reply)),
            _ => Ok(()),
        }
    }
}

/// How many connections to each mover are worth their handshakes.
fn streams(missing_bytes: u64, movers: usize, how: &How) -> u64 {
    let share = missing_bytes / movers.max(1) as u64;
    share.div_ceil(how.block_bytes.max(1) as u64).clamp(1, u64::from(how.streams.max(1)))
}

/// The next connection, and at which of our addresses. Cancel-safe.
async fn accept(listeners: &[TcpListener]) -> (usize, std::io::Result<(TcpStream, SocketAddr)>) {
    if listeners.is_empty() {
        return std::future::pending().await;
    }
    let (accepted, number, _) = select_all(listeners.iter().map(|listener| listener.accept().boxed())).await;
    (number, accepted)
}
