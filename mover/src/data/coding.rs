//! What lies between an HTTP body as it comes and the bytes of a file: chunks of HTTP, and chunks of S3 within them. Pure.
//!
//! Decodes in place: what comes is turned into the file's bytes at the front of the same memory, so that nothing is held
//! but a line of a chunk's size and a few trailers.

use std::ops::Range;

use wire::mover::Coding;

/// The longest line of a chunk's size; signatures of S3 stand in it.
const MAX_LINE_BYTES: usize = 1024;
/// The most bytes of trailers.
const MAX_TRAILER_BYTES: usize = 16 << 10;

/// How HTTP says where a body ends (RFC 9112 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// `Content-Length`.
    Known(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Why a body is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// A chunk does not begin with its size.
    #[error("a chunk of the body has no size")]
    Size,
    /// A chunk does not end with a line's end.
    #[error("a chunk of the body is longer than its size")]
    End,
    /// A line has no end.
    #[error("a line between chunks of the body is too long")]
    Line,
    /// More trailers than anybody needs.
    #[error("the trailers of the body are too long")]
    Trailers,
    /// What is within the chunks is not whole.
    #[error("the last chunk of the body did not come")]
    Short,
}

/// Takes the codings off a body.
#[derive(Debug)]
pub(crate) struct Decoder {
    outer: Outer,
    inner: Option<Chunks>,
    /// More came than belongs to the body.
    surplus: bool,
}

#[derive(Debug)]
enum Outer {
    /// So many bytes are left.
    Left(u64),
    Chunked(Chunks),
}

impl Decoder {
    /// A body of which nothing has come yet.
    pub(crate) fn new(length: Length, coding: Coding) -> Self {
        let outer = match length {
            Length::Known(left) => Outer::Left(left),
            Length::Chunked => Outer::Chunked(Chunks::new(Trailers::Lines)),
        };
        let inner = (coding == Coding::AwsChunked).then(|| Chunks::new(Trailers::Rest));
        Self { outer, inner, surplus: false }
    }

    /// Whether the body's last byte has come.
    pub(crate) fn is_over(&self) -> bool {
        match &self.outer {
            Outer::Left(left) => *left == 0,
            Outer::Chunked(chunks) => chunks.state == State::Over,
        }
    }

    /// Whether bytes came behind the body: what they are is not known, and the connection cannot go on.
    pub(crate) const fn has_surplus(&self) -> bool {
        self.surplus
    }

    /// The most bytes that may be read for this body.
    pub(crate) const fn wants(&self) -> u64 {
        match &self.outer {
            Outer::Left(left) => *left,
            Outer::Chunked(_) => u64::MAX,
        }
    }

    /// Turns bytes that came next into bytes of the file, at their front; how many there are.
    ///
    /// # Errors
    ///
    /// [`Broken`]; nothing of the body counts then.
    pub(crate) fn decode(&mut self, bytes: &mut [u8]) -> Result<usize, Broken> {
        let (mut at, mut filled) = (0, 0);
        while at < bytes.len() && !self.is_over() {
            let (used, found) = self.outer.step(&bytes[at..])?;
            let mut payload = at + found.start..at + found.end;
            at += used;
            let Some(inner) = &mut self.inner else {
                filled = moved(bytes, payload, filled);
                continue;
            };
            while !payload.is_empty() {
                let (used, found) = inner.step(&bytes[payload.clone()])?;
                filled = moved(bytes, payload.start + found.start..payload.start + found.end, filled);
                payload.start += used;
            }
        }
        self.surplus |= at < bytes.len();
        Ok(filled)
    }

    /// The value of a trailer, by its name in lower case, of a body that is over. Trailers are those of S3's chunks.
    ///
    /// # Errors
    ///
    /// [`Broken::Short`] if the chunks have no end.
    pub(crate) fn trailer(&self, name: Option<&str>) -> Result<Option<String>, Broken> {
        let Some(inner) = &self.inner else { return Ok(None) };
        if inner.state != State::Trailers {
            return Err(Broken::Short);
        }
        Ok(name.and_then(|name| inner.trailer(name)))
    }
}

/// Moves bytes to the front, behind those that are there; where they end then.
fn moved(bytes: &mut [u8], from: Range<usize>, to: usize) -> usize {
    let length = from.len();
    if from.start != to {
        bytes.copy_within(from, to);
    }
    to + length
}

impl Outer {
    /// Takes some bytes: how many, and which of them are payload.
    fn step(&mut self, input: &[u8]) -> Result<(usize, Range<usize>), Broken> {
        match self {
            Self::Left(left) => {
                let take = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= take as u64;
                Ok((take, 0..take))
            }
            Self::Chunked(chunks) => chunks.step(input),
        }
    }
}

/// Chunks, one behind the other: a size in hexadecimal digits, extensions, a line's end; data, a line's end; at last a size
/// of 0 and trailers.
///
/// # Source
///
/// RFC 9112 section 7.1; S3's chunks have the same form (`chunk-signature` is an extension).
#[derive(Debug)]
struct Chunks {
    state: State,
    trailers: Trailers,
    /// The line that is being read, or trailers.
    line: Vec<u8>,
    trailer_bytes: usize,
}

/// Where trailers end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trailers {
    /// At an empty line; nobody asks for them.
    Lines,
    /// With the payload that they lie in, whatever ends their lines: S3's clients differ in that.
    Rest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Size,
    Data(u64),
    /// Behind a chunk's data; whether the carriage return has come.
    End(bool),
    Trailers,
    Over,
}

impl Chunks {
    const fn new(trailers: Trailers) -> Self {
        Self { state: State::Size, trailers, line: Vec::new(), trailer_bytes: 0 }
    }

    fn step(&mut self, input: &[u8]) -> Result<(usize, Range<usize>), Broken> {
        const NOTHING: Range<usize> = 0..0;
        match self.state {
            State::Over => Ok((input.len(), NOTHING)),
            State::Data(left) => {
                let take = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                let left = left - take as u64;
                self.state = if left == 0 { State::End(false) } else { State::Data(left) };
                Ok((take, 0..take))
            }
            State::End(returned) => {
                let Some(&byte) = input.first() else { return Ok((0, NOTHING)) };
                self.state = match (returned, byte) {
                    (false, b'\r') => State::End(true),
                    (true, b'\n') => State::Size,
                    _ => return Err(Broken::End),
                };
                Ok((1, NOTHING))
            }
            State::Trailers if self.trailers == Trailers::Rest => {
                if self.line.len() + input.len() > MAX_TRAILER_BYTES {
                    return Err(Broken::Trailers);
                }
                self.line.extend_from_slice(input);
                Ok((input.len(), NOTHING))
            }
            State::Size | State::Trailers => {
                let used = self.gather(input)?;
                if self.line.ends_with(b"\n") {
                    self.line()?;
                }
                Ok((used, NOTHING))
            }
        }
    }

    /// Adds bytes to the line, up to its end.
    fn gather(&mut self, input: &[u8]) -> Result<usize, Broken> {
        let end = input.iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| at + 1);
        if self.line.len() + end > MAX_LINE_BYTES {
            return Err(Broken::Line);
        }
        self.line.extend_from_slice(&input[..end]);
        Ok(end)
    }

    /// A line is whole.
    fn line(&mut self) -> Result<(), Broken> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r\n").ok_or(Broken::Line)?;
        if self.state == State::Trailers {
            self.trailer_bytes += line.len();
            if self.trailer_bytes > MAX_TRAILER_BYTES {
                return Err(Broken::Trailers);
            }
            if line.is_empty() {
                self.state = State::Over;
            }
            return Ok(());
        }
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let good = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| good).ok_or(Broken::Size)?;
        self.state = match u64::from_str_radix(text, 16).map_err(|_| Broken::Size)? {
            0 => State::Trailers,
            size => State::Data(size),
        };
        Ok(())
    }

    fn trailer(&self, wanted: &str) -> Option<String> {
        let text = std::str::from_utf8(&self.line).ok()?;
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    }
}

#[cfg(test)]
#[path = "coding_tests.rs"]
mod tests;
