//! TLS connections that end in an identity.
//!
//! Owns the choice of cryptography (rustls over aws-lc-rs, TLS 1.2 and 1.3) and the building of
//! server and client configurations. Talks to [`crate::trust`] for every judgement over a chain.
//! Never touches rustls's process-wide default provider, and never resumes a session: a resumed
//! one would skip the judgement over a chain that may have been revoked since.
//!
//! Invariant: a [`Peer::Identified`] has proved possession of the leaf's key in this handshake,
//! and its chain passed every rule when the handshake ended.

mod credential;
mod reload;
mod verifier;

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use credential::{Credential, CredentialError};
pub use reload::{HotCredential, Reload, Reloaded, Trust, TrustSource, watch};
pub use verifier::Expect;
use verifier::{ClientJudge, Presented, ServerJudge};

use crate::trust::{Identity, Purpose, TrustError, now};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));

/// The cryptography every connection here uses.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

/// What a server asks of its clients.
#[derive(Clone, Debug)]
pub enum Clients {
    /// Nothing: no certificate is requested.
    Anonymous,
    /// A certificate if the client has one; a bad one breaks the handshake.
    Optional(Trust),
    /// A good certificate, or no connection.
    Required(Trust),
    /// A certificate if the client has one; a bad one comes out as [`Peer::Refused`], so that a
    /// protocol with words (FTP's 530) can say why, which a TLS alert cannot.
    Judged(Trust),
}

/// Who a server found at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// No certificate was presented.
    Anonymous,
    /// The chain is good.
    Identified(Identity),
    /// The chain is not good. With [`Clients::Judged`], or if the trust changed during the handshake.
    Refused(TrustError),
}

/// A server's configuration: its certificate, and what it asks of clients.
///
/// Certificate and trust are read from their hot holders in every handshake, so a reload needs no
/// new configuration. `protocols` are offered by ALPN, best first; empty for protocols without.
#[must_use]
pub fn server_config(credential: &HotCredential, clients: &Clients, protocols: &[&str]) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("aws-lc-rs has cipher suites for TLS 1.2 and 1.3");
    let builder = match ClientJudge::for_clients(clients) {
        None => builder.with_no_client_auth(),
        Some(judge) => builder.with_client_cert_verifier(Arc::new(judge)),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Presented(credential.clone())));
    // Tickets are post-handshake messages; GSI's token exchange has no room for them, and
    // resumption would skip the judgement.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A client's configuration: whom it trusts and expects, and its own certificate if it has one.
#[must_use]
pub fn client_config(
    credential: Option<&HotCredential>,
    trust: &Trust,
    expect: &Expect,
    protocols: &[&str],
) -> Arc<ClientConfig> {
    Arc::new(client_config_of(rustls::ALL_VERSIONS, credential, trust, expect, protocols))
}

fn client_config_of(
    versions: &[&'static rustls::SupportedProtocolVersion],
    credential: Option<&HotCredential>,
    trust: &Trust,
    expect: &Expect,
    protocols: &[&str],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("aws-lc-rs has cipher suites for TLS 1.2 and 1.3")
        .dangerous() // rustls's word for any verifier of one's own; ours is stricter than its.
        .with_custom_certificate_verifier(Arc::new(ServerJudge::new(trust.clone(), expect.clone())));
    let mut config = match credential {
        Some(credential) => builder.with_client_cert_resolver(Arc::new(Presented(credential.clone()))),
        None => builder.with_no_client_auth(),
    };
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = matches!(expect, Expect::Host);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// Does the server's side of the handshake and says who is there.
///
/// Not cancel-safe: dropping it loses the connection. Set a deadline around it.
///
/// # Errors
///
/// If the connection breaks, or the client is refused; [`why`] finds the reason.
pub async fn accept<S>(
    config: &Arc<ServerConfig>,
    clients: &Clients,
    stream: S,
) -> io::Result<(server::TlsStream<S>, Peer)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = TlsAcceptor::from(config.clone()).accept(stream).await?;
    let peer = identify(stream.get_ref().1.peer_certificates(), clients);
    Ok((stream, peer))
}

/// Who presented `certificates` in a finished handshake with a server that asks as `clients` say.
#[must_use]
pub fn identify(certificates: Option<&[CertificateDer<'_>]>, clients: &Clients) -> Peer {
    match (clients, certificates) {
        (Clients::Anonymous, _) | (_, None | Some([])) => Peer::Anonymous,
        (Clients::Optional(trust) | Clients::Required(trust) | Clients::Judged(trust), Some(chain)) => {
            match trust.current().verify(chain, Purpose::Client, now()) {
                Ok(identity) => Peer::Identified(identity),
                Err(error) => Peer::Refused(error),
            }
        }
    }
}

/// Does the client's side of the handshake.
///
/// `name` is the host name or address connected to. With [`Expect::Host`] the server's
/// certificate must be for it; otherwise it only fills the protocol's field.
///
/// Not cancel-safe: dropping it loses the connection. Set a deadline around it.
///
/// # Errors
///
/// If `name` is no host name, the connection breaks, or the server is refused; [`why`] finds the
/// reason.
pub async fn connect<S>(config: &Arc<ClientConfig>, name: &str, stream: S) -> io::Result<client::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let server = ServerName::try_from(name.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a host name or address")))?;
    TlsConnector::from(config.clone()).connect(server, stream).await
}

/// The reason in words if `error` is a refusal of the peer's certificates, or the error's own text.
#[must_use]
pub fn why(error: &io::Error) -> String {
    refusal(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The [`TrustError`] inside an error of a handshake, if our own verifier refused the peer.
#[must_use]
pub fn refusal(error: &io::Error) -> Option<&TrustError> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) => {
            other.0.downcast_ref::<TrustError>()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
