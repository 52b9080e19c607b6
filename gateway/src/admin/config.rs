//! The admin door's section of the gateway's configuration.

use std::net::SocketAddr;

use daemon::config::Problems;
use serde::{Deserialize, Serialize};

/// `[admin]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Where the door listens; none turns it off.
    pub listen: Vec<SocketAddr>,
    /// Where `/metrics` and `/healthz` are answered, in clear; none turns them off.
    pub metrics: Vec<SocketAddr>,
    /// Connections at a time, of both.
    pub max_connections: u32,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 2812))],
            metrics: vec![SocketAddr::from(([127, 0, 0, 1], 2813))],
            max_connections: 100,
        }
    }
}

impl AdminConfig {
    /// The section with every key, its default and a comment.
    pub const TEMPLATE: &'static str = r#"# The admin door: JSON over HTTP with mutual TLS, for `penstock admin`. It lets in holders of an admin certificate of
# the site's own authority, and of a trusted certificate that is mapped to an account with the admin right.
[admin]
# Where it listens; [] turns it off.
listen = ["127.0.0.1:2812"]
# Where /metrics (Prometheus) and /healthz are answered, in clear and to anybody: keep it to the machine or a network
# of your own. [] turns them off.
metrics = ["127.0.0.1:2813"]
# Connections at a time.
max_connections = 100
"#;

    /// Reports what makes no sense; `section` is `admin`.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        if self.max_connections == 0 {
            problems.add(format!("{section}.max_connections"), "is nothing", "leave it out for the default");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Whole {
        admin: AdminConfig,
    }

    impl daemon::config::Settings for Whole {
        const TEMPLATE: &'static str = AdminConfig::TEMPLATE;
    }

    #[test]
    fn the_template_is_the_default() {
        daemon::config::check_template::<Whole>();
    }
}
