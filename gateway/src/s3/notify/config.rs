//! Where events can go: `[s3.notify.NAME]` of the configuration.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use daemon::config::{Problems, TimeSpan};
use hyper::{Uri, http::uri::Scheme};
use serde::{Deserialize, Serialize};

/// The longest name of a destination.
const MAX_NAME: usize = 64;

/// A destination of events: a webhook or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DestinationConfig {
    /// An address that events are posted to.
    pub webhook: Option<String>,
    /// A file with one line, `Name: value`: a header that is sent with each post. Read again for each.
    pub header_file: Option<PathBuf>,
    /// The authorities that a webhook's certificate may be of, PEM; the system's if `None`.
    pub ca: Option<PathBuf>,
    /// How long one post may take.
    pub timeout: TimeSpan,
    /// A file that events are appended to, one a line.
    pub file: Option<PathBuf>,
}

impl Default for DestinationConfig {
    fn default() -> Self {
        Self { webhook: None, header_file: None, ca: None, timeout: TimeSpan::seconds(10), file: None }
    }
}

/// Reports destinations that make no sense.
pub(in crate::s3) fn check(section: &str, destinations: &BTreeMap<String, DestinationConfig>, problems: &mut Problems) {
    for (name, destination) in destinations {
        let key = format!("{section}.{name}");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            problems.add(key.clone(), "is no name of a destination", "write 64 letters, digits, - and _ at most");
        }
        destination.check(&key, problems);
    }
}

impl DestinationConfig {
    fn check(&self, key: &str, problems: &mut Problems) {
        if self.webhook.is_some() == self.file.is_some() {
            let advice = "write webhook = \"https://…\" or file = \"/…\", one of them";
            problems.add(key.to_owned(), "is not one place", advice);
        }
        if self.timeout.duration().is_zero() {
            problems.add(format!("{key}.timeout"), "is nothing", "leave it out for the default");
        }
        if self.file.as_ref().is_some_and(|file| !file.is_absolute()) {
            problems.add(format!("{key}.file"), "is not absolute", "write the whole path");
        }
        if self.webhook.is_none() && (self.header_file.is_some() || self.ca.is_some()) {
            problems.add(key.to_owned(), "has what only a webhook needs", "leave header_file and ca out");
        }
        let Some(webhook) = &self.webhook else { return };
        match Address::of(webhook) {
            Err(why) => problems.add(format!("{key}.webhook"), why, "write https://HOST:PORT/PATH"),
            Ok(address) if !address.secure && self.header_file.is_some() && !address.is_here() => {
                let advice = "write https://, or leave it out";
                problems.add(format!("{key}.header_file"), "would go over the network in clear", advice);
            }
            Ok(_) => {}
        }
    }
}

/// A webhook's address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// By TLS.
    pub(super) secure: bool,
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as they were written: the `Host` header.
    pub(super) authority: String,
    /// Path and query.
    pub(super) path: String,
}

impl Address {
    /// Takes an address apart.
    pub(super) fn of(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "is no address")?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("is neither https:// nor http://"),
        };
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a user in it, whose secret would be shown with the configuration");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("has no host");
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { secure, host, port, authority: authority.as_str().to_owned(), path })
    }

    /// Whether what goes there stays on this machine.
    fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_apart() {
        let address = Address::of("https://hooks.example.org/in?a=b").expect("an address");
        assert_eq!((address.secure, address.host.as_str(), address.port), (true, "hooks.example.org", 443));
        assert_eq!((address.authority.as_str(), address.path.as_str()), ("hooks.example.org", "/in?a=b"));
        let address = Address::of("http://[::1]:8080").expect("an address");
        assert_eq!((address.host.as_str(), address.port, address.path.as_str()), ("::1", 8080, "/"));
        assert!(address.is_here() && !Address::of("http://192.0.2.1/").expect("an address").is_here());
        for wrong in ["", "hooks.example.org", "ftp://a/", "/in", "https://user:word@a/", "https:///in"] {
            assert!(Address::of(wrong).is_err(), "{wrong}");
        }
    }
}
