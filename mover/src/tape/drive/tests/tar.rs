//! GNU tar reads our tapes, and what it extracts is what was written.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use super::*;
use crate::tape::SegmentOf;
use crate::tape::format::encode_member;

/// The records of one tape file, as `dd` would read them from a drive that was never told of block protection.
fn dd(bench: &Bench, block: u64) -> Vec<u8> {
    let mut host = Drive::new(DriveId::new("dd").unwrap(), Box::new(bench.vtl.drive(0).unwrap()));
    host.device.take_attentions().unwrap();
    host.device.command(&Cdb::Locate10 { immediate: false, block: u32::try_from(block).unwrap() }).unwrap();
    let mut archive = Vec::new();
    while let records::Block::Data(length) = host.read_block(RECORD_BYTES).unwrap() {
        archive.extend_from_slice(&host.record[..length]);
    }
    archive
}

fn tar(arguments: &[&str], folder: &Path, input: &[u8]) -> String {
    let mut child = Command::new("tar")
        .args(["-b", "512", "--warning=no-unknown-keyword"])
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("GNU tar is needed for this test");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&input).map_err(|error| error.kind()));
    let output = child.wait_with_output().unwrap();
    let _ = feeding.join().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "tar {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tar_extracts_what_was_written() {
    let mut bench = Bench::new();
    let mut random = random(30);
    let mut files = random_files(&mut random, 1, 60);
    files.push(File::new(500, &format!("long/{}/name", "x".repeat(180)), vec![1; 100]));
    files.push(File::new(501, "漢字/ünïcode", vec![2; 300_000]));
    files.push(File::new(502, "/absolute/../up", vec![3; 5]));
    files.push(File::new(503, "empty", Vec::new()));
    let mut segment = File::new(504, "big", vec![4; 1000]);
    segment.member.segment = Some(SegmentOf { index: 2, count: 3, offset_bytes: 1000, total_bytes: 3000 });
    segment.member.modified_us = 1_234_567_890_123_456;
    files.push(segment);
    let report = bench.append(1, &files).unwrap();
    bench.drive.detach(Unload::No).unwrap();
    let archive = dd(&bench, report.start_block);
    assert_eq!(archive.len() % RECORD_BYTES, 0);

    let folder = tempfile::tempdir().unwrap();
    tar(&["-xf", "-"], folder.path(), &archive);
    let name = |path: &str| match path {
        "/absolute/../up" => "absolute/%2E%2E/up".to_owned(),
        "big" => "big.segment-2-of-3".to_owned(),
        path => path.to_owned(),
    };
    for file in &files {
        let path = folder.path().join(name(&file.member.path));
        let data = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(data == file.data, "{}", path.display());
    }
    let listing = tar(&["--full-time", "-tvf", "-"], folder.path(), &archive);
    assert!(listing.contains("2009-02-13 23:31:30.123456"), "{listing}");
    let trailer = std::fs::read_to_string(folder.path().join(".penstock/TRAILER")).unwrap();
    assert_eq!(trailer.lines().filter(|line| line.starts_with('{')).count(), files.len());
    assert!(trailer.lines().last().unwrap().starts_with("PENSTOCK-FOOTER"));
    assert!(folder.path().join(".penstock/CONTAINER").exists());
}

#[test]
fn tar_reads_the_index_and_dd_the_labels() {
    let mut bench = Bench::new();
    let report = bench.append(1, &random_files(&mut random(31), 1, 3)).unwrap();
    bench.drive.detach(Unload::No).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tar(&["-xf", "-"], folder.path(), &dd(&bench, report.next_block));
    assert!(std::fs::read_to_string(folder.path().join(".penstock/INDEX")).unwrap().contains("\"container\":1"));
    let labels = dd(&bench, 0);
    assert!(labels.starts_with(b"VOL1PEN001"));
    let text = String::from_utf8(labels).expect("labels are text");
    assert!(text.contains("tar -b 512") && text.contains("PENSTOCK-VOLUME"));
}

#[test]
fn tar_believes_sizes_beyond_eight_gigabytes() {
    let mut archive = Vec::new();
    let sizes = [1 << 33, (1 << 33) - 1, 1 << 45];
    let folder = tempfile::tempdir().unwrap();
    for size in sizes {
        let member = Member::new(BitfileId(size), format!("huge-{size}"), size, Sums::EMPTY);
        archive.clear();
        archive.extend_from_slice(&encode_member(&member).unwrap());
        // The list needs the header only: tar stops where the archive does.
        let path = folder.path().join("header.tar");
        std::fs::write(&path, &archive).unwrap();
        let output = Command::new("tar").args(["-tvf"]).arg(&path).output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        assert!(listing.contains(&format!(" {size} ")), "{listing}");
    }
}
