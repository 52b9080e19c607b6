//! Transfers and their data connections, as the session sees them.
//!
//! Owns what PASV to SPOR mean, which bytes a transfer command asks for, and what becomes of the data connections
//! afterwards. Never opens one.

use std::net::SocketAddr;

use wire::ftp::{
    AddressFamily, Command, EpsvArgument, FtpPath, Part, Reply, Representation, Transaction, TransactionEndpoint,
    TransferMode,
};

use super::{
    super::path::AbsolutePath,
    Action, Session, Ticket,
    lane::Turn,
    settings::{Endpoint, check_targets},
    work::{AddressForm, Carriage, Destination, List, ListForm, Opener, Retrieve, Store, Wanted, Work},
};

/// Whether a command moves data over data connections, so that ABOR stops it.
pub(super) const fn moves_data(command: &Command) -> bool {
    matches!(
        command,
        Command::Retr(_)
            | Command::Stor(_)
            | Command::Stou
            | Command::Appe(_)
            | Command::Eret(_)
            | Command::Esto { .. }
            | Command::Get(_)
            | Command::Put(_)
            | Command::List(_)
            | Command::Nlst(_)
            | Command::Mlsd(_)
    )
}

impl Session {
    /// When a transfer may begin; `None` if the command is no transfer of one file.
    pub(super) fn transfer_turn(&self, command: &Command) -> Option<Turn> {
        let path = match command {
            Command::Retr(path)
            | Command::Stor(path)
            | Command::Eret(Part { path, .. })
            | Command::Esto { path, .. }
            | Command::Get(Transaction { path, .. })
            | Command::Put(Transaction { path, .. }) => path,
            _ => return None,
        };
        // One that is too long is refused when its turn comes.
        Some(self.directory.join(path).map_or(Turn::Quiet, Turn::QuietBut))
    }

    // ---- Data connections

    /// `PORT`, `EPRT`, `SPOR`
    pub(super) fn active(&mut self, verb: &str, addresses: Vec<SocketAddr>, actions: &mut Vec<Action>) {
        let reply = if self.settings.extended_only {
            extended_only(verb)
        } else if let Err(refusal) = check_targets(&addresses, &self.rules) {
            refusal
        } else {
            self.settings.set_endpoint(Endpoint::Active(addresses));
            actions.push(Action::DropPort);
            Reply::new(200, format!("{verb} command successful."))
        };
        self.lane.answer(reply, actions);
    }

    /// `PASV`, `EPSV`, `SPAS`
    pub(super) fn passive(&mut self, verb: &'static str, form: AddressForm, ipv6: bool, actions: &mut Vec<Action>) {
        actions.push(Action::DropPort);
        // A receiver of several addresses knows that later transfers may come from other movers.
        let renew = matches!(form, AddressForm::Striped { .. });
        let delayed = match form {
            AddressForm::Striped { .. } => {
                self.settings.delayed_stripes && self.settings.mode == TransferMode::Extended
            }
            AddressForm::Comma | AddressForm::Extended => self.settings.delayed_passive,
        };
        if delayed {
            self.settings.set_endpoint(Endpoint::Delayed { form, ipv6, renew });
            return self.lane.answer(Reply::passive_is_delayed(), actions);
        }
        // Nothing is known to listen until the driver says so.
        self.settings.set_endpoint(Endpoint::None);
        let opener = Opener::Passive { striped: matches!(form, AddressForm::Striped { .. }), ipv6 };
        let port = self.settings.port(opener.clone());
        self.opening = Some(opener);
        self.run(verb, Work::Listen { port, form }, actions);
    }

    /// `PASV`
    pub(super) fn pasv(&mut self, actions: &mut Vec<Action>) {
        if self.settings.extended_only {
            return self.lane.answer(extended_only("PASV"), actions);
        }
        if self.rules.peer.to_canonical().is_ipv6() {
            let text = "PASV can name IPv4 addresses only: send EPSV.";
            return self.lane.answer(Reply::new(425, text), actions);
        }
        self.passive("PASV", AddressForm::Comma, false, actions);
    }

    /// `EPSV`
    pub(super) fn epsv(&mut self, argument: EpsvArgument, actions: &mut Vec<Action>) {
        let ipv6 = self.rules.peer.to_canonical().is_ipv6();
        match argument {
            EpsvArgument::All => {
                self.settings.extended_only = true;
                self.lane.answer(Reply::new(200, "EPSV ALL: only EPSV from now on."), actions);
            }
            // The reply names a port only: it is on the address of the control connection.
            EpsvArgument::Family(family) if (family == AddressFamily::V6) != ipv6 => {
                let use_this = if ipv6 { 2 } else { 1 };
                let text = format!("Network protocol not supported here, use ({use_this}).");
                self.lane.answer(Reply::new(522, text), actions);
            }
            EpsvArgument::Family(_) | EpsvArgument::Same => self.passive("EPSV", AddressForm::Extended, ipv6, actions),
        }
    }

    /// `SPAS`
    pub(super) fn spas(&mut self, extended: bool, actions: &mut Vec<Action>) {
        let ipv6 = self.rules.peer.to_canonical().is_ipv6();
        if self.settings.extended_only {
            return self.lane.answer(extended_only("SPAS"), actions);
        }
        if ipv6 && !extended {
            let text = "SPAS can name IPv4 addresses only: send SPAS 2.";
            return self.lane.answer(Reply::new(425, text), actions);
        }
        self.passive("SPAS", AddressForm::Striped { extended }, ipv6, actions);
    }

    /// The driver listens, as it was asked.
    pub(super) fn listening(&mut self) {
        if let Some(opener) = self.opening.take() {
            self.settings.set_endpoint(Endpoint::Listening { opener });
        }
    }

    /// All bytes of a transfer are in: in MODE E its connections are the next one's.
    pub(super) fn received(&mut self, ticket: Ticket) {
        self.lane.received(ticket);
        if self.settings.carrier == Some(ticket) {
            self.settings.reusable = true;
        }
    }

    /// What becomes of the data connections behind a transfer. In stream mode they went with it; in MODE E they are
    /// ours still, unless something took their place.
    pub(super) fn transferred(&mut self, ticket: Ticket, reusable: bool, actions: &mut Vec<Action>) {
        if self.settings.carrier == Some(ticket) {
            self.settings.reusable = reusable;
            if !reusable {
                self.settings.drop_connections();
                actions.push(Action::DropPort);
            }
        }
    }

    // ---- Which bytes

    /// `RETR`, `ERET P`, `GET`
    pub(super) fn retrieve(
        &mut self,
        verb: &'static str,
        path: &FtpPath,
        part: Option<(u64, u64)>,
        actions: &mut Vec<Action>,
    ) {
        match self.prepare_retrieve(path, part) {
            Ok(retrieve) => {
                let path = retrieve.path.clone();
                self.begin_transfer(verb, Some(path), Work::Retrieve(retrieve), actions);
            }
            Err(refusal) => self.refuse_transfer(refusal, actions),
        }
    }

    fn prepare_retrieve(&mut self, path: &FtpPath, part: Option<(u64, u64)>) -> Result<Retrieve, Reply> {
        let path = self.resolve(Some(path))?;
        let wanted = match (part, self.settings.take_wanted()?) {
            (None, wanted) => wanted,
            (Some((offset_bytes, length_bytes)), Wanted::From(0)) => Wanted::Part { offset_bytes, length_bytes },
            _ => return Err(Reply::new(503, "REST and ERET cannot both say which bytes are wanted.")),
        };
        let wait = self.settings.wait;
        Ok(Retrieve { path, wanted, wait, carriage: self.file_carriage()? })
    }

    /// `STOR`, `APPE`, `ESTO A`, `STOU`, `PUT`
    pub(super) fn store(&mut self, verb: &'static str, path: &FtpPath, how: StoreAs, actions: &mut Vec<Action>) {
        match self.prepare_store(path, how) {
            Ok(store) => {
                let path = store.path.clone();
                self.begin_transfer(verb, Some(path), Work::Store(store), actions);
            }
            Err(refusal) => self.refuse_transfer(refusal, actions),
        }
    }

    fn prepare_store(&mut self, path: &FtpPath, how: StoreAs) -> Result<Store, Reply> {
        let path = self.resolve(Some(path))?;
        let into = match (how, self.settings.take_destination()?) {
            (StoreAs::File, restart) => restart,
            (StoreAs::Append, Destination::Whole) => Destination::End,
            (StoreAs::At(offset), Destination::Whole) => Destination::At(offset),
            (StoreAs::NewName, Destination::Whole) => Destination::NewName,
            _ => return Err(Reply::new(503, "REST restarts RETR and STOR only: repeat with STOR.")),
        };
        let (size_bytes, expected_sum) = (self.settings.size_bytes.take(), self.settings.expected_sum.take());
        let cos = self.settings.cos.clone();
        let mut carriage = self.file_carriage()?;
        carriage.fragile = carriage.port.mode == TransferMode::Stream && size_bytes.is_none() && expected_sum.is_none();
        Ok(Store { path, into, size_bytes, expected_sum, cos, carriage })
    }

    /// `LIST`, `NLST`, `MLSD`
    pub(super) fn list(
        &mut self,
        verb: &'static str,
        path: Option<&FtpPath>,
        form: ListForm,
        actions: &mut Vec<Action>,
    ) {
        let prepared = self.resolve(path).and_then(|path| Ok((path, self.settings.carriage(&self.rules)?)));
        match prepared {
            Ok((path, carriage)) => {
                self.settings.clear_one_shots();
                let representation = self.settings.representation;
                let work = Work::List(List { path, form, representation, carriage });
                self.begin_transfer(verb, None, work, actions);
            }
            Err(refusal) => self.refuse_transfer(refusal, actions),
        }
    }

    /// GFD.47 `GET` and `PUT`: the mode and the endpoint come with the file.
    pub(super) fn transact(&mut self, verb: &'static str, transaction: Transaction, actions: &mut Vec<Action>) {
        let Transaction { path, mode, endpoint } = transaction;
        if let Some(mode) = mode.filter(|mode| *mode != self.settings.mode) {
            if !matches!(mode, TransferMode::Stream | TransferMode::Extended) {
                return self.refuse_transfer(mode_refused(mode), actions);
            }
            self.settings.mode = mode;
            self.settings.drop_connections();
            actions.push(Action::DropPort);
        }
        match endpoint {
            None => {}
            Some(TransactionEndpoint::Passive) => {
                let ipv6 = self.rules.peer.to_canonical().is_ipv6();
                let form = if ipv6 { AddressForm::Extended } else { AddressForm::Comma };
                let delayed = Endpoint::Delayed { form, ipv6, renew: true };
                if self.settings.endpoint != delayed {
                    self.settings.set_endpoint(delayed);
                    actions.push(Action::DropPort);
                }
            }
            Some(TransactionEndpoint::Port(address)) => {
                if let Err(refusal) = check_targets(&[address], &self.rules) {
                    return self.refuse_transfer(refusal, actions);
                }
                let active = Endpoint::Active(vec![address]);
                if self.settings.endpoint != active {
                    self.settings.set_endpoint(active);
                    actions.push(Action::DropPort);
                }
            }
        }
        if verb == "GET" {
            self.retrieve(verb, &path, None, actions);
        } else {
            self.store(verb, &path, StoreAs::File, actions);
        }
    }

    fn file_carriage(&mut self) -> Result<Carriage, Reply> {
        if !matches!(self.settings.representation, Representation::Ascii | Representation::Image) {
            return Err(Reply::new(504, "Only TYPE A and TYPE I are offered."));
        }
        self.settings.carriage(&self.rules)
    }

    fn begin_transfer(
        &mut self,
        verb: &'static str,
        path: Option<AbsolutePath>,
        work: Work,
        actions: &mut Vec<Action>,
    ) {
        self.settings.clear_one_shots();
        let fragile = matches!(&work, Work::Store(store) if store.carriage.fragile);
        let ticket = self.lane.begin_transfer(verb, path, fragile);
        if self.settings.mode == TransferMode::Extended {
            self.settings.carrier = Some(ticket);
        }
        actions.push(Action::Run { ticket, work: Box::new(work) });
    }

    fn refuse_transfer(&mut self, refusal: Reply, actions: &mut Vec<Action>) {
        self.settings.clear_one_shots();
        self.lane.answer(refusal, actions);
    }
}

/// Which command stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreAs {
    /// `STOR`, `PUT`
    File,
    /// `APPE`
    Append,
    /// `ESTO A`
    At(u64),
    /// `STOU`
    NewName,
}

/// The refusal of a transfer mode that is not offered.
pub(super) fn mode_refused(mode: TransferMode) -> Reply {
    Reply::new(504, format!("MODE {} is not offered: S and E are.", mode.letter()))
}

fn extended_only(verb: &str) -> Reply {
    Reply::new(503, format!("{verb} is refused since you said EPSV ALL: send EPSV."))
}
