//! What a client has set for the transfers to come.
//!
//! Owns TYPE, MODE, PROT, the data endpoint and the options, and the one-shot values that the next transfer takes
//! with it (REST, ALLO, SCKS). Never opens anything.

use std::net::{IpAddr, SocketAddr};

use wire::{
    checksum::Algorithm,
    extent::{ByteRange, Coverage},
    ftp::{FactSet, Reply, Representation, RestartPoint, TransferMode},
    id::CosName,
};

use super::{
    super::path::AbsolutePath,
    Rules, Ticket,
    work::{AddressForm, Carriage, Destination, Opener, PortRequest, Wanted},
};

/// Most connections one transfer makes, whatever `OPTS RETR` asks. More do not help, and each costs the mover memory.
pub(super) const MAX_STREAMS: u16 = wire::mover::channel::MAX_STREAMS;

/// Largest TCP buffer that `SBUF` may ask for: beyond what a kernel grants anyway.
const MAX_BUFFER_BYTES: u64 = 64 << 20;

/// Seconds between two markers, unless `TREV` says otherwise: what the Globus server does.
const MARKER_SECONDS: u32 = 5;

/// Where the next transfer's data connections come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Nobody has said.
    None,
    /// We listen, and have told where.
    Listening {
        /// How we were asked.
        opener: Opener,
    },
    /// We shall listen, and tell where when the file is known.
    Delayed { form: AddressForm, ipv6: bool, renew: bool },
    /// The client listens.
    Active(Vec<SocketAddr>),
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) representation: Representation,
    pub(super) mode: TransferMode,
    pub(super) private: bool,
    /// `PBSZ` was said, so `PROT` may come.
    pub(super) protection_buffer: bool,
    pub(super) streams: u16,
    pub(super) buffer_bytes: Option<u32>,
    pub(super) delayed_passive: bool,
    pub(super) delayed_stripes: bool,
    /// `EPSV ALL` was said: no other set-up of data connections may come.
    pub(super) extended_only: bool,
    pub(super) facts: FactSet,
    pub(super) hash: Algorithm,
    pub(super) cos: Option<CosName>,
    pub(super) wait: Option<bool>,
    pub(super) marker_seconds: u32,
    pub(super) endpoint: Endpoint,
    /// The connections of the last transfer may be open still.
    pub(super) reusable: bool,
    /// The MODE E transfer that uses the endpoint's connections, or used them last.
    pub(super) carrier: Option<Ticket>,
    pub(super) restart: Option<RestartPoint>,
    pub(super) size_bytes: Option<u64>,
    pub(super) expected_sum: Option<(Algorithm, String)>,
    pub(super) rename_from: Option<AbsolutePath>,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            representation: Representation::Ascii,
            mode: TransferMode::Stream,
            private: false,
            protection_buffer: false,
            streams: 1,
            buffer_bytes: None,
            delayed_passive: false,
            delayed_stripes: false,
            extended_only: false,
            facts: FactSet::default(),
            hash: Algorithm::Adler32,
            cos: None,
            wait: None,
            marker_seconds: MARKER_SECONDS,
            endpoint: Endpoint::None,
            reusable: false,
            carrier: None,
            restart: None,
            size_bytes: None,
            expected_sum: None,
            rename_from: None,
        }
    }

    /// Sets `SBUF` and its like; 0 gives the choice back to the kernel.
    pub(super) fn set_buffer(&mut self, bytes: u64) {
        self.buffer_bytes = u32::try_from(bytes.min(MAX_BUFFER_BYTES)).ok().filter(|bytes| *bytes > 0);
    }

    /// Forgets data connections that were made for other settings; an address of the client's stays good.
    pub(super) fn drop_connections(&mut self) {
        self.reusable = false;
        self.carrier = None;
        if matches!(self.endpoint, Endpoint::Listening { .. }) {
            self.endpoint = Endpoint::None;
        }
    }

    /// Takes a new endpoint.
    pub(super) fn set_endpoint(&mut self, endpoint: Endpoint) {
        self.reusable = false;
        self.carrier = None;
        self.endpoint = endpoint;
    }

    /// The port to open for this opener, as things are set now.
    pub(super) fn port(&self, opener: Opener) -> PortRequest {
        let streams = if self.mode == TransferMode::Extended { self.streams } else { 1 };
        PortRequest {
            opener,
            mode: self.mode,
            streams,
            private: self.private,
            buffer_bytes: self.buffer_bytes,
            cos: self.cos.clone(),
        }
    }

    /// What the next transfer needs to move, or why it cannot.
    ///
    /// In stream mode the endpoint is used up: the end of the connection is the end of the data.
    ///
    /// # Errors
    ///
    /// The refusal: no endpoint, or a protection the rules ask for is off.
    pub(super) fn carriage(&mut self, rules: &Rules) -> Result<Carriage, Reply> {
        if rules.private_data_only && !self.private {
            return Err(Reply::new(521, "Data connections must be protected here: send PBSZ 0 and PROT P first."));
        }
        let (opener, announce) = match &self.endpoint {
            Endpoint::None => {
                return Err(Reply::new(425, "No data connection: send PASV, EPSV, PORT or EPRT first."));
            }
            Endpoint::Listening { opener } => (opener.clone(), None),
            Endpoint::Delayed { form, ipv6, renew } => {
                let striped = matches!(form, AddressForm::Striped { .. });
                (Opener::Delayed { striped, ipv6: *ipv6, renew: *renew }, Some(*form))
            }
            Endpoint::Active(addresses) => (Opener::Active(addresses.clone()), None),
        };
        let port = self.port(opener);
        let reused = self.reusable;
        let markers = self.mode == TransferMode::Extended;
        if self.mode == TransferMode::Stream {
            self.set_endpoint(Endpoint::None);
        }
        let marker_seconds = markers.then_some(self.marker_seconds);
        Ok(Carriage { port, announce, reused, fragile: false, marker_seconds })
    }

    /// Takes `REST` for a download.
    pub(super) fn take_wanted(&mut self) -> Result<Wanted, Reply> {
        match self.take_restart()? {
            RestartPoint::Offset(offset) => Ok(Wanted::From(offset)),
            RestartPoint::Ranges(have) => Ok(Wanted::Without(have)),
        }
    }

    /// Takes `REST` for an upload.
    pub(super) fn take_destination(&mut self) -> Result<Destination, Reply> {
        match self.take_restart()? {
            RestartPoint::Offset(0) => Ok(Destination::Whole),
            RestartPoint::Offset(offset) => Ok(Destination::From(offset)),
            RestartPoint::Ranges(have) => Ok(Destination::Without(have)),
        }
    }

    /// The restart point in the form of the mode: ranges in MODE E, an offset in stream mode.
    fn take_restart(&mut self) -> Result<RestartPoint, Reply> {
        let extended = self.mode == TransferMode::Extended;
        match self.restart.take() {
            None => Ok(RestartPoint::Offset(0)),
            Some(RestartPoint::Ranges(have)) if have.bytes() == 0 => Ok(RestartPoint::Offset(0)),
            Some(RestartPoint::Ranges(_)) if !extended => {
                Err(Reply::new(501, "Byte ranges restart transfers in MODE E; in stream mode send REST and an offset."))
            }
            Some(RestartPoint::Offset(offset)) if extended && offset > 0 => {
                let mut have = Coverage::new();
                let range = ByteRange::new(0, offset);
                let merged = range.map(|range| have.merge(range));
                match merged {
                    Ok(Ok(())) => Ok(RestartPoint::Ranges(have)),
                    _ => Err(Reply::new(501, "The restart point is beyond the largest file.")),
                }
            }
            Some(point) => Ok(point),
        }
    }

    /// Forgets what only the next transfer was to take with it.
    pub(super) fn clear_one_shots(&mut self) {
        self.restart = None;
        self.size_bytes = None;
        self.expected_sum = None;
    }
}

/// Checks the addresses of PORT, EPRT and SPOR: a server that connects wherever it is told is a tool for others'
/// attacks (RFC 2577 section 3).
///
/// # Errors
///
/// The refusal.
pub(super) fn check_targets(addresses: &[SocketAddr], rules: &Rules) -> Result<(), Reply> {
    for address in addresses {
        if address.port() < 1024 {
            return Err(Reply::new(
                504,
                format!("Port {} is refused: ports below 1024 are no data ports.", address.port()),
            ));
        }
        let ip = address.ip().to_canonical();
        if ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) {
            return Err(Reply::new(501, format!("{ip} is no address to connect to.")));
        }
        if ip != rules.peer.to_canonical() && !rules.foreign_data_addresses {
            let text = format!(
                "{ip} is not your address ({}); third-party transfers must be allowed in the gateway's configuration.",
                rules.peer.to_canonical()
            );
            return Err(Reply::new(504, text));
        }
    }
    Ok(())
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_point_takes_the_form_of_the_mode() {
        let mut settings = Settings::new();
        settings.restart = Some(RestartPoint::Offset(10));
        assert_eq!(settings.take_destination(), Ok(Destination::From(10)));
        assert_eq!(settings.take_destination(), Ok(Destination::Whole), "it is taken once");
        let mut have = Coverage::new();
        have.add(ByteRange::new(0, 10).unwrap()).unwrap();
        settings.restart = Some(RestartPoint::Ranges(have.clone()));
        assert_eq!(settings.take_wanted().unwrap_err().code(), 501);
        settings.mode = TransferMode::Extended;
        settings.restart = Some(RestartPoint::Offset(10));
        assert_eq!(settings.take_wanted(), Ok(Wanted::Without(have)));
    }

    #[test]
    fn a_buffer_is_bounded() {
        let mut settings = Settings::new();
        settings.set_buffer(u64::MAX);
        assert_eq!(settings.buffer_bytes, Some(64 << 20));
        settings.set_buffer(0);
        assert_eq!(settings.buffer_bytes, None);
    }
}
