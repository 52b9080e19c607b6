//! The rules of the layout that a compiler does not check: who imports whom, and that files explain themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Crate → the crates of this workspace it may depend on. The table of `docs/architecture.md`.
const IMPORTS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("daemon", &[]),
    ("netsim", &[]),
    ("catalog", &["wire"]),
    ("mover", &["wire", "daemon"]),
    ("gateway", &["wire", "daemon", "catalog"]),
    ("client", &["wire", "daemon"]),
    ("site", &["wire", "daemon", "catalog", "mover", "gateway", "client", "netsim"]),
    ("tests", &["wire", "daemon", "catalog", "mover", "gateway", "client", "netsim", "site"]),
];

/// Inside a crate: files below the first path must not mention any of the modules that follow.
const INSIDE: &[(&str, &[&str], &str)] = &[
    ("gateway/src/transfer", &["crate::ftp", "crate::admin"], "doors call transfers, never the other way"),
    ("gateway/src/hsm", &["crate::ftp", "crate::admin"], "doors call services, never the other way"),
    ("gateway/src/mounts", &["crate::ftp", "crate::admin"], "doors call services, never the other way"),
    ("gateway/src/movers", &["crate::ftp", "crate::admin"], "doors call movers, never the other way"),
    ("gateway/src/files", &["crate::ftp", "crate::admin"], "doors call the name space, never the other way"),
    ("mover/src/tape", &["crate::vtl"], "the tape code is the same over every transport"),
    ("mover/src/scsi", &["crate::vtl", "crate::tape"], "the seam knows neither side of it"),
    ("mover/src/disk", &["crate::data", "crate::control"], "a volume knows no network"),
];

/// Longer than this and a file holds two ideas.
const LONGEST_FILE_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

fn crates() -> impl Iterator<Item = &'static str> {
    IMPORTS.iter().map(|(name, _)| *name).filter(|name| root().join(name).join("Cargo.toml").exists())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files.extend(rust_files(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

#[test]
fn crates_import_only_what_the_layout_allows() {
    for (name, allowed) in IMPORTS.iter().filter(|(name, _)| crates().any(|present| present == *name)) {
        let manifest = read(&root().join(name).join("Cargo.toml"));
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for (other, _) in IMPORTS {
            let imports = dependencies
                .lines()
                .any(|line| line.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', ' ', '='])));
            assert!(!imports || allowed.contains(other), "{name} must not import {other}");
        }
    }
}

#[test]
fn modules_inside_a_crate_keep_their_direction() {
    for (folder, forbidden, why) in INSIDE {
        // Tests may look from outside: a folder `tests` or a file `tests.rs` is no part of the module.
        let is_test =
            |file: &PathBuf| file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
        let files = rust_files(&root().join(folder));
        for file in files.into_iter().filter(|file| !is_test(&file.strip_prefix(root()).expect("below").to_owned())) {
            let text = read(&file);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for module in *forbidden {
                let uses = code.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(module));
                assert!(!uses, "{} mentions {module}: {why}", file.display());
            }
        }
    }
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let silent: Vec<_> = crates()
        .flat_map(|name| rust_files(&root().join(name)))
        .filter(|file| !read(file).lines().find(|line| !line.starts_with("#!")).unwrap_or_default().starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "files without a module doc: {silent:#?}");
}

#[test]
fn no_file_holds_two_ideas() {
    let long: Vec<_> = crates()
        .flat_map(|name| rust_files(&root().join(name)))
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE_LINES)
        .collect();
    assert!(
        long.is_empty(),
        "files of more than {LONGEST_FILE_LINES} lines, to be cut where their ideas part: {long:#?}"
    );
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |dialect: &str| -> BTreeSet<String> {
        fs::read_dir(root().join("migrations").join(dialect))
            .expect("migrations")
            .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(names("sqlite"), names("postgres"));
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    for file in crates().flat_map(|name| rust_files(&root().join(name).join("src"))) {
        let text = read(&file);
        let lines: Vec<_> = text.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("unsafe {")) {
            let explained = lines[index.saturating_sub(6)..index].iter().any(|before| before.contains("SAFETY:"));
            assert!(explained, "{}:{}: no SAFETY line above `{}`", file.display(), index + 1, line.trim());
        }
    }
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut broken = BTreeMap::new();
    let mut documents = vec![root().join("README.md")];
    for folder in ["docs", "docs/protocol", "docs/decisions"] {
        documents.extend(
            fs::read_dir(root().join(folder))
                .into_iter()
                .flatten()
                .map(|entry| entry.expect("a readable folder").path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "md")),
        );
    }
    for document in documents.iter().filter(|document| document.exists()) {
        let text = read(document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !document.parent().expect("a folder").join(target).exists() {
                broken.entry(document.clone()).or_insert_with(Vec::new).push(target.to_owned());
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}
