//! Published measurements that are repeated: what they write, and that nothing of them is left.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use netsim::Profile;
use site::lab::paper::bench::{Effort, Place};
use tempfile::tempdir;

use crate::{PROGRAM, entries, eventually, text};

#[test]
fn a_paper_is_measured_and_written_with_its_plots() {
    let folder = tempdir().expect("a folder");
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "paper", "gfarm-2006", "--quick", "--size", "64MB", "--congestion", "reno"]);
    command.arg("--out").arg(folder.path().join("out"));
    let output = command.arg("--scratch").arg(folder.path()).output().expect("penstock runs");
    assert!(output.status.success(), "{}", text(&output));
    let out = folder.path().join("out");
    let table: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("gfarm-2006.json")).expect("figures")).expect("JSON");
    let ratio = table["ratios"][0]["value"].as_f64().expect("a ratio");
    assert!(ratio > 1.5, "four movers carry more than one: {table}");
    let markdown = fs::read_to_string(out.join("gfarm-2006.md")).expect("a table");
    let command = "`penstock lab paper gfarm-2006 --quick --congestion reno --size 64000000` with reno on ";
    assert!(markdown.contains(command), "{markdown}");
    let said = text(&output);
    assert!(said.contains("this takes about") && said.contains("gfarm-2006 is done"), "{said}");
    assert!(markdown.contains("one NIC is the limit"), "{markdown}");
    let drawings = fs::read_dir(&out).expect("a folder").filter(|entry| {
        let path = entry.as_ref().expect("an entry").path();
        path.extension().is_some_and(|extension| extension == "svg")
    });
    assert_eq!(drawings.count(), 2);
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    assert_eq!(left, [out], "nothing else is left");
}

/// Processes that name a folder, other than those that only look for it.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a plain path").as_bytes();
    let all = fs::read_dir("/proc").expect("procfs").flatten().map(|entry| entry.path());
    let lines = all.filter_map(|process| fs::read(process.join("cmdline")).ok());
    let named = lines.filter(|line| line.windows(folder.len()).any(|part| part == folder));
    named.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

/// A paper in the middle of its first measurement: its site is up.
fn paper_under_way(scratch: &Path) -> std::process::Child {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "paper", "gfarm-2006", "--quick", "--size", "256MB", "--scratch"]).arg(scratch);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let paper = command.spawn().expect("penstock runs");
    eventually("its site is up", || {
        entries(scratch).first().is_some_and(|folder| folder.join("site/doors.json").exists())
    });
    assert!(processes_in(scratch).len() > 4, "the paper, a gateway, movers: {:?}", processes_in(scratch));
    paper
}

#[test]
fn a_paper_that_is_told_to_end_leaves_no_process_and_no_file() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let scratch = tempdir().expect("a folder");
        let mut paper = paper_under_way(scratch.path());
        let told = Command::new("kill").args([format!("-{name}"), paper.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        assert_eq!(paper.wait().expect("it ends").code(), Some(128 + number), "SIG{name}");
        assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new(), "SIG{name}");
        eventually("its processes have ended", || processes_in(scratch.path()).is_empty());
        assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new(), "what they wrote last is gone too");
    }
}

#[test]
fn what_a_killed_paper_left_is_removed_by_the_next_even_if_that_fails() {
    let scratch = tempdir().expect("a folder");
    let mut paper = paper_under_way(scratch.path());
    paper.kill().expect("killed");
    paper.wait().expect("it ends");
    eventually("its processes have ended", || processes_in(scratch.path()).is_empty());
    assert_eq!(entries(scratch.path()).len(), 1, "nobody was left to remove it");
    let mut next = Command::new(PROGRAM);
    next.args(["lab", "paper", "gfarm-2006", "--quick", "--scratch"]).arg(scratch.path()).env("PATH", "/nowhere");
    let output = next.output().expect("penstock runs");
    assert!(!output.status.success());
    assert!(text(&output).contains("iproute2"), "{}", text(&output));
    assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_refused_before_anything_starts() {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["lab", "paper", "gfarm-2006", "--congestion", "vegan"]).output().expect("penstock runs");
    assert!(!output.status.success());
    assert!(text(&output).contains("the kernel has no congestion control vegan; it has "), "{}", text(&output));
}

/// The Globus server over the same links, in the same lab.
#[test]
fn globus_goes_over_the_same_links_where_it_is_installed() {
    let installed = ["/usr/sbin/globus-gridftp-server", "/usr/bin/globus-url-copy"];
    let folder = tempdir().expect("a folder");
    let paper = site::lab::paper::Paper {
        names: Vec::new(),
        quick: true,
        size: None,
        out: None,
        scratch: Some(folder.path().to_owned()),
        congestion: None,
        repeat: 1,
    };
    let effort = Effort::with_program(&paper, PROGRAM.into()).expect("an effort");
    let bench = effort.start(&Place::new(Profile::Campus.link())).expect("a lab with a site");
    for to_client in [true, false] {
        for streams in [1, 4] {
            let rate = effort.globus(&bench, 20_000_000, streams, to_client).expect("measured, or not there");
            assert_eq!(rate.is_some(), installed.iter().all(|program| Path::new(program).exists()));
            // The link has 1 Gb/s, and what passes it is not faster.
            assert!(rate.is_none_or(|rate| (10.0..945.0).contains(&rate)), "{rate:?} Mb/s");
        }
    }
    assert!(
        entries(bench.site().folder().path().parent().expect("the scratch folder"))
            .iter()
            .all(|path| { !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("globus")) })
    );
}
