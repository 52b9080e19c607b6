//! Why a certificate chain does not prove an identity, in words a user can act on.

use rustls_pki_types::UnixTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::dn::Dn;

/// Why the other end's certificates were refused.
///
/// Every text names the certificate and the next step, so it can be shown to the person at the
/// other end as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// No certificate was presented.
    #[error("no certificate was presented; log in with a certificate or a proxy")]
    Missing,
    /// Bytes that are not a certificate, or one we cannot read unambiguously.
    #[error("certificate {position} of the chain cannot be read: {reason}")]
    Malformed {
        /// 1 is the certificate of the peer itself.
        position: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// More certificates than any real chain has.
    #[error("the chain has {count} certificates, more than {limit}; make a new proxy directly from your certificate")]
    TooLong {
        /// Certificates presented.
        count: usize,
        /// Certificates we look at.
        limit: usize,
    },
    /// Its time is over.
    #[error("{what} of {subject} expired at {at}; {}", what.renewal())]
    Expired {
        /// Proxy, certificate or certification authority.
        what: Kind,
        /// Whose it is.
        subject: String,
        /// RFC 3339, UTC.
        at: String,
    },
    /// Its time has not come.
    #[error("{what} of {subject} is valid from {from} only; compare the clocks of both machines")]
    NotYetValid {
        /// Proxy, certificate or certification authority.
        what: Kind,
        /// Whose it is.
        subject: String,
        /// RFC 3339, UTC.
        from: String,
    },
    /// Nobody we trust signed it.
    #[error(
        "the certificate of {subject} was issued by {issuer}, which is not among the trusted authorities; add that authority's certificate to the trust folder, or use a certificate of a trusted one"
    )]
    UnknownIssuer {
        /// The topmost certificate that we could not connect.
        subject: String,
        /// Whom it names as its issuer.
        issuer: String,
    },
    /// The issuer's key did not make this signature.
    #[error(
        "the signature on the certificate of {subject} is not {issuer}'s; the chain is damaged or forged: get the certificate again"
    )]
    BadSignature {
        /// Whose certificate it is.
        subject: String,
        /// Who should have signed it.
        issuer: String,
    },
    /// The authority took the certificate back.
    #[error("the certificate of {subject} was revoked by {issuer}; apply for a new one")]
    Revoked {
        /// Whose certificate it was.
        subject: String,
        /// Who revoked it.
        issuer: String,
    },
    /// The revocation list is too old to tell.
    #[error(
        "the revocation list of {issuer} expired at {at}, so nothing it issued is accepted; fetch a new one (fetch-crl) into the trust folder"
    )]
    CrlExpired {
        /// Whose list it is.
        issuer: String,
        /// RFC 3339, UTC.
        at: String,
    },
    /// A list is required and there is none.
    #[error(
        "there is no revocation list of {issuer}, and the configuration requires one; fetch it (fetch-crl) into the trust folder"
    )]
    CrlMissing {
        /// Whose list is missing.
        issuer: String,
    },
    /// The authority may not sign such names, by its signing policy.
    #[error(
        "the signing policy of {issuer} does not let it issue {subject}; check the certificate, or the authority's .signing_policy file"
    )]
    Policy {
        /// Whose certificate it is.
        subject: String,
        /// Who signed it.
        issuer: String,
    },
    /// The authority has no readable signing policy or revocation list, and needs one.
    #[error("authority {issuer} cannot be used: {problem}")]
    Authority {
        /// Which one.
        issuer: String,
        /// What is wrong, with the file.
        problem: String,
    },
    /// A rule for proxy certificates is broken.
    #[error("proxy {subject} is refused: {rule}")]
    Proxy {
        /// The proxy's own subject.
        subject: String,
        /// The broken rule, and what to do.
        rule: ProxyRule,
    },
    /// A certificate that may not issue others did.
    #[error("{issuer} is not a certification authority (no CA:TRUE and keyCertSign) but issued {subject}")]
    NotAnAuthority {
        /// Whose certificate was issued.
        subject: String,
        /// Who issued it.
        issuer: String,
    },
    /// The certificate is for something else.
    #[error("the certificate of {subject} is not meant for a TLS {purpose} (extended key usage); use another one")]
    Purpose {
        /// Whose certificate it is.
        subject: String,
        /// "client" or "server".
        purpose: &'static str,
    },
    /// Anything else the X.509 rules forbid.
    #[error("the certificate of {subject} is refused: {reason}")]
    Refused {
        /// Whose certificate it is.
        subject: String,
        /// The rule.
        reason: String,
    },
    /// The server is somebody, but not the host we asked for.
    #[error(
        "the server at {host} showed the certificate of {subject}, which is for {}; connect by a name in the certificate, or get one that names the host",
        list(valid_for)
    )]
    WrongHost {
        /// The name or address we connected to.
        host: String,
        /// Whose certificate it showed.
        subject: String,
        /// The names and addresses in it.
        valid_for: Vec<String>,
    },
    /// The peer is somebody, but not whom we expected.
    #[error("the other end is {actual}, but {expected} was expected")]
    WrongSubject {
        /// Who was expected.
        expected: String,
        /// Who it is.
        actual: Dn,
    },
}

/// Which kind of certificate a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Made by a user from a certificate.
    Proxy,
    /// A person's or host's own.
    Certificate,
    /// A certification authority's.
    Authority,
}

impl Kind {
    const fn renewal(self) -> &'static str {
        match self {
            Self::Proxy => "make a new one",
            Self::Certificate => "renew it",
            Self::Authority => "update the trust folder",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proxy => "the proxy",
            Self::Certificate => "the certificate",
            Self::Authority => "the authority certificate",
        })
    }
}

/// The rules of RFC 3820 (and of grid practice) that a proxy certificate can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyRule {
    /// GT2 or GT3 style, from before RFC 3820.
    #[error("it is a legacy proxy from before RFC 3820; make one with \"grid-proxy-init -rfc\"")]
    Legacy,
    /// The chain ends before the certificate that signed the proxy.
    #[error("the certificate that signed it was not sent; send the whole chain (proxy, then your certificate)")]
    NoIssuer,
    /// Section 3.8: the extension must be critical.
    #[error("its proxyCertInfo extension is not critical")]
    NotCritical,
    /// The extension does not decode.
    #[error("its proxyCertInfo extension cannot be read")]
    BadInfo,
    /// Section 3.1: issuer must be the signer's subject.
    #[error("its issuer is not the subject of the next certificate in the chain")]
    Issuer,
    /// Section 3.4: subject = issuer + one common name.
    #[error("its subject is not its issuer's plus one common name")]
    Subject,
    /// Section 3.6: no CA:TRUE.
    #[error("it claims to be a certification authority")]
    Authority,
    /// Section 3.1: an authority may not make proxies.
    #[error("it was signed by a certification authority, not by a person's or host's certificate")]
    IssuedByAuthority,
    /// Section 3.7: no keyCertSign.
    #[error("its key usage contains keyCertSign")]
    KeyUsage,
    /// Section 3.1: the signer needs digitalSignature.
    #[error("the certificate that signed it may not make digital signatures (key usage)")]
    IssuerKeyUsage,
    /// Section 3.8.1: pCPathLenConstraint.
    #[error("more proxies were made from it than it allows")]
    PathLength,
    /// Sections 3.2 and 3.5: no alternative names.
    #[error("it has alternative names, which proxies must not have")]
    AlternativeName,
    /// An extension we do not know but must.
    #[error("it has a critical extension that is not understood")]
    CriticalExtension,
    /// Grid practice: a full proxy does not come from a limited one.
    #[error("it is a full proxy made from a limited one")]
    FullFromLimited,
    /// Section 3.8.2: id-ppl-independent inherits no rights.
    #[error("it is an independent proxy, which inherits no rights; make an ordinary one")]
    Independent,
    /// A policy language we cannot honour, so we must not accept.
    #[error("it carries a restriction that is not understood here; make an unrestricted proxy")]
    UnknownPolicy,
    /// Too short to be safe.
    #[error("its key is too short; make one with at least 2048 bits (\"grid-proxy-init -bits 2048\")")]
    ShortKey,
}

/// RFC 3339 text of `seconds` since the epoch.
pub(crate) fn timestamp(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{seconds} s after 1970"))
}

/// `now` as X.509 validity counts it.
pub(super) fn seconds(now: UnixTime) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no host".to_owned() } else { names.join(", ") }
}
