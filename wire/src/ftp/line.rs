//! Splits the bytes of a control connection into command lines, within bounds.
//!
//! Owns the partial line. Talks to the session's driver, which feeds what it read. Never interprets a command, except
//! that a security token may be longer than other lines.
//!
//! Invariant: at most [`MAX_TOKEN_LINE_BYTES`] of one line are kept, however much the peer sends.

/// Longest ordinary command line, line end excluded: 8 KiB. RFC 959 names no limit; twice a longest path is ample.
pub const MAX_LINE_BYTES: usize = 8 * 1024;

/// Longest line of a command that carries a security token (ADAT, MIC, ENC, CONF, DCSC): base64 of certificate chains.
pub const MAX_TOKEN_LINE_BYTES: usize = 128 * 1024;

/// Why a line is not text for [`Command::parse`](super::Command::parse). The connection stays in step: the next line
/// starts after the line end of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// Longer than the limit. Reported as soon as the limit is passed; the rest of the line is thrown away unread.
    #[error("command line is longer than {limit_bytes} bytes")]
    TooLong {
        /// The limit that was passed.
        limit_bytes: usize,
    },
    /// Not UTF-8 (RFC 2640).
    #[error("command line is not UTF-8")]
    NotUtf8,
    /// Holds a NUL or a carriage return that does not end the line.
    #[error("command line holds a NUL or a bare carriage return")]
    Control,
}

/// Takes bytes, gives lines. Ends a line at LF or CR LF, and removes the Telnet commands (RFC 959 section 4.1.3:
/// IAC IP IAC DM before ABOR).
///
/// The urgent byte of a Telnet synch usually arrives out of band, so that `IAC IP IAC` is directly followed by `ABOR`:
/// an IAC that is followed by no Telnet command is dropped alone.
#[derive(Debug, Default)]
pub struct LineDecoder {
    line: Vec<u8>,
    telnet: Telnet,
    /// The rest of the current line is thrown away.
    discarding: bool,
    discarded_bytes: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Telnet {
    #[default]
    Data,
    /// After IAC.
    Command,
    /// After IAC WILL, WONT, DO or DONT: one option byte follows.
    Option,
}

const IAC: u8 = 255;

impl LineDecoder {
    /// Nothing received yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of over-long lines thrown away so far. A driver closes the connection when a peer goes on for too long.
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    /// Takes bytes off the front of `input` until a line is whole, a line is refused, or nothing is left (`None`).
    /// What follows the line stays in `input` for the next call.
    ///
    /// # Errors
    ///
    /// [`LineError`] is the line's own: answer it and go on.
    pub fn next_line(&mut self, input: &mut &[u8]) -> Option<Result<String, LineError>> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            let Some(byte) = self.telnet(byte) else { continue };
            if byte == b'\n' {
                if std::mem::take(&mut self.discarding) {
                    continue;
                }
                return Some(finish(std::mem::take(&mut self.line)));
            }
            if self.discarding {
                self.discarded_bytes += 1;
                continue;
            }
            if self.line.len() >= MAX_LINE_BYTES {
                let limit_bytes = limit(&self.line);
                // One more for the CR of a line that is exactly as long as allowed.
                if self.line.len() >= limit_bytes && !(byte == b'\r' && self.line.len() == limit_bytes) {
                    self.discarding = true;
                    self.discarded_bytes += self.line.len() as u64 + 1;
                    self.line = Vec::new();
                    return Some(Err(LineError::TooLong { limit_bytes }));
                }
            }
            self.line.push(byte);
        }
        None
    }

    /// Whether a line has begun and not ended: end of the connection now would be in the middle of a command.
    pub fn is_partial(&self) -> bool {
        !self.line.is_empty() || self.discarding
    }

    fn telnet(&mut self, byte: u8) -> Option<u8> {
        match self.telnet {
            Telnet::Data if byte == IAC => self.telnet = Telnet::Command,
            Telnet::Data => return Some(byte),
            Telnet::Command => {
                self.telnet = Telnet::Data;
                match byte {
                    IAC => return Some(IAC),
                    251..=254 => self.telnet = Telnet::Option,
                    240..=250 => {}
                    // The DM of the synch went out of band: this is data again.
                    _ => return Some(byte),
                }
            }
            Telnet::Option => self.telnet = Telnet::Data,
        }
        None
    }
}

fn limit(line: &[u8]) -> usize {
    let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_token =
        ["ADAT", "MIC", "ENC", "CONF", "DCSC"].iter().any(|token| verb.eq_ignore_ascii_case(token.as_bytes()));
    if is_token { MAX_TOKEN_LINE_BYTES } else { MAX_LINE_BYTES }
}

fn finish(mut line: Vec<u8>) -> Result<String, LineError> {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
        return Err(LineError::Control);
    }
    String::from_utf8(line).map_err(|_| LineError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Result<String, LineError>> {
        let mut decoder = LineDecoder::new();
        let mut out = Vec::new();
        for chunk in chunks {
            let mut input = *chunk;
            while let Some(line) = decoder.next_line(&mut input) {
                out.push(line);
            }
            assert!(input.is_empty());
        }
        out
    }

    #[test]
    fn lines_end_at_lf_or_cr_lf_and_may_be_cut_anywhere() {
        let bytes = b"USER x\r\nPASS \nNOOP\r\n";
        let whole = lines(&[bytes]);
        assert_eq!(whole, [Ok("USER x".into()), Ok("PASS ".into()), Ok("NOOP".into())]);
        for cut in 0..bytes.len() {
            assert_eq!(lines(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_telnet_synch_before_abor_is_removed_with_and_without_its_urgent_byte() {
        for synch in [&b"\xff\xf4\xff\xf2"[..], b"\xff\xf4\xff", b"\xff\xf4\xf2", b"\xff\xfb\x01\xff\xf4\xff\xf2"] {
            let mut bytes = synch.to_vec();
            bytes.extend_from_slice(b"ABOR\r\n");
            let expected = if synch == b"\xff\xf4\xf2" { Err(LineError::NotUtf8) } else { Ok("ABOR".into()) };
            assert_eq!(lines(&[&bytes]), [expected], "{synch:?}");
        }
    }

    #[test]
    fn a_300_mb_line_is_refused_at_once_and_not_kept() {
        let mut decoder = LineDecoder::new();
        let chunk = vec![b'x'; 1 << 20];
        let mut errors = 0;
        for _ in 0..300 {
            let mut input = &chunk[..];
            while let Some(line) = decoder.next_line(&mut input) {
                assert_eq!(line, Err(LineError::TooLong { limit_bytes: MAX_LINE_BYTES }));
                errors += 1;
            }
            assert!(decoder.line.capacity() <= 2 * MAX_LINE_BYTES);
        }
        assert_eq!(errors, 1);
        assert_eq!(decoder.discarded_bytes(), 300 << 20);
        assert_eq!(decoder.next_line(&mut &b"\r\nNOOP\r\n"[..]), Some(Ok("NOOP".into())));
    }

    #[test]
    fn a_line_may_be_exactly_as_long_as_the_limit_and_a_token_longer() {
        let longest = format!("CWD {}\r\n", "a".repeat(MAX_LINE_BYTES - 4));
        assert!(lines(&[longest.as_bytes()])[0].is_ok());
        let longer = format!("CWD {}\r\nNOOP\r\n", "a".repeat(MAX_LINE_BYTES - 3));
        let got = lines(&[longer.as_bytes()]);
        assert!(matches!(got[0], Err(LineError::TooLong { .. })));
        assert_eq!(got[1], Ok("NOOP".into()));
        let token = format!("adat {}\r\n", "a".repeat(60_000));
        assert!(lines(&[token.as_bytes()])[0].is_ok());
    }

    #[test]
    fn nul_bare_cr_and_other_encodings_are_refused() {
        assert_eq!(lines(&[b"CWD a\0b\r\n"]), [Err(LineError::Control)]);
        assert_eq!(lines(&[b"CWD a\rDELE b\r\n"]), [Err(LineError::Control)]);
        assert_eq!(lines(&[b"CWD \xe9t\xe9\r\n"]), [Err(LineError::NotUtf8)]);
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_give_the_same_lines(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(lines(&[&bytes[..cut], &bytes[cut..]]), lines(&[&bytes]));
        }
    }
}
