//! Files and listings over data connections: from a transfer's steps to 1yz replies and its end.
//!
//! Talks to [`crate::files`] for the right to read or write, then to [`crate::transfer`], and only passes on what that
//! says. Never sees a byte of a file.
//!
//! # A file on tape
//!
//! Where the client was told an address already, 150 comes as soon as it is known that the file must be fetched: curl
//! and lftp, gfal and globus-url-copy then sit on the open data connection for as long as it takes, but give up on a
//! silent control connection after two to five minutes (measured). Where the address is told later, it is told when the
//! file is there, which is what grid clients wait for.

use std::time::Duration;

use catalog::TreePath;
use tracing::info;
use wire::{extent::ByteRange, ftp::Reply};

use super::{
    super::{
        desk::Voice,
        session::work::{AddressForm, Carriage, Destination, List, Outcome, PortRequest, Retrieve, Store, Wanted},
    },
    Commands,
    listing::Listing,
    markers::Markers,
    refusal::{Operation, refusal, sentence},
};
use crate::{
    failure::{Failure, FailureKind},
    files::{Files, Target},
    identity::Principal,
    transfer::{self, Part, Presence, Running, Step, StoreMode, Summary},
};

/// The end of a transfer that never began.
fn refused(failure: &Failure, operation: Operation) -> Outcome {
    // Nothing was done to the connections.
    Outcome::Transferred { reply: refusal(failure, operation), reusable: true }
}

impl Commands {
    /// `PASV`, `EPSV`, `SPAS`
    pub(super) async fn listen(&self, port: PortRequest, form: AddressForm) -> Outcome {
        let addresses = match self.ports.listen(&self.services.transfers, &self.port_terms(), &port).await {
            Ok(addresses) => addresses,
            Err(failure) => return Outcome::Replied(refusal(&failure, "listen")),
        };
        match passive_reply(&addresses, form, self.local) {
            Ok(reply) => Outcome::Listening(reply),
            Err(reply) => {
                self.ports.drop_port();
                Outcome::Replied(reply)
            }
        }
    }

    /// `RETR`, `ERET`, `GET`
    pub(super) async fn retrieve(&self, retrieve: Retrieve, voice: Voice) -> Outcome {
        let Retrieve { path, wanted, wait, carriage } = retrieve;
        let prepared = async {
            let who = self.who()?;
            let file = self.services.files.readable(&who, &self.tree(&path)?).await?;
            let part = part(wanted, file.file.size_bytes)?;
            if wait == Some(false) && !file.file.residency.on_disk {
                let text =
                    format!("{path} is on tape, and you said SITE WAIT OFF: SITE STAGE {path} brings it to disk");
                return Err(Failure::new(FailureKind::NotStaged, text));
            }
            Ok(transfer::Retrieve { file, principal: who, part })
        };
        let what = match prepared.await {
            Ok(what) => what,
            Err(failure) => return refused(&failure, "open"),
        };
        let mut opened = false;
        if wait == Some(true) && !what.file.file.residency.on_disk {
            opened = carriage.is_told();
            if let Err(failure) = self.fetch(&what, opened, &voice).await {
                return refused(&failure, "open");
            }
        }
        let transfers = &self.services.transfers;
        let begun = self
            .ports
            .begin(transfers, &self.port_terms(), &carriage.port, |port| transfers.retrieve(port, what))
            .await;
        self.follow_from(begun, carriage, &voice, "open", opened).await
    }

    /// Brings a file to disk first, where the client waits and its class of service would not (`SITE WAIT ON`).
    async fn fetch(&self, what: &transfer::Retrieve, told: bool, voice: &Voice) -> Result<(), Failure> {
        if told {
            voice.announce(Reply::new(150, "The file comes from tape, and follows when it is here.")).await;
        }
        let (progress, _) = tokio::sync::mpsc::channel(1);
        tokio::select! {
            staged = self.services.stager.stage(what.file.file.bitfile, &what.principal, progress) => staged,
            () = voice.cancelled() => Err(Failure::new(FailureKind::Cancelled, "aborted while the file came from tape")),
        }
    }

    /// `STOR`, `APPE`, `ESTO`, `STOU`, `PUT`
    pub(super) async fn store(&self, store: Store, voice: Voice) -> Outcome {
        let Store { path, into, size_bytes, expected_sum, cos, carriage } = store;
        let unique = into == Destination::NewName;
        let prepared = async {
            let who = self.who()?;
            let path = if unique { self.new_name(&path)? } else { path.clone() };
            let target = self.services.files.target(&who, &self.tree(&path)?).await?;
            let mode = match into {
                Destination::From(offset) if self.ends_at(&who, &target, offset).await? => StoreMode::Append,
                into => store_mode(into)?,
            };
            let what = transfer::Store {
                target,
                principal: who,
                mode,
                cos,
                size_bytes,
                sum: expected_sum,
                modified_us: None,
                client: carriage.fragile.then(|| self.presence()),
            };
            Ok((what, path))
        };
        let (what, path) = match prepared.await {
            Ok(prepared) => prepared,
            Err(failure) => return refused(&failure, "open"),
        };
        if unique {
            // RFC 1123 section 4.1.2.9: the name is told in exactly this form, before the transfer.
            voice.announce(Reply::new(150, format!("FILE: {}", path.name()))).await;
        }
        let transfers = &self.services.transfers;
        let begun =
            self.ports.begin(transfers, &self.port_terms(), &carriage.port, |port| transfers.store(port, what)).await;
        self.follow_from(begun, carriage, &voice, "open", unique).await
    }

    /// Asks whether the client is still there. When its connection is gone, so is it.
    fn presence(&self) -> Presence {
        let line = self.line.clone();
        Presence::new(move || line.upgrade().is_some_and(|line| !line.is_cut()))
    }

    /// Whether an offset to go on at is the end of the file that is there, and not of a cut upload.
    async fn ends_at(&self, who: &Principal, target: &Target, offset: u64) -> Result<bool, Failure> {
        let size = target.existing.as_ref().and_then(|entry| entry.file()).map(|file| file.size_bytes);
        if size != Some(offset) {
            return Ok(false);
        }
        let path = Files::path(&TreePath::root(), &target.path)?;
        Ok(self.services.files.cut_upload(who, &path).await?.is_none())
    }

    /// `LIST`, `NLST`, `MLSD`
    pub(super) async fn list(&self, list: List, voice: Voice) -> Outcome {
        let List { path, form, carriage, .. } = list;
        let opened = async {
            let who = self.who()?;
            Listing::open(&self.services.files, &who, self.tree(&path)?, form, self.services.clock.now_us()).await
        };
        let text = match opened.await {
            Ok(listing) => listing.text(),
            Err(failure) => return refused(&failure, "stat"),
        };
        let transfers = &self.services.transfers;
        let begun =
            self.ports.begin(transfers, &self.port_terms(), &carriage.port, |port| transfers.listing(port, text)).await;
        self.follow(begun, carriage, &voice, "stat").await
    }

    async fn follow<P>(
        &self,
        begun: Result<(Running, P), Failure>,
        carriage: Carriage,
        voice: &Voice,
        operation: Operation,
    ) -> Outcome {
        self.follow_from(begun, carriage, voice, operation, false).await
    }

    /// Passes on what a transfer says until its end. `opened`: 150 has been said already.
    async fn follow_from<P>(
        &self,
        begun: Result<(Running, P), Failure>,
        carriage: Carriage,
        voice: &Voice,
        operation: Operation,
        mut opened: bool,
    ) -> Outcome {
        let (mut running, held) = match begun {
            Ok(begun) => begun,
            Err(failure) => return Outcome::Transferred { reply: refusal(&failure, operation), reusable: false },
        };
        let wall_ms = || u64::try_from(self.services.clock.now_us() / 1000).unwrap_or(0);
        let marked = carriage.marker_seconds.is_some();
        let mut markers = Markers::new(Duration::from_secs(carriage.marker_seconds.unwrap_or(1).into()));
        let mut data_began = false;
        let mut cancelled = false;
        let mut heeds = true;
        loop {
            let step = tokio::select! {
                () = voice.cancelled(), if heeds && !cancelled => {
                    cancelled = true;
                    running.cancel();
                    continue;
                }
                step = running.next() => step,
            };
            match step {
                Some(Step::Waiting(waiting)) => {
                    info!(reason = %waiting.reason, ahead = waiting.ahead, "waits for tape");
                    if carriage.is_told() && !opened {
                        opened = true;
                        voice.announce(Reply::new(150, sentence(&waiting_text(&waiting)))).await;
                    }
                }
                Some(Step::Passive(addresses)) => {
                    if let Some(form) = carriage.announce {
                        match delayed_reply(&addresses, form) {
                            Some(reply) => voice.announce(reply).await,
                            None => running.cancel(),
                        }
                    }
                }
                // Only HTTP clients are sent to a door.
                Some(Step::Door { .. }) => {}
                Some(Step::Opening { reused, bytes }) => {
                    data_began = true;
                    if !opened {
                        opened = true;
                        voice.announce(opening_reply(reused, bytes)).await;
                    }
                }
                Some(Step::Progress(progress)) => {
                    let transfer::Progress { stripe, stripes, bytes, ranges } = progress;
                    let now = self.services.clock.monotonic();
                    let due = markers.report(stripe, stripes, bytes, &ranges, now, wall_ms());
                    let show = marked && !ranges_of_a_download(&ranges, bytes);
                    voice.progress(markers.bytes(), if show { due } else { Vec::new() }).await;
                }
                Some(Step::Received) => {
                    // From here on the bytes are ours to keep, whether the client waits for it or not; unless only
                    // the client could tell that they are all.
                    heeds = carriage.fragile;
                    voice.received().await;
                }
                Some(Step::Done(result)) => {
                    // In stream mode the port ends with its transfer.
                    drop(held);
                    let reusable = result.is_ok() || !data_began;
                    let reply = match result {
                        Ok(summary) => {
                            if marked && summary.stored.is_some() {
                                voice.progress(markers.bytes(), markers.finish(wall_ms())).await;
                            }
                            done_reply(&summary)
                        }
                        Err(failure) => refusal(&failure, operation),
                    };
                    return Outcome::Transferred { reply, reusable };
                }
                None => {
                    let failure = Failure::new(FailureKind::Internal, "the transfer ended without an end: try again");
                    return Outcome::Transferred { reply: refusal(&failure, operation), reusable: false };
                }
            }
        }
    }
}

/// Whether a report is of sending: there is nothing to restart then, and clients expect no marker.
fn ranges_of_a_download(ranges: &[ByteRange], bytes: u64) -> bool {
    ranges.is_empty() && bytes > 0
}

fn waiting_text(waiting: &transfer::Waiting) -> String {
    format!("the file comes from tape, and follows when it is here: {}", standing(waiting))
}

/// Why a file waits, at which place, and for how long still.
pub(super) fn standing(waiting: &transfer::Waiting) -> String {
    let ahead = match waiting.ahead {
        None | Some(0) => String::new(),
        Some(1) => "; one request is before this one".to_owned(),
        Some(ahead) => format!("; {ahead} requests are before this one"),
    };
    let estimate = waiting.estimate.map(|time| format!("; in about {} s", time.as_secs())).unwrap_or_default();
    format!("{}{ahead}{estimate}", waiting.reason)
}

fn opening_reply(reused: bool, bytes: Option<u64>) -> Reply {
    let size = bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
    if reused {
        Reply::new(125, format!("Beginning transfer over the open data connections{size}."))
    } else {
        Reply::new(150, format!("Beginning transfer{size}."))
    }
}

fn done_reply(summary: &Summary) -> Reply {
    match &summary.stored {
        Some(stored) => Reply::new(
            226,
            format!("Transfer complete: {} bytes stored, adler32 {:08x}.", stored.size_bytes, stored.sums.adler32),
        ),
        None => Reply::new(226, format!("Transfer complete: {} bytes sent.", summary.bytes)),
    }
}

/// Where the client connects to, before the file is named.
///
/// RFC 2428 has EPSV name a port only, on the address of the control connection; curl fails on any other form. Where
/// the data lives elsewhere, EPSV is therefore refused, which makes clients fall back to PASV.
fn passive_reply(
    addresses: &[std::net::SocketAddr],
    form: AddressForm,
    local: std::net::IpAddr,
) -> Result<Reply, Reply> {
    let nowhere = || Reply::new(425, "No mover can listen at the moment: try again.");
    let first = addresses.first().ok_or_else(nowhere)?;
    let canonical = std::net::SocketAddr::new(first.ip().to_canonical(), first.port());
    match (form, canonical) {
        (AddressForm::Striped { extended }, _) => Ok(Reply::striped_passive(addresses, extended)),
        (AddressForm::Comma, std::net::SocketAddr::V4(v4)) => Ok(Reply::passive(&v4)),
        (AddressForm::Comma, _) => Err(Reply::new(425, "The data is at an IPv6 address: send EPSV.")),
        (AddressForm::Extended, _) if canonical.ip() == local.to_canonical() => {
            Ok(Reply::extended_passive(canonical.port()))
        }
        (AddressForm::Extended, _) => {
            let text = "The data is on another host, and EPSV can name a port of this one only: send PASV.";
            Err(Reply::new(522, text))
        }
    }
}

/// Where the client connects to, once the file is known. `None` if it cannot be told in this form.
fn delayed_reply(addresses: &[std::net::SocketAddr], form: AddressForm) -> Option<Reply> {
    let first = addresses.first()?;
    let canonical = std::net::SocketAddr::new(first.ip().to_canonical(), first.port());
    match (form, canonical) {
        (AddressForm::Comma, std::net::SocketAddr::V4(v4)) => Some(Reply::delayed_passive(&v4)),
        (AddressForm::Comma, _) => None,
        (AddressForm::Extended, _) => Some(Reply::delayed_extended_passive(&canonical)),
        (AddressForm::Striped { extended }, _) => Some(Reply::delayed_striped_passive(addresses, extended)),
    }
}

/// Which bytes are read.
fn part(wanted: Wanted, size_bytes: u64) -> Result<Part, Failure> {
    let beyond = |offset: u64| {
        let text = format!("the file has {size_bytes} bytes: nothing begins at {offset}");
        Failure::new(FailureKind::BadArgument, text)
    };
    match wanted {
        Wanted::From(0) => Ok(Part::Whole),
        Wanted::From(offset) if offset > size_bytes => Err(beyond(offset)),
        Wanted::From(offset) => Ok(Part::From(offset)),
        Wanted::Without(have) => Ok(Part::Except(have.ranges().collect())),
        Wanted::Part { offset_bytes, .. } if offset_bytes > size_bytes => Err(beyond(offset_bytes)),
        Wanted::Part { offset_bytes, length_bytes } => {
            let length_bytes = length_bytes.min(size_bytes - offset_bytes);
            let range = ByteRange::new(offset_bytes, length_bytes);
            Ok(Part::Relative(range.map_err(|error| Failure::new(FailureKind::BadArgument, error))?))
        }
    }
}

/// What is written.
fn store_mode(into: Destination) -> Result<StoreMode, Failure> {
    let bad = |error| Failure::new(FailureKind::BadArgument, error);
    Ok(match into {
        Destination::Whole | Destination::NewName => StoreMode::Whole,
        Destination::From(offset) => StoreMode::Resume { have: vec![ByteRange::new(0, offset).map_err(bad)?] },
        Destination::Without(have) => StoreMode::Resume { have: have.ranges().collect() },
        Destination::End => StoreMode::Append,
        Destination::At(offset_bytes) => StoreMode::At { offset_bytes },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsv_is_refused_where_curl_would_connect_to_the_wrong_host() {
        let here = "192.0.2.1".parse().unwrap();
        let on_us = ["192.0.2.1:4000".parse().unwrap()];
        let elsewhere = ["192.0.2.9:4000".parse().unwrap()];
        let code = |addresses: &[std::net::SocketAddr], form| {
            let (Ok(reply) | Err(reply)) = passive_reply(addresses, form, here);
            reply.code()
        };
        assert_eq!(code(&on_us, AddressForm::Extended), 229);
        assert_eq!(code(&elsewhere, AddressForm::Extended), 522);
        assert_eq!(code(&elsewhere, AddressForm::Comma), 227);
        assert_eq!(code(&["[::1]:5".parse().unwrap()], AddressForm::Comma), 425);
        assert_eq!(code(&[], AddressForm::Comma), 425);
        assert_eq!(
            delayed_reply(&elsewhere, AddressForm::Extended).unwrap().first(),
            "Entering Extended Passive Mode (|1|192.0.2.9|4000|)"
        );
        let stripes = delayed_reply(&elsewhere, AddressForm::Striped { extended: false }).unwrap();
        assert!(stripes.is_preliminary());
        assert_eq!(stripes.striped_addresses().unwrap(), elsewhere);
    }

    #[test]
    fn where_a_request_stands_is_one_sentence() {
        let mut waiting =
            transfer::Waiting { ahead: Some(2), estimate: None, reason: "both drives are busy".to_owned() };
        assert_eq!(standing(&waiting), "both drives are busy; 2 requests are before this one");
        waiting.ahead = Some(0);
        waiting.estimate = Some(Duration::from_secs(90));
        assert_eq!(standing(&waiting), "both drives are busy; in about 90 s");
    }

    #[test]
    fn a_part_is_cut_to_the_file_and_cannot_begin_behind_it() {
        let range = |offset, length| ByteRange::new(offset, length).unwrap();
        assert_eq!(part(Wanted::From(0), 10), Ok(Part::Whole));
        assert_eq!(part(Wanted::From(10), 10), Ok(Part::From(10)));
        assert_eq!(part(Wanted::From(11), 10).unwrap_err().ftp_code(), 501);
        let wanted = Wanted::Part { offset_bytes: 4, length_bytes: u64::MAX };
        assert_eq!(part(wanted, 10), Ok(Part::Relative(range(4, 6))));
        let wanted = Wanted::Part { offset_bytes: u64::MAX, length_bytes: 1 };
        assert_eq!(part(wanted, 10).unwrap_err().ftp_code(), 501);
    }
}
