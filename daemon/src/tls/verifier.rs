//! Our judgement over chains, in the shape rustls asks for it.
//!
//! Owns the adapters between rustls's traits and [`crate::trust`]. Pure but for reading the hot
//! holders. Never lets rustls or webpki parse a leaf: both refuse a critical proxyCertInfo.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, ProtocolVersion, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};

use super::reload::{HotCredential, Trust};
use super::{Clients, provider};
use crate::role::{Role, SitePeer};
use crate::trust::{Certificate, Dn, Identity, Purpose, TrustError};

/// Whom a client insists on finding at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The host connected to: its name or address is in the certificate's alternative names.
    Host,
    /// This user or host, wherever it is; its own certificate or a proxy of it. For data channels,
    /// whose peer is known by name and not by address.
    Subject(Dn),
    /// A mover of the site whose gateway this is: of the same authority and the same site by name; or the host connected
    /// to. For clients' data connections, whose address the gateway told.
    MoverOf(Box<Identity>),
    /// A part of this site, by the site's own authority (the trust must hold nothing else).
    Role {
        /// What the part is.
        role: Role,
        /// Its name in the site, for instance the mover's; any if `None`.
        name: Option<String>,
    },
}

fn refuse(error: TrustError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

fn chain<'a>(leaf: &CertificateDer<'a>, rest: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    std::iter::once(leaf).chain(rest).cloned().collect()
}

/// Checks CertificateVerify or ServerKeyExchange against the leaf's bare key.
///
/// TLS 1.3 ties each scheme to one curve and forbids PKCS #1 (RFC 8446 §4.2.3); in TLS 1.2 an ECDSA
/// scheme says nothing of the curve, so it stands for several algorithms.
fn check_handshake_signature(
    version: ProtocolVersion,
    message: &[u8],
    leaf: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let spki = SubjectPublicKeyInfoDer::from(spki_of(leaf).map_err(refuse)?);
    let key = webpki::RawPublicKeyEntity::try_from(&spki)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let is_13 = version == ProtocolVersion::TLSv1_3;
    let pkcs_1 =
        [SignatureScheme::RSA_PKCS1_SHA256, SignatureScheme::RSA_PKCS1_SHA384, SignatureScheme::RSA_PKCS1_SHA512];
    if is_13 && pkcs_1.contains(&signed.scheme) {
        return Err(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let mapping = provider().signature_verification_algorithms.mapping;
    let (_, algorithms) = mapping
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme)
        .ok_or(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    algorithms
        .iter()
        .take(if is_13 { 1 } else { algorithms.len() })
        .any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok())
        .then(HandshakeSignatureValid::assertion)
        .ok_or(Error::InvalidCertificate(CertificateError::BadSignature))
}

fn spki_of<'a>(leaf: &'a CertificateDer<'a>) -> Result<&'a [u8], TrustError> {
    Certificate::parse(leaf, 1).map(|certificate| certificate.spki())
}

/// What a peer may sign with; rustls filters it for the version.
fn schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}

/// The three methods that both of rustls's verifier traits ask for in the same words.
macro_rules! check_signatures_against_the_bare_key {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            check_handshake_signature(ProtocolVersion::TLSv1_2, message, leaf, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            check_handshake_signature(ProtocolVersion::TLSv1_3, message, leaf, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            schemes()
        }
    };
}

/// Judges clients.
#[derive(Debug)]
pub(super) struct ClientJudge {
    trust: Trust,
    mandatory: bool,
    /// Leave the judgement over the chain to the caller, and check only possession of the key.
    deferred: bool,
}

impl ClientJudge {
    pub(super) fn for_clients(clients: &Clients) -> Option<Self> {
        let (trust, mandatory, deferred) = match clients {
            Clients::Anonymous => return None,
            Clients::Optional(trust) => (trust, false, false),
            Clients::Required(trust) => (trust, true, false),
            Clients::Judged(trust) => (trust, false, true),
        };
        Some(Self { trust: trust.clone(), mandatory, deferred })
    }
}

impl ClientCertVerifier for ClientJudge {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// No hints: a client that chooses by them would not find the authority behind its proxy.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.deferred {
            // The leaf's key must at least be readable, or its signature could not be checked.
            spki_of(leaf).map_err(refuse)?;
        } else {
            self.trust.current().verify(&chain(leaf, rest), Purpose::Client, now).map_err(refuse)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    check_signatures_against_the_bare_key!();
}

/// Judges servers.
#[derive(Debug)]
pub(super) struct ServerJudge {
    trust: Trust,
    expect: Expect,
}

impl ServerJudge {
    pub(super) const fn new(trust: Trust, expect: Expect) -> Self {
        Self { trust, expect }
    }

    fn judge(&self, chain: &[CertificateDer<'_>], name: &ServerName<'_>, now: UnixTime) -> Result<(), TrustError> {
        let purpose = if matches!(self.expect, Expect::Subject(_)) { Purpose::Either } else { Purpose::Server };
        let store = self.trust.current();
        let identity = store.verify(chain, purpose, now)?;
        match &self.expect {
            Expect::Host => store.check_host(chain, &identity, name),
            Expect::Subject(expected) if identity.subject == *expected => Ok(()),
            Expect::Subject(expected) => Err(unexpected(expected.to_string(), identity)),
            Expect::MoverOf(gateway) => {
                let is_mover = SitePeer::of(&identity).is_some_and(|peer| peer.role == Role::Mover);
                let same_site = identity.authority == gateway.authority
                    && identity.attributes.first() == gateway.attributes.first();
                if is_mover && same_site { Ok(()) } else { store.check_host(chain, &identity, name) }
            }
            Expect::Role { role, name } => match SitePeer::of(&identity) {
                Some(peer) if peer.role == *role && name.as_ref().is_none_or(|name| peer.name == *name) => Ok(()),
                _ => {
                    let name = name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
                    Err(unexpected(format!("this site's {role}{name}"), identity))
                }
            },
        }
    }
}

fn unexpected(expected: String, actual: Identity) -> TrustError {
    TrustError::WrongSubject { expected, actual: actual.subject }
}

impl ServerCertVerifier for ServerJudge {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(&chain(leaf, rest), name, now).map_err(refuse)?;
        Ok(ServerCertVerified::assertion())
    }

    check_signatures_against_the_bare_key!();
}

/// Shows whatever the holder has at the moment, to clients and to servers.
///
/// rustls's own single-certificate resolvers parse the leaf with webpki and refuse proxies.
#[derive(Debug)]
pub(super) struct Presented(pub(super) HotCredential);

impl ResolvesServerCert for Presented {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current().certified().clone())
    }
}

impl ResolvesClientCert for Presented {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current().certified().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
