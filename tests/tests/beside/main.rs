//! Doors beside the movers that hold the bytes: one process, no data channel, nothing relayed.
//!
//! The counters belong to the process, so everything here is one test after the other, in a program of its own.

#[allow(dead_code, reason = "shared with the tests of S3's clients, which use all of it")]
#[path = "../s3_clients/programs.rs"]
mod programs;

use std::{os::unix::fs::FileExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use programs::Programs;
use tests::Site;
use tokio::sync::Mutex;

/// Parts of it lie on both movers.
const LARGE: usize = 18 << 20;

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// What a counter says of the S3 door's reads, over all other labels.
async fn counted(programs: &Programs, counter: &str) -> Result<u64> {
    let text = programs.fetch(&format!("http://{}/metrics", programs.site.gateway.doors.metrics[0])).await?.good()?;
    let of_reads =
        |line: &&str| line.starts_with(counter) && line.contains("door=\"s3\"") && !line.contains("reason=\"put\"");
    Ok(text.lines().filter(of_reads).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

async fn relayed(programs: &Programs) -> Result<u64> {
    counted(programs, "penstock_relayed_bytes_total").await
}

async fn direct(programs: &Programs) -> Result<u64> {
    counted(programs, "penstock_direct_bytes_total").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_beside_the_door_is_read_without_a_relay_whole_and_in_ranges() -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().await;
    let programs = Programs::of(Site::builder().beside()).await?;
    let (relayed_before, direct_before) = (relayed(&programs).await?, direct(&programs).await?);
    programs.curl(&["-X", "PUT"], "data").await?.good()?;
    let mut read = 0;
    for (name, size) in [("empty", 0), ("small", 1000), ("block", 1 << 20), ("odd", (1 << 20) + 1)] {
        let data = programs.write(name, size, 1)?;
        programs.curl(&["-T", &programs.text_of(name)], &format!("data/{name}")).await?.good()?;
        let got = programs.curl(&[], &format!("data/{name}")).await?;
        ensure!(got.out == data, "{name} came back changed: {} bytes", got.out.len());
        read += size;
    }
    let data = programs.write("large", LARGE, 2)?;
    programs.aws(&["s3", "cp", &programs.text_of("large"), "s3://data/large"]).await?.good()?;
    ensure!(programs.curl(&[], "data/large").await?.out == data, "the object of several parts came back changed");
    read += LARGE;
    // Within a part, over the border between two parts, to the end.
    for (from, to) in [(10, 19), ((8 << 20) - 5, (8 << 20) + 5), (5 << 20, LARGE - 1), (LARGE - 1, LARGE - 1)] {
        let got = programs.curl(&["-r", &format!("{from}-{to}")], "data/large").await?;
        ensure!(got.out == data[from..=to], "bytes {from}-{to} came back changed");
        read += to - from + 1;
    }
    ensure!(relayed(&programs).await? == relayed_before, "something was relayed");
    let counted = direct(&programs).await? - direct_before;
    ensure!(counted == read as u64, "{counted} bytes are counted as direct, {read} were read");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_leaves_no_transfer_and_no_buffer_behind() -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().await;
    let programs = Programs::of(Site::builder().beside()).await?;
    programs.curl(&["-X", "PUT"], "data").await?.good()?;
    let data = programs.write("large", LARGE, 3)?;
    programs.curl(&["-T", &programs.text_of("large")], "data/large").await?.good()?;
    // More of them than there are buffers to read with.
    for _ in 0..40 {
        let _ = programs.curl(&["--limit-rate", "1k", "--max-time", "0.2", "-o", "/dev/null"], "data/large").await?;
    }
    let got = programs.curl(&[], "data/large").await?;
    ensure!(got.out == data, "the object came back changed");
    tests::soon("the end of every transfer", async {
        while !programs.site.gateway.transfers.running().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_it_was_is_never_given_whole() -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().await;
    let programs = Programs::of(Site::builder().movers(1).beside()).await?;
    programs.curl(&["-X", "PUT"], "data").await?.good()?;
    for (name, size) in [("small", 5000), ("large", 3 << 20)] {
        programs.write(name, size, 4)?;
        programs.curl(&["-T", &programs.text_of(name)], &format!("data/{name}")).await?.good()?;
        spoil(&programs.site.disk(1), size as u64)?;
        let got = programs.curl(&["-f"], &format!("data/{name}")).await?;
        ensure!(got.out.len() < size, "{name}: all bytes were given");
        ensure!(got.good().is_err(), "{name}: the client was not told");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_another_process_is_relayed_and_counted() -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().await;
    let programs = Programs::of(Site::builder()).await?;
    programs.curl(&["-X", "PUT"], "data").await?.good()?;
    let data = programs.write("in", 100_000, 5)?;
    programs.curl(&["-T", &programs.text_of("in")], "data/in").await?.good()?;
    let (relayed_before, direct_before) = (relayed(&programs).await?, direct(&programs).await?);
    ensure!(programs.curl(&[], "data/in").await?.out == data, "the object came back changed");
    ensure!(relayed(&programs).await? == relayed_before + 100_000, "it is not counted as relayed");
    ensure!(direct(&programs).await? == direct_before, "it is counted as direct");
    Ok(())
}

/// Changes a byte of the file of this size below a folder.
fn spoil(folder: &Path, size: u64) -> Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.len() == size {
                let file = std::fs::File::options().read(true).write(true).open(entry.path())?;
                let mut byte = [0];
                file.read_exact_at(&mut byte, size / 2)?;
                file.write_all_at(&[byte[0] ^ 1], size / 2)?;
                return Ok(());
            }
        }
    }
    None.context("no such file")
}
