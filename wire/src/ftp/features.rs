//! What a server offers: the answer to FEAT.
//!
//! Owns the form of the list (RFC 2389 section 3.2: each feature on a line of its own behind one space). Never decides
//! what is offered.

use super::{Reply, UnexpectedReply};

/// A list of features, each a label with parameters behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    lines: Vec<String>,
}

impl Features {
    /// The label under which Penstock's own extensions are offered, version 1: `SITE PARTIAL`.
    pub const PENSTOCK: &'static str = "PENSTOCK 1";

    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line, such as `SIZE` or `REST STREAM`.
    #[must_use]
    pub fn with(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Whether a line begins with these words, in any case: `has("REST STREAM")`, `has("MLST")`.
    pub fn has(&self, words: &str) -> bool {
        self.parameters(words).is_some()
    }

    /// What follows these words on their line; empty if nothing does, `None` if no line begins with them.
    pub fn parameters(&self, words: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let head = line.get(..words.len())?;
            let rest = &line[words.len()..];
            (head.eq_ignore_ascii_case(words) && (rest.is_empty() || rest.starts_with(' '))).then(|| rest.trim())
        })
    }

    /// Whether passive addresses may be delayed until the file is named (`PASV AllowDelayed;`).
    pub fn delayed_passive(&self) -> bool {
        ["PASV", "EPSV"]
            .iter()
            .any(|verb| self.parameters(verb).is_some_and(|rest| rest.to_ascii_lowercase().contains("allowdelayed")))
    }

    /// Whether the addresses of all stripes may be delayed, too (`SPAS AllowDelayed;`, ours).
    pub fn delayed_stripes(&self) -> bool {
        self.parameters("SPAS").is_some_and(|rest| rest.to_ascii_lowercase().contains("allowdelayed"))
    }

    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The reply.
    pub fn reply(&self) -> Reply {
        let mut lines = vec!["Extensions supported".to_owned()];
        lines.extend(self.lines.iter().map(|line| format!(" {line}")));
        lines.push("End.".to_owned());
        Reply::with_lines(211, lines)
    }

    /// Reads the reply. A server without FEAT (500, 502) or without features (211 on one line) offers nothing.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if the reply is something else, such as 421 or 530.
    pub fn from_reply(reply: &Reply) -> Result<Self, UnexpectedReply> {
        match reply.code() {
            211 => Ok(Self { lines: reply.middle().iter().map(|line| line.trim().to_owned()).collect() }),
            500 | 502 => Ok(Self::new()),
            _ => Err(reply.unexpected("a list of features")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_their_words() {
        let features = Features::new()
            .with("REST STREAM")
            .with("PASV AllowDelayed;")
            .with("MLST Type*;Size*;")
            .with("SIZE")
            .with(Features::PENSTOCK);
        let read = Features::from_reply(&features.reply()).unwrap();
        assert_eq!(read, features);
        assert!(read.has("rest") && read.has("REST STREAM") && read.has("Penstock 1") && read.delayed_passive());
        assert!(!read.has("RES") && !read.has("SIZE 1") && !read.has("DCAU"));
        assert_eq!(read.parameters("MLST"), Some("Type*;Size*;"));
        assert!(Features::from_reply(&Reply::new(421, "bye")).is_err());
    }
}
