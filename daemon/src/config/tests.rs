//! What a mistake in a configuration looks like to the person who made it.

use serde::Deserialize;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Example {
    name: String,
    ftp: Ftp,
    volumes: Vec<Volume>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ftp {
    listen: Vec<String>,
    idle: TimeSpan,
    buffer: ByteSize,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Volume {
    label: String,
    path: PathBuf,
}

impl Default for Ftp {
    fn default() -> Self {
        Self { listen: vec!["[::]:2811".to_owned()], idle: TimeSpan::seconds(900), buffer: ByteSize::kib(256) }
    }
}

impl Settings for Example {
    const TEMPLATE: &'static str = "\
# The site's name.
name = \"\"
volumes = []

[ftp]
# Where the door listens.
listen = [\"[::]:2811\"]
# A session without a command for so long is closed.
idle = \"15m\"
buffer = \"256 KiB\"
";

    fn check(&self, problems: &mut Problems) {
        for (index, volume) in self.volumes.iter().enumerate() {
            if !volume.path.is_absolute() {
                problems.add(format!("volumes[{index}].path"), "is not absolute", "begin it with /");
            }
        }
        if self.ftp.listen.is_empty() {
            problems.add("ftp.listen", "is empty", "name at least one address");
        }
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn mistake(text: &str, environment: &[(&str, &str)]) -> String {
    parse::<Example>("site.toml", text, variables(environment)).unwrap_err().to_string()
}

#[test]
fn the_template_is_the_default() {
    check_template::<Example>();
}

#[test]
fn a_file_and_the_environment_make_settings_and_the_environment_wins() {
    let text = "name = \"a\"\n[ftp]\nidle = \"1m\"\n[[volumes]]\nlabel = \"V1\"\npath = \"/v1\"\n";
    let environment = [
        ("PENSTOCK__NAME", "b"),
        ("PENSTOCK_FTP__IDLE", "30s"),
        ("PENSTOCK_FTP__BUFFER", "65536"),
        ("PENSTOCK_FTP__LISTEN", "[\"127.0.0.1:1\"]"),
        ("PENSTOCK_VOLUMES__0__PATH", "/elsewhere"),
        ("PENSTOCK_CONFIG", "not an override"),
        ("PATH", "/bin"),
    ];
    let loaded = parse::<Example>("site.toml", text, variables(&environment)).unwrap();
    assert_eq!(
        loaded.settings,
        Example {
            name: "b".to_owned(),
            ftp: Ftp { listen: vec!["127.0.0.1:1".to_owned()], idle: TimeSpan::seconds(30), buffer: ByteSize::kib(64) },
            volumes: vec![Volume { label: "V1".to_owned(), path: "/elsewhere".into() }],
        }
    );
    assert_eq!(loaded.place("volumes[0].label"), Place::Line { file: "site.toml".to_owned(), line: 5 });
    assert_eq!(loaded.place("ftp.idle"), Place::Variable("PENSTOCK_FTP__IDLE".to_owned()));
}

#[test]
fn no_file_and_no_environment_are_the_defaults() {
    assert_eq!(load::<Example>(None, []).unwrap().settings, Example::default());
}

#[test]
fn a_mistake_names_file_line_key_and_next_step() {
    for (text, wanted) in [
        (
            "name = \"a\"\n\n[ftp]\nidel = \"1m\"\n",
            "site.toml:4: ftp.idel is wrong: unknown field `idel`, expected one of `listen`, `idle`, `buffer`; remove it",
        ),
        (
            "[ftp]\nidle = 30\n",
            "site.toml:2: ftp.idle is wrong: invalid type: integer `30`, expected a time such as \"30s\"",
        ),
        ("[ftp]\nidle = \"1 week\"\n", "site.toml:2: ftp.idle is wrong: \"1 week\" is not a time such as"),
        ("\n[ftp]\nlisten = [\n \"a\",\n 5 ]\n", "site.toml:5: ftp.listen[1] is wrong: invalid type: integer `5`"),
        (
            "[[volumes]]\nlabel = \"a\"\npath = \"/a\"\n[[volumes]]\nlabel = \"b\"\n",
            "site.toml:4: volumes[1] is wrong: missing field `path`; add it",
        ),
        ("name = \"a\"\nftp = 3\n", "site.toml:2: ftp is wrong: invalid type: integer `3`"),
        ("name = \"a\"\nname = \"b\"\n", "site.toml:2: duplicate key; correct the TOML syntax"),
        ("name = \"a\n", "site.toml:1: "),
        (
            "name = \"a\"\n[[volumes]]\nlabel = \"a\"\npath = \"a\"\n",
            "site.toml:4: volumes[0].path is not absolute; begin it with /",
        ),
        ("[ftp]\nbuffer = -1\n", "site.toml:2: ftp.buffer is wrong: invalid value: integer `-1`"),
    ] {
        let shown = mistake(text, &[]);
        assert!(shown.starts_with(wanted), "{text}\n   shown: {shown}\n  wanted: {wanted}");
    }
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let listed = "[[volumes]]\nlabel = \"a\"\npath = \"/a\"\n";
    for (name, value, wanted) in [
        ("PENSTOCK_FTP__IDLE", "30", "ftp.idle is wrong: invalid type: integer `30`"),
        ("PENSTOCK_FTP__IDEL", "30s", "ftp.idel is wrong: unknown field `idel`"),
        ("PENSTOCK_FTP__LISTEN", "[1]", "ftp.listen[0] is wrong: invalid type"),
        ("PENSTOCK_FTP__LISTEN", "[]", "ftp.listen is empty; name at least one address"),
        ("PENSTOCK_NAME__X", "1", "name.x lies inside name, which is a string and no section; correct or unset"),
        ("PENSTOCK_VOLUMES__1__PATH", "/b", "volumes.1.path needs a number below 1 after volumes, which is a list"),
        ("PENSTOCK_VOLUMES__0__PATH", "b", "volumes[0].path is not absolute; begin it with /"),
    ] {
        let shown = mistake(&format!("name = \"a\"\n{listed}"), &[(name, value)]);
        assert!(shown.starts_with(&format!("environment variable {name}: {wanted}")), "{shown}\n  wanted: {wanted}");
    }
}

#[test]
fn all_semantic_mistakes_are_shown_at_once() {
    let shown = mistake("[[volumes]]\nlabel = \"a\"\npath = \"a\"\n[ftp]\nlisten = []\n", &[]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

#[test]
fn a_later_failure_can_still_name_the_line() {
    let loaded = parse::<Example>("site.toml", "[ftp]\nlisten = [\"[::]:21\"]\n", []).unwrap();
    let error = loaded.error("ftp.listen[0]", "cannot be bound: permission denied", "use a port above 1023");
    assert_eq!(
        error.to_string(),
        "site.toml:2: ftp.listen[0] cannot be bound: permission denied; use a port above 1023"
    );
    assert!(loaded.error("name", "is missing", "add it").to_string().starts_with("site.toml:1: name"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load::<Example>(Some(Path::new("/nowhere/site.toml")), []).unwrap_err();
    assert!(error.to_string().contains("/nowhere/site.toml") && error.to_string().contains("--print-config"));
}

#[test]
fn arbitrary_text_never_panics() {
    let words = ["[", "]", "=", "\"", "a", ".", "ftp", "1", "\n", "{", "}", ",", "'", "#", "\u{e9}", "listen"];
    let mut state = 0x9e37_79b9_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(words[(state >> 33) as usize % words.len()]);
        }
        let _ = parse::<Example>("fuzz", &text, variables(&[("PENSTOCK_FTP__LISTEN", &text)]));
    }
}
