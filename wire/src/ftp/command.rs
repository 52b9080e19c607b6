//! Everything a client may ask, typed.
//!
//! Owns the list of verbs. The text form lives beside it: [`parse`](super::parse) reads, `format` writes. Never says
//! whether a command is allowed or supported: a value that is well formed but not offered (`TYPE E`, `AUTH GSSAPI`) is
//! parsed, so that the session can refuse it by name.

use std::net::{SocketAddr, SocketAddrV4};

use crate::checksum::Algorithm;

use super::{
    CommandOption, EpsvArgument, FtpPath, FtpTime, Part, RestartPoint, Secret, SiteCommand, Text, Transaction,
};

/// One command line of the control connection.
///
/// `X` spellings of RFC 775 (`XCUP XCWD XMKD XPWD XRMD`) are read as the verbs of RFC 959.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    // ---- Who is asking: RFC 959 section 4.1.1
    /// `USER name`
    User(Text),
    /// `PASS secret`
    Pass(Secret),
    /// `ACCT information`
    Acct(Secret),
    /// `CWD path`
    Cwd(FtpPath),
    /// `CDUP`
    Cdup,
    /// `SMNT path`
    Smnt(FtpPath),
    /// `REIN`
    Rein,
    /// `QUIT`
    Quit,
    /// `CLNT name` (by custom)
    Clnt(Text),
    /// `LANG tag` or `LANG` (RFC 2640)
    Lang(Option<Text>),

    // ---- Protection: RFC 2228, 4217, GFD.20
    /// `AUTH mechanism`
    Auth(Authentication),
    /// `ADAT token`
    Adat(Secret),
    /// `PBSZ bytes`
    Pbsz(u32),
    /// `PROT level`
    Prot(Protection),
    /// `CCC`
    Ccc,
    /// `MIC token`
    Mic(Secret),
    /// `ENC token`
    Enc(Secret),
    /// `CONF token`
    Conf(Secret),
    /// `DCAU mode`
    Dcau(DataAuthentication),
    /// `DCSC type [blob]`
    Dcsc(DataCredential),

    // ---- How and where data flows: RFC 959 section 4.1.2, 2428, GFD.20
    /// `PORT h1,h2,h3,h4,p1,p2`
    Port(SocketAddrV4),
    /// `EPRT |family|address|port|`
    Eprt(SocketAddr),
    /// `PASV`
    Pasv,
    /// `EPSV [family|ALL]`
    Epsv(EpsvArgument),
    /// `SPAS`, or `SPAS 2` when `extended`: answer with `|1|ip|port|` lines
    Spas {
        /// Whether addresses are wanted in the form of RFC 2428.
        extended: bool,
    },
    /// `SPOR address address …`
    Spor(Vec<SocketAddr>),
    /// `TYPE code`
    Type(Representation),
    /// `STRU code`
    Stru(Structure),
    /// `MODE code`
    Mode(TransferMode),
    /// `SBUF bytes`: size of both TCP buffers
    Sbuf(u64),
    /// `TREV event seconds`: how often a marker is wanted
    Trev {
        /// `RESTART` or `PERF`, as sent.
        event: Text,
        /// The interval, in seconds.
        seconds: u64,
    },

    // ---- Data: RFC 959 section 4.1.3, 3659, GFD.20, GFD.47
    /// `RETR path`
    Retr(FtpPath),
    /// `STOR path`
    Stor(FtpPath),
    /// `STOU`
    Stou,
    /// `APPE path`
    Appe(FtpPath),
    /// `ALLO bytes`; also `ALLO64`
    Allo(u64),
    /// `REST marker`
    Rest(RestartPoint),
    /// `ERET P offset length path`
    Eret(Part),
    /// `ESTO A offset path`
    Esto {
        /// Where the first received byte goes in the file.
        offset_bytes: u64,
        /// The file.
        path: FtpPath,
    },
    /// `GET keyword=value;…`
    Get(Transaction),
    /// `PUT keyword=value;…`
    Put(Transaction),
    /// `ABOR`
    Abor,

    // ---- Names: RFC 959 section 4.1.3, 3659
    /// `RNFR path`
    Rnfr(FtpPath),
    /// `RNTO path`
    Rnto(FtpPath),
    /// `DELE path`
    Dele(FtpPath),
    /// `RMD path`
    Rmd(FtpPath),
    /// `MKD path`
    Mkd(FtpPath),
    /// `PWD`
    Pwd,
    /// `LIST [-flags] [path]`; the flags are dropped
    List(Option<FtpPath>),
    /// `NLST [-flags] [path]`; the flags are dropped
    Nlst(Option<FtpPath>),
    /// `MLST [path]`
    Mlst(Option<FtpPath>),
    /// `MLSD [path]`
    Mlsd(Option<FtpPath>),
    /// `MLSC [path]`: as MLSD, on the control connection (by custom of Globus)
    Mlsc(Option<FtpPath>),
    /// `STAT [-flags] [path]`; the flags are dropped
    Stat(Option<FtpPath>),
    /// `SIZE path`
    Size(FtpPath),
    /// `MDTM path`
    Mdtm(FtpPath),
    /// `MFMT time path`
    Mfmt {
        /// The new modification time.
        time: FtpTime,
        /// The file.
        path: FtpPath,
    },
    /// `CKSM algorithm offset length path`
    Cksm {
        /// Which sum.
        algorithm: Algorithm,
        /// First byte summed.
        offset_bytes: u64,
        /// How many bytes; `None` (-1 on the wire) to the end.
        length_bytes: Option<u64>,
        /// The file.
        path: FtpPath,
    },
    /// `SCKS algorithm value`: the sum the next stored file must have
    Scks {
        /// Which sum.
        algorithm: Algorithm,
        /// Its value in lower-case hexadecimal.
        value: Text,
    },
    /// `HASH path`
    Hash(FtpPath),

    // ---- The rest: RFC 959 section 4.1.3, 2389
    /// `FEAT`
    Feat,
    /// `OPTS command options`
    Opts(CommandOption),
    /// `SITE command arguments`
    Site(SiteCommand),
    /// `SYST`
    Syst,
    /// `HELP [command]`
    Help(Option<Text>),
    /// `NOOP`
    Noop,
}

/// Mechanisms named by `AUTH`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authentication {
    /// `TLS` or `TLS-C`: RFC 4217, data clear until PROT P.
    Tls,
    /// `SSL` or `TLS-P`: an old spelling that implies PROT P.
    TlsPrivate,
    /// `GSSAPI` (RFC 2228); GSI of the grid.
    Gssapi,
    /// Anything else, to be refused with 504.
    Other(Text),
}

/// Levels of `PROT` (RFC 2228 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    /// `C`: data in clear.
    Clear,
    /// `S`: integrity.
    Safe,
    /// `E`: confidentiality without integrity.
    Confidential,
    /// `P`: private.
    Private,
}

/// `DCAU`: who the other end of a data connection must be (GFD.20 section 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataAuthentication {
    /// `N`: nobody is asked.
    None,
    /// `A`: the same identity as on the control connection.
    Own,
    /// `S subject`
    Subject(Text),
}

/// `DCSC`: which credential the server shows on data connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataCredential {
    /// `D`: the default one again.
    Default,
    /// `P blob`: this one, base64 of PEM.
    Pem(Secret),
}

/// `TYPE` (RFC 959 section 3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Representation {
    /// `A [N]`: text with CR LF on the wire.
    Ascii,
    /// `E`
    Ebcdic,
    /// `I`: bytes as they are. `L 8` is read as this.
    Image,
    /// `L bits`, other than 8
    Local(u8),
}

/// `STRU` (RFC 959 section 3.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Structure {
    /// `F`
    File,
    /// `R`
    Record,
    /// `P`
    Page,
}

/// `MODE` (RFC 959 section 3.4, GFD.20 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferMode {
    /// `S`: one connection, closed at the end of the file.
    Stream,
    /// `B`
    Block,
    /// `C`
    Compressed,
    /// `E`: blocks with offsets over any number of connections.
    Extended,
}
