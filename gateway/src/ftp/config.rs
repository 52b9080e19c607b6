//! The FTP door's section of the gateway's configuration.
//!
//! Owns the defaults and says which values make no sense together. Never lets anybody in by default but holders of
//! certificates: [`Access`] must be set, in words, for anything else.

use std::net::SocketAddr;

use daemon::config::{ByteSize, Problems, TimeSpan};
use serde::{Deserialize, Serialize};
use wire::id::AccountName;

/// `[ftp]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FtpConfig {
    /// Where the door listens; none turns it off.
    pub listen: Vec<SocketAddr>,
    /// Said in the greeting.
    pub greeting: String,
    /// Who is let in.
    pub access: Access,
    /// The account of whoever is let in without a certificate.
    pub anonymous_account: Option<AccountName>,
    /// Data connections must be TLS (`PROT P`).
    pub private_data_only: bool,
    /// `PORT` may name other hosts than the client's: transfers between two servers. The addresses are then whatever
    /// any account says, so the movers' network must not trust the movers.
    pub third_party_transfers: bool,
    /// Sessions at a time.
    pub max_sessions: u32,
    /// Sessions at a time from one address.
    pub max_sessions_per_address: u32,
    /// Connections at a time on which nobody has logged in yet.
    pub max_logins_pending: u32,
    /// From the connection to the end of the login.
    pub login_limit: TimeSpan,
    /// Without a command, nothing under way.
    pub idle_limit: TimeSpan,
    /// How long a client may leave replies unread.
    pub unread_limit: TimeSpan,
    /// The most bytes a second of one transfer.
    pub rate_limit: Option<ByteSize>,
}

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Holders of a trusted certificate that is mapped to an account, over TLS.
    #[default]
    Certificate,
    /// They, and over TLS anybody else, as the anonymous account.
    AnonymousOverTls,
    /// They, and anybody else, as the anonymous account, with every byte readable on the way.
    AnonymousInClear,
}

impl Default for FtpConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 2811))],
            greeting: "Penstock FTP: AUTH TLS with your certificate".to_owned(),
            access: Access::Certificate,
            anonymous_account: None,
            private_data_only: false,
            third_party_transfers: false,
            max_sessions: 2000,
            max_sessions_per_address: 500,
            max_logins_pending: 200,
            login_limit: TimeSpan::seconds(60),
            idle_limit: TimeSpan::seconds(900),
            unread_limit: TimeSpan::seconds(120),
            rate_limit: None,
        }
    }
}

impl FtpConfig {
    /// The section with every key, its default and a comment.
    pub const TEMPLATE: &'static str = r#"# The FTP door: RFC 959 over TLS (RFC 4217), with GridFTP's parallel transfers.
[ftp]
# Where it listens; [] turns it off.
listen = ["127.0.0.1:2811"]
# Said to whoever connects.
greeting = "Penstock FTP: AUTH TLS with your certificate"
# Who is let in: "certificate" (holders of a trusted certificate that is mapped to an account), "anonymous-over-tls"
# (they, and anybody else as anonymous_account) or "anonymous-in-clear" (the same without TLS: every byte is readable).
access = "certificate"
# The account of whoever comes without a certificate.
# anonymous_account = "guest"
# Refuse data connections without TLS (PROT P).
private_data_only = false
# Let PORT name other hosts than the client's, for transfers between two servers.
third_party_transfers = false
# Sessions at a time: in all, from one address, and before the login.
max_sessions = 2000
max_sessions_per_address = 500
max_logins_pending = 200
# How long a client may take to log in, may send nothing, and may leave replies unread.
login_limit = "1m"
idle_limit = "15m"
unread_limit = "2m"
# The most bytes a second of one transfer.
# rate_limit = "100 MiB"
"#;

    /// Reports what makes no sense; `section` is `ftp`.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        let mut positive = |key: &str, value: u64| {
            if value == 0 {
                problems.add(format!("{section}.{key}"), "is nothing", "leave it out for the default");
            }
        };
        positive("max_sessions", self.max_sessions.into());
        positive("max_sessions_per_address", self.max_sessions_per_address.into());
        positive("max_logins_pending", self.max_logins_pending.into());
        for (key, span) in
            [("login_limit", self.login_limit), ("idle_limit", self.idle_limit), ("unread_limit", self.unread_limit)]
        {
            positive(key, u64::try_from(span.duration().as_millis()).unwrap_or(u64::MAX));
        }
        if self.access != Access::Certificate && self.anonymous_account.is_none() {
            let key = format!("{section}.anonymous_account");
            problems.add(key, "is missing, but access lets anybody in", "name the account that anybody is to be");
        }
        if self.greeting.contains(['\r', '\n']) {
            problems.add(format!("{section}.greeting"), "has more than one line", "shorten it to one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Only {
        ftp: FtpConfig,
    }

    impl daemon::config::Settings for Only {
        const TEMPLATE: &'static str = FtpConfig::TEMPLATE;
        fn check(&self, problems: &mut Problems) {
            self.ftp.check("ftp", problems);
        }
    }

    #[test]
    fn the_template_is_the_default() {
        daemon::config::check_template::<Only>();
    }

    #[test]
    fn letting_anybody_in_needs_an_account_for_them() {
        let environment = [("PENSTOCK_FTP__ACCESS".to_owned(), "anonymous-in-clear".to_owned())];
        let error = daemon::config::load::<Only>(None, environment).unwrap_err().to_string();
        assert!(error.contains("ftp.anonymous_account is missing"), "{error}");
    }
}
