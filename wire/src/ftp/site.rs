//! What may follow `SITE`.
//!
//! Owns the site commands: those of HPSS (SETCOS, STAGE, WAIT, SYMLINK), of Globus (CHGRP, UTIME, CLIENTINFO, buffer
//! sizes, USAGE) and Penstock's own PARTIAL. Never executes one.

use super::{
    FtpPath, FtpTime, Text,
    parse::{Arguments, ParseError},
};

/// One `SITE` command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SiteCommand {
    /// `HELP [command]`
    Help(Option<Text>),
    /// `SETCOS class`: class of service of the files stored next, by number or name
    SetCos(Text),
    /// `LSCOS`: the classes of service there are
    ListCos,
    /// `STAGE [seconds] path`: bring a file to disk. With seconds, wait that long for it; a path that begins with a
    /// number and a space needs the seconds before it.
    Stage {
        /// How long the reply may wait; `None` answers when the request is queued.
        wait_seconds: Option<u64>,
        /// The file.
        path: FtpPath,
    },
    /// `WAIT ON|OFF`: whether a read of a file on tape waits
    Wait(bool),
    /// `CHMOD octal path`
    Chmod {
        /// Permission bits, at most 0o7777.
        mode: u32,
        /// The entry.
        path: FtpPath,
    },
    /// `CHGRP group path`; also HPSS's `CHGID`
    Chgrp {
        /// Name or number.
        group: Text,
        /// The entry.
        path: FtpPath,
    },
    /// `CHOWN user path`; also HPSS's `CHUID`
    Chown {
        /// Name or number.
        user: Text,
        /// The entry.
        path: FtpPath,
    },
    /// `UTIME YYYYMMDDHHMMSS path`, or the older `UTIME path access modify create UTC`
    Utime {
        /// The new modification time.
        time: FtpTime,
        /// The entry.
        path: FtpPath,
    },
    /// `SYMLINK target path`
    Symlink {
        /// What the link says.
        target: FtpPath,
        /// The link.
        path: FtpPath,
    },
    /// `CLIENTINFO key=value;…`
    ClientInfo(Text),
    /// `RETRBUFSIZE bytes` (and `RBUFSZ`, `RBUFSIZ`): TCP buffer for sending
    RetrieveBuffer(u64),
    /// `STORBUFSIZE bytes` (and `SBUFSZ`, `SBUFSIZ`): TCP buffer for receiving
    StoreBuffer(u64),
    /// `BUFSIZE bytes`: both
    Buffer(u64),
    /// `SETNETSTACK stack`: Globus XIO drivers
    SetNetStack(Text),
    /// `USAGE [TOKEN token] path`: space used
    Usage {
        /// The space token.
        token: Option<Text>,
        /// Where.
        path: FtpPath,
    },
    /// `PARTIAL path`: which bytes of a cut upload the server still holds (Penstock)
    Partial(FtpPath),
}

impl SiteCommand {
    /// The names understood, for `SITE HELP`.
    pub const VERBS: &'static [&'static str] = &[
        "HELP",
        "SETCOS",
        "LSCOS",
        "STAGE",
        "WAIT",
        "CHMOD",
        "CHGRP",
        "CHOWN",
        "UTIME",
        "SYMLINK",
        "CLIENTINFO",
        "RETRBUFSIZE",
        "STORBUFSIZE",
        "BUFSIZE",
        "SETNETSTACK",
        "USAGE",
        "PARTIAL",
    ];

    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.trim_start();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        if word.is_empty() {
            return Err(ParseError::syntax("SITE", "a site command; SITE HELP lists them"));
        }
        let verb = format!("SITE {}", word.to_ascii_uppercase());
        let arguments = Arguments::new(&verb, rest);
        match word.to_ascii_uppercase().as_str() {
            "HELP" => arguments.optional_text().map(Self::Help),
            "SETCOS" => arguments.word().map(Self::SetCos),
            "LSCOS" => Ok(Self::ListCos),
            "STAGE" => arguments.stage(),
            "WAIT" => match rest.trim().to_ascii_uppercase().as_str() {
                "" | "ON" | "1" => Ok(Self::Wait(true)),
                "OFF" | "0" => Ok(Self::Wait(false)),
                _ => Err(ParseError::parameter(&verb, rest)),
            },
            "CHMOD" => {
                let (mode, path) = arguments.word_and_path("octal mode and path")?;
                let mode = u32::from_str_radix(mode.as_str(), 8).ok().filter(|mode| *mode <= 0o7777);
                Ok(Self::Chmod { mode: mode.ok_or_else(|| ParseError::syntax(&verb, "octal mode and path"))?, path })
            }
            "CHGRP" | "CHGID" => {
                arguments.word_and_path("group and path").map(|(group, path)| Self::Chgrp { group, path })
            }
            "CHOWN" | "CHUID" => {
                arguments.word_and_path("user and path").map(|(user, path)| Self::Chown { user, path })
            }
            "UTIME" => utime(&verb, rest),
            "SYMLINK" => {
                let (target, path) = arguments.word_and_path("target and path")?;
                let target = FtpPath::new(target.into_string()).map_err(|error| ParseError::text(&verb, error))?;
                Ok(Self::Symlink { target, path })
            }
            "CLIENTINFO" => arguments.text().map(Self::ClientInfo),
            "RETRBUFSIZE" | "RBUFSZ" | "RBUFSIZ" => arguments.number().map(Self::RetrieveBuffer),
            "STORBUFSIZE" | "SBUFSZ" | "SBUFSIZ" => arguments.number().map(Self::StoreBuffer),
            "BUFSIZE" => arguments.number().map(Self::Buffer),
            "SETNETSTACK" => arguments.text().map(Self::SetNetStack),
            "USAGE" => match rest.get(..6) {
                Some(token) if token.eq_ignore_ascii_case("TOKEN ") => {
                    let (token, path) = Arguments::new(&verb, &rest[6..]).word_and_path("TOKEN token path")?;
                    Ok(Self::Usage { token: Some(token), path })
                }
                _ => arguments.path().map(|path| Self::Usage { token: None, path }),
            },
            "PARTIAL" => arguments.path().map(Self::Partial),
            _ => Err(ParseError::unknown(&verb)),
        }
    }

    pub(super) fn line(&self) -> String {
        match self {
            Self::Help(None) => "HELP".to_owned(),
            Self::Help(Some(topic)) => format!("HELP {topic}"),
            Self::SetCos(class) => format!("SETCOS {class}"),
            Self::ListCos => "LSCOS".to_owned(),
            Self::Stage { wait_seconds: None, path } if stage_is_ambiguous(path) => format!("STAGE 0 {path}"),
            Self::Stage { wait_seconds: None, path } => format!("STAGE {path}"),
            Self::Stage { wait_seconds: Some(seconds), path } => format!("STAGE {seconds} {path}"),
            Self::Wait(on) => format!("WAIT {}", if *on { "ON" } else { "OFF" }),
            Self::Chmod { mode, path } => format!("CHMOD {mode:04o} {path}"),
            Self::Chgrp { group, path } => format!("CHGRP {group} {path}"),
            Self::Chown { user, path } => format!("CHOWN {user} {path}"),
            Self::Utime { time, path } => format!("UTIME {time} {path}"),
            Self::Symlink { target, path } => format!("SYMLINK {target} {path}"),
            Self::ClientInfo(info) => format!("CLIENTINFO {info}"),
            Self::RetrieveBuffer(bytes) => format!("RETRBUFSIZE {bytes}"),
            Self::StoreBuffer(bytes) => format!("STORBUFSIZE {bytes}"),
            Self::Buffer(bytes) => format!("BUFSIZE {bytes}"),
            Self::SetNetStack(stack) => format!("SETNETSTACK {stack}"),
            Self::Usage { token: None, path } => format!("USAGE {path}"),
            Self::Usage { token: Some(token), path } => format!("USAGE TOKEN {token} {path}"),
            Self::Partial(path) => format!("PARTIAL {path}"),
        }
    }
}

/// Whether a path would be read as seconds and a path.
fn stage_is_ambiguous(path: &FtpPath) -> bool {
    path.as_str().split_once(' ').is_some_and(|(first, rest)| {
        !rest.is_empty() && !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn utime(verb: &str, rest: &str) -> Result<SiteCommand, ParseError> {
    let syntax = || ParseError::syntax(verb, "YYYYMMDDHHMMSS and path, or path, three times and UTC");
    let path = |text: &str| FtpPath::new(text).map_err(|_| syntax());
    // The older form ends in "access modify create UTC"; the path itself may hold spaces.
    let mut backwards = rest.trim_end().rsplitn(5, ' ');
    if backwards.next().is_some_and(|zone| zone.eq_ignore_ascii_case("UTC"))
        && let (Some(_create), Some(modify), Some(_access), Some(name)) =
            (backwards.next(), backwards.next(), backwards.next(), backwards.next())
        && let Ok(time) = modify.parse()
    {
        return Ok(SiteCommand::Utime { time, path: path(name)? });
    }
    let (time, name) = rest.split_once(' ').ok_or_else(syntax)?;
    Ok(SiteCommand::Utime { time: time.parse().map_err(|_| syntax())?, path: path(name)? })
}
