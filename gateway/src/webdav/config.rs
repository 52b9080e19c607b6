//! The WebDAV door's section of the gateway's configuration.

use std::net::SocketAddr;

use daemon::config::{ByteSize, Problems, TimeSpan};
use serde::{Deserialize, Serialize};

/// `[webdav]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebdavConfig {
    /// Where the door listens, with TLS; none turns it off.
    pub listen: Vec<SocketAddr>,
    /// Connections at a time.
    pub max_connections: u32,
    /// How long a client may send nothing in the middle of a body, or leave an answer unread.
    pub stall_limit: TimeSpan,
    /// How long a GET waits for a file that is on tape, where its class of service waits at all.
    pub tape_wait: TimeSpan,
    /// `[webdav.tape_rest]`
    pub tape_rest: TapeRestConfig,
}

/// `[webdav.tape_rest]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TapeRestConfig {
    /// The site's name as clients are told it.
    pub site: String,
    /// Files of one stage request.
    pub max_files: u32,
    /// Paths that one archiveinfo answers.
    pub max_paths: u32,
    /// The largest body.
    pub max_body: ByteSize,
    /// Stage requests of one account that have not come to an end.
    pub max_requests: u32,
    /// The longest that a request may keep a file on disk; more is cut to it.
    pub max_lifetime: TimeSpan,
}

impl Default for WebdavConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            max_connections: 2000,
            stall_limit: TimeSpan::seconds(120),
            tape_wait: TimeSpan::seconds(60),
            tape_rest: TapeRestConfig::default(),
        }
    }
}

impl Default for TapeRestConfig {
    fn default() -> Self {
        Self {
            site: String::new(),
            max_files: 10_000,
            max_paths: 10_000,
            max_body: ByteSize::mib(16),
            max_requests: 5000,
            max_lifetime: TimeSpan::seconds(30 * 86_400),
        }
    }
}

impl WebdavConfig {
    /// The section with every key, its default and a comment.
    pub const TEMPLATE: &'static str = r#"# The WebDAV door: HTTPS with client certificates, and WLCG's Tape REST interface.
[webdav]
# Where it listens; [] turns it off.
listen = []
# Connections at a time.
max_connections = 2000
# How long a client may send nothing in the middle of a body, or leave an answer unread.
stall_limit = "2m"
# How long a GET waits for a file that is on tape, where its class of service waits at all; then it is refused with 424,
# and the recall goes on.
tape_wait = "1m"

# Tape REST (https://HOST/.well-known/wlcg-tape-rest-api).
[webdav.tape_rest]
# The site's name as clients are told it; the gateway's if it is empty.
site = ""
# Files of one stage request, and paths that one archiveinfo answers.
max_files = 10000
max_paths = 10000
# The largest body.
max_body = "16 MiB"
# Stage requests of one account that have not come to an end; more are refused with 429.
max_requests = 5000
# The longest that a request may keep a file on disk; a longer diskLifetime is cut to it.
max_lifetime = "30d"
"#;

    /// Reports what makes no sense; `section` is `webdav`.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        let tape = &self.tape_rest;
        let numbers = [
            ("max_connections", u64::from(self.max_connections)),
            ("tape_rest.max_files", tape.max_files.into()),
            ("tape_rest.max_paths", tape.max_paths.into()),
            ("tape_rest.max_body", tape.max_body.bytes()),
            ("tape_rest.max_requests", tape.max_requests.into()),
        ];
        let spans = [("stall_limit", self.stall_limit), ("tape_rest.max_lifetime", tape.max_lifetime)];
        let empty = numbers.into_iter().filter(|(_, value)| *value == 0).map(|(key, _)| key);
        let empty = empty.chain(spans.into_iter().filter(|(_, span)| span.duration().is_zero()).map(|(key, _)| key));
        for key in empty {
            problems.add(format!("{section}.{key}"), "is nothing", "leave it out for the default");
        }
        for (key, value) in [("max_files", tape.max_files), ("max_paths", tape.max_paths)] {
            if value > 100_000 {
                let step = "clients cut their requests by what they are told";
                problems.add(format!("{section}.tape_rest.{key}"), "is more than 100000", step);
            }
        }
    }
}
