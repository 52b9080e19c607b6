//! The client's data connections, as this door keeps them between transfers.
//!
//! Owns one [`DataPort`] at most, and turns what the client has set into what a port is to be. In stream mode a
//! transfer takes the port with it; in MODE E it stays here for the next. Never knows on which mover it is.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
};

use wire::{
    ftp::TransferMode,
    id::CosName,
    mover::{Framing, PeerCheck, Security, TlsSide},
};

use super::super::session::work::{Opener, PortRequest};
use crate::{
    failure::Failure,
    transfer::{DataPort, PortSpec, Running, Side, Transfers},
};

/// What about ports is the same for a whole session.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// Where the client's control connection comes from.
    pub(super) peer: IpAddr,
    /// Data connections may come from, or go to, other hosts.
    pub(super) foreign: bool,
    /// Whose certificate a TLS data connection must show, if it shows one.
    pub(super) subject: Option<String>,
    /// The most bytes a second of one transfer.
    pub(super) rate_limit: Option<u64>,
}

impl Terms {
    fn spec(&self, request: &PortRequest) -> PortSpec {
        let side = match &request.opener {
            Opener::Active(to) => Side::Active { to: to.clone() },
            Opener::Passive { striped, ipv6 } => {
                Side::Passive { delayed: false, striped: *striped, ipv6: *ipv6, renew: false }
            }
            Opener::Delayed { striped, ipv6, renew } => {
                Side::Passive { delayed: true, striped: *striped, ipv6: *ipv6, renew: *renew }
            }
        };
        let security = if request.private {
            // RFC 4217 section 7: the FTP client is the TLS client, whoever connects. Many show no certificate there.
            let subject = self.subject.clone().unwrap_or_default();
            Security::Tls { side: TlsSide::Server, peer: PeerCheck::SubjectIfShown(subject) }
        } else {
            Security::Clear
        };
        PortSpec {
            door: "ftp",
            framing: if request.mode == TransferMode::Extended { Framing::ModeE } else { Framing::Stream },
            streams: request.streams,
            security,
            peer: (!self.foreign).then_some(self.peer.to_canonical()),
            side,
            buffer_bytes: request.buffer_bytes,
            cos: request.cos.clone(),
            rate_limit: self.rate_limit,
        }
    }
}

/// The place of a session's port.
#[derive(Debug, Default)]
pub(super) struct Ports {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    port: Option<DataPort>,
    /// Counts how often the port was dropped: one that is opened meanwhile is out of date.
    drops: u64,
}

impl Ports {
    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the port.
    pub(super) fn drop_port(&self) {
        let port = self.with(|kept| {
            kept.drops += 1;
            kept.port.take()
        });
        drop(port);
    }

    /// Opens a passive port, keeps it, and says where it listens.
    ///
    /// # Errors
    ///
    /// As [`Transfers::port`].
    pub(super) async fn listen(
        &self,
        transfers: &Transfers,
        terms: &Terms,
        request: &PortRequest,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let drops = self.with(|kept| kept.drops);
        let port = transfers.port(terms.spec(request)).await?;
        let addresses = port.addresses();
        self.with(|kept| {
            if kept.drops == drops {
                kept.port = Some(port);
            }
        });
        Ok(addresses)
    }

    /// Begins a transfer over the kept port, or over a new one. The port comes back beside it if the transfer is to
    /// hold it until its end: in stream mode nobody else can use it.
    ///
    /// # Errors
    ///
    /// As [`Transfers::port`].
    pub(super) async fn begin(
        &self,
        transfers: &Transfers,
        terms: &Terms,
        request: &PortRequest,
        start: impl FnOnce(&mut DataPort) -> Running,
    ) -> Result<(Running, Option<DataPort>), Failure> {
        let (kept, drops) = self.with(|kept| (kept.port.take(), kept.drops));
        let mut port = match kept {
            Some(port) => port,
            None => transfers.port(terms.spec(request)).await?,
        };
        let running = start(&mut port);
        if request.mode != TransferMode::Extended {
            return Ok((running, Some(port)));
        }
        self.with(|kept| {
            if kept.drops == drops {
                kept.port = Some(port);
            }
        });
        Ok((running, None))
    }
}

/// The class of service of that name, as the client writes it.
///
/// # Errors
///
/// A failure that names it.
pub(super) fn class_name(text: &str) -> Result<CosName, Failure> {
    CosName::new(text).map_err(|error| Failure::new(crate::failure::FailureKind::BadArgument, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_what_the_client_has_set() {
        let mut terms = Terms {
            peer: "::ffff:192.0.2.7".parse().unwrap(),
            foreign: false,
            subject: Some("/O=Site/CN=Alice".to_owned()),
            rate_limit: None,
        };
        let mut request = PortRequest {
            opener: Opener::Delayed { striped: false, ipv6: false, renew: true },
            mode: TransferMode::Extended,
            streams: 4,
            private: true,
            buffer_bytes: None,
            cos: None,
        };
        let spec = terms.spec(&request);
        assert_eq!(spec.side, Side::Passive { delayed: true, striped: false, ipv6: false, renew: true });
        assert_eq!((spec.framing, spec.streams), (Framing::ModeE, 4));
        assert_eq!(spec.peer, Some("192.0.2.7".parse().unwrap()), "a mover knows the client by its IPv4 address");
        let peer = PeerCheck::SubjectIfShown("/O=Site/CN=Alice".to_owned());
        assert_eq!(spec.security, Security::Tls { side: TlsSide::Server, peer });
        request.private = false;
        terms.foreign = true;
        let spec = terms.spec(&request);
        assert_eq!((spec.security, spec.peer), (Security::Clear, None));
    }
}
