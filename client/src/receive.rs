//! Receives blocks: from one data connection into one file.
//!
//! Owns the buffer between socket and file. Runs in a thread of its own and blocks. Never decides what is wanted.

use std::{
    collections::HashMap,
    io::{self, Read as _},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use wire::{
    extent::ByteRange,
    mode_e::{Assembler, HEADER_BYTES, Header},
};

use crate::{ClientError, Meter, Result, data::DataStream, partial::PartFile};

/// Most bytes written at once; the flat optimum of receive-and-write lies between 256 KiB and 1 MiB.
const CHUNK_BYTES: usize = 1 << 20;

/// Read ahead of a header: small files come whole with it.
const AHEAD_BYTES: usize = 32 << 10;

/// Where a connection's end marks count: each sender says how many connections it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Whoever connects to us at this address of ours, by number: all movers that do share one number of ends.
    Here(usize),
    /// The mover at this address.
    At(SocketAddr),
}

/// What the connections of one transfer share.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) file: Arc<PartFile>,
    pub(crate) meter: Meter,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    assemblers: HashMap<Source, Assembler>,
    /// Whose end marks are waited for.
    expected: Vec<Source>,
    /// Connections that have brought something and are not done.
    busy: usize,
}

impl Ends {
    fn has_ended(&self) -> bool {
        let ended = |source: &Source| self.assemblers.get(source).is_some_and(Assembler::has_ended);
        !self.expected.is_empty() && self.expected.iter().all(ended)
    }
}

impl Receiving {
    pub(crate) fn new(file: Arc<PartFile>, meter: Meter) -> Self {
        Self { file, meter, ends: Mutex::default() }
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These send, each to its own end.
    pub(crate) fn expect(&self, sources: impl Iterator<Item = Source>) {
        self.ends().expected = sources.collect();
    }

    /// Whether every connection that the movers announced has ended, and what they brought is in the file.
    pub(crate) fn is_whole(&self) -> bool {
        let ends = self.ends();
        ends.busy == 0 && ends.has_ended()
    }

    /// Receives MODE E blocks until the connection ends for this transfer. One that we made and the mover had no use for
    /// may end in any way: whether all bytes came is known from the others.
    pub(crate) fn blocks(&self, stream: DataStream, source: Source, stall: Duration) -> Result<()> {
        let mut reader = Reader::new(stream, stall);
        let first = match (reader.header(), source) {
            (Ok(Some(first)), _) => first,
            (Ok(None) | Err(ClientError::Data { .. }), Source::At(_)) => return Ok(()),
            (Ok(None), Source::Here(_)) => return Err(reader.cut()),
            (Err(error), _) => return Err(error),
        };
        self.ends().busy += 1;
        let result = self.blocks_from(first, &mut reader, source);
        self.ends().busy -= 1;
        result
    }

    fn blocks_from(&self, first: Header, reader: &mut Reader, source: Source) -> Result<()> {
        let mut header = first;
        loop {
            let step = {
                let mut ends = self.ends();
                let limit = self.file.size_bytes();
                let assembler = ends.assemblers.entry(source).or_insert_with(|| Assembler::with_limit(limit));
                assembler.header(header).map_err(|source| reader.bad(source))?
            };
            self.data(reader, step.data)?;
            if step.channel_ends {
                return Ok(());
            }
            header = reader.header()?.ok_or_else(|| reader.cut())?;
        }
    }

    /// Receives the bytes of a range in order, from a connection without framing.
    pub(crate) fn range(&self, stream: DataStream, range: ByteRange, stall: Duration) -> Result<()> {
        self.data(&mut Reader::new(stream, stall), range)
    }

    fn data(&self, reader: &mut Reader, range: ByteRange) -> Result<()> {
        let mut at = range.offset();
        while at < range.end() {
            let want = usize::try_from(range.end() - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let read = reader.fill(want);
            // What came before the connection broke is kept.
            let have = reader.buffered().min(want);
            if have > 0 {
                let peer = &reader.peer;
                self.file.write(at, &reader.buffer[reader.start..reader.start + have], peer)?;
                reader.start += have;
                at += have as u64;
                self.meter.moved(have as u64);
            }
            read.map_err(|source| reader.broke(source))?;
        }
        Ok(())
    }
}

/// A socket with a buffer in front of it.
struct Reader {
    stream: DataStream,
    peer: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How long the socket may be silent, once something has come; before that, a file may come from tape.
    stall: Option<Duration>,
}

impl Reader {
    fn new(stream: DataStream, stall: Duration) -> Self {
        let peer = stream.peer();
        let stall = Some(stall);
        Self { stall, stream, peer, buffer: vec![0; CHUNK_BYTES + AHEAD_BYTES + HEADER_BYTES], start: 0, end: 0 }
    }

    fn buffered(&self) -> usize {
        self.end - self.start
    }

    fn broke(&self, source: io::Error) -> ClientError {
        ClientError::Data { doing: "receive from", peer: self.peer.clone(), source }
    }

    fn cut(&self) -> ClientError {
        self.broke(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before its end mark"))
    }

    fn bad(&self, source: wire::mode_e::ModeEError) -> ClientError {
        ClientError::ModeE { peer: self.peer.clone(), source }
    }

    /// Reads until `want` bytes are buffered, and little more.
    fn fill(&mut self, want: usize) -> io::Result<()> {
        if self.buffered() >= want {
            return Ok(());
        }
        if self.start + want + AHEAD_BYTES > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.buffered());
        }
        while self.buffered() < want {
            let until = (self.start + want + AHEAD_BYTES).min(self.buffer.len());
            match self.stream.read(&mut self.buffer[self.end..until]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed in the middle of its data")),
                Ok(read) => {
                    self.end += read;
                    if let Some(stall) = self.stall.take() {
                        self.stream.set_read_limit(stall)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came for too long"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next header; `None` if the connection was closed before one began.
    fn header(&mut self) -> Result<Option<Header>> {
        match self.fill(HEADER_BYTES) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && self.buffered() == 0 => return Ok(None),
            Err(error) => return Err(self.broke(error)),
        }
        let bytes = self.buffer[self.start..].first_chunk().expect("fill has read a header's bytes");
        let header = Header::decode(bytes).map_err(|source| self.bad(source))?;
        self.start += HEADER_BYTES;
        Ok(Some(header))
    }
}
