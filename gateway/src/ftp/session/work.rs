//! What a session asks its driver to do, and what may come of it.
//!
//! Owns the two vocabularies between the pure session and the commands that act: [`Work`] down, [`Outcome`] up. A
//! piece of work carries everything it needs, as it was set when its turn came: what the client sets afterwards
//! belongs to the next one.

use std::net::SocketAddr;

use wire::{
    checksum::Algorithm,
    extent::Coverage,
    ftp::{FactSet, FtpTime, Reply, Representation, Text, TransferMode},
    id::{AccountName, CosName},
};

use super::super::path::AbsolutePath;

/// One thing to do; it ends with one [`Outcome`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Find out who this is and let them in.
    Login(Login),
    /// Work on names.
    Names(NameWork),
    /// Answer a question about an entry.
    Ask(Question),
    /// List a directory or file in the reply itself, one level deep (`MLSC`, `STAT path`).
    Show {
        /// The entry.
        path: AbsolutePath,
        /// In which form.
        form: ListForm,
    },
    /// A class of service for the files stored next.
    ChooseCos(Text),
    /// Bring a file to disk, and wait that long for it.
    Stage {
        /// The file.
        path: AbsolutePath,
        /// How long the reply may wait; `None` answers as soon as the request is queued.
        wait_seconds: Option<u64>,
    },
    /// Open data connections now, since the client wants to be told where.
    Listen {
        /// What to open.
        port: PortRequest,
        /// How to tell.
        form: AddressForm,
    },
    /// Send a file.
    Retrieve(Retrieve),
    /// Receive a file.
    Store(Store),
    /// Send a listing.
    List(List),
}

/// Who wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// The holder of the certificate shown in the TLS handshake; as this account, or the certificate's first one.
    Certificate {
        /// The account named by `USER`.
        account: Option<AccountName>,
    },
    /// Anybody, where the configuration lets anybody in.
    Anonymous,
}

/// Changes of the name space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameWork {
    /// `CWD`, `CDUP`
    Enter(AbsolutePath),
    /// `MKD`
    Make(AbsolutePath),
    /// `RMD`
    RemoveDirectory(AbsolutePath),
    /// `DELE`
    Delete(AbsolutePath),
    /// `RNFR`
    BeginRename(AbsolutePath),
    /// `RNTO`
    Rename {
        /// The entry.
        from: AbsolutePath,
        /// What it shall be called.
        to: AbsolutePath,
    },
    /// `MFMT`, `SITE UTIME`
    SetModified {
        /// The entry.
        path: AbsolutePath,
        /// When it shall have changed last.
        time: FtpTime,
        /// Which of the two asked: their replies differ.
        verb: &'static str,
    },
    /// `SITE CHMOD`
    SetMode {
        /// The entry.
        path: AbsolutePath,
        /// Permission bits, at most 0o7777.
        mode: u32,
    },
    /// `SITE CHGRP`
    SetGroup {
        /// The entry.
        path: AbsolutePath,
        /// Its new group.
        group: Text,
    },
    /// `SITE CHOWN`
    SetOwner {
        /// The entry.
        path: AbsolutePath,
        /// Its new owner.
        owner: Text,
    },
}

/// Questions that change nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// `SIZE`
    Size(AbsolutePath),
    /// `MDTM`
    Modified(AbsolutePath),
    /// `MLST`
    Facts {
        /// The entry.
        path: AbsolutePath,
        /// What the client called it, and is answered with.
        named: String,
        /// Which facts.
        facts: FactSet,
    },
    /// `CKSM`
    Checksum {
        /// The file.
        path: AbsolutePath,
        /// Which sum.
        algorithm: Algorithm,
        /// First byte summed.
        offset_bytes: u64,
        /// How many; `None` to the end.
        length_bytes: Option<u64>,
    },
    /// `HASH`
    Hash {
        /// The file.
        path: AbsolutePath,
        /// What the client called it, and is answered with.
        named: String,
        /// Which sum.
        algorithm: Algorithm,
    },
    /// `SITE USAGE`
    Usage(AbsolutePath),
    /// `SITE PARTIAL`
    Partial(AbsolutePath),
    /// `SITE LSCOS`
    Classes,
}

/// How a listing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListForm {
    /// As `ls -l` writes it (`LIST`, `STAT path`).
    Long,
    /// Names only (`NLST`).
    Names,
    /// Facts (`MLSD`, `MLSC`).
    Facts(FactSet),
}

/// The data connections a transfer is to use, if none are open already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRequest {
    /// Who connects to whom.
    pub opener: Opener,
    /// Stream or extended block mode; no other is offered.
    pub mode: TransferMode,
    /// How many connections to make where we connect and send, at least 1.
    pub streams: u16,
    /// TLS (`PROT P`).
    pub private: bool,
    /// TCP buffer size asked for by `SBUF`.
    pub buffer_bytes: Option<u32>,
    /// The class of service of files stored next: where to listen before the file is named.
    pub cos: Option<CosName>,
}

/// Who connects to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opener {
    /// The client connects, to addresses told before the file was named.
    Passive {
        /// One address for each stripe (`SPAS`), not one in all.
        striped: bool,
        /// An IPv6 address is wanted.
        ipv6: bool,
    },
    /// The client connects, to an address told when the file is known.
    Delayed {
        /// One address for each mover that takes part, not one in all.
        striped: bool,
        /// An IPv6 address is wanted.
        ipv6: bool,
        /// The client can be told another address for every transfer (GFD.47, SPAS), not only for the first.
        renew: bool,
    },
    /// We connect to these.
    Active(Vec<SocketAddr>),
}

/// How an address of ours is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressForm {
    /// 227, or 127 when delayed.
    Comma,
    /// 229, or 129 when delayed.
    Extended,
    /// 229 with a line for each stripe, or 129 when delayed.
    Striped {
        /// In the form of RFC 2428.
        extended: bool,
    },
}

/// What a transfer's driver needs besides the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carriage {
    /// The data connections.
    pub port: PortRequest,
    /// How to tell the address, if it was not told yet.
    pub announce: Option<AddressForm>,
    /// Connections of the transfer before may be open still: 125 instead of 150.
    pub reused: bool,
    /// An upload of which nothing but the end of its connection says that it is whole: stream mode, without a length or
    /// a sum announced. A client that dies ends its connections just so, both of them: the upload is whole if the control
    /// connection is still there when it is.
    pub fragile: bool,
    /// Seconds between two markers; `None` sends none.
    pub marker_seconds: Option<u32>,
}

impl Carriage {
    /// Whether the client has its data connection, or an address for it, before the file is there.
    pub const fn is_told(&self) -> bool {
        self.reused || matches!(self.port.opener, Opener::Passive { .. })
    }
}

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrieve {
    /// The file.
    pub path: AbsolutePath,
    /// Which bytes of it.
    pub wanted: Wanted,
    /// Whether to wait for a file on tape; `None` as its class of service says.
    pub wait: Option<bool>,
    /// By what.
    pub carriage: Carriage,
}

/// Which bytes of a file are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// All, or all from this offset on (`REST n`).
    From(u64),
    /// All but these (`REST a-b,c-d`).
    Without(Coverage),
    /// These, and MODE E offsets count from the first of them (`ERET P`).
    Part {
        /// First byte.
        offset_bytes: u64,
        /// How many; the end of the file may come sooner.
        length_bytes: u64,
    },
}

/// A file to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The file; for [`Destination::NewName`], the directory.
    pub path: AbsolutePath,
    /// Where in it the bytes go.
    pub into: Destination,
    /// `ALLO`: how many bytes will come.
    pub size_bytes: Option<u64>,
    /// `SCKS`: the sum the whole file must have.
    pub expected_sum: Option<(Algorithm, String)>,
    /// `SITE SETCOS`.
    pub cos: Option<CosName>,
    /// By what.
    pub carriage: Carriage,
}

/// Where received bytes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// They are the file (`STOR`).
    Whole,
    /// They go on at this offset, which is where an upload was cut or a file ends (`REST n`).
    From(u64),
    /// They fill the gaps between these ranges of a cut upload (`REST a-b,c-d`).
    Without(Coverage),
    /// Behind the end of the file, or of a cut upload (`APPE`).
    End,
    /// Over the file from this offset on; MODE E offsets count from there (`ESTO A`).
    At(u64),
    /// They are a new file with a name of our choice (`STOU`).
    NewName,
}

/// A listing to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The directory or file.
    pub path: AbsolutePath,
    /// In which form.
    pub form: ListForm,
    /// `TYPE`: lines end in CR LF either way, so it only shows in the reply.
    pub representation: Representation,
    /// By what.
    pub carriage: Carriage,
}

/// What came of a piece of [`Work`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This is the answer, and nothing of the session changes.
    Replied(Reply),
    /// They are in.
    LoggedIn {
        /// As whom.
        account: AccountName,
        /// Where they begin.
        home: AbsolutePath,
        /// The answer.
        reply: Reply,
    },
    /// They are not.
    LoginRefused(Reply),
    /// The working directory is this one now.
    Entered(AbsolutePath, Reply),
    /// `RNTO` may follow.
    RenameBegun(AbsolutePath, Reply),
    /// Files stored next get this class of service.
    CosChosen(CosName, Reply),
    /// Data connections are open, and the reply says where.
    Listening(Reply),
    /// A reply that had begun cannot be ended truthfully: the connection must go. The reply says why, to the log.
    Broken(Reply),
    /// A transfer or listing has ended.
    Transferred {
        /// The answer.
        reply: Reply,
        /// Whether its data connections may serve another one.
        reusable: bool,
    },
}

impl Outcome {
    /// The answer.
    pub const fn reply(&self) -> &Reply {
        match self {
            Self::Replied(reply)
            | Self::LoginRefused(reply)
            | Self::Entered(_, reply)
            | Self::RenameBegun(_, reply)
            | Self::CosChosen(_, reply)
            | Self::Listening(reply)
            | Self::Broken(reply)
            | Self::LoggedIn { reply, .. }
            | Self::Transferred { reply, .. } => reply,
        }
    }
}
