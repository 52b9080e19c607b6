//! Downloads block by block: a request and an answer for each, as HPSS's `PDATA_AND_MOVER` had.
//!
//! Kept to be measured against, and for nothing else. HPSS's mover announced each block, the client answered with the
//! address and how much it could take, the block came, the mover said so. Here the client asks for each block
//! (`ERET P offset length`), the mover sends it over the connection of the block before, the server says so; only then
//! the next is asked for. Either way a block costs at least a round trip in which nothing flows, which is the point.
//!
//! # Source
//!
//! The order of messages is that of public clients of HPSS's mover protocol (SRB, iRODS); its framing is not public.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use wire::{
    extent::ByteRange,
    ftp::{Command, Part, Reply, TransferMode},
    mode_e::{HEADER_BYTES, Header},
};

use crate::{Client, ClientError, Fetch, How, Ready, Result, get::finish, receive::Receiving};

/// The connection over which blocks come.
struct Blocks {
    listener: TcpListener,
    open: Option<(BufReader<TcpStream>, SocketAddr)>,
    buffer: Vec<u8>,
}

impl Client<Ready> {
    /// Fetches what is missing of a file, [`How::block_bytes`] at a time.
    pub(crate) async fn get_by_handshake(
        &mut self,
        fetch: &Fetch,
        how: &How,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        if self.options.private_data {
            let reason = "with a handshake for each block, data goes in clear only: set prot clear".to_owned();
            return Err(ClientError::Identity { what: "protect data connections", reason });
        }
        let size = receiving.file.size_bytes();
        let bad = |reason: String| ClientError::BadData { peer: self.control.server().to_owned(), reason };
        let whole = ByteRange::between(0, size).map_err(|error| bad(error.to_string()))?;
        self.set_mode(TransferMode::Extended).await?;
        self.set_streams(1).await?;
        let mut listeners = self.listen(&[]).await?;
        let listener = listeners.pop().expect("one address was asked for");
        let mut blocks = Blocks { listener, open: None, buffer: vec![0; 256 << 10] };
        for missing in receiving.file.coverage().missing_in(whole) {
            let mut at = missing.offset();
            while at < missing.end() {
                let length = (missing.end() - at).min(how.block_bytes as u64);
                let part = Part { offset_bytes: at, length_bytes: length, path: fetch.remote.clone() };
                let command = Command::Eret(part);
                tokio::select! {
                    block = self.block(&command, at, length, &mut blocks, receiving) => block?,
                    // The control connection is out of step now, which is the end of this session's usefulness; a
                    // protocol to be measured needs no better.
                    () = cancel.cancelled() => return Err(ClientError::Cancelled),
                }
                at += length;
            }
        }
        Ok(())
    }

    /// One request, one block, one answer.
    async fn block(
        &mut self,
        command: &Command,
        offset: u64,
        length: u64,
        blocks: &mut Blocks,
        receiving: &Arc<Receiving>,
    ) -> Result<()> {
        self.control.queue(command);
        self.control.flush().await?;
        let limits = self.control.limits;
        let receive = async {
            match timeout(limits.begin, blocks.receive(offset, length, receiving)).await {
                Ok(received) => received,
                Err(_) => Err(blocks.broke(io::ErrorKind::TimedOut.into())),
            }
        };
        tokio::pin!(receive);
        let (mut last, mut received): (Option<Reply>, Option<Result<()>>) = (None, None);
        while last.is_none() || received.is_none() {
            tokio::select! {
                reply = self.control.reply("the block", limits.begin), if last.is_none() => {
                    let reply = reply?;
                    if !reply.is_preliminary() {
                        if !reply.is_success() {
                            return finish(command, Some(reply), received.and_then(Result::err));
                        }
                        last = Some(reply);
                    }
                }
                result = &mut receive, if received.is_none() => received = Some(result),
            }
        }
        finish(command, last, received.and_then(Result::err))
    }
}

impl Blocks {
    fn broke(&self, source: io::Error) -> ClientError {
        let peer = self.open.as_ref().map_or_else(|| "a mover".to_owned(), |(_, peer)| peer.to_string());
        ClientError::Data { doing: "receive from", peer, source }
    }

    /// Receives what was asked for, at offsets counted from `offset`, up to the end mark.
    async fn receive(&mut self, offset: u64, length: u64, receiving: &Arc<Receiving>) -> Result<()> {
        let asked = ByteRange::new(offset, length);
        let bad =
            |peer: &SocketAddr, reason: &str| ClientError::BadData { peer: peer.to_string(), reason: reason.into() };
        let mut got = 0;
        loop {
            let accepted = if self.open.is_none() { Some(self.listener.accept().await) } else { None };
            if let Some(accepted) = accepted {
                let (socket, peer) = accepted.map_err(|error| self.broke(error))?;
                let _ = socket.set_nodelay(true);
                self.open = Some((BufReader::with_capacity(64 << 10, socket), peer));
            }
            let (stream, peer) = self.open.as_mut().expect("opened above");
            let peer = *peer;
            let mut header = [0; HEADER_BYTES];
            if let Err(error) = stream.read_exact(&mut header).await {
                return Err(self.broke(error));
            }
            let decoded = Header::decode(&header);
            let header = decoded.map_err(|source| ClientError::ModeE { peer: peer.to_string(), source })?;
            let (end, close) = match header {
                Header::EndOfFile { end_of_data, close, .. } => (end_of_data, close),
                Header::Block { range, end_of_data, close } => {
                    if range.end() > length || asked.is_err() {
                        return Err(bad(&peer, "bytes that nobody asked for"));
                    }
                    got += range.length();
                    let mut at = offset + range.offset();
                    let end = offset + range.end();
                    while at < end {
                        let want =
                            usize::try_from(end - at).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
                        let (stream, _) = self.open.as_mut().expect("opened above");
                        if let Err(error) = stream.read_exact(&mut self.buffer[..want]).await {
                            return Err(self.broke(error));
                        }
                        receiving.file.write(at, &self.buffer[..want], &peer.to_string())?;
                        receiving.meter.moved(want as u64);
                        at += want as u64;
                    }
                    (end_of_data, close)
                }
            };
            if close {
                self.open = None;
            }
            if end {
                return if got == length { Ok(()) } else { Err(bad(&peer, "a block that is not whole")) };
            }
            if close {
                return Err(bad(&peer, "a connection that closes in the middle of a block"));
            }
        }
    }
}
