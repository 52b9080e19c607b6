//! The program itself, as a script runs it, against a small server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

#[allow(dead_code, reason = "the other test program uses the rest")]
mod server;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use server::Server;

fn pftp(server: &Server, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pftp"));
    command.arg("--clear").arg(server.address.to_string()).args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn run(server: &Server, folder: &Path, arguments: &[&str]) -> Output {
    pftp(server, folder, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_script_puts_lists_and_gets() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("tree/sub dir")).unwrap();
    std::fs::write(folder.path().join("tree/a"), "one").unwrap();
    std::fs::write(folder.path().join("tree/sub dir/b"), vec![7; 3 << 20]).unwrap();
    let script = "put -r tree; ls tree; size 'tree/sub dir/b'; cksum tree/a; get -r /tree back; get tree/a copy";
    let output = run(&server, folder.path(), &["-c", script]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(server.file("/tree/a").unwrap(), b"one");
    assert_eq!(std::fs::read(folder.path().join("back/sub dir/b")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), b"one");
    let shown = text(&output.stdout);
    assert!(
        shown.contains("sub dir/\n") && shown.contains("3145728 /tree/sub dir/b") && shown.contains("ADLER32 "),
        "{shown}"
    );
}

#[test]
fn a_script_stops_at_what_fails_and_says_so_in_its_status() {
    let server = Server::start().with_file("/a", b"1");
    let folder = tempfile::tempdir().unwrap();
    let output = run(&server, folder.path(), &["-c", "get nowhere; get a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No such file"), "{}", text(&output.stderr));
    assert!(!folder.path().join("a").exists());
    let output = run(&server, folder.path(), &["-k", "-c", "get nowhere; get a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(folder.path().join("a").exists());
    assert_eq!(run(&server, folder.path(), &["-c", "xyzzy"]).status.code(), Some(1));
    let nobody =
        Command::new(env!("CARGO_BIN_EXE_pftp")).args(["--clear", "127.0.0.1:1", "-c", "pwd"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("connect to 127.0.0.1:1"), "{}", text(&nobody.stderr));
}

#[test]
fn programs_get_one_json_object_a_line() {
    let server = Server::start().with_file("/a", b"1").with_file("/b", b"2");
    let folder = tempfile::tempdir().unwrap();
    let output = run(&server, folder.path(), &["--json", "-c", "ls; mget *; get x"]);
    let events: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["connected", "entry", "entry", "file", "file", "summary", "error"]);
    assert_eq!((events[6]["code"].as_u64(), events[6]["remedy"].as_str()), (Some(550), Some("correct")));
    assert_eq!(events[3]["verified"], "CRC32C");
}

#[test]
fn commands_come_from_standard_input_too_and_patterns_are_expanded() {
    let server = Server::start().with_file("/x1", b"1").with_file("/x2", b"2").with_file("/y", b"3");
    let folder = tempfile::tempdir().unwrap();
    let mut child = pftp(&server, folder.path(), &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(
        &mut child.stdin.take().unwrap(),
        b"# all that begin with x\nmget x*\nrename y z\nbye\nget z\n",
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(
        folder.path().join("x1").exists() && folder.path().join("x2").exists() && !folder.path().join("z").exists()
    );
    assert_eq!(server.file("/z").unwrap(), b"3");
}

#[test]
fn ctrl_c_stops_a_transfer_and_reget_goes_on() {
    let server = Server::start().with_file("/f", &vec![3; 40 << 20]);
    let folder = tempfile::tempdir().unwrap();
    server.faults(|faults| faults.pause_ms = 5);
    let child = pftp(&server, folder.path(), &["-w1", "-c", "get f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let part = folder.path().join("f.pftp-part");
    let until = Instant::now() + Duration::from_secs(60);
    while !part.exists()
        || std::fs::metadata(&part).map_or(0, |part| std::os::unix::fs::MetadataExt::blocks(&part)) < 100
    {
        assert!(Instant::now() < until, "nothing came");
        std::thread::sleep(Duration::from_millis(5));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("reget goes on"), "{}", text(&output.stderr));
    assert!(folder.path().join("f.pftp-part.json").exists());
    server.faults(|faults| faults.pause_ms = 0);
    let output = run(&server, folder.path(), &["-c", "reget f"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("had come before"), "{}", text(&output.stdout));
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), vec![3; 40 << 20]);
}

#[test]
fn completions_and_the_manual_come_from_the_command_line_definition() {
    for arguments in [&["--completions", "bash"][..], &["--man"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_pftp")).args(arguments).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("passive"));
    }
}
