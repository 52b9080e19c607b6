//! Clients that nobody here wrote, against the S3 door of a whole site: curl, aws, s3cmd, rclone; boto3 and minio-py;
//! s3fs, mounted. What is archived, by aws and rclone, and what buckets tell. Temporary keys, by those that ask for them.
//!
//! A client that is not installed fails its test: `tests/prepare` installs them.

mod archive;
mod events;
mod libraries;
mod mounted;
mod programs;
mod temporary;

use std::time::Duration;

use anyhow::{Result, ensure};
use catalog::Amount;
use programs::Programs;
use tests::soon;

/// More than one part of every client's multipart upload.
const LARGE: usize = 18 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn curl_puts_gets_ranges_and_deletes_with_signatures_of_its_own() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in", 100_000, 1)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a/b.bin").await?.good()?;
    let got = programs.curl(&[], "photos/a/b.bin").await?;
    ensure!(got.out == data, "the object came back changed");
    let part = programs.curl(&["-r", "10-19"], "photos/a/b.bin").await?;
    ensure!(part.out == data[10..20], "the range came back changed");
    let listed = programs.curl(&[], "photos").await?.good()?;
    ensure!(listed.contains("<Key>a/b.bin</Key>") && listed.contains("<Size>100000</Size>"), "{listed}");
    let missing = programs.curl(&[], "photos/none").await?.good()?;
    ensure!(missing.contains("<Code>NoSuchKey</Code>") && missing.contains("<RequestId>"), "{missing}");
    programs.curl(&["-X", "DELETE"], "photos/a/b.bin").await?.good()?;
    programs.curl(&["-X", "DELETE"], "photos").await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_and_no_signature_are_refused_in_xml() -> Result<()> {
    let programs = Programs::start().await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let wrong = programs.curl_as("wrong", &[], "photos").await?.good()?;
    ensure!(wrong.contains("<Code>SignatureDoesNotMatch</Code>"), "{wrong}");
    let nobody = programs.plain(&[], "photos").await?.good()?;
    ensure!(nobody.contains("<Code>AccessDenied</Code>"), "{nobody}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ftp_wrote_is_read_by_s3_and_the_other_way_round() -> Result<()> {
    let programs = Programs::start().await?;
    programs.curl(&["-X", "PUT"], "shared").await?.good()?;
    let by_s3 = programs.write("s3", 70_000, 2)?;
    let by_ftp = programs.write("ftp", 80_000, 3)?;
    programs.curl(&["-T", &programs.text_of("s3")], "shared/dir/s3").await?.good()?;
    programs.ftp(&["-T", &programs.text_of("ftp")], "shared/dir/ftp").await?.good()?;
    ensure!(programs.ftp(&[], "shared/dir/s3").await?.out == by_s3, "FTP reads what S3 wrote");
    ensure!(programs.curl(&[], "shared/dir/ftp").await?.out == by_ftp, "S3 reads what FTP wrote");
    let listed = programs.curl(&[], "shared?prefix=dir%2F").await?.good()?;
    ensure!(listed.contains("<Key>dir/ftp</Key>") && listed.contains("<Key>dir/s3</Key>"), "{listed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_a_bucket_is_counted_whatever_door_wrote_it() -> Result<()> {
    let programs = Programs::start().await?;
    let catalog = &programs.site.gateway.catalog;
    programs.curl(&["-X", "PUT"], "shared").await?.good()?;
    let enabled = ["--bucket", "shared", "--versioning-configuration", "Status=Enabled"];
    programs.aws(&[&["s3api", "put-bucket-versioning"], &enabled[..]].concat()).await?.good()?;
    for (length, seed) in [(1000, 41), (2000, 42)] {
        programs.write("in", length, seed)?;
        programs.curl(&["-f", "-T", &programs.text_of("in")], "shared/dir/s3").await?.good()?;
    }
    programs.write("ftp", 300, 43)?;
    programs.ftp(&["-T", &programs.text_of("ftp")], "shared/dir/ftp").await?.good()?;
    programs.curl(&["-f", "-X", "PUT", "-d", ""], "shared/gone").await?.good()?;
    programs.curl(&["-f", "-X", "DELETE"], "shared/gone").await?.good()?;
    programs.aws(&["s3api", "create-multipart-upload", "--bucket", "shared", "--key", "upload"]).await?.good()?;
    let bucket = catalog.bucket("shared").await?.expect("the bucket").entry;
    let amount = |count, bytes| Amount { count, bytes };
    let expected = (amount(2, 2300), amount(2, 1000), 1, 1);
    soon("a count of all of it", async {
        loop {
            let found = catalog.bucket_usages(&[bucket]).await.expect("an answer");
            let found = found.first().map(|(_, of)| (of.current, of.noncurrent, of.markers, of.uploads));
            if found == Some(expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_copies_syncs_lists_presigns_and_removes() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in/large", LARGE, 4)?;
    programs.write("in/sub/small", 1000, 5)?;
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("in/large"), "s3://data/large"]).await?.good()?;
    programs.aws(&["s3", "cp", "s3://data/large", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out")? == data, "the object came back changed");
    programs.aws(&["s3", "sync", &programs.text_of("in"), "s3://data/tree"]).await?.good()?;
    let listed = programs.aws(&["s3", "ls", "--recursive", "s3://data/tree/"]).await?.good()?;
    ensure!(listed.contains("tree/large") && listed.contains("tree/sub/small"), "{listed}");
    programs.aws(&["s3", "cp", "s3://data/large", "s3://data/copied"]).await?.good()?;
    let url = programs.aws(&["s3", "presign", "s3://data/copied"]).await?.good()?;
    let got = programs.fetch(url.trim()).await?.out;
    ensure!(got == data, "{url} gives {}", String::from_utf8_lossy(&got[..got.len().min(1000)]));
    programs.aws(&["s3", "rb", "--force", "s3://data"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s3cmd_puts_gets_and_removes() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in", LARGE, 6)?;
    programs.s3cmd(&["mb", "s3://data"]).await?.good()?;
    programs.s3cmd(&["put", &programs.text_of("in"), "s3://data/d/in"]).await?.good()?;
    programs.s3cmd(&["get", "s3://data/d/in", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out")? == data, "the object came back changed");
    let listed = programs.s3cmd(&["ls", "-r", "s3://data"]).await?.good()?;
    ensure!(listed.contains("s3://data/d/in"), "{listed}");
    programs.s3cmd(&["rb", "-r", "--force", "s3://data"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_copies_checks_and_purges() -> Result<()> {
    let programs = Programs::start().await?;
    programs.write("in/a/large", LARGE, 7)?;
    programs.write("in/b/small", 12_345, 8)?;
    programs.rclone(&["mkdir", "site:data"]).await?.good()?;
    programs.rclone(&["copy", &programs.text_of("in"), "site:data/x"]).await?.good()?;
    programs.rclone(&["check", "--download", &programs.text_of("in"), "site:data/x"]).await?.good()?;
    programs.rclone(&["check", &programs.text_of("in"), "site:data/x"]).await?.good()?;
    let listed = programs.rclone(&["lsf", "-R", "site:data"]).await?.good()?;
    ensure!(listed.contains("x/a/large") && listed.contains("x/b/small"), "{listed}");
    programs.rclone(&["purge", "site:data"]).await?.good()?;
    Ok(())
}
