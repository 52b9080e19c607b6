//! One client's data connections, on whatever movers they are.

use std::net::{IpAddr, SocketAddr};

use wire::{
    id::CosName,
    mover::{Framing, Security},
};

/// What a client's data connections are to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// The door, for metrics: `ftp`.
    pub door: &'static str,
    /// How data is laid on the connections.
    pub framing: Framing,
    /// How many connections each mover makes when it connects and sends in MODE E (`OPTS RETR Parallelism`); 1 in
    /// stream mode. Cut to what movers take.
    pub streams: u16,
    /// Clear or TLS.
    pub security: Security,
    /// Only connections from this address are taken: the control connection's. `None` lets anybody in who passes
    /// `security`: third-party transfers, if the site allows them.
    pub peer: Option<IpAddr>,
    /// Who connects to whom.
    pub side: Side,
    /// Socket buffer size to set.
    pub buffer_bytes: Option<u32>,
    /// The class of service that the session would write with: where a passive side that is not delayed should listen.
    pub cos: Option<CosName>,
    /// The most bytes a second of one transfer.
    pub rate_limit: Option<u64>,
}

/// Who connects to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// Movers connect to the client: `PORT`, `EPRT`, `SPOR`.
    Active {
        /// Where the client listens; several for `SPOR`.
        to: Vec<SocketAddr>,
    },
    /// The client connects to movers: `PASV`, `EPSV`, `SPAS`.
    Passive {
        /// The address is told when the file is known ([`super::Step::Passive`]), so that its mover can be chosen.
        delayed: bool,
        /// Several addresses may be told.
        striped: bool,
        /// IPv6 addresses are wanted.
        ipv6: bool,
        /// A later transfer over the same port may be told new addresses. If not, what lies elsewhere is relayed.
        renew: bool,
    },
}

/// One client's data connections. In MODE E they are kept over several transfers. Dropping it closes them all; what
/// moves over them fails.
#[derive(Debug)]
pub struct DataPort {
    spec: PortSpec,
}

impl DataPort {
    /// Where the client connects to, for a passive side that is not delayed.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        todo!()
    }

    /// What it was made from.
    #[must_use]
    pub const fn spec(&self) -> &PortSpec {
        &self.spec
    }
}
