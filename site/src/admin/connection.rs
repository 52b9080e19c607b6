//! One HTTPS connection to a gateway's admin door.

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use daemon::tls::{self, CredentialError, Expect, HotCredential, Trust, TrustSource};
use daemon::trust::{Requirement, TrustLoadError, TrustOptions};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};
use wire::admin::Problem;

use super::Target;
use crate::folder::SiteFolder;

/// Longer than any sensible answer; a page of a listing is some hundred kilobytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Why an admin command did not work.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The command line does not say enough.
    #[error("{0}")]
    Usage(String),
    /// The site is not there, or not ready.
    #[error("{0}")]
    NotThere(String),
    /// The certificate to show cannot be used.
    #[error("read the certificate to show")]
    Credential(#[from] CredentialError),
    /// The trusted CAs cannot be used.
    #[error("read the trusted CAs")]
    Trust(#[from] TrustLoadError),
    /// Nobody answers.
    #[error("connect to the admin door at {address}; is the site running?")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The two do not trust each other.
    #[error("the admin door at {address} and this side do not trust each other: {reason}")]
    Untrusted {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection to the admin door broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The site says no.
    #[error("{}", describe(.0))]
    Refused(Problem),
    /// The answer makes no sense.
    #[error("the admin door's answer could not be read: is it of another version?")]
    Unreadable(#[source] serde_json::Error),
    /// Some of what was asked for did not work; each was shown.
    #[error("{failed} of {all} did not work")]
    Partly {
        /// How many failed.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// Standard output is gone.
    #[error("write to standard output")]
    Output(#[source] io::Error),
}

fn describe(problem: &Problem) -> String {
    match &problem.next_step {
        Some(next) => format!("{}; {next}", problem.message),
        None => problem.message.clone(),
    }
}

impl AdminError {
    /// Whether it may be otherwise when the site has started.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::NotThere(_) | Self::Connect { .. } | Self::Broken(_))
    }

    /// The exit status: 2 for a wrong command line, 3 if the site cannot be reached, 1 otherwise.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Credential(_) | Self::Trust(_) => 2,
            Self::NotThere(_) | Self::Connect { .. } | Self::Untrusted { .. } | Self::Broken(_) => 3,
            Self::Refused(_) | Self::Unreadable(_) | Self::Partly { .. } | Self::Output(_) => 1,
        }
    }
}

/// A connection to an admin door.
pub struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
}

/// What it takes to connect.
struct Resolved {
    address: String,
    credential: HotCredential,
    trust: Trust,
    expect: Expect,
}

impl Connection {
    /// Connects to the site that `target` names.
    ///
    /// # Errors
    ///
    /// [`AdminError`]; its text says what to do.
    pub async fn open(target: &Target) -> Result<Self, AdminError> {
        let Resolved { address, credential, trust, expect } = resolve(target)?;
        let failed = |source| AdminError::Connect { address: address.clone(), source };
        let stream = timeout(CONNECT_LIMIT, TcpStream::connect(&address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        let config = tls::client_config(Some(&credential), &trust, &expect, &["http/1.1"]);
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']);
        let stream = timeout(CONNECT_LIMIT, tls::connect(&config, host, stream))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| AdminError::Untrusted { address: address.clone(), reason: tls::why(&error) })?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the connection, which ends with `sender`.
        tokio::spawn(connection);
        Ok(Self { address, sender })
    }

    /// Asks for something.
    ///
    /// # Errors
    ///
    /// [`AdminError::Refused`] with what the site says, or that the connection broke.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, AdminError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Asks for something with parameters; those that are `None` are left out.
    ///
    /// # Errors
    ///
    /// As [`Connection::get`].
    pub async fn query<T: DeserializeOwned>(
        &mut self,
        path: &str,
        parameters: &[(&str, Option<String>)],
    ) -> Result<T, AdminError> {
        let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", escape(value.as_ref()?))));
        let query: Vec<_> = given.collect();
        self.get(&format!("{path}?{}", query.join("&"))).await
    }

    /// Sends something.
    ///
    /// # Errors
    ///
    /// As [`Connection::get`].
    pub async fn send<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, AdminError> {
        self.call(method, path, Some(body)).await
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, AdminError> {
        let (status, body) = self.begin(method, path, body).await?;
        let answer = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(AdminError::Broken)?.to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&answer).map_err(AdminError::Unreadable);
        }
        Err(AdminError::Refused(serde_json::from_slice(&answer).map_err(AdminError::Unreadable)?))
    }

    /// Asks for a stream of lines; `each` gets them until it says stop or the stream ends.
    ///
    /// # Errors
    ///
    /// As [`Connection::get`].
    pub async fn lines(
        &mut self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> Result<bool, AdminError>,
    ) -> Result<(), AdminError> {
        let (status, mut body) = self.begin(Method::GET, path, None::<&()>).await?;
        let mut waiting = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            waiting.extend_from_slice(&data);
            if !status.is_success() {
                continue;
            }
            while let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
                let line: Vec<_> = waiting.drain(..=end).collect();
                if !each(line.trim_ascii())? {
                    return Ok(());
                }
            }
            if waiting.len() > MAX_ANSWER_BYTES {
                return Err(AdminError::Broken("a line of the stream is too long".into()));
            }
        }
        if status.is_success() {
            return Ok(());
        }
        Err(AdminError::Refused(serde_json::from_slice(&waiting).map_err(AdminError::Unreadable)?))
    }

    async fn begin(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Incoming), AdminError> {
        let uri: Uri = path.parse().map_err(|_| AdminError::Usage(format!("{path:?} is no path to ask for")))?;
        let body = body.map(serde_json::to_vec).transpose().map_err(AdminError::Unreadable)?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(HOST, self.address.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| AdminError::Broken(error.into()))?;
        self.sender.ready().await.map_err(broken)?;
        let response = self.sender.send_request(request).await.map_err(broken)?;
        Ok((response.status(), response.into_body()))
    }
}

fn broken(error: hyper::Error) -> AdminError {
    AdminError::Broken(error.into())
}

/// Percent-encodes everything but unreserved characters (RFC 3986 section 2.3) and slashes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn resolve(target: &Target) -> Result<Resolved, AdminError> {
    let folder = target.data.clone().map(SiteFolder::new);
    let missing = |what: &str, option: &str| {
        AdminError::Usage(format!(
            "{what} is not known: name the folder of a site on this machine with --data DIR, or give --{option}"
        ))
    };
    let address = match (&target.gateway, &folder) {
        (Some(address), _) => with_port(address),
        (None, Some(folder)) => folder.doors().map_err(AdminError::NotThere)?.admin.to_string(),
        (None, None) => return Err(missing("the site", "gateway HOST:PORT")),
    };
    let certificate = target
        .cert
        .clone()
        .or_else(|| folder.as_ref().map(SiteFolder::admin_credential))
        .ok_or_else(|| missing("the certificate to show", "cert FILE"))?;
    let key = target.key.clone().unwrap_or_else(|| certificate.clone());
    let ca: PathBuf = target
        .ca
        .clone()
        .or_else(|| folder.as_ref().map(SiteFolder::ca_certificate))
        .ok_or_else(|| missing("the CA to trust", "ca FILE"))?;
    let options = TrustOptions { signing_policy: Requirement::IfPresent, ..TrustOptions::default() };
    Ok(Resolved {
        address,
        credential: HotCredential::from_files(&certificate, &key)?,
        trust: Trust::load(TrustSource::at(&ca), options)?,
        expect: Expect::Host,
    })
}

fn with_port(address: &str) -> String {
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address.to_owned() } else { format!("{address}:{}", crate::folder::ADMIN_PORT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_way_into_a_query() {
        assert_eq!(escape("/a b/ü?&.txt"), "/a%20b/%C3%BC%3F%26.txt");
    }

    #[test]
    fn the_door_s_port_may_be_left_out() {
        assert_eq!(with_port("archive.example.org"), "archive.example.org:2812");
        assert_eq!(with_port("archive.example.org:99"), "archive.example.org:99");
    }

    #[tokio::test]
    async fn a_command_that_does_not_say_which_site_says_how_to() {
        let error = Connection::open(&Target::default()).await.err().expect("no site was named");
        assert!(error.to_string().contains("--data DIR"), "{error}");
        assert_eq!(error.exit_status(), 2);
    }
}
