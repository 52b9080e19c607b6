//! Replies of the control connection: encoded by the server, decoded by the client.
//!
//! Owns the framing of one-line and multi-line replies and its bounds. What a particular reply says is in
//! [`typed`](super::typed). Never waits.
//!
//! Invariant: an encoded reply is exactly one reply to any client, whatever text it was made of.

use std::fmt;

use bytes::{BufMut, BytesMut};

/// Most bytes of one reply that a client takes, unless it says otherwise. `STAT` and `MLSC` of a directory answer on the
/// control connection.
pub const MAX_REPLY_BYTES: usize = 64 << 20;

/// One reply: a code and at least one line of text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    code: u16,
    lines: Vec<String>,
}

/// What the first digit says (RFC 959 section 4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// 1yz: begun; another reply follows.
    Preliminary,
    /// 2yz: done.
    Completion,
    /// 3yz: go on with the next command.
    Intermediate,
    /// 4yz: not now; the same may work later.
    TransientFailure,
    /// 5yz: no.
    PermanentFailure,
    /// 6yz: a protected reply (RFC 2228).
    Protected,
}

/// Why bytes are no reply. The connection is out of step and must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A reply begins with something other than a code from 100 to 699.
    #[error("the server's reply does not begin with a three-digit code: {line:?}")]
    Code {
        /// How it begins.
        line: String,
    },
    /// Longer than the decoder's limit.
    #[error("the server's reply is longer than {limit_bytes} bytes")]
    TooLong {
        /// The limit.
        limit_bytes: usize,
    },
}

impl Reply {
    /// A one-line reply. Line ends in the text become spaces.
    ///
    /// `code` is one of our own constants; one outside 100..=699 becomes 500.
    pub fn new(code: u16, text: impl Into<String>) -> Self {
        Self::with_lines(code, vec![text.into()])
    }

    /// A reply of several lines: the first and the last carry the code, those between are sent as they are and should
    /// begin with a space.
    pub fn with_lines(code: u16, mut lines: Vec<String>) -> Self {
        debug_assert!((100..=699).contains(&code), "reply code {code}");
        let code = if (100..=699).contains(&code) { code } else { 500 };
        if lines.is_empty() {
            lines.push(String::new());
        }
        for line in &mut lines {
            if line.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                *line = line.replace(['\r', '\n', '\0'], " ");
            }
        }
        Self { code, lines }
    }

    /// An error in the four-line form of the Globus server, from which grid clients derive their error number.
    ///
    /// `class` is such as `PATH_NOT_FOUND`, `errno` and `error` those of the system (`2`, `No such file or directory`).
    pub fn failure(code: u16, class: &str, errno: u32, reason: &str, error: &str) -> Self {
        let lines = vec![
            format!("GlobusError: v=1 c={class}"),
            format!("{code}-GridFTP-Errno: {errno}"),
            format!("{code}-GridFTP-Reason: {reason}"),
            format!("{code}-GridFTP-Error-String: {error}"),
            "End.".to_owned(),
        ];
        Self::with_lines(code, lines)
    }

    /// The code, 100 to 699.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// What the first digit says.
    pub fn class(&self) -> Class {
        match self.code / 100 {
            1 => Class::Preliminary,
            2 => Class::Completion,
            3 => Class::Intermediate,
            4 => Class::TransientFailure,
            6 => Class::Protected,
            _ => Class::PermanentFailure,
        }
    }

    /// Whether a further reply to the same command follows.
    pub fn is_preliminary(&self) -> bool {
        self.class() == Class::Preliminary
    }

    /// Whether it says yes: 2yz.
    pub fn is_success(&self) -> bool {
        self.class() == Class::Completion
    }

    /// The lines, codes of the first and last removed. Never empty.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The first line.
    pub fn first(&self) -> &str {
        &self.lines[0]
    }

    /// The lines between the first and the last.
    pub fn middle(&self) -> &[String] {
        self.lines.get(1..self.lines.len().saturating_sub(1)).unwrap_or_default()
    }

    /// All text for a person: lines joined, repeated codes removed. Of the Globus form the sentence in its last line, where
    /// there is one; else what it says of the system's error.
    pub fn text(&self) -> String {
        let prefix = format!("{}-", self.code);
        let lines = self.lines.iter().map(|line| line.strip_prefix(&prefix).unwrap_or(line).trim());
        if self.first().starts_with("GlobusError:") {
            let last = self.lines.last().map_or("", |line| line.trim());
            if self.lines.len() > 1
                && !last.starts_with(&prefix)
                && !last.trim_end_matches('.').eq_ignore_ascii_case("end")
            {
                return last.to_owned();
            }
            let said = |label: &str| {
                let with_label = lines.clone().find_map(|line| line.strip_prefix(label));
                with_label.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
            };
            let parts: Vec<String> =
                ["GridFTP-Reason:", "GridFTP-Error-String:"].into_iter().filter_map(said).collect();
            if !parts.is_empty() {
                return parts.join(": ");
            }
        }
        let said: Vec<&str> =
            lines.filter(|line| !line.is_empty() && !line.eq_ignore_ascii_case("end") && *line != "End.").collect();
        said.join("\n")
    }

    /// Appends the reply as it goes over the wire.
    pub fn encode(&self, out: &mut BytesMut) {
        let last = self.lines.len() - 1;
        for (index, line) in self.lines.iter().enumerate() {
            if index == last {
                out.put_slice(format!("{} ", self.code).as_bytes());
            } else if index == 0 {
                out.put_slice(format!("{}-", self.code).as_bytes());
            } else if is_end(line, self.code) {
                // Or the client would take this line for the last.
                out.put_u8(b' ');
            }
            out.put_slice(line.as_bytes());
            out.put_slice(b"\r\n");
        }
    }

    /// The reply as it goes over the wire.
    pub fn to_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(self.lines.iter().map(|line| line.len() + 8).sum());
        self.encode(&mut out);
        out
    }
}

impl fmt::Display for Reply {
    /// Code and text, for logs and messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text())
    }
}

/// Whether a line would end a multi-line reply: its code and a space, or its code alone.
fn is_end(line: &str, code: u16) -> bool {
    match line.as_bytes() {
        [a, b, c] | [a, b, c, b' ', ..] => code_of([*a, *b, *c]) == Some(code),
        _ => false,
    }
}

fn code_of(digits: [u8; 3]) -> Option<u16> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (100..=699).contains(&code).then_some(code)
}

/// Takes bytes, gives replies. Text that is not UTF-8 is shown with replacement characters.
#[derive(Debug)]
pub struct ReplyDecoder {
    limit_bytes: usize,
    line: Vec<u8>,
    /// Code and lines of the reply that has begun and not ended.
    begun: Option<(u16, Vec<String>)>,
    reply_bytes: usize,
}

impl Default for ReplyDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplyDecoder {
    /// Nothing received yet.
    pub fn new() -> Self {
        Self::with_limit(MAX_REPLY_BYTES)
    }

    /// As [`new`](Self::new), for replies up to `limit_bytes`.
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self { limit_bytes, line: Vec::new(), begun: None, reply_bytes: 0 }
    }

    /// Takes bytes off the front of `input` until a reply is whole or nothing is left (`None`). What follows the reply
    /// stays in `input`.
    ///
    /// # Errors
    ///
    /// [`ReplyError`]: close the connection.
    pub fn next_reply(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, ReplyError> {
        while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = input.split_at(end + 1);
            *input = rest;
            self.take(&head[..end])?;
            let mut line = std::mem::take(&mut self.line);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if let Some(reply) = self.line_ended(&String::from_utf8_lossy(&line))? {
                self.reply_bytes = 0;
                return Ok(Some(reply));
            }
        }
        self.take(input)?;
        *input = &[];
        Ok(None)
    }

    /// Whether a reply has begun and not ended: end of the connection now would be in the middle of it.
    pub fn is_partial(&self) -> bool {
        self.begun.is_some() || !self.line.is_empty()
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        self.reply_bytes += bytes.len();
        if self.reply_bytes > self.limit_bytes {
            return Err(ReplyError::TooLong { limit_bytes: self.limit_bytes });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ended(&mut self, line: &str) -> Result<Option<Reply>, ReplyError> {
        // An empty line costs memory too.
        self.reply_bytes += 32;
        if let Some((code, mut lines)) = self.begun.take() {
            let ended = is_end(line, code);
            lines.push(if ended { line.get(4..).unwrap_or_default().to_owned() } else { line.to_owned() });
            if ended {
                return Ok(Some(Reply { code, lines }));
            }
            self.begun = Some((code, lines));
            return Ok(None);
        }
        let bad = || ReplyError::Code { line: line.chars().take(80).collect() };
        let code = line.as_bytes().first_chunk().copied().and_then(code_of).ok_or_else(bad)?;
        let text = line.get(4..).unwrap_or_default().to_owned();
        match line.as_bytes().get(3) {
            None | Some(b' ') => Ok(Some(Reply { code, lines: vec![text] })),
            Some(b'-') => {
                self.begun = Some((code, vec![text]));
                Ok(None)
            }
            Some(_) => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Reply>, ReplyError> {
        let mut decoder = ReplyDecoder::new();
        let mut replies = Vec::new();
        for chunk in chunks {
            let mut input = *chunk;
            while let Some(reply) = decoder.next_reply(&mut input)? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_of_one_and_of_many_lines_may_be_cut_anywhere() {
        let bytes = b"220 ready\r\n211-Features\r\n SIZE\r\n 220 not the end\r\n211 End\r\n226 \r\n230\r\n";
        let whole = decode(&[bytes]).unwrap();
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[1].middle(), [" SIZE", " 220 not the end"]);
        assert_eq!(whole[3], Reply::new(230, ""));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_name_with_line_ends_cannot_forge_a_reply() {
        let reply = Reply::new(550, "no such file: a\r\n226 done");
        assert_eq!(&reply.to_bytes()[..], b"550 no such file: a  226 done\r\n");
        let reply = Reply::with_lines(211, vec!["a".into(), "211 fake end".into(), "211".into(), "b".into()]);
        assert_eq!(decode(&[&reply.to_bytes()]).unwrap().len(), 1);
    }

    #[test]
    fn the_sentence_behind_globus_lines_is_what_people_read() {
        let lines = [
            "GlobusError: v=1 c=PATH_NOT_FOUND",
            "550-GridFTP-Errno: 2",
            "550-GridFTP-Error-String: No such file or directory",
            "There is no file or directory /a/b.",
        ];
        let reply = Reply::with_lines(550, lines.map(str::to_owned).to_vec());
        assert_eq!(reply.text(), "There is no file or directory /a/b.");
    }

    #[test]
    fn the_globus_form_of_an_error_reads_as_one_sentence() {
        let reply = Reply::failure(550, "PATH_NOT_FOUND", 2, "/a/b", "No such file or directory");
        let bytes = reply.to_bytes();
        assert!(bytes.starts_with(b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n"));
        assert!(bytes.ends_with(b"\r\n550 End.\r\n"));
        assert_eq!(decode(&[&bytes]).unwrap()[0].to_string(), "550 /a/b: No such file or directory");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400\r\n"[..],
            b"\r\n",
            b"99 x\r\n",
            b"700 x\r\n",
            b"2200 x\r\n",
            b"220x\r\n",
            b"\xff\xff\xff\xff\r\n",
        ] {
            assert!(matches!(decode(&[bytes]), Err(ReplyError::Code { .. })), "{bytes:?}");
        }
    }

    #[test]
    fn an_endless_reply_is_stopped() {
        let mut decoder = ReplyDecoder::with_limit(1 << 20);
        assert_eq!(decoder.next_reply(&mut &b"211-x\r\n"[..]), Ok(None));
        let chunk = b"\n".repeat(1 << 16);
        let stopped = (0..1000).find_map(|_| decoder.next_reply(&mut &chunk[..]).err());
        assert_eq!(stopped, Some(ReplyError::TooLong { limit_bytes: 1 << 20 }));
        let endless = vec![b'2'; 2 << 20];
        assert!(ReplyDecoder::with_limit(1 << 20).next_reply(&mut &endless[..]).is_err());
    }

    proptest! {
        #[test]
        fn any_reply_is_decoded_as_one_reply_of_its_code(code in 100u16..700, lines in proptest::collection::vec(any::<String>(), 1..6), cut in 0usize..200) {
            let reply = Reply::with_lines(code, lines);
            let bytes = reply.to_bytes();
            let cut = cut.min(bytes.len());
            let decoded = decode(&[&bytes[..cut], &bytes[cut..]]).unwrap();
            prop_assert_eq!(decoded.len(), 1);
            prop_assert_eq!(decoded[0].code(), code);
            prop_assert_eq!(decoded[0].lines().len(), reply.lines().len());
        }

        #[test]
        fn any_bytes_are_replies_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&[&bytes]);
        }
    }
}
