//! Writes a [`Command`] as a line: the reverse of [`parse`](super::parse).
//!
//! Invariant: what `line` writes, `Command::parse` reads back as an equal command.

use bytes::{BufMut, BytesMut};

use super::{
    Authentication, Command, DataAuthentication, DataCredential, EpsvArgument, Part, Protection, Representation,
    RestartPoint, Structure, TransferMode, address, ranges::format_ranges,
};

impl TransferMode {
    /// The letter on the wire.
    pub const fn letter(self) -> char {
        match self {
            Self::Stream => 'S',
            Self::Block => 'B',
            Self::Compressed => 'C',
            Self::Extended => 'E',
        }
    }
}

impl Protection {
    /// The letter on the wire.
    pub const fn letter(self) -> char {
        match self {
            Self::Clear => 'C',
            Self::Safe => 'S',
            Self::Confidential => 'E',
            Self::Private => 'P',
        }
    }
}

impl Command {
    /// The verb, for logs and counters. Never holds anything the peer chose.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::User(_) => "USER",
            Self::Pass(_) => "PASS",
            Self::Acct(_) => "ACCT",
            Self::Cwd(_) => "CWD",
            Self::Cdup => "CDUP",
            Self::Smnt(_) => "SMNT",
            Self::Rein => "REIN",
            Self::Quit => "QUIT",
            Self::Clnt(_) => "CLNT",
            Self::Lang(_) => "LANG",
            Self::Auth(_) => "AUTH",
            Self::Adat(_) => "ADAT",
            Self::Pbsz(_) => "PBSZ",
            Self::Prot(_) => "PROT",
            Self::Ccc => "CCC",
            Self::Mic(_) => "MIC",
            Self::Enc(_) => "ENC",
            Self::Conf(_) => "CONF",
            Self::Dcau(_) => "DCAU",
            Self::Dcsc(_) => "DCSC",
            Self::Port(_) => "PORT",
            Self::Eprt(_) => "EPRT",
            Self::Pasv => "PASV",
            Self::Epsv(_) => "EPSV",
            Self::Spas { .. } => "SPAS",
            Self::Spor(_) => "SPOR",
            Self::Type(_) => "TYPE",
            Self::Stru(_) => "STRU",
            Self::Mode(_) => "MODE",
            Self::Sbuf(_) => "SBUF",
            Self::Trev { .. } => "TREV",
            Self::Retr(_) => "RETR",
            Self::Stor(_) => "STOR",
            Self::Stou => "STOU",
            Self::Appe(_) => "APPE",
            Self::Allo(_) => "ALLO",
            Self::Rest(_) => "REST",
            Self::Eret(_) => "ERET",
            Self::Esto { .. } => "ESTO",
            Self::Get(_) => "GET",
            Self::Put(_) => "PUT",
            Self::Abor => "ABOR",
            Self::Rnfr(_) => "RNFR",
            Self::Rnto(_) => "RNTO",
            Self::Dele(_) => "DELE",
            Self::Rmd(_) => "RMD",
            Self::Mkd(_) => "MKD",
            Self::Pwd => "PWD",
            Self::List(_) => "LIST",
            Self::Nlst(_) => "NLST",
            Self::Mlst(_) => "MLST",
            Self::Mlsd(_) => "MLSD",
            Self::Mlsc(_) => "MLSC",
            Self::Stat(_) => "STAT",
            Self::Size(_) => "SIZE",
            Self::Mdtm(_) => "MDTM",
            Self::Mfmt { .. } => "MFMT",
            Self::Cksm { .. } => "CKSM",
            Self::Scks { .. } => "SCKS",
            Self::Hash(_) => "HASH",
            Self::Feat => "FEAT",
            Self::Opts(_) => "OPTS",
            Self::Site(_) => "SITE",
            Self::Syst => "SYST",
            Self::Help(_) => "HELP",
            Self::Noop => "NOOP",
        }
    }

    /// The line, without its end. May hold a secret: for the socket, not for a log.
    pub fn line(&self) -> String {
        let arguments = self.arguments();
        if arguments.is_empty() { self.verb().to_owned() } else { format!("{} {arguments}", self.verb()) }
    }

    /// Appends the line and CR LF.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(self.line().as_bytes());
        out.put_slice(b"\r\n");
    }

    fn arguments(&self) -> String {
        match self {
            Self::User(text) | Self::Clnt(text) => text.to_string(),
            Self::Pass(secret)
            | Self::Acct(secret)
            | Self::Adat(secret)
            | Self::Mic(secret)
            | Self::Enc(secret)
            | Self::Conf(secret) => secret.as_str().to_owned(),
            Self::Cwd(path)
            | Self::Smnt(path)
            | Self::Retr(path)
            | Self::Stor(path)
            | Self::Appe(path)
            | Self::Rnfr(path)
            | Self::Rnto(path)
            | Self::Dele(path)
            | Self::Rmd(path)
            | Self::Mkd(path)
            | Self::Size(path)
            | Self::Mdtm(path)
            | Self::Hash(path) => path.to_string(),
            Self::Mlst(path) | Self::Mlsd(path) | Self::Mlsc(path) => {
                path.as_ref().map(ToString::to_string).unwrap_or_default()
            }
            // Or a name that begins with "-" would be read as flags.
            Self::List(path) | Self::Nlst(path) | Self::Stat(path) => match path {
                Some(path) if path.as_str().starts_with('-') => format!("./{path}"),
                Some(path) => path.to_string(),
                None => String::new(),
            },
            Self::Lang(text) | Self::Help(text) => text.as_ref().map(ToString::to_string).unwrap_or_default(),
            Self::Auth(mechanism) => match mechanism {
                Authentication::Tls => "TLS".to_owned(),
                Authentication::TlsPrivate => "SSL".to_owned(),
                Authentication::Gssapi => "GSSAPI".to_owned(),
                Authentication::Other(name) => name.to_string(),
            },
            Self::Pbsz(bytes) => bytes.to_string(),
            Self::Prot(level) => level.letter().to_string(),
            Self::Dcau(DataAuthentication::None) => "N".to_owned(),
            Self::Dcau(DataAuthentication::Own) => "A".to_owned(),
            Self::Dcau(DataAuthentication::Subject(subject)) => format!("S {subject}"),
            Self::Dcsc(DataCredential::Default) => "D".to_owned(),
            Self::Dcsc(DataCredential::Pem(blob)) => format!("P {}", blob.as_str()),
            Self::Port(address) => address::format_comma(address),
            Self::Eprt(address) => address::format_delimited(address),
            Self::Epsv(EpsvArgument::Same) => String::new(),
            Self::Epsv(EpsvArgument::Family(family)) => family.number().to_string(),
            Self::Epsv(EpsvArgument::All) => "ALL".to_owned(),
            Self::Spas { extended } => if *extended { "2" } else { "" }.to_owned(),
            Self::Spor(addresses) => addresses.iter().map(address::format_either).collect::<Vec<_>>().join(" "),
            Self::Type(kind) => match kind {
                Representation::Ascii => "A".to_owned(),
                Representation::Ebcdic => "E".to_owned(),
                Representation::Image => "I".to_owned(),
                Representation::Local(bits) => format!("L {bits}"),
            },
            Self::Stru(structure) => match structure {
                Structure::File => "F",
                Structure::Record => "R",
                Structure::Page => "P",
            }
            .to_owned(),
            Self::Mode(mode) => mode.letter().to_string(),
            Self::Sbuf(bytes) | Self::Allo(bytes) => bytes.to_string(),
            Self::Trev { event, seconds } => format!("{event} {seconds}"),
            Self::Rest(RestartPoint::Offset(offset)) => offset.to_string(),
            Self::Rest(RestartPoint::Ranges(ranges)) => format_ranges(ranges),
            Self::Eret(Part { offset_bytes, length_bytes, path }) => format!("P {offset_bytes} {length_bytes} {path}"),
            Self::Esto { offset_bytes, path } => format!("A {offset_bytes} {path}"),
            Self::Get(transaction) | Self::Put(transaction) => transaction.line(),
            Self::Mfmt { time, path } => format!("{time} {path}"),
            Self::Cksm { algorithm, offset_bytes, length_bytes, path } => {
                let length = length_bytes.map_or("-1".to_owned(), |length| length.to_string());
                format!("{} {offset_bytes} {length} {path}", algorithm.name())
            }
            Self::Scks { algorithm, value } => format!("{} {value}", algorithm.name()),
            Self::Opts(option) => option.line(),
            Self::Site(site) => site.line(),
            Self::Cdup
            | Self::Rein
            | Self::Quit
            | Self::Ccc
            | Self::Pasv
            | Self::Stou
            | Self::Abor
            | Self::Pwd
            | Self::Feat
            | Self::Syst
            | Self::Noop => String::new(),
        }
    }
}
