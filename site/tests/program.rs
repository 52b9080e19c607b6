//! The programs as a user starts them: the demo from its first line to its last, and what a wrong command line gets.

use std::process::{Command, Output};

use tempfile::tempdir;

fn penstock(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_penstock");
    Command::new(program).args(arguments).env_remove("PENSTOCK_DATA").output().expect("penstock runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_demo_moves_files_to_two_tapes_and_back_without_a_relay() {
    let folder = tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("below")).expect("folders");
    for (name, bytes) in [("empty", 0), ("small", 10), ("below/block", 1 << 20), ("below/large", 9 << 20)] {
        let content: Vec<u8> = (0..bytes).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(tree.join(name), content).expect("a file");
    }
    let output = penstock(&["demo", tree.to_str().expect("a plain path")]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for line in ["every file is on two cartridges", "4 files are on tape only"] {
        assert!(said.contains(line), "no {line:?} in {said}");
    }
    assert!(said.contains("4 files came back as they went"), "{said}");
    assert!(said.contains("relayed bytes: 0"), "{said}");
}

#[test]
fn a_wrong_command_line_says_what_to_do() {
    let output = penstock(&["admin", "status"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("--data DIR"), "{}", text(&output));
    let output = penstock(&["serve"]);
    assert!(!output.status.success() && text(&output).contains("--data"), "{}", text(&output));
}

#[test]
fn a_mistake_in_a_configuration_is_named_with_its_line() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, "name = \"gateway1\"\ncolour = \"blue\"\n").expect("a file");
    let output = penstock(&["gateway", "--check", "--config", path.to_str().expect("a plain path")]);
    assert!(!output.status.success());
    assert!(text(&output).contains("gateway.toml:2"), "{}", text(&output));
}

#[test]
fn the_printed_configurations_are_good_ones() {
    for part in ["gateway", "mover"] {
        let output = penstock(&[part, "--print-config"]);
        assert!(output.status.success(), "{}", text(&output));
        let folder = tempdir().expect("a folder");
        let path = folder.path().join("printed.toml");
        std::fs::write(&path, &output.stdout).expect("a file");
        let output = penstock(&[part, "--check", "--config", path.to_str().expect("a plain path")]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn what_the_compose_file_s_setup_writes_are_good_configurations() {
    let folder = tempdir().expect("a folder");
    let site = folder.path().join("site");
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_penstock")).parent().expect("a program lies in a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../docker/setup.sh");
    let made = Command::new("sh").arg(script).arg(&site).env("PATH", path).output().expect("sh runs");
    assert!(made.status.success(), "{}", text(&made));
    for (part, file) in [("gateway", "gateway.toml"), ("mover", "mover1.toml"), ("mover", "mover2.toml")] {
        let file = site.join(file);
        let output = penstock(&[part, "--config", file.to_str().expect("a plain path"), "--check"]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn completions_and_manual_pages_come_from_the_command_line_s_definition() {
    let output = penstock(&["completions", "bash"]);
    assert!(output.status.success() && text(&output).contains("demo"), "{}", text(&output));
    let folder = tempdir().expect("a folder");
    let output = penstock(&["man", folder.path().to_str().expect("a plain path")]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(folder.path().join("penstock-serve.1").exists());
}
