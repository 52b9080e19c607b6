//! The commands of `pftp`: their names, help and arguments.
//!
//! Owns the table from which parsing, `help`, completion and the manual come. Never runs one.

use super::words::Word;

/// A command as the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) command: &'static Entry,
    /// Flags, without their hyphen.
    pub(super) flags: Vec<char>,
    /// Values of flags that take one.
    pub(super) values: Vec<(char, String)>,
    pub(super) words: Vec<Word>,
    /// Everything behind the name, as written.
    pub(super) rest: String,
}

impl Given {
    pub(super) fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    pub(super) fn value(&self, flag: char) -> Option<&str> {
        self.values.iter().find(|(name, _)| *name == flag).map(|(_, value)| value.as_str())
    }

    pub(super) fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(|word| word.text.as_str())
    }
}

/// What a command's arguments are, for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// Names on the server.
    Remote,
    /// Names here.
    Local,
    /// First a name on the server, then one here.
    RemoteLocal,
    /// First a name here, then one on the server.
    LocalRemote,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A command's name.
    Command,
    /// Anything.
    Text,
}

/// A command that exists.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    pub(super) usage: &'static str,
    pub(super) help: &'static str,
    pub(super) details: &'static str,
    pub(super) takes: Takes,
    /// Flags without value, and flags with one.
    flags: &'static str,
    valued: &'static str,
    least: usize,
    most: usize,
}

const fn entry(
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    takes: Takes,
    least: usize,
    most: usize,
) -> Entry {
    Entry { name, aliases: &[], usage, help, details: "", takes, flags: "", valued: "", least, most }
}

impl Entry {
    const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn flags(self, flags: &'static str, valued: &'static str) -> Self {
        Self { flags, valued, ..self }
    }

    const fn details(self, details: &'static str) -> Self {
        Self { details, ..self }
    }
}

const MANY: usize = usize::MAX;
const SWITCH: Takes = Takes::Words(&["on", "off"]);

const GET: &str = "The file comes as NAME.pftp-part, is compared with the checksum of the server's catalogue, and only \
    then gets its name. LOCAL may be a folder. With -r folders come with all that is in them. Movers connect to this \
    machine; see passive. Ctrl-C stops and keeps what came: reget goes on.";
const PUT: &str = "The file is striped over the movers that the server names, and compared with the checksum of the \
    server's catalogue. REMOTE may be a folder. With -r folders go with all that is in them. Ctrl-C stops; if the server \
    keeps what came, reput goes on.";

/// All commands.
pub(super) static COMMANDS: &[Entry] = &[
    entry("open", "open [user@]HOST[:PORT]", "connect and log in", Takes::Text, 1, 1).or(&["connect"]),
    entry("close", "close", "end the session", Takes::Nothing, 0, 0).or(&["disconnect"]),
    entry("user", "user NAME [PASSWORD]", "log in as another account", Takes::Text, 1, 2)
        .details("Your certificate must be mapped to that account; a password is for servers that ask for one."),
    entry("cd", "cd [FOLDER]", "change the folder on the server, or go home", Takes::Remote, 0, 1),
    entry("lcd", "lcd [FOLDER]", "change the folder here", Takes::Local, 0, 1),
    entry("pwd", "pwd", "show the folder on the server", Takes::Nothing, 0, 0),
    entry("lpwd", "lpwd", "show the folder here", Takes::Nothing, 0, 0),
    entry("ls", "ls [-l] [PATH]...", "list names on the server", Takes::Remote, 0, MANY).flags("l", "").details(
        "Patterns with *, ? and [...] are allowed. -l shows the mode, where the bytes are (disk, tape, both), \
            class of service, owner, group, size and time.",
    ),
    entry("dir", "dir [PATH]...", "list with all that is known: ls -l", Takes::Remote, 0, MANY).or(&["ll"]),
    entry("lls", "lls [ARGUMENTS]", "list names here: runs ls", Takes::Local, 0, MANY),
    entry("mkdir", "mkdir [-p] FOLDER...", "make folders; with -p those above them too", Takes::Remote, 1, MANY)
        .flags("p", ""),
    entry("rmdir", "rmdir FOLDER...", "remove empty folders", Takes::Remote, 1, MANY),
    entry("rename", "rename FROM TO", "rename a file or folder", Takes::Remote, 2, 2).or(&["mv"]),
    entry("delete", "delete [-r] PATH...", "delete files; with -r folders and all in them", Takes::Remote, 1, MANY)
        .flags("r", "")
        .or(&["rm", "mdelete"]),
    entry("chmod", "chmod MODE PATH...", "change permissions, MODE in octal", Takes::Remote, 2, MANY),
    entry("get", "get [-r] REMOTE [LOCAL]", "fetch a file, or folders with -r", Takes::RemoteLocal, 1, 2)
        .flags("rp", "")
        .details(GET),
    entry("put", "put [-r] LOCAL [REMOTE]", "send a file, or folders with -r", Takes::LocalRemote, 1, 2)
        .flags("rp", "")
        .details(PUT),
    entry("mget", "mget [-r] PATTERN...", "fetch files that match", Takes::Remote, 1, MANY)
        .flags("rp", "")
        .details(GET),
    entry("mput", "mput [-r] PATTERN...", "send files that match", Takes::Local, 1, MANY).flags("rp", "").details(PUT),
    entry("pget", "pget [-r] REMOTE [LOCAL]", "get with all streams, whatever autop says", Takes::RemoteLocal, 1, 2)
        .flags("rp", "")
        .details(GET),
    entry("pput", "pput [-r] LOCAL [REMOTE]", "put with all streams, whatever autop says", Takes::LocalRemote, 1, 2)
        .flags("rp", "")
        .details(PUT),
    entry("mpget", "mpget [-r] PATTERN...", "mget with all streams", Takes::Remote, 1, MANY)
        .flags("rp", "")
        .details(GET),
    entry("mpput", "mpput [-r] PATTERN...", "mput with all streams", Takes::Local, 1, MANY)
        .flags("rp", "")
        .details(PUT),
    entry("append", "append LOCAL REMOTE", "add a file to the end of one on the server", Takes::LocalRemote, 2, 2),
    entry("reget", "reget [-r] REMOTE [LOCAL]", "go on with a cut get: only what is missing", Takes::RemoteLocal, 1, 2)
        .flags("rp", "")
        .details("What came is in NAME.pftp-part.json. If the file on the server has changed, it is fetched anew."),
    entry("reput", "reput [-r] LOCAL [REMOTE]", "go on with a cut put: only what is missing", Takes::LocalRemote, 1, 2)
        .flags("rp", "")
        .details("The server says what it holds; the checksum of the whole is compared at the end."),
    entry("setpwidth", "setpwidth [N|auto]", "data connections for each mover", Takes::Text, 0, 1),
    entry("setpblocksize", "setpblocksize [SIZE]", "largest block sent, such as 1M", Takes::Text, 0, 1),
    entry("autop", "autop [on|off]", "whether get and put are parallel for large files", SWITCH, 0, 1)
        .details("On: like pget and pput. Off: get and put use one connection."),
    entry("setcos", "setcos COS", "class of service of files put from now on", Takes::Text, 1, 1),
    entry("lscos", "lscos", "the classes of service there are", Takes::Nothing, 0, 0),
    entry("stage", "stage [-w SECONDS] PATH...", "bring files from tape to disk", Takes::Remote, 1, MANY)
        .flags("", "w")
        .details("Answers when the request is in the queue; with -w waits that long for the file."),
    entry("size", "size PATH...", "size in bytes", Takes::Remote, 1, MANY),
    entry("cksum", "cksum [-a ALGORITHM] PATH...", "checksum, from the server's catalogue", Takes::Remote, 1, MANY)
        .flags("", "a")
        .details("ADLER32, CRC32C, MD5 or SHA256; the last two only where the class of service keeps them."),
    entry("stat", "stat PATH...", "everything known about a file or folder", Takes::Remote, 1, MANY),
    entry("quote", "quote LINE", "send a line as it is", Takes::Text, 1, MANY),
    entry("site", "site LINE", "send a site command; site help lists them", Takes::Text, 1, MANY),
    entry("passive", "passive [on|off]", "whether movers listen instead of connecting to this machine", SWITCH, 0, 1)
        .details("For machines behind a firewall or NAT. Data still comes straight from the movers."),
    entry(
        "prot",
        "prot [clear|private]",
        "whether data connections are TLS",
        Takes::Words(&["clear", "private"]),
        0,
        1,
    ),
    entry("verbose", "verbose [on|off]", "show what is said on the control connection", SWITCH, 0, 1),
    entry("progress", "progress [on|off]", "show the progress line", SWITCH, 0, 1),
    entry("status", "status", "the session and its settings", Takes::Nothing, 0, 0),
    entry("help", "help [COMMAND]", "list commands, or explain one", Takes::Command, 0, 1).or(&["?"]),
    entry("bye", "bye", "end", Takes::Nothing, 0, 0).or(&["quit", "exit"]),
];

/// Finds a command by its name, an alias, or the beginning of exactly one name.
pub(super) fn find(name: &str) -> Result<&'static Entry, String> {
    let name = name.to_ascii_lowercase();
    let exact = COMMANDS.iter().find(|entry| entry.name == name || entry.aliases.contains(&name.as_str()));
    if let Some(entry) = exact {
        return Ok(entry);
    }
    let begun: Vec<&Entry> = COMMANDS.iter().filter(|entry| entry.name.starts_with(&name)).collect();
    match begun[..] {
        [entry] => Ok(entry),
        [] => Err(format!("{name} is no command; help lists them")),
        _ => Err(format!("{name} could be {}", begun.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "))),
    }
}

/// Reads the words behind a command's name.
pub(super) fn parse(command: &'static Entry, words: Vec<Word>, rest: &str) -> Result<Given, String> {
    let usage = || format!("usage: {}", command.usage);
    let mut given =
        Given { command, flags: Vec::new(), values: Vec::new(), words: Vec::new(), rest: rest.trim().to_owned() };
    let mut words = words.into_iter();
    // What these say is for someone else.
    let raw = matches!(command.name, "quote" | "site" | "lls");
    let mut flags_end = raw;
    while let Some(word) = words.next() {
        if flags_end || word.quoted || !word.text.starts_with('-') || word.text.len() < 2 {
            given.words.push(word);
            continue;
        }
        if word.text == "--" {
            flags_end = true;
            continue;
        }
        let mut flags = word.text[1..].chars();
        while let Some(flag) = flags.next() {
            if command.valued.contains(flag) {
                let inline: String = flags.by_ref().collect();
                let value = if inline.is_empty() { words.next().map(|word| word.text) } else { Some(inline) };
                given.values.push((flag, value.ok_or_else(usage)?));
            } else if command.flags.contains(flag) {
                given.flags.push(flag);
            } else {
                return Err(format!("{} has no flag -{flag}; {}", command.name, usage()));
            }
        }
    }
    if given.words.len() < command.least || given.words.len() > command.most {
        return Err(usage());
    }
    Ok(given)
}

/// `help` without an argument.
pub(super) fn overview() -> String {
    let lines = COMMANDS.iter().map(|entry| format!("  {:<30} {}", entry.usage, entry.help));
    let lines: Vec<String> =
        lines.chain(["  !COMMAND                       run a command of the shell here".to_owned()]).collect();
    lines.join("\n")
}

/// `help COMMAND`.
pub(super) fn explain(entry: &Entry) -> String {
    let mut text = format!("{}\n  {}", entry.usage, entry.help);
    if !entry.aliases.is_empty() {
        text.push_str(&format!("\n  also: {}", entry.aliases.join(", ")));
    }
    for line in wrapped(entry.details, 76) {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    text
}

/// Lines of at most so many characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The commands for the manual page.
pub(super) fn manual() -> String {
    let entries: Vec<String> = COMMANDS.iter().map(explain).collect();
    format!("Commands:\n\n{}", entries.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::words::split;

    fn given(line: &str) -> Result<Given, String> {
        let words = split(line).unwrap();
        let command = find(&words[0].text)?;
        parse(command, words[1..].to_vec(), line.split_once(' ').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn commands_are_found_by_name_alias_and_beginning() {
        for (name, command) in
            [("get", "get"), ("GET", "get"), ("exit", "bye"), ("setpw", "setpwidth"), ("rm", "delete")]
        {
            assert_eq!(find(name).unwrap().name, command);
        }
        assert!(find("setp").unwrap_err().contains("setpwidth, setpblocksize"));
        assert!(find("xyzzy").is_err());
    }

    #[test]
    fn flags_and_values_are_read_and_unknown_ones_refused() {
        let stage = given("stage -w 60 a b").unwrap();
        assert_eq!((stage.value('w'), stage.words.len()), (Some("60"), 2));
        assert_eq!(given("stage -w60 a").unwrap().value('w'), Some("60"));
        assert!(given("get -rp a b").unwrap().has('p'));
        assert!(given("get -x a").unwrap_err().contains("no flag -x"));
        assert!(given("get").unwrap_err().starts_with("usage: get"));
        assert!(given("get a b c").is_err() && given("stage -w").is_err());
        assert_eq!(given("get -- -a").unwrap().word(0), Some("-a"));
        assert_eq!(given("quote SITE CHMOD -x").unwrap().rest, "SITE CHMOD -x");
    }

    #[test]
    fn every_command_explains_itself() {
        for entry in COMMANDS {
            assert!(entry.usage.starts_with(entry.name) && !entry.help.is_empty(), "{}", entry.name);
            assert!(overview().contains(entry.usage) && manual().contains(entry.help));
        }
    }

    #[test]
    fn the_page_has_every_command() {
        let page = include_str!("../../../docs/pftp.md").replace("\\|", "|");
        for entry in COMMANDS {
            assert!(page.contains(&format!("`{}`", entry.usage)), "docs/pftp.md does not have `{}`", entry.usage);
        }
    }
}
