//! Clients that nobody here wrote, sent by a door to the mover that has their file: no byte passes through the gateway.
//!
//! The count of what does is of the whole process, so the tests take turns.

mod puts;
#[path = "../s3_clients/programs.rs"]
#[allow(dead_code, reason = "shared with the tests of the S3 door, which use the rest")]
mod s3;
#[path = "../webdav_clients/programs.rs"]
#[allow(dead_code, reason = "shared with the tests of the WebDAV door, which use the rest")]
mod webdav;

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tests::{Site, SiteBuilder};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Mutex, MutexGuard},
};

const LENGTH: usize = 3_000_017;
const ON: [&str; 2] = ["-H", "x-penstock-direct: on"];

/// Movers with HTTP doors, and one test at a time.
async fn turn() -> (MutexGuard<'static, ()>, SiteBuilder) {
    static TURN: Mutex<()> = Mutex::const_new(());
    let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let builder = Site::builder().mover(move |_, config| {
        config.http.listen = Some(anywhere);
        config.http.listen_clear = Some(anywhere);
    });
    (TURN.lock().await, builder)
}

/// The bytes of GETs that passed through a door of this process so far.
async fn relayed(site: &Site) -> Result<u64> {
    let gets = |line: &str| line.starts_with("penstock_relayed_bytes_total{") && !line.contains("reason=\"put");
    let text = counters(site).await?;
    ensure!(text.contains("penstock_relayed_bytes_total"), "nothing is counted");
    Ok(sum(&text, gets))
}

/// What is counted on these lines.
fn sum(text: &str, which: impl Fn(&str) -> bool) -> u64 {
    text.lines().filter(|line| which(line)).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// What this process counts.
async fn counters(site: &Site) -> Result<String> {
    let address = site.gateway.doors.metrics.first().context("metrics")?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_is_sent_to_the_mover_and_gets_what_the_door_would_have_said() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in", LENGTH, 21)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let meta = ["-H", "x-amz-meta-colour: blue", "-H", "Content-Type: image/x-blue", "-T", &programs.text_of("in")];
    programs.curl(&meta, "photos/a/b%20c").await?.good()?;
    let before = relayed(programs.site()).await?;

    let get = async |more: &[&str]| programs.curl(&[&ON[..], &["-L"], more].concat(), "photos/a/b%20c").await;
    ensure!(get(&[]).await?.out == data, "the object came back changed");
    ensure!(get(&["-r", "1000000-1999999"]).await?.out == data[1_000_000..2_000_000], "the range came back changed");
    ensure!(get(&["-r", "-5"]).await?.out == data[LENGTH - 5..], "the last bytes came back changed");
    let said = get(&["-o", "/dev/null", "-D", "-"]).await?.good()?;
    let (first, last) = said.split_once("\r\n\r\n").context("two answers")?;
    ensure!(first.starts_with("HTTP/1.1 307") && last.starts_with("HTTP/1.1 200"), "{said}");
    let here = programs.curl(&["-o", "/dev/null", "-D", "-"], "photos/a/b%20c").await?.good()?;
    for name in ["etag", "last-modified", "content-type", "content-length", "x-amz-meta-colour"] {
        let of = |text: &str| {
            let line = text.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")));
            line.and_then(|line| line.split_once(' ')).map(|(_, value)| value.to_owned())
        };
        ensure!(of(last).is_some() && of(last) == of(&here), "{name}:\n{here}\n{last}");
    }
    let passed = relayed(programs.site()).await? - before;
    ensure!(
        passed == LENGTH as u64,
        "{passed} bytes passed through the door, those of the one GET that was not sent away"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_for_one_object_and_a_changed_one_for_none() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in", 100_000, 22)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a").await?.good()?;
    let said = programs.curl(&[&ON[..], &["-o", "/dev/null", "-D", "-"]].concat(), "photos/a").await?.good()?;
    let location = said.lines().find_map(|line| line.strip_prefix("location: ")).context("a way")?.trim().to_owned();
    // It may be used again: for a seek, for a retry.
    for _ in 0..2 {
        ensure!(programs.fetch(&location).await?.out == data, "the object came back changed");
    }
    let end = if location.ends_with('A') { "B" } else { "A" };
    let changed = format!("{}{end}", &location[..location.len() - 1]);
    let (bare, _) = location.split_once('?').context("a query")?;
    for url in [changed.as_str(), bare] {
        let refused = programs.fetch(url).await?.good()?;
        ensure!(refused.contains("ask the gateway"), "{url}: {refused}");
    }
    Ok(())
}

/// Where a client that follows is sent for an object.
async fn sent_to(programs: &s3::Programs, key: &str) -> Result<String> {
    let said = programs.curl(&[&ON[..], &["-o", "/dev/null", "-D", "-"]].concat(), key).await?.good()?;
    let location = said.lines().find_map(|line| line.strip_prefix("location: ")).context("a way")?;
    let host = location.split('/').nth(2).context("a host")?;
    Ok(host.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_take_turns_and_one_whose_mover_is_away_is_passed_over() -> Result<()> {
    let (_turn, builder) = turn().await;
    let mut programs = s3::Programs::of(builder).await?;
    let data = programs.write("in", 100_000, 26)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a").await?.good()?;
    let bitfile = programs.site.bitfile("/photos/a").await;
    programs.site.gateway.hsm.replicate(bitfile, 2).await?;
    let (first, second) = (sent_to(&programs, "photos/a").await?, sent_to(&programs, "photos/a").await?);
    ensure!(first != second, "both times to {first}");
    programs.site.kill_mover(1).await;
    tests::soon("the gateway to know that a mover is away", async {
        while sent_to(&programs, "photos/a").await? != sent_to(&programs, "photos/a").await? {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    })
    .await?;
    let got = programs.curl(&[&ON[..], &["-L"]].concat(), "photos/a").await?;
    ensure!(got.out == data, "the object came back changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_follow_are_served_by_the_door_and_counted() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in", LENGTH, 23)?;
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("in"), "s3://data/a"]).await?.good()?;
    let before = relayed(programs.site()).await?;
    programs.aws(&["s3", "cp", "s3://data/a", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out")? == data, "the object came back changed");
    programs.s3cmd(&["get", "s3://data/a", &programs.text_of("out2")]).await?.good()?;
    ensure!(programs.read("out2")? == data, "the object came back changed");
    ensure!(relayed(programs.site()).await? - before == 2 * LENGTH as u64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_for_a_key_says_whether_its_clients_are_sent_away() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in/a", LENGTH, 26)?;
    programs.rclone(&["mkdir", "site:data"]).await?.good()?;
    programs.rclone(&["copy", &programs.text_of("in"), "site:data"]).await?.good()?;
    let catalog = &programs.site.gateway.catalog;
    let curl = async || programs.curl(&["-L"], "data/a").await;
    // Something is counted, so that nothing is not for want of a counter.
    ensure!(curl().await?.out == data, "the object came back changed");

    catalog.direct_access_key(&programs.key, Some(true)).await?;
    let before = relayed(&programs.site).await?;
    ensure!(curl().await?.out == data, "the object came back changed");
    ensure!(relayed(&programs.site).await? == before, "no byte passes through the gateway");

    catalog.direct_access_key(&programs.key, Some(false)).await?;
    programs.rclone(&["copy", "site:data", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out/a")? == data, "rclone brought something else");
    ensure!(relayed(&programs.site).await? - before == LENGTH as u64, "rclone would follow, and is not sent away");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_and_wget_follow_of_their_own_accord() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in/a", LENGTH, 24)?;
    programs.rclone(&["mkdir", "site:data"]).await?.good()?;
    programs.rclone(&["copy", &programs.text_of("in"), "site:data"]).await?.good()?;
    let before = relayed(programs.site()).await?;
    programs.rclone(&["copy", "site:data", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out/a")? == data, "rclone brought something else");
    let url = programs.aws(&["s3", "presign", "s3://data/a"]).await?.good()?;
    let mut wget = programs.program("wget");
    wget.args(["-nv", "-O", &programs.text_of("got"), url.trim()]);
    s3::run(wget).await?.good()?;
    ensure!(programs.read("got")? == data, "wget brought something else");
    ensure!(relayed(programs.site()).await? == before, "no byte passes through the gateway");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn davix_is_sent_to_the_mover_over_tls() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = webdav::Programs::of(builder, |_| ()).await?;
    let data = programs.write("in", LENGTH, 25)?;
    programs.curl(&["-T", &programs.text_of("in")], "/home/alice/f").await?.expect(201)?;
    // Something is counted, so that nothing is not for want of a counter.
    ensure!(programs.curl(&[], "/home/alice/f").await?.body == data, "the file came back changed");
    let before = relayed(&programs.site).await?;
    let at = programs.url("davs", "/home/alice/f");
    programs.davix("davix-get", &[&at, &programs.text_of("out")]).await?.good()?;
    ensure!(std::fs::read(programs.path("out"))? == data, "davix brought something else");
    ensure!(relayed(&programs.site).await? == before, "no byte passes through the gateway");
    Ok(())
}
