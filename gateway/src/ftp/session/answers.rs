//! Answers that need no work: FEAT, HELP, STAT.
//!
//! Owns the list of what is offered; grid clients switch features on and off by it. DCAU is left out on purpose:
//! without it globus-url-copy asks for data connections as everybody does.

use wire::{
    checksum::Algorithm,
    ftp::{FactSet, Features, Reply, Representation, SiteCommand, Text},
};

use super::{Channel, Phase, Session};

/// Verbs understood, for `HELP`.
const VERBS: &[&str] = &[
    "ABOR", "ALLO", "APPE", "AUTH", "CDUP", "CKSM", "CLNT", "CWD", "DCAU", "DELE", "EPRT", "EPSV", "ERET", "ESTO",
    "FEAT", "GET", "HASH", "HELP", "LANG", "LIST", "MDTM", "MFMT", "MKD", "MLSC", "MLSD", "MLST", "MODE", "NLST",
    "NOOP", "OPTS", "PASS", "PASV", "PBSZ", "PORT", "PROT", "PUT", "PWD", "QUIT", "REST", "RETR", "RMD", "RNFR",
    "RNTO", "SBUF", "SCKS", "SITE", "SIZE", "SPAS", "SPOR", "STAT", "STOR", "STOU", "STRU", "SYST", "TREV", "TYPE",
    "USER",
];

/// The answer to `FEAT`.
pub(super) fn features() -> Reply {
    let sums = Algorithm::ALL.map(Algorithm::name);
    Features::new()
        .with("AUTH TLS")
        .with("PBSZ")
        .with("PROT")
        .with("UTF8")
        .with("TVFS")
        .with("LANG EN*")
        .with("SIZE")
        .with("MDTM")
        .with("MFMT")
        .with(FactSet::default().feature())
        .with("MLSC")
        .with("REST STREAM")
        .with("EPRT")
        .with("EPSV")
        .with("SPAS AllowDelayed;")
        .with("SPOR")
        .with("PARALLEL")
        .with("ERET")
        .with("ESTO")
        .with("SBUF")
        .with("PASV AllowDelayed;")
        .with("GETPUT")
        .with("MODE-E-PERF")
        .with(format!("CKSUM {}", sums.join(",")))
        .with(format!("HASH {}", sums.join(";")))
        .with("SCKS")
        .with(Features::PENSTOCK)
        .reply()
}

/// The answer to `HELP`.
pub(super) fn help(topic: Option<&Text>) -> Reply {
    match topic {
        Some(topic) if topic.as_str().eq_ignore_ascii_case("SITE") => site_help(),
        Some(topic) if VERBS.iter().any(|verb| verb.eq_ignore_ascii_case(topic.as_str())) => {
            let verb = topic.as_str().to_ascii_uppercase();
            Reply::new(214, format!("{verb} is offered; docs/protocol/ftp.md says how."))
        }
        Some(_) => Reply::new(502, "That command is not offered: HELP lists what is."),
        None => list("The following commands are offered:", VERBS, "HELP SITE lists more."),
    }
}

/// The answer to `SITE HELP`.
pub(super) fn site_help() -> Reply {
    list("The following SITE commands are offered:", SiteCommand::VERBS, "End.")
}

fn list(head: &str, words: &[&str], tail: &str) -> Reply {
    let mut lines = vec![head.to_owned()];
    lines.extend(words.chunks(8).map(|row| format!(" {}", row.join(" "))));
    lines.push(tail.to_owned());
    Reply::with_lines(214, lines)
}

impl Session {
    /// The answer to `STAT` without a path: of the transfer that moves, or of the session.
    pub(super) fn status(&self) -> Reply {
        let mut lines = vec!["Penstock".to_owned()];
        lines.push(match &self.phase {
            Phase::Ready { account, .. } => format!(" Logged in as {account} from {}", self.rules.peer.to_canonical()),
            _ => format!(" Not logged in, from {}", self.rules.peer.to_canonical()),
        });
        let settings = &self.settings;
        lines.push(format!(
            " TYPE {}, MODE {}, control connection {}, data connections {}",
            if settings.representation == Representation::Image { "I" } else { "A" },
            settings.mode.letter(),
            if self.channel() == Channel::Clear { "clear" } else { "TLS" },
            if settings.private { "TLS" } else { "clear" },
        ));
        if let Some((_, verb, path, bytes)) = self.lane.moving() {
            let path = path.map(|path| format!(" {path}")).unwrap_or_default();
            lines.push(format!(" {verb}{path}: {bytes} bytes so far"));
        }
        lines.push("End.".to_owned());
        Reply::with_lines(211, lines)
    }
}
