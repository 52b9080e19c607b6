//! One certification authority of a trust store, and the files that belong to it.
//!
//! Owns what was read: key, signing policy, revocation list. Pure. Never lets a copy of an
//! authority that came without a list hide the list that came with another.

use rustls_pki_types::CertificateDer;

use super::certificate::Certificate;
use super::crl::Crl;
use super::policy::SigningPolicy;

/// One certificate of an authority, as read, and what came with it.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) der: CertificateDer<'static>,
    pub(super) issuer: Issuer,
}

/// A name and a key that may sign, and the files that belong to them.
///
/// One record even where an authority is in the store more than once: renewed with the same key, or
/// under OpenSSL's old hash and its new one. A list that came with one copy holds for all.
#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) name: String,
    /// DER of the subject, with its outer SEQUENCE.
    pub(super) subject: Vec<u8>,
    /// DER of the public key, with its outer SEQUENCE.
    pub(super) spki: Vec<u8>,
    /// Whether its key may sign revocation lists (RFC 5280 §6.3.3 f).
    pub(super) may_sign_lists: bool,
    pub(super) policy: Companion<SigningPolicy>,
    pub(super) crl: Companion<Crl>,
}

/// A file that belongs to an authority.
#[derive(Debug)]
pub(super) enum Companion<T> {
    Missing,
    Good(T),
    /// It is there and cannot be used; the text says which file and why.
    Bad(String),
}

impl Authority {
    pub(super) fn read(der: CertificateDer<'static>) -> Result<Self, String> {
        let issuer = {
            let certificate = Certificate::parse(&der, 1).map_err(|error| error.to_string())?;
            if !certificate.may_issue() && !certificate.is_version_1() {
                let name = certificate.name();
                return Err(format!("{name} is not a certification authority (no CA:TRUE and keyCertSign)"));
            }
            Issuer {
                name: certificate.name(),
                subject: certificate.x509.subject().as_raw().to_vec(),
                spki: certificate.spki().to_vec(),
                may_sign_lists: certificate.may_sign_lists(),
                policy: Companion::Missing,
                crl: Companion::Missing,
            }
        };
        Ok(Self { der, issuer })
    }

    /// Whether it names itself as its issuer; it is in the trust store, so nobody else need vouch.
    pub(super) fn is_self_signed(&self) -> bool {
        Certificate::parse(&self.der, 1).is_ok_and(|c| c.x509.subject().as_raw() == c.x509.issuer().as_raw())
    }
}

impl Issuer {
    pub(super) fn is(&self, subject: &[u8], spki: &[u8]) -> bool {
        self.subject == subject && self.spki == spki
    }

    /// Takes over what came with another copy of the same authority.
    pub(super) fn merge(&mut self, other: Self) {
        self.policy.merge(other.policy, |mine, other| {
            if *mine == other {
                Companion::Good(other)
            } else {
                Companion::Bad("it is in the trust folder twice, with different .signing_policy files".to_owned())
            }
        });
        self.crl.merge(other.crl, |mine, other| {
            Companion::Good(if other.is_newer_than(mine) { other } else { mine.clone() })
        });
    }
}

impl<T> Companion<T> {
    /// A good one counts more than a bad one, and a bad one more than none; `choose` of two good ones.
    fn merge(&mut self, other: Self, choose: impl FnOnce(&T, T) -> Self) {
        *self = match (&*self, other) {
            (Self::Good(mine), Self::Good(other)) => choose(mine, other),
            (Self::Missing, other) | (Self::Bad(_), other @ Self::Good(_)) => other,
            _ => return,
        };
    }

    /// Why it cannot be used, if it is there and cannot.
    pub(super) fn problem(&self) -> Option<&str> {
        match self {
            Self::Bad(problem) => Some(problem),
            Self::Missing | Self::Good(_) => None,
        }
    }
}
