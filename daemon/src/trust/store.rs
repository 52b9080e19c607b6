//! The trusted authorities, and the judgement over a chain that leads to one.
//!
//! Owns an immutable snapshot of authorities with their policies and revocation lists. Pure after
//! construction. Never trusts an authority that is not self-signed as an end of a chain: an
//! intermediate one in the store helps to find the way to its root, whose list counts too.

use std::cell::RefCell;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::authority::{Authority, Companion, Issuer};
use super::certificate::Certificate;
use super::dn::Dn;
use super::error::{Kind, TrustError};
use super::{Fingerprint, Identity, Purpose, Requirement, TrustOptions, micros, proxy};

/// More certificates than any real chain (proxies, user, two or three authorities) has.
const MAX_CHAIN: usize = 20;
const TOO_MANY_AUTHORITIES: &str = "more authorities stand above it than one of them allows";

/// Trusted authorities at one moment.
#[derive(Debug)]
pub struct TrustStore {
    /// What is known of each name and key that may sign.
    issuers: Vec<Issuer>,
    /// Self-signed authorities, as webpki wants them and as they are; in the same order.
    anchors: Vec<TrustAnchor<'static>>,
    roots: Vec<CertificateDer<'static>>,
    /// Authorities that are not self-signed: links a peer need not send.
    links: Vec<CertificateDer<'static>>,
    options: TrustOptions,
    algorithms: WebPkiSupportedAlgorithms,
    problems: Vec<String>,
}

impl TrustStore {
    /// Assembles a store; `problems` are texts about files that could not be used.
    pub(super) fn assemble(authorities: Vec<Authority>, options: TrustOptions, problems: Vec<String>) -> Self {
        let algorithms = crate::tls::provider().signature_verification_algorithms;
        let (issuers, anchors, roots, links) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut store = Self { issuers, anchors, roots, links, options, algorithms, problems };
        for authority in authorities {
            if !authority.is_self_signed() {
                store.links.push(authority.der);
            } else if !store.roots.contains(&authority.der) {
                match webpki::anchor_from_trusted_cert(&authority.der) {
                    Ok(anchor) => {
                        store.anchors.push(anchor.to_owned());
                        store.roots.push(authority.der);
                    }
                    Err(error) => {
                        let name = &authority.issuer.name;
                        store.problems.push(format!("authority {name} cannot be used: {error:?}"));
                    }
                }
            }
            let issuer = authority.issuer;
            match store.issuers.iter_mut().find(|known| known.is(&issuer.subject, &issuer.spki)) {
                Some(known) => known.merge(issuer),
                None => store.issuers.push(issuer),
            }
        }
        for issuer in &store.issuers {
            for problem in [issuer.policy.problem(), issuer.crl.problem()].into_iter().flatten() {
                store.problems.push(format!("authority {} is refused: {problem}", issuer.name));
            }
        }
        store
    }

    /// Files that were found and could not be used, for the log.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// How many authorities can end a chain.
    #[must_use]
    pub fn roots(&self) -> usize {
        self.anchors.len()
    }

    /// Judges `chain`, leaf first, as it was presented at `now`.
    ///
    /// That the peer holds the leaf's key is the TLS handshake's to prove, not this function's.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the certificate that breaks it and the next step.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<Identity, TrustError> {
        if chain.len() > MAX_CHAIN {
            return Err(TrustError::TooLong { count: chain.len(), limit: MAX_CHAIN });
        }
        let mut certificates = chain
            .iter()
            .enumerate()
            .map(|(index, der)| Certificate::parse(der, index + 1))
            .collect::<Result<Vec<_>, _>>()?;
        proxy::bring_in_order(&mut certificates);
        let proxies = proxy::walk(&certificates, &self.algorithms, now)?;
        let end_entity = &certificates[proxies.levels];
        end_entity.check_validity(Kind::Certificate, now)?;
        let attributes = end_entity.attributes()?;
        let end = self.authority_path(end_entity, &certificates[proxies.levels + 1..], purpose, now)?;
        let proxies_end = certificates[..=proxies.levels].iter().map(Certificate::not_after).min();
        Ok(Identity {
            subject: Dn::of(&attributes),
            attributes,
            proxy_levels: proxies.levels,
            limited: proxies.limited,
            fingerprint: Fingerprint::of(chain),
            authority: end.root,
            not_after_us: micros(proxies_end.map_or(end.not_after, |proxies| proxies.min(end.not_after))),
        })
    }

    /// Checks that the end-entity certificate of a verified `chain` is for the host `name`.
    ///
    /// Only alternative names count, not the common name (RFC 6125 §6.4.4, RFC 9525). A host does
    /// not speak through a proxy.
    pub(crate) fn check_host(
        &self,
        chain: &[CertificateDer<'_>],
        identity: &Identity,
        name: &ServerName<'_>,
    ) -> Result<(), TrustError> {
        let leaf = chain.first().ok_or(TrustError::Missing)?;
        let certificate = Certificate::parse(leaf, 1)?;
        let fits = !identity.is_proxy()
            && EndEntityCert::try_from(leaf).is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(name).is_ok());
        if fits {
            return Ok(());
        }
        Err(TrustError::WrongHost {
            host: name.to_str().into_owned(),
            subject: certificate.name(),
            valid_for: certificate.hosts(),
        })
    }

    /// Finds a path from `end_entity` to a root of the store on which every rule holds.
    fn authority_path(
        &self,
        end_entity: &Certificate<'_>,
        presented: &[Certificate<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<PathEnd, TrustError> {
        let refused = |error| self.explain(error, end_entity, presented, purpose, now);
        let parsed = EndEntityCert::try_from(end_entity.der).map_err(refused)?;
        let presented_links = presented.iter().filter(|certificate| !certificate.is_proxy()).map(|c| c.der);
        // Borrowed, not copied: a folder may hold many.
        let links: Vec<CertificateDer<'_>> =
            presented_links.chain(&self.links).map(|der| CertificateDer::from(der.as_ref())).collect();
        // webpki lets us reject a finished path and tries the next one. Its error type cannot
        // carry our reason, so our verdict on the last path stays here.
        let verdict = RefCell::new(None);
        let judge = |path: &VerifiedPath<'_>| {
            let judged = self.judge_path(path, end_entity, now);
            let rejected = judged.is_err();
            let mut verdict = verdict.borrow_mut();
            // Of several rejected paths the first is the likeliest to be meant.
            if !rejected || verdict.is_none() {
                *verdict = Some(judged);
            }
            if rejected { Err(webpki::Error::CertDistrusted) } else { Ok(()) }
        };
        let attempt =
            |usage| parsed.verify_for_usage(self.algorithms.all, &self.anchors, &links, now, usage, None, Some(&judge));
        let verified = match purpose {
            Purpose::Client => attempt(KeyUsage::client_auth()),
            Purpose::Server => attempt(KeyUsage::server_auth()),
            Purpose::Either => attempt(KeyUsage::client_auth()).or_else(|_| attempt(KeyUsage::server_auth())),
        };
        match (verified.map(drop), verdict.into_inner()) {
            (Ok(()), Some(judged)) | (Err(_), Some(judged @ Err(_))) => judged,
            (Err(error), _) => Err(refused(error)),
            (Ok(()), None) => Err(TrustError::Refused {
                subject: end_entity.name(),
                reason: "its path to an authority was not judged".to_owned(),
            }),
        }
    }

    /// Applies to every authority of a path what webpki does not know.
    fn judge_path(
        &self,
        path: &VerifiedPath<'_>,
        end_entity: &Certificate<'_>,
        now: UnixTime,
    ) -> Result<PathEnd, TrustError> {
        let root =
            self.anchors.iter().zip(&self.roots).find(|(anchor, _)| *anchor == path.anchor()).map(|(_, der)| der);
        let root = root.expect("webpki ends a path in one of the anchors it was given");
        let mut ders: Vec<CertificateDer<'_>> = path.intermediate_certificates().map(|c| c.der()).collect();
        ders.push(CertificateDer::from(root.as_ref()));
        let issuers = ders.iter().map(|der| Certificate::parse(der, 1)).collect::<Result<Vec<_>, _>>()?;
        let (mut not_after, mut child, mut authorities_below) = (i64::MAX, end_entity, 0);
        for issuer in &issuers {
            issuer.check_validity(Kind::Authority, now)?;
            // webpki does not look at a root's own limit; OpenSSL does.
            if issuer.path_length().is_some_and(|limit| authorities_below > limit) {
                return Err(TrustError::Refused {
                    subject: end_entity.name(),
                    reason: TOO_MANY_AUTHORITIES.to_owned(),
                });
            }
            self.judge_step(child, issuer, now)?;
            not_after = not_after.min(issuer.not_after());
            // Renewals an authority made of itself do not count (RFC 5280 §6.1.4).
            authorities_below += u32::from(issuer.x509.subject().as_raw() != issuer.x509.issuer().as_raw());
            child = issuer;
        }
        Ok(PathEnd { root: Fingerprint::of(std::slice::from_ref(root)), not_after })
    }

    /// Whether `issuer` may have issued `child`, and has not taken it back.
    fn judge_step(&self, child: &Certificate<'_>, issuer: &Certificate<'_>, now: UnixTime) -> Result<(), TrustError> {
        let (subject, issuer_name) = (child.name(), issuer.name());
        // An old root of version 1 has no extensions to say CA:TRUE with; being in the store does.
        let is_old_root = issuer.is_version_1() && self.roots.contains(issuer.der);
        if !issuer.may_issue() && !is_old_root {
            return Err(TrustError::NotAnAuthority { subject, issuer: issuer_name });
        }
        let ours = self.issuers.iter().find(|known| known.is(issuer.x509.subject().as_raw(), issuer.spki()));
        match ours.map_or(&Companion::Missing, |authority| &authority.policy) {
            Companion::Good(policy) => {
                if !policy
                    .permits(&Dn::of(&issuer.attributes()?).to_string(), &Dn::of(&child.attributes()?).to_string())
                {
                    return Err(TrustError::Policy { subject, issuer: issuer_name });
                }
            }
            Companion::Bad(problem) => {
                return Err(TrustError::Authority { issuer: issuer_name, problem: problem.clone() });
            }
            Companion::Missing if self.options.signing_policy == Requirement::Required => {
                let problem =
                    "it has no .signing_policy file in the trust folder, and the configuration requires one".to_owned();
                return Err(TrustError::Authority { issuer: issuer_name, problem });
            }
            Companion::Missing => {}
        }
        match ours.map_or(&Companion::Missing, |authority| &authority.crl) {
            Companion::Good(crl) => crl.check(child.x509.raw_serial(), subject, issuer_name, now),
            Companion::Bad(problem) => Err(TrustError::Authority { issuer: issuer_name, problem: problem.clone() }),
            Companion::Missing if self.options.crl == Requirement::Required => {
                Err(TrustError::CrlMissing { issuer: issuer_name })
            }
            Companion::Missing => Ok(()),
        }
    }

    /// Puts webpki's error into words that name a certificate.
    fn explain(
        &self,
        error: webpki::Error,
        end_entity: &Certificate<'_>,
        presented: &[Certificate<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> TrustError {
        use webpki::Error as E;
        let subject = end_entity.name();
        match error {
            E::UnknownIssuer => {
                // Follow the chain as far as it connects; the last link is the one to name. Bounded,
                // because a peer may send certificates that issue each other.
                let mut last = end_entity;
                for _ in presented {
                    let issuer = last.x509.issuer().as_raw();
                    match presented
                        .iter()
                        .find(|c| c.x509.subject().as_raw() == issuer && c.x509.issuer().as_raw() != issuer)
                    {
                        Some(next) => last = next,
                        None => break,
                    }
                }
                TrustError::UnknownIssuer { subject: last.name(), issuer: last.issuer_name() }
            }
            E::CertExpired { .. } | E::CertNotValidYet { .. } => presented
                .iter()
                .find_map(|certificate| certificate.check_validity(Kind::Authority, now).err())
                .or_else(|| {
                    self.links
                        .iter()
                        .find_map(|der| Certificate::parse(der, 1).ok()?.check_validity(Kind::Authority, now).err())
                })
                .unwrap_or(TrustError::Refused {
                    subject,
                    reason: "a certificate of its chain is not valid now".to_owned(),
                }),
            E::InvalidSignatureForPublicKey => TrustError::BadSignature { subject, issuer: end_entity.issuer_name() },
            E::EndEntityUsedAsCa => {
                let issuer =
                    presented.iter().find(|certificate| !certificate.is_proxy() && !certificate.claims_authority());
                TrustError::NotAnAuthority {
                    subject,
                    issuer: issuer.map_or_else(|| end_entity.issuer_name(), Certificate::name),
                }
            }
            E::RequiredEkuNotFoundContext(_) => {
                TrustError::Purpose { subject, purpose: if purpose == Purpose::Server { "server" } else { "client" } }
            }
            E::CaUsedAsEndEntity => {
                TrustError::Refused { subject, reason: "it is an authority's own, which may not log in".to_owned() }
            }
            E::UnsupportedCertVersion => TrustError::Refused {
                subject,
                reason: "it is not of X.509 version 3; have it issued with extensions".to_owned(),
            },
            E::UnsupportedCriticalExtension => {
                TrustError::Refused { subject, reason: "it has a critical extension that is not understood".to_owned() }
            }
            E::PathLenConstraintViolated => TrustError::Refused { subject, reason: TOO_MANY_AUTHORITIES.to_owned() },
            E::NameConstraintViolation => TrustError::Refused {
                subject,
                reason: "an authority above it may not issue such names (name constraints)".to_owned(),
            },
            E::UnsupportedSignatureAlgorithmContext(_) => TrustError::Refused {
                subject,
                reason: "it is signed with an algorithm that is no longer accepted (SHA-1 or a short key)".to_owned(),
            },
            other => TrustError::Refused { subject, reason: format!("{other:?}") },
        }
    }
}

/// The upper end of a path that passed.
#[derive(Debug)]
struct PathEnd {
    root: Fingerprint,
    /// Seconds since the epoch at which the first authority of the path expires.
    not_after: i64,
}
