//! What a mover is told about HTTP clients.

use std::net::SocketAddr;

use daemon::config::Problems;
use serde::{Deserialize, Serialize};

/// HTTP clients that gateways send here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Address and port with TLS, by the mover's own certificate; port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// Without encryption: the kernel sends files from the disk's cache by itself.
    pub listen_clear: Option<SocketAddr>,
    /// The name of this host that clients are told; left out, its address.
    pub host: Option<String>,
    /// Connections at a time; more are closed.
    pub max_connections: usize,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: None, listen_clear: None, host: None, max_connections: 4096 }
    }
}

impl HttpConfig {
    /// Names what cannot be.
    pub(super) fn check(&self, problems: &mut Problems) {
        for (key, address) in [("http.listen", self.listen), ("http.listen_clear", self.listen_clear)] {
            if self.host.is_none() && address.is_some_and(|address| address.ip().is_unspecified()) {
                problems.add(key, "is every address of the host, which cannot be told to a client", "set http.host");
            }
        }
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        if self.host.as_ref().is_some_and(|host| host.is_empty() || host.len() > 253 || !host.bytes().all(letter)) {
            problems.add("http.host", "is no host name", "give a name, or leave it out");
        }
        if self.max_connections == 0 {
            problems.add("http.max_connections", "is 0", "leave the addresses out to serve nobody");
        }
    }
}
