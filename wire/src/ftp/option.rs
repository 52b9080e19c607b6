//! What `OPTS` sets.
//!
//! Owns the option text of RETR, PASV, MLST, UTF8 and HASH. Never keeps the options: the session does.

use crate::checksum::Algorithm;

use super::{FactSet, parse::ParseError};

/// Most data connections that may be asked for from one host. More than this only loses (reference network measurements).
pub const MAX_PARALLELISM: u16 = 1024;

/// One `OPTS` command (RFC 2389 section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandOption {
    /// `OPTS RETR Parallelism=…;StripeLayout=…;BlockSize=…;`
    Retrieve(RetrieveOptions),
    /// `OPTS PASV AllowDelayed=1;`
    AllowDelayedPassive(bool),
    /// `OPTS SPAS AllowDelayed=1;`: the same for SPAS in MODE E. Ours: GFD.47 delays one address only.
    AllowDelayedStripes(bool),
    /// `OPTS MLST fact;fact;`
    MlstFacts(FactSet),
    /// `OPTS UTF8 ON`
    Utf8(bool),
    /// `OPTS HASH [algorithm]`
    Hash(Option<Algorithm>),
}

/// Options of RETR (GFD.20 section 4.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetrieveOptions {
    /// `Parallelism=starting,minimum,maximum`
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=`
    pub layout: Option<Layout>,
    /// `BlockSize=`, in bytes, for a blocked layout.
    pub block_bytes: Option<u64>,
}

/// How many data connections each sending host opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// To begin with.
    pub starting: u16,
    /// Never fewer.
    pub minimum: u16,
    /// Never more.
    pub maximum: u16,
}

impl Parallelism {
    /// Always `streams`.
    pub const fn fixed(streams: u16) -> Self {
        Self { starting: streams, minimum: streams, maximum: streams }
    }
}

/// How a file is laid over the receiver's stripes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One contiguous region for each.
    Partitioned,
    /// Blocks in turn.
    Blocked,
}

impl CommandOption {
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let (target, options) = text.split_once(' ').unwrap_or((text, ""));
        let options = options.trim();
        match target.to_ascii_uppercase().as_str() {
            "" => Err(ParseError::syntax("OPTS", "a command and its options")),
            "RETR" => RetrieveOptions::parse(options).map(Self::Retrieve),
            "PASV" | "EPSV" => allow_delayed(options).map(Self::AllowDelayedPassive),
            "SPAS" => allow_delayed(options).map(Self::AllowDelayedStripes),
            "MLST" | "MLSD" => Ok(Self::MlstFacts(FactSet::parse(options))),
            "UTF8" | "UTF-8" => match options.to_ascii_uppercase().as_str() {
                "" | "ON" | "NLST" => Ok(Self::Utf8(true)),
                "OFF" => Ok(Self::Utf8(false)),
                _ => Err(ParseError::parameter("OPTS UTF8", options)),
            },
            "HASH" if options.is_empty() => Ok(Self::Hash(None)),
            "HASH" => match Algorithm::from_name(options) {
                Some(checksum) => Ok(Self::Hash(Some(checksum))),
                None => Err(ParseError::parameter("OPTS HASH", options)),
            },
            _ => Err(ParseError::parameter("OPTS", target)),
        }
    }

    pub(super) fn line(&self) -> String {
        match self {
            Self::Retrieve(options) => format!("RETR {}", options.line()),
            Self::AllowDelayedPassive(on) => format!("PASV AllowDelayed={};", u8::from(*on)),
            Self::AllowDelayedStripes(on) => format!("SPAS AllowDelayed={};", u8::from(*on)),
            Self::MlstFacts(facts) => format!("MLST {facts}").trim_end().to_owned(),
            Self::Utf8(on) => format!("UTF8 {}", if *on { "ON" } else { "OFF" }),
            Self::Hash(None) => "HASH".to_owned(),
            Self::Hash(Some(checksum)) => format!("HASH {}", checksum.name()),
        }
    }
}

fn allow_delayed(options: &str) -> Result<bool, ParseError> {
    let (name, value) = options.trim_end_matches(';').split_once('=').unwrap_or((options, ""));
    if !name.eq_ignore_ascii_case("AllowDelayed") {
        return Err(ParseError::parameter("OPTS PASV", name));
    }
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(ParseError::syntax("OPTS PASV", "AllowDelayed=0; or AllowDelayed=1;")),
    }
}

impl RetrieveOptions {
    fn parse(text: &str) -> Result<Self, ParseError> {
        const VERB: &str = "OPTS RETR";
        let mut options = Self::default();
        for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "parallelism" => options.parallelism = Some(parse_parallelism(value)?),
                "stripelayout" => {
                    options.layout = Some(match value.trim().to_ascii_lowercase().as_str() {
                        "partitioned" => Layout::Partitioned,
                        "blocked" => Layout::Blocked,
                        _ => return Err(ParseError::parameter(VERB, value)),
                    });
                }
                "blocksize" => {
                    let bytes = super::parse::number(VERB, value)?;
                    if bytes == 0 {
                        return Err(ParseError::parameter(VERB, pair));
                    }
                    options.block_bytes = Some(bytes);
                }
                _ => return Err(ParseError::parameter(VERB, name)),
            }
        }
        Ok(options)
    }

    fn line(&self) -> String {
        let mut line = String::new();
        match self.layout {
            Some(Layout::Partitioned) => line.push_str("StripeLayout=Partitioned;"),
            Some(Layout::Blocked) => line.push_str("StripeLayout=Blocked;"),
            None => {}
        }
        if let Some(bytes) = self.block_bytes {
            line.push_str(&format!("BlockSize={bytes};"));
        }
        if let Some(Parallelism { starting, minimum, maximum }) = self.parallelism {
            line.push_str(&format!("Parallelism={starting},{minimum},{maximum};"));
        }
        line
    }
}

fn parse_parallelism(text: &str) -> Result<Parallelism, ParseError> {
    const VERB: &str = "OPTS RETR Parallelism";
    let numbers = text.split(',').map(|part| super::parse::number(VERB, part)).collect::<Result<Vec<_>, _>>()?;
    let (starting, minimum, maximum) = match numbers[..] {
        [all] => (all, all, all),
        [starting, minimum, maximum] => (starting, minimum, maximum),
        _ => return Err(ParseError::syntax(VERB, "starting,minimum,maximum")),
    };
    let limit = |number: u64| {
        u16::try_from(number)
            .ok()
            .filter(|number| (1..=MAX_PARALLELISM).contains(number))
            .ok_or_else(|| ParseError::parameter(VERB, text))
    };
    Ok(Parallelism { starting: limit(starting)?, minimum: limit(minimum)?, maximum: limit(maximum)? })
}
