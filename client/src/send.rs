//! Sends blocks: from one file over the data connections of one transfer.
//!
//! Owns the queue of what is still to be sent to one mover. Runs in threads and blocks. Never decides who gets what.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use wire::{
    checksum::Sums,
    extent::ByteRange,
    mode_e::{HEADER_BYTES, Header},
};

use crate::{ClientError, Meter, Result, data::DataStream, runs::Runs};

/// A file that is being sent, shared by all its connections.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) block_bytes: usize,
    pub(crate) meter: Meter,
    /// Sums of what was sent; `None` if nobody will compare them, and then `sendfile` carries the blocks.
    pub(crate) sums: Option<Mutex<Runs>>,
}

/// What one mover still gets, block by block, over any of its connections.
#[derive(Debug)]
pub(crate) struct Queue(Mutex<Vec<ByteRange>>);

impl Queue {
    /// The ranges in order.
    pub(crate) fn new(mut ranges: Vec<ByteRange>) -> Self {
        ranges.reverse();
        Self(Mutex::new(ranges))
    }

    /// Takes at most `bytes` off the front.
    fn take(&self, bytes: u64) -> Option<ByteRange> {
        let mut ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ranges.pop()?;
        let end = first.end().min(first.offset().saturating_add(bytes));
        let within = "inside a range that was valid";
        if end < first.end() {
            ranges.push(ByteRange::between(end, first.end()).expect(within));
        }
        Some(ByteRange::between(first.offset(), end).expect(within))
    }
}

impl Sending {
    /// Sends blocks of the queue until it is empty, and then the end mark. `announce` says how many connections the
    /// mover gets in all, on one of them. Gives the connection back, to be kept until the server has everything.
    pub(crate) fn blocks(
        &self,
        mut stream: DataStream,
        queue: &Arc<Queue>,
        announce: Option<u64>,
    ) -> Result<DataStream> {
        let peer = stream.peer();
        let broke = |source| ClientError::Data { doing: "send to", peer: peer.clone(), source };
        let mut buffer = vec![0; HEADER_BYTES + self.block_bytes];
        while let Some(range) = queue.take(self.block_bytes as u64) {
            buffer[..HEADER_BYTES].copy_from_slice(&Header::data(range).encode());
            if let (None, Some(socket)) = (&self.sums, stream.clear_socket()) {
                let mut socket = socket;
                socket.write_all(&buffer[..HEADER_BYTES]).map_err(broke)?;
                self.send_file(socket, range, &peer)?;
            } else {
                let data = HEADER_BYTES..HEADER_BYTES + range.length() as usize;
                self.read(range, &mut buffer[data.clone()])?;
                stream.write_all(&buffer[..data.end]).map_err(stalled).map_err(broke)?;
            }
            self.meter.moved(range.length());
        }
        let end = announce.map_or(Header::end_of_data(true), |channels| Header::end_of_file(channels, true));
        stream.write_all(&end.encode()).and_then(|()| stream.flush()).map_err(stalled).map_err(broke)?;
        Ok(stream)
    }

    /// Sends a range in order, without framing, and ends the connection.
    pub(crate) fn range(&self, mut stream: DataStream, range: ByteRange) -> Result<DataStream> {
        let peer = stream.peer();
        let broke = |source| ClientError::Data { doing: "send to", peer: peer.clone(), source };
        let queue = Queue::new(vec![range]);
        let mut buffer = vec![0; self.block_bytes];
        while let Some(block) = queue.take(self.block_bytes as u64) {
            let data = &mut buffer[..block.length() as usize];
            self.read(block, data)?;
            stream.write_all(data).map_err(stalled).map_err(broke)?;
            self.meter.moved(block.length());
        }
        stream.end().map_err(broke)
    }

    /// Reads a block and adds up its sums.
    pub(crate) fn read(&self, range: ByteRange, data: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(data, range.offset()).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ClientError::Changed { path: self.path.clone() },
            _ => ClientError::local("read", &self.path)(error),
        })?;
        if let Some(sums) = &self.sums {
            let block = Sums::of(data);
            // Blocks are dealt out once; more holes than can be counted only lose the comparison at the end.
            let _ = sums.lock().unwrap_or_else(PoisonError::into_inner).add(range, block);
        }
        Ok(())
    }

    /// Lets the kernel carry a block from the page cache to the socket.
    fn send_file(&self, socket: &std::net::TcpStream, range: ByteRange, peer: &str) -> Result<()> {
        let mut offset = range.offset() as i64;
        while (offset as u64) < range.end() {
            let left = (range.end() - offset as u64) as usize;
            match nix::sys::sendfile::sendfile(socket, &self.file, Some(&mut offset), left) {
                Ok(0) => return Err(ClientError::Changed { path: self.path.clone() }),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => {
                    let source = stalled(errno.into());
                    return Err(ClientError::Data { doing: "send to", peer: peer.to_owned(), source });
                }
            }
        }
        Ok(())
    }
}

/// A write that timed out says `WouldBlock`, which helps nobody.
fn stalled(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "it took nothing for too long")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_deals_every_byte_once() {
        let range = |start, end| ByteRange::between(start, end).unwrap();
        let queue = Queue::new(vec![range(0, 10), range(20, 25)]);
        let blocks: Vec<ByteRange> = std::iter::from_fn(|| queue.take(4)).collect();
        assert_eq!(blocks, [range(0, 4), range(4, 8), range(8, 10), range(20, 24), range(24, 25)]);
    }
}
