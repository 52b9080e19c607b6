//! The documentation's commands, run as they are written.
//!
//! Every block that a page marks with "sh run" behind its fence is run, in the order of the page, by one shell in an
//! empty folder, with a home of its own. Two things are other than for a reader: the site takes free ports instead of the
//! usual ones, so small programs on the path put them in the place of `localhost`, `localhost:2811` and
//! `localhost:2842`; and what a page does in `/srv/penstock` is done in a temporary folder.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// No page needs longer; one that hangs fails.
const LIMIT_SECONDS: &str = "240";

/// What stands in for a program: the real one, told where the site's FTP door is.
const STAND_IN: &str = r#"#!/usr/bin/env bash
door() { sed -n 's/.*"'"$1"'": "[^"]*:\([0-9]*\)".*/\1/p' "${PENSTOCK_DATA:-/srv/penstock}/doors.json" 2>/dev/null; }
ftp=$(door ftp) webdav=$(door webdav)
args=()
for arg in "$@"; do
    if [ "$arg" = localhost ]; then arg=localhost:2811; fi
    arg=${arg//localhost:2842/localhost:$webdav}
    args+=("${arg//localhost:2811/localhost:$ftp}")
done
exec REAL "${args[@]}"
"#;

/// `penstock serve` with free ports; everything else as it is.
const PENSTOCK: &str = r#"#!/usr/bin/env bash
if [ "$1" = serve ]; then shift; exec REAL serve --port 0 "$@"; fi
exec REAL "$@"
"#;

const PRELUDE: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
set -x
"#;

#[test]
fn the_tour_of_the_readme_works_as_written() {
    run("README.md");
}

#[test]
fn the_page_of_pftp_works_as_written() {
    run("docs/pftp.md");
}

#[test]
fn the_page_of_webdav_works_as_written() {
    run("docs/webdav.md");
}

#[test]
fn the_page_of_operations_works_as_written() {
    run("docs/operations.md");
}

#[test]
fn what_the_demo_says_to_do_by_hand_can_be_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = folder.path().join("small");
    fs::write(&small, "a small file").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_penstock")).arg("demo").arg(small).output().expect("penstock runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, by_hand) = said.split_once("The same by hand").unwrap_or_else(|| panic!("nothing to do by hand: {said}"));
    let lines: Vec<_> = by_hand.lines().filter_map(|line| line.trim_start().strip_prefix("$ ")).collect();
    assert!(lines.len() > 5, "{said}");
    run_all("the demo's last lines", &lines.join("\n"));
}

/// Where the repository is.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

/// Runs the marked blocks of a page.
fn run(page: &str) {
    let text = fs::read_to_string(root().join(page)).expect("the page");
    let blocks = blocks(&text);
    assert!(blocks.len() > 2, "{page} has hardly a block to run");
    run_all(page, &blocks.join("\n"));
}

/// Runs what a page says.
fn run_all(page: &str, commands: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["bin", "home", "work"] {
        fs::create_dir(at(name)).expect("a folder");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    stand_in(&at("bin/penstock"), PENSTOCK, Path::new(env!("CARGO_BIN_EXE_penstock")));
    stand_in(&at("bin/pftp"), STAND_IN, pftp());
    for name in ["curl", "lftp", "davix-put", "davix-get", "davix-ls"] {
        let real = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.exists());
        stand_in(&at("bin").join(name), STAND_IN, &real.unwrap_or_else(|| panic!("{name} is missing: make test")));
    }
    fs::copy(root().join("README.md"), at("work/README.md")).expect("copied");
    let script = format!("{PRELUDE}{commands}\n").replace("/srv/penstock", &at("srv").display().to_string());
    fs::write(at("script"), script).expect("written");
    let output = Command::new("timeout")
        .args(["--kill-after", "10", LIMIT_SECONDS, "bash"])
        .arg(at("script"))
        .current_dir(at("work"))
        .env("PATH", format!("{}:{path}", at("bin").display()))
        .env("HOME", at("home"))
        .env("PENSTOCK_DATA", at("data"))
        .env_remove("X509_USER_PROXY")
        .stdin(Stdio::null())
        .output()
        .expect("timeout and bash are there");
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}: {}\n{said}", output.status);
    assert!(!said.contains("panicked"), "{page}\n{said}");
}

/// The blocks to run.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```sh run" {
            blocks
                .push(lines.by_ref().take_while(|line| line.trim() != "```").map(|line| format!("{line}\n")).collect());
        }
    }
    blocks
}

fn stand_in(path: &Path, text: &str, real: &Path) {
    fs::write(path, text.replace("REAL", &format!("'{}'", real.display()))).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
}

/// `pftp`, which is of another package. When the whole workspace is tested, cargo has built it beside `penstock`; when only
/// this package is and it is not there, cargo is asked for it.
fn pftp() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_penstock")).parent().expect("a program lies in a folder");
        let there = folder.join("pftp");
        if there.exists() {
            return there;
        }
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "penstock-client", "--bin", "pftp", "--profile", profile])
            .arg("--target-dir")
            .arg(folder.parent().expect("a profile's folder lies in the target's"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "pftp was not built");
        there
    })
}
