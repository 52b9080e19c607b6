//! Reads a [`Command`] from a line.
//!
//! Owns the syntax of every verb and the error for each way to get it wrong, with the code the standards give it. Never
//! panics and never allocates more than the line's own size.

use std::net::SocketAddr;

use crate::checksum::Algorithm;

use super::{
    Authentication, Command, CommandOption, DataAuthentication, DataCredential, FtpPath, LineError, MalformedAddress,
    NotText, Part, Protection, Reply, Representation, RestartPoint, Secret, SiteCommand, Structure, Text, Transaction,
    TransferMode, address, line::MAX_TOKEN_LINE_BYTES, ranges::parse_ranges,
};

/// Why a line is not a command; each has its own reply code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No command line at all: 500.
    #[error(transparent)]
    Line(#[from] LineError),
    /// No such verb: 500.
    #[error("{verb} is not a command here; HELP lists them")]
    Unknown {
        /// What was sent, shortened and in upper case.
        verb: String,
    },
    /// The verb is known, its arguments are not of its form: 501.
    #[error("{verb} needs {expected}")]
    Syntax {
        /// The verb.
        verb: String,
        /// The form.
        expected: &'static str,
    },
    /// The form is right, the value is none we know: 504.
    #[error("{verb} does not know {parameter:?}")]
    Parameter {
        /// The verb.
        verb: String,
        /// The value, shortened.
        parameter: String,
    },
    /// EPRT or EPSV with a network protocol other than 1 and 2: 522 (RFC 2428).
    #[error("{verb}: network protocol not supported, use (1,2)")]
    Family {
        /// The verb.
        verb: String,
    },
}

fn shorten(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(64).collect()
}

impl ParseError {
    /// The reply code.
    pub const fn code(&self) -> u16 {
        match self {
            Self::Line(_) | Self::Unknown { .. } => 500,
            Self::Syntax { .. } => 501,
            Self::Parameter { .. } => 504,
            Self::Family { .. } => 522,
        }
    }

    /// The reply.
    pub fn reply(&self) -> Reply {
        Reply::new(self.code(), self.to_string())
    }

    pub(super) fn unknown(verb: &str) -> Self {
        Self::Unknown { verb: shorten(verb).to_ascii_uppercase() }
    }

    pub(super) fn syntax(verb: &str, expected: &'static str) -> Self {
        Self::Syntax { verb: verb.to_owned(), expected }
    }

    pub(super) fn parameter(verb: &str, parameter: &str) -> Self {
        Self::Parameter { verb: verb.to_owned(), parameter: shorten(parameter) }
    }

    pub(super) fn text(verb: &str, error: NotText) -> Self {
        let expected = match error {
            NotText::Empty => "an argument",
            NotText::Control => "text without line ends and NUL",
            NotText::TooLong { .. } => "a shorter argument: a path has at most 4096 bytes",
        };
        Self::syntax(verb, expected)
    }

    pub(super) fn address(verb: &str, error: MalformedAddress) -> Self {
        match error {
            MalformedAddress::Family => Self::Family { verb: verb.to_owned() },
            MalformedAddress::Count => Self::syntax(verb, "1 to 256 addresses"),
            MalformedAddress::Syntax => {
                Self::syntax(verb, "an address: h1,h2,h3,h4,p1,p2 or |1|IPv4|PORT| or |2|IPv6|PORT|")
            }
        }
    }
}

/// Reads a decimal number that fits 63 bits.
pub(super) fn number(verb: &str, text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseError::syntax(verb, "a decimal number"));
    }
    let small = text.parse().ok().filter(|number| *number <= i64::MAX as u64);
    small.ok_or_else(|| ParseError::syntax(verb, "a number below 2^63"))
}

/// Reads the letter of a transfer mode.
pub(super) fn mode(verb: &str, text: &str) -> Result<TransferMode, ParseError> {
    match text.trim().to_ascii_uppercase().as_str() {
        "S" => Ok(TransferMode::Stream),
        "B" => Ok(TransferMode::Block),
        "C" => Ok(TransferMode::Compressed),
        "E" => Ok(TransferMode::Extended),
        "" => Err(ParseError::syntax(verb, "a mode: S or E")),
        other => Err(ParseError::parameter(verb, other)),
    }
}

/// What follows a verb and one space.
pub(super) struct Arguments<'a> {
    verb: &'a str,
    rest: &'a str,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(verb: &'a str, rest: &'a str) -> Self {
        Self { verb, rest }
    }

    fn syntax(&self, expected: &'static str) -> ParseError {
        ParseError::syntax(self.verb, expected)
    }

    fn none(&self, command: Command) -> Result<Command, ParseError> {
        if self.rest.trim().is_empty() { Ok(command) } else { Err(self.syntax("no argument")) }
    }

    /// Everything: a path may begin and end with spaces (RFC 3659 section 2.2).
    pub(super) fn path(&self) -> Result<FtpPath, ParseError> {
        FtpPath::new(self.rest).map_err(|error| match error {
            NotText::Empty => self.syntax("a path"),
            other => ParseError::text(self.verb, other),
        })
    }

    fn optional_path(&self) -> Result<Option<FtpPath>, ParseError> {
        if self.rest.is_empty() { Ok(None) } else { self.path().map(Some) }
    }

    /// As [`optional_path`](Self::optional_path) behind `ls` flags such as `-la`, which many clients send.
    fn listing(&self) -> Result<Option<FtpPath>, ParseError> {
        let mut rest = self.rest;
        while rest.starts_with('-') {
            rest = rest.split_once(' ').map_or("", |(_, after)| after);
        }
        Self::new(self.verb, rest).optional_path()
    }

    pub(super) fn text(&self) -> Result<Text, ParseError> {
        Text::new(self.rest).map_err(|error| ParseError::text(self.verb, error))
    }

    pub(super) fn optional_text(&self) -> Result<Option<Text>, ParseError> {
        if self.rest.trim().is_empty() { Ok(None) } else { self.text().map(Some) }
    }

    fn secret(&self) -> Result<Secret, ParseError> {
        Secret::new(self.rest).map_err(|error| ParseError::text(self.verb, error))
    }

    fn token(&self) -> Result<Secret, ParseError> {
        if self.rest.trim().is_empty() { Err(self.syntax("a base64 token")) } else { self.secret() }
    }

    pub(super) fn word(&self) -> Result<Text, ParseError> {
        let word = self.rest.trim();
        if word.is_empty() || word.contains(' ') {
            return Err(self.syntax("one word"));
        }
        Text::new(word).map_err(|error| ParseError::text(self.verb, error))
    }

    pub(super) fn number(&self) -> Result<u64, ParseError> {
        number(self.verb, self.rest)
    }

    pub(super) fn word_and_path(&self, expected: &'static str) -> Result<(Text, FtpPath), ParseError> {
        let (word, path) = self.rest.trim_start().split_once(' ').ok_or_else(|| self.syntax(expected))?;
        let word = Text::new(word).map_err(|error| ParseError::text(self.verb, error))?;
        Ok((word, FtpPath::new(path).map_err(|_| self.syntax(expected))?))
    }

    pub(super) fn stage(&self) -> Result<SiteCommand, ParseError> {
        if let Some((first, path)) = self.rest.split_once(' ')
            && !path.is_empty()
            && !first.is_empty()
            && first.bytes().all(|byte| byte.is_ascii_digit())
        {
            let wait_seconds = Some(number(self.verb, first)?);
            return Ok(SiteCommand::Stage { wait_seconds, path: Self::new(self.verb, path).path()? });
        }
        Ok(SiteCommand::Stage { wait_seconds: None, path: self.path()? })
    }

    fn upper(&self) -> String {
        self.rest.trim().to_ascii_uppercase()
    }
}

impl Command {
    /// Reads one line, line end excluded, as [`LineDecoder`](super::LineDecoder) gives it. Verbs are read in any case.
    ///
    /// # Errors
    ///
    /// [`ParseError`], which knows its reply; the session goes on with the next line.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        if line.len() > MAX_TOKEN_LINE_BYTES {
            return Err(LineError::TooLong { limit_bytes: MAX_TOKEN_LINE_BYTES }.into());
        }
        if line.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(LineError::Control.into());
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let upper = verb.to_ascii_uppercase();
        let arguments = Arguments::new(&upper, rest);
        match upper.as_str() {
            "USER" => arguments.text().map(Self::User),
            "PASS" => arguments.secret().map(Self::Pass),
            "ACCT" => arguments.secret().map(Self::Acct),
            "CWD" | "XCWD" => arguments.path().map(Self::Cwd),
            "CDUP" | "XCUP" => arguments.none(Self::Cdup),
            "SMNT" => arguments.path().map(Self::Smnt),
            "REIN" => arguments.none(Self::Rein),
            "QUIT" => arguments.none(Self::Quit),
            "CLNT" => arguments.text().map(Self::Clnt),
            "LANG" => arguments.optional_text().map(Self::Lang),

            "AUTH" => arguments.authentication(),
            "ADAT" => arguments.token().map(Self::Adat),
            "PBSZ" => match arguments.number().map(u32::try_from)? {
                Ok(bytes) => Ok(Self::Pbsz(bytes)),
                Err(_) => Err(arguments.syntax("a number below 2^32")),
            },
            "PROT" => arguments.protection(),
            "CCC" => arguments.none(Self::Ccc),
            "MIC" => arguments.token().map(Self::Mic),
            "ENC" => arguments.token().map(Self::Enc),
            "CONF" => arguments.token().map(Self::Conf),
            "DCAU" => arguments.data_authentication(),
            "DCSC" => arguments.data_credential(),

            "PORT" => match address::parse_comma(rest) {
                Ok(address) => Ok(Self::Port(address)),
                Err(_) => Err(arguments.syntax("h1,h2,h3,h4,p1,p2")),
            },
            "EPRT" => match address::parse_delimited(rest) {
                Ok((Some(ip), port)) => Ok(Self::Eprt(SocketAddr::new(ip, port))),
                Ok((None, _)) => Err(arguments.syntax("|1|IPv4|PORT| or |2|IPv6|PORT|")),
                Err(error) => Err(ParseError::address("EPRT", error)),
            },
            "PASV" => arguments.none(Self::Pasv),
            "EPSV" => arguments.extended_passive(),
            "SPAS" => match arguments.upper().as_str() {
                "" => Ok(Self::Spas { extended: false }),
                "2" => Ok(Self::Spas { extended: true }),
                other => Err(ParseError::parameter("SPAS", other)),
            },
            "SPOR" => match address::parse_list(rest) {
                Ok(addresses) => Ok(Self::Spor(addresses)),
                Err(error) => Err(ParseError::address("SPOR", error)),
            },
            "TYPE" => arguments.representation(),
            "STRU" => match arguments.upper().as_str() {
                "F" => Ok(Self::Stru(Structure::File)),
                "R" => Ok(Self::Stru(Structure::Record)),
                "P" => Ok(Self::Stru(Structure::Page)),
                "" => Err(arguments.syntax("a structure: F")),
                other => Err(ParseError::parameter("STRU", other)),
            },
            "MODE" => mode("MODE", rest).map(Self::Mode),
            "SBUF" => arguments.number().map(Self::Sbuf),
            "TREV" => {
                let (event, seconds) = arguments.word_and_path("an event and seconds")?;
                Ok(Self::Trev { event, seconds: number("TREV", seconds.as_str())? })
            }

            "RETR" => arguments.path().map(Self::Retr),
            "STOR" => arguments.path().map(Self::Stor),
            "STOU" => Ok(Self::Stou),
            "APPE" => arguments.path().map(Self::Appe),
            "ALLO" | "ALLO64" => {
                // "ALLO n R m": the largest record, of no use with STRU F.
                let bytes = rest.trim().split(' ').next().unwrap_or_default();
                number("ALLO", bytes).map(Self::Allo)
            }
            "REST" if rest.contains('-') => match parse_ranges(rest) {
                Ok(ranges) => Ok(Self::Rest(RestartPoint::Ranges(ranges))),
                Err(_) => Err(arguments.syntax("an offset, or ranges FIRST-END,FIRST-END")),
            },
            "REST" => arguments.number().map(RestartPoint::Offset).map(Self::Rest),
            "ERET" => arguments.partial_retrieve(),
            "ESTO" => arguments.adjusted_store(),
            "GET" => Transaction::parse("GET", rest).map(Self::Get),
            "PUT" => Transaction::parse("PUT", rest).map(Self::Put),
            "ABOR" => arguments.none(Self::Abor),

            "RNFR" => arguments.path().map(Self::Rnfr),
            "RNTO" => arguments.path().map(Self::Rnto),
            "DELE" => arguments.path().map(Self::Dele),
            "RMD" | "XRMD" => arguments.path().map(Self::Rmd),
            "MKD" | "XMKD" => arguments.path().map(Self::Mkd),
            "PWD" | "XPWD" => arguments.none(Self::Pwd),
            "LIST" => arguments.listing().map(Self::List),
            "NLST" => arguments.listing().map(Self::Nlst),
            "STAT" => arguments.listing().map(Self::Stat),
            "MLST" => arguments.optional_path().map(Self::Mlst),
            "MLSD" => arguments.optional_path().map(Self::Mlsd),
            "MLSC" => arguments.optional_path().map(Self::Mlsc),
            "SIZE" => arguments.path().map(Self::Size),
            "MDTM" => arguments.path().map(Self::Mdtm),
            "MFMT" => {
                let (time, path) = arguments.word_and_path("YYYYMMDDHHMMSS and a path")?;
                let time = time.as_str().parse().map_err(|_| arguments.syntax("YYYYMMDDHHMMSS and a path"))?;
                Ok(Self::Mfmt { time, path })
            }
            "CKSM" => arguments.checksum(),
            "SCKS" => arguments.set_checksum(),
            "HASH" => arguments.path().map(Self::Hash),

            "FEAT" => arguments.none(Self::Feat),
            "OPTS" => CommandOption::parse(rest).map(Self::Opts),
            "SITE" => SiteCommand::parse(rest).map(Self::Site),
            "SYST" => arguments.none(Self::Syst),
            "HELP" => arguments.optional_text().map(Self::Help),
            "NOOP" => Ok(Self::Noop),
            _ => Err(ParseError::unknown(verb)),
        }
    }
}

impl Arguments<'_> {
    fn authentication(&self) -> Result<Command, ParseError> {
        Ok(Command::Auth(match self.upper().as_str() {
            "TLS" | "TLS-C" => Authentication::Tls,
            "SSL" | "TLS-P" => Authentication::TlsPrivate,
            "GSSAPI" => Authentication::Gssapi,
            _ => Authentication::Other(self.word()?),
        }))
    }

    fn protection(&self) -> Result<Command, ParseError> {
        Ok(Command::Prot(match self.upper().as_str() {
            "C" => Protection::Clear,
            "S" => Protection::Safe,
            "E" => Protection::Confidential,
            "P" => Protection::Private,
            "" => return Err(self.syntax("a level: C or P")),
            other => return Err(ParseError::parameter(self.verb, other)),
        }))
    }

    fn data_authentication(&self) -> Result<Command, ParseError> {
        let (mode, subject) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        Ok(Command::Dcau(match (mode.to_ascii_uppercase().as_str(), subject.trim()) {
            ("N", "") => DataAuthentication::None,
            ("A", "") => DataAuthentication::Own,
            ("S", subject) if !subject.is_empty() => {
                DataAuthentication::Subject(Text::new(subject).map_err(|error| ParseError::text(self.verb, error))?)
            }
            ("N" | "A" | "S" | "", _) => return Err(self.syntax("N, A, or S and a subject")),
            _ => return Err(ParseError::parameter(self.verb, mode)),
        }))
    }

    fn data_credential(&self) -> Result<Command, ParseError> {
        let (kind, blob) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        Ok(Command::Dcsc(match (kind.to_ascii_uppercase().as_str(), blob) {
            ("D", "") => DataCredential::Default,
            ("P", blob) if !blob.is_empty() => DataCredential::Pem(Self::new(self.verb, blob).token()?),
            ("D" | "P" | "", _) => return Err(self.syntax("D, or P and a base64 credential")),
            _ => return Err(ParseError::parameter(self.verb, kind)),
        }))
    }

    fn extended_passive(&self) -> Result<Command, ParseError> {
        use super::{AddressFamily, EpsvArgument};
        Ok(Command::Epsv(match self.upper().as_str() {
            "" => EpsvArgument::Same,
            "1" => EpsvArgument::Family(AddressFamily::V4),
            "2" => EpsvArgument::Family(AddressFamily::V6),
            "ALL" => EpsvArgument::All,
            other if other.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(ParseError::Family { verb: self.verb.to_owned() });
            }
            _ => return Err(self.syntax("nothing, 1, 2 or ALL")),
        }))
    }

    fn representation(&self) -> Result<Command, ParseError> {
        let upper = self.upper();
        let (kind, form) = upper.split_once(' ').unwrap_or((&upper, ""));
        Ok(Command::Type(match (kind, form) {
            ("A", "" | "N") => Representation::Ascii,
            ("E", "" | "N") => Representation::Ebcdic,
            ("I", "") | ("L", "8") => Representation::Image,
            ("L", bits) => match bits.parse() {
                Ok(bits) if bits > 0 => Representation::Local(bits),
                _ => return Err(self.syntax("a byte size after L")),
            },
            ("A" | "E", form) => return Err(ParseError::parameter(self.verb, form)),
            ("", _) | ("I", _) => return Err(self.syntax("a type: A or I")),
            (other, _) => return Err(ParseError::parameter(self.verb, other)),
        }))
    }

    fn partial_retrieve(&self) -> Result<Command, ParseError> {
        const FORM: &str = "P, offset, length and path";
        let mut parts = self.rest.splitn(4, ' ');
        match parts.next() {
            Some(mode) if mode.eq_ignore_ascii_case("P") => {}
            None | Some("") => return Err(self.syntax(FORM)),
            Some(other) => return Err(ParseError::parameter(self.verb, other)),
        }
        let (Some(offset), Some(length), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(self.syntax(FORM));
        };
        Ok(Command::Eret(Part {
            offset_bytes: number(self.verb, offset)?,
            length_bytes: number(self.verb, length)?,
            path: FtpPath::new(path).map_err(|_| self.syntax(FORM))?,
        }))
    }

    fn adjusted_store(&self) -> Result<Command, ParseError> {
        const FORM: &str = "A, offset and path";
        let mut parts = self.rest.splitn(3, ' ');
        match parts.next() {
            Some(mode) if mode.eq_ignore_ascii_case("A") => {}
            None | Some("") => return Err(self.syntax(FORM)),
            Some(other) => return Err(ParseError::parameter(self.verb, other)),
        }
        let (Some(offset), Some(path)) = (parts.next(), parts.next()) else { return Err(self.syntax(FORM)) };
        let path = FtpPath::new(path).map_err(|_| self.syntax(FORM))?;
        Ok(Command::Esto { offset_bytes: number(self.verb, offset)?, path })
    }

    fn checksum(&self) -> Result<Command, ParseError> {
        const FORM: &str = "algorithm, offset, length (-1 to the end) and path";
        let parts: Vec<&str> = self.rest.splitn(4, ' ').collect();
        let [algorithm, offset, length, path] = parts[..] else { return Err(self.syntax(FORM)) };
        let length_bytes = if length == "-1" { None } else { Some(number(self.verb, length)?) };
        Ok(Command::Cksm {
            algorithm: Algorithm::from_name(algorithm).ok_or_else(|| ParseError::parameter(self.verb, algorithm))?,
            offset_bytes: number(self.verb, offset)?,
            length_bytes,
            path: FtpPath::new(path).map_err(|_| self.syntax(FORM))?,
        })
    }

    fn set_checksum(&self) -> Result<Command, ParseError> {
        let (algorithm, value) = self.rest.trim().split_once(' ').ok_or_else(|| self.syntax("algorithm and value"))?;
        let known = Algorithm::from_name(algorithm).ok_or_else(|| ParseError::parameter(self.verb, algorithm))?;
        let value = value.trim();
        let digits = match known {
            Algorithm::Adler32 | Algorithm::Crc32c => 8,
            Algorithm::Md5 => 32,
            Algorithm::Sha256 => 64,
        };
        if value.len() != digits || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.syntax("algorithm and value in hexadecimal, all digits"));
        }
        let value = Text::new(value.to_ascii_lowercase()).map_err(|error| ParseError::text(self.verb, error))?;
        Ok(Command::Scks { algorithm: known, value })
    }
}
