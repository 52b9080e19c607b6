//! Names of servers: `[user@]HOST[:PORT]`.
//!
//! Owns the syntax. Never resolves a name.

use std::{fmt, str::FromStr};

use crate::ClientError;

/// Where Penstock's FTP door and GridFTP servers listen (IANA: gsiftp).
pub const DEFAULT_PORT: u16 = 2811;

/// A server, and optionally the account wanted there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The account; `None` lets the certificate decide.
    pub user: Option<String>,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port of the control connection.
    pub port: u16,
}

impl FromStr for Target {
    type Err = ClientError;

    /// Reads `[user@]HOST[:PORT]`; an IPv6 address with a port stands in brackets; `ftp://` before it is allowed.
    fn from_str(text: &str) -> Result<Self, ClientError> {
        let bad = || ClientError::Target { text: text.to_owned() };
        let rest = ["ftp://", "gsiftp://", "ftpes://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.unwrap_or(text).trim_end_matches('/');
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) if !user.is_empty() => (Some(user.to_owned()), rest),
            Some(_) => return Err(bad()),
            None => (None, rest),
        };
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, after) = inner.split_once(']').ok_or_else(bad)?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(bad)?) })
        } else if rest.matches(':').count() > 1 {
            (rest, None)
        } else {
            rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)))
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| bad()))?;
        let plausible = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if host.is_empty() || port == 0 || !host.chars().all(plausible) {
            return Err(bad());
        }
        Ok(Self { user, host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Target {
    /// Host and port, without the account.
    pub fn server(&self) -> String {
        Self { user: None, ..self.clone() }.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_in_every_usual_form() {
        for (text, user, host, port) in [
            ("archive.example.org", None, "archive.example.org", 2811),
            ("alice@archive:21", Some("alice"), "archive", 21),
            ("a@b@archive", Some("a@b"), "archive", 2811),
            ("[::1]:2121", None, "::1", 2121),
            ("::1", None, "::1", 2811),
            ("ftp://127.0.0.1:21/", None, "127.0.0.1", 21),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.user.as_deref(), target.host.as_str(), target.port), (user, host, port), "{text}");
            assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
        for text in ["", "@host", "host:", "host:0", "host:x", "host:99999", "[::1", "[::1]x", "a b", "host/path"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
