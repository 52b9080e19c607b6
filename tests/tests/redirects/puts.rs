//! Clients that are sent to a mover with their body.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use catalog::testing::PostgresCluster;
use tests::{Gate, Site, bytes, soon};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::id::AccountName;

use super::{LENGTH, ON, counters, s3, sum, turn, webdav};

const WAIT: [&str; 2] = ["-H", "Expect:100-continue"];

/// The bytes of PUTs that passed through a door of this process so far.
async fn passed(site: &Site) -> Result<u64> {
    let text = counters(site).await?;
    Ok(sum(&text, |line| line.starts_with("penstock_relayed_bytes_total{") && line.contains("reason=\"put")))
}

/// The bytes that a door of this process did not see, and their client sent.
async fn direct(site: &Site) -> Result<u64> {
    Ok(sum(&counters(site).await?, |line| line.starts_with("penstock_direct_bytes_total{")))
}

/// What movers received by HTTP.
async fn taken(site: &Site, mover: &str) -> Result<u64> {
    let labels = ["direction=\"received\"", "framing=\"http\"", &format!("mover=\"{mover}\"")];
    let of = |line: &str| {
        line.starts_with("penstock_mover_data_bytes_total{") && labels.iter().all(|label| line.contains(label))
    };
    Ok(sum(&counters(site).await?, of))
}

/// The files of a folder, at any depth, that have so many bytes.
fn files_of(folder: &Path, length: u64) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let counts = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => files_of(&entry.path(), length),
        Ok(found) => usize::from(found.len() == length),
        Err(_) => 0,
    });
    counts.sum()
}

/// Waits until movers have so many files of that length: what nobody confirms is removed.
async fn files_become(site: &Site, length: u64, count: usize) {
    let found = || (1..=2).map(|mover| files_of(&site.disk(mover), length)).sum::<usize>();
    soon(&format!("{count} files of {length} bytes"), async {
        while found() != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Where a client is sent that stores the file `in` of its folder under this name.
async fn sent_to(programs: &s3::Programs, path: &str, more: &[&str]) -> Result<String> {
    let file = programs.text_of("in");
    let fixed = [&ON[..], &WAIT, &["-o", "/dev/null", "-D", "-", "-T", &file], more].concat();
    let said = programs.curl(&fixed, path).await?.good()?;
    ensure!(said.starts_with("HTTP/1.1 307"), "{said}");
    Ok(said.lines().find_map(|line| line.strip_prefix("location: ")).context("a way")?.trim().to_owned())
}

/// What a mover answers a client that brings the file `in` to this address: the status and the text.
async fn bring(programs: &s3::Programs, location: &str, more: &[&str]) -> Result<(u16, String)> {
    let mut command = programs.program("curl");
    command.args(["--disable", "-sS", "-w", "\n%{http_code}", "-T", &programs.text_of("in")]).args(more).arg(location);
    let said = s3::run(command).await?.good()?;
    let (text, status) = said.rsplit_once('\n').context("a status")?;
    Ok((status.parse()?, text.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_brings_a_body_to_the_mover_and_hears_what_the_door_would_have_said() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let data = programs.write("in", LENGTH, 31)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let (passed_before, direct_before) = (passed(programs.site()).await?, direct(programs.site()).await?);
    let file = programs.text_of("in");
    let put = [&ON[..], &["-L", "-D", "-", "-o", "/dev/null", "-H", "x-amz-meta-colour:blue", "-T", &file]].concat();
    let said = programs.curl(&put, "photos/a/b%20c").await?.good()?;
    ensure!(said.contains("HTTP/1.1 307") && said.contains("HTTP/1.1 200"), "{said}");
    ensure!(passed(programs.site()).await? == passed_before, "no byte passes through the gateway");
    ensure!(direct(programs.site()).await? - direct_before == LENGTH as u64);
    // The same through the door.
    let here = ["-D", "-", "-o", "/dev/null", "-H", "x-amz-meta-colour:blue", "-T", &file];
    let here = programs.curl(&here, "photos/d").await?.good()?;
    ensure!(passed(programs.site()).await? - passed_before == LENGTH as u64);
    for name in ["etag", "x-amz-checksum-crc64nvme", "x-amz-checksum-type", "content-length"] {
        let of = |text: &str| {
            let line = text.lines().rev().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")));
            line.and_then(|line| line.split_once(' ')).map(|(_, value)| value.to_owned())
        };
        ensure!(of(&said).is_some() && of(&said) == of(&here), "{name}:\n{here}\n{said}");
    }
    let got = programs.curl(&["-D", "-"], "photos/a/b%20c").await?.out;
    let end = got.windows(4).position(|four| four == b"\r\n\r\n").context("a head")? + 4;
    ensure!(got[end..] == data, "the object came back changed");
    ensure!(String::from_utf8_lossy(&got[..end]).contains("x-amz-meta-colour: blue"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_sum_is_refused_by_the_mover_in_s3s_words_and_the_old_object_stays() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    let old = programs.write("in", 70_000, 32)?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a").await?.good()?;
    programs.write("in", 80_000, 33)?;
    for (header, code) in [
        ("x-amz-checksum-crc32:AAAAAA==", "BadDigest"),
        ("x-amz-checksum-sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BadDigest"),
        ("Content-MD5:1B2M2Y8AsgTpgAmY7PhCfg==", "BadDigest"),
    ] {
        let location = sent_to(&programs, "photos/a", &["-H", header]).await?;
        let (status, text) = bring(&programs, &location, &["-H", header]).await?;
        ensure!(status == 400 && text.contains(&format!("<Code>{code}</Code>")), "{header}: {status} {text}");
        ensure!(text.contains("<RequestId>"), "{text}");
    }
    ensure!(programs.curl(&[], "photos/a").await?.out == old, "the old object is gone");
    files_become(programs.site(), 80_000, 0).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_s3_and_their_trailer_are_taken_off_and_compared() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let body = |sum: &str| format!("4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n");
    let before = passed(programs.site()).await?;
    let user = format!("{}:{}", programs.key, programs.secret);
    let file = programs.text_of("in");
    let put = async |sum: &str, transfer: &[&str]| {
        std::fs::write(programs.path("in"), body(sum))?;
        let mut command = programs.program("curl");
        command.args(["--disable", "-sS", "-L", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user]);
        for header in [
            "x-penstock-direct:on",
            "Expect:100-continue",
            "x-amz-content-sha256:STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            "x-amz-decoded-content-length:9",
            "x-amz-trailer:x-amz-checksum-crc32",
            "Content-Encoding:aws-chunked",
        ] {
            command.args(["-H", header]);
        }
        command.args(transfer).args(["-T", &file, &format!("http://{}/photos/a", programs.door())]);
        s3::run(command).await?.good()
    };
    ensure!(put("y/Q5Jg==", &[]).await?.is_empty());
    ensure!(programs.curl(&[], "photos/a").await?.out == b"123456789");
    // Chunks in HTTP's own chunks, as SDKs send them.
    ensure!(put("y/Q5Jg==", &["-H", "Transfer-Encoding:chunked"]).await?.is_empty());
    let refused = put("AAAAAA==", &[]).await?;
    ensure!(refused.contains("<Code>BadDigest</Code>"), "{refused}");
    ensure!(programs.curl(&[], "photos/a").await?.out == b"123456789");
    ensure!(passed(programs.site()).await? == before, "no byte passes through the gateway");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_hash_of_the_payload_holds_at_the_mover() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    std::fs::write(programs.path("in"), "123456789")?;
    let (before, user) = (passed(programs.site()).await?, format!("{}:{}", programs.key, programs.secret));
    let (file, url) = (programs.text_of("in"), format!("http://{}/photos/a", programs.door()));
    let put = async |hash: &str| {
        let mut command = programs.program("curl");
        command.args(["--disable", "-sS", "-L", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user]);
        command.args(["-H", "x-penstock-direct:on", "-H", "Expect:100-continue"]);
        command.args(["-H", &format!("x-amz-content-sha256:{hash}"), "-T", &file, &url]);
        s3::run(command).await?.good()
    };
    ensure!(put("15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225").await?.is_empty());
    std::fs::write(programs.path("in"), "987654321")?;
    let refused = put("15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225").await?;
    ensure!(refused.contains("<Code>XAmzContentSHA256Mismatch</Code>"), "{refused}");
    ensure!(programs.curl(&[], "photos/a").await?.out == b"123456789");
    ensure!(passed(programs.site()).await? == before, "no byte passes through the gateway");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_meanwhile_is_seen_when_the_body_has_come() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.write("in", 70_000, 34)?;
    let condition = ["-H", "If-None-Match:*"];
    let location = sent_to(&programs, "photos/a", &condition).await?;
    programs.write("other", 60_000, 35)?;
    programs.curl(&["-T", &programs.text_of("other")], "photos/a").await?.good()?;
    let (status, text) = bring(&programs, &location, &condition).await?;
    ensure!(status == 412 && text.contains("<Code>PreconditionFailed</Code>"), "{status} {text}");
    ensure!(programs.curl(&[], "photos/a").await?.out == programs.read("other")?, "the other's object stays");
    // Over quota.
    let location = sent_to(&programs, "photos/b", &[]).await?;
    let alice = AccountName::new("alice")?;
    programs.site().gateway.catalog.set_quota(catalog::QuotaSubject::Account(alice), Some(65_000), None).await?;
    let (status, text) = bring(&programs, &location, &[]).await?;
    ensure!(status == 403 && text.contains("<Code>QuotaExceeded</Code>"), "{status} {text}");
    // A grant is used once.
    let again = bring(&programs, &location, &[]).await?;
    ensure!(again.0 == 403 && again.1.contains("was used"), "{again:?}");
    files_become(programs.site(), 70_000, 0).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_cut_leaves_the_old_object_and_nothing_else() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let old = programs.write("in", 50_000, 36)?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a").await?.good()?;
    programs.write("in", 200_000, 37)?;
    let location = sent_to(&programs, "photos/a", &[]).await?;
    let (host, path) = location.strip_prefix("http://").and_then(|rest| rest.split_once('/')).context("a URL")?;
    let mut socket = TcpStream::connect(host).await?;
    socket.write_all(format!("PUT /{path} HTTP/1.1\r\nContent-Length: 200000\r\n\r\n").as_bytes()).await?;
    socket.write_all(&bytes(37, 100_000)).await?;
    drop(socket);
    soon("the end of the transfer", async {
        while !programs.site().gateway.transfers.running().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    ensure!(programs.curl(&[], "photos/a").await?.out == old, "the old object is gone");
    files_become(programs.site(), 100_000, 0).await;
    files_become(programs.site(), 50_000, 1).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_gateway_did_not_publish_is_removed_and_its_client_told() -> Result<()> {
    let (_turn, builder) = turn().await;
    let mut programs = s3::Programs::of(builder).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    programs.write("in", 90_000, 38)?;
    let location = sent_to(&programs, "photos/a", &[]).await?;
    let (host, path) = location.strip_prefix("http://").and_then(|rest| rest.split_once('/')).context("a URL")?;
    let mut socket = TcpStream::connect(host).await?;
    socket
        .write_all(format!("PUT /{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: 90000\r\n\r\n").as_bytes())
        .await?;
    let data = bytes(38, 90_000);
    socket.write_all(&data[..89_999]).await?;
    // The last byte comes when somebody may be there to publish it, or nobody. The mover may be told to stop, too.
    let (_, _) = tokio::join!(programs.site.kill_gateway(), socket.write_all(&data[89_999..]));
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said).await;
    let said = String::from_utf8_lossy(&said);
    // It was published before the end, or it is not there and the client knows.
    let there = programs.curl(&["-w", "%{http_code}", "-o", "/dev/null"], "photos/a").await?.good()?;
    match there.as_str() {
        "404" => {
            ensure!(!said.starts_with("HTTP/1.1 200"), "{said}");
            files_become(programs.site(), 90_000, 0).await;
        }
        _ => files_become(programs.site(), 90_000, 1).await,
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_durable_and_cannot_be_published_is_removed_when_its_gateway_is_killed() -> Result<()> {
    let (_turn, builder) = turn().await;
    let cluster = PostgresCluster::shared().await?;
    let (mut gate, url) = Gate::before(&cluster.database().await?);
    let mut programs = s3::Programs::of(builder.catalogue(url)).await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let old = programs.write("in", 50_000, 43)?;
    programs.curl(&["-T", &programs.text_of("in")], "photos/a").await?.good()?;
    programs.write("in", 91_000, 44)?;
    let location = sent_to(&programs, "photos/a", &[]).await?;
    gate.close().await;
    let (status, text) = bring(&programs, &location, &[]).await?;
    ensure!(status == 503 && text.contains("<Code>SlowDown</Code>"), "{status} {text}");
    ensure!((1..=2).map(|mover| files_of(&programs.site().disk(mover), 91_000)).sum::<usize>() == 1, "it is durable");
    gate.open();
    programs.site.kill_gateway().await;
    files_become(programs.site(), 91_000, 0).await;
    ensure!(programs.curl(&[], "photos/a").await?.out == old, "the old object is gone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_brings_parts_to_several_movers_and_its_objects_come_back() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = s3::Programs::of(builder).await?;
    // Its last part is large enough that the library asks before it sends.
    let large = programs.write("in/large", 18_000_017, 39)?;
    let small = programs.write("in/small", LENGTH, 40)?;
    programs.rclone(&["mkdir", "site:data"]).await?.good()?;
    let before = passed(programs.site()).await?;
    let had = (taken(programs.site(), "m1").await?, taken(programs.site(), "m2").await?);
    programs.rclone(&["copy", &programs.text_of("in"), "site:data"]).await?.good()?;
    ensure!(passed(programs.site()).await? == before, "no byte passes through the gateway");
    let has = (taken(programs.site(), "m1").await?, taken(programs.site(), "m2").await?);
    let got = (has.0 - had.0, has.1 - had.1);
    ensure!(got.0 > 0 && got.1 > 0 && got.0 + got.1 == (large.len() + small.len()) as u64, "{got:?}");
    programs.rclone(&["copy", "site:data", &programs.text_of("out")]).await?.good()?;
    ensure!(
        programs.read("out/large")? == large && programs.read("out/small")? == small,
        "something came back changed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_webdav_bring_bodies_of_known_and_unknown_length() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = webdav::Programs::of(builder, |_| ()).await?;
    let data = programs.write("in", LENGTH, 41)?;
    let before = passed(&programs.site).await?;
    let file = programs.text_of("in");
    let put = |more: &[&'static str]| {
        let fixed = ["-L", "-T", file.as_str()];
        [&ON[..], &WAIT, &fixed, more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (name, more, status) in [
        ("/home/alice/f", &[][..], 201),
        ("/home/alice/f", &["-H", "Transfer-Encoding: chunked"][..], 204),
        ("/home/alice/g", &["-H", "Transfer-Encoding: chunked"][..], 201),
    ] {
        let arguments = put(more);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let answered = programs.curl(&arguments, name).await?;
        answered.expect(status)?;
        ensure!(answered.header("etag").is_some() && answered.header("digest").is_some(), "{name}");
        ensure!(programs.curl(&[], name).await?.body == data, "{name} came back changed");
    }
    let wrong = put(&["-H", "Digest: adler32=00000001"]);
    let wrong: Vec<_> = wrong.iter().map(String::as_str).collect();
    let refused = programs.curl(&wrong, "/home/alice/f").await?.expect(400)?;
    ensure!(refused.contains("adler32") || refused.contains("ADLER32"), "{refused}");
    ensure!(passed(&programs.site).await? == before, "no byte passes through the gateway");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn davix_and_gfal2_bring_bodies_to_the_mover_over_tls() -> Result<()> {
    let (_turn, builder) = turn().await;
    let programs = webdav::Programs::of(builder, |_| ()).await?;
    let data = programs.write("in", LENGTH, 42)?;
    let before = passed(&programs.site).await?;
    programs.davix("davix-put", &[&programs.text_of("in"), &programs.url("davs", "/home/alice/f")]).await?.good()?;
    ensure!(programs.curl(&[], "/home/alice/f").await?.body == data, "davix's file came back changed");
    let local = format!("file://{}", programs.text_of("in"));
    programs.gfal(&["copy", &local, &programs.url("davs", "/home/alice/g")]).await?.good()?;
    ensure!(programs.curl(&[], "/home/alice/g").await?.body == data, "gfal2's file came back changed");
    ensure!(passed(&programs.site).await? == before, "no byte passes through the gateway");
    Ok(())
}
