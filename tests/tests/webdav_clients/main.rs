//! Clients that nobody here wrote, against the WebDAV door of a whole site: curl, davix, gfal2.
//!
//! A client that is not installed fails its test: `tests/prepare` installs them.

mod programs;
mod tape;

use anyhow::{Result, ensure};
use programs::Programs;

#[tokio::test(flavor = "multi_thread")]
async fn curl_puts_gets_ranges_moves_and_deletes() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in", 1_000_003, 1)?;
    let file = programs.text_of("in");
    programs.curl(&["-X", "MKCOL"], "/home/alice/d%20e").await?.expect(201)?;
    programs.curl(&["-X", "MKCOL"], "/home/alice/d%20e").await?.expect(405)?;
    programs.curl(&["-X", "MKCOL"], "/home/alice/none/d").await?.expect(409)?;
    let at = "/home/alice/d%20e/f";
    programs.curl(&["-T", &file], "/home/alice/none/f").await?.expect(409)?;
    let put = programs.curl(&["-T", &file], at).await?;
    put.expect(201)?;
    let tag = put.header("etag").unwrap_or_default().to_owned();
    let got = programs.curl(&[], "//home/./alice/d%20e//f").await?;
    ensure!(got.status == 200 && got.body == data && got.header("etag") == Some(&tag), "{}", got.status);
    let part = programs.curl(&["-r", "10-19"], at).await?;
    ensure!(part.status == 206 && part.body == data[10..20], "the range came back changed");
    ensure!(part.header("content-range") == Some("bytes 10-19/1000003"));
    let last = programs.curl(&["-r", "-7"], at).await?;
    ensure!(last.body == data[data.len() - 7..], "the last bytes came back changed");
    let outside = programs.curl(&["-r", "1000003-"], at).await?;
    ensure!(outside.status == 416 && outside.header("content-range") == Some("bytes */1000003"));
    let same = programs.curl(&["-H", &format!("If-None-Match: {tag}")], at).await?;
    ensure!(same.status == 304 && same.body.is_empty());
    programs.curl(&["-T", &file, "-H", "If-None-Match: *"], at).await?.expect(412)?;
    programs.curl(&["-T", &file, "-H", &format!("If-Match: {tag}")], at).await?.expect(204)?;
    programs.curl(&["-T", &file, "-H", &format!("If-Match: {tag}")], at).await?.expect(412)?;
    let to = format!("Destination: {}", programs.url("https", "/home/alice/g"));
    programs.curl(&["-X", "MOVE", "-H", &to], at).await?.expect(201)?;
    programs.curl(&["-X", "MOVE", "-H", &to], at).await?.expect(404)?;
    programs.curl(&["-T", &file], at).await?.expect(201)?;
    programs.curl(&["-X", "DELETE"], "/home/alice/d%20e").await?.expect(409)?;
    programs.curl(&["-X", "MOVE", "-H", &to, "-H", "Overwrite: F"], at).await?.expect(412)?;
    programs.curl(&["-X", "MOVE", "-H", "Destination: https://elsewhere/x"], at).await?.expect(502)?;
    programs.curl(&["-X", "MOVE", "-H", &to], at).await?.expect(204)?;
    ensure!(programs.curl(&[], "/home/alice/g").await?.body == data, "the moved file came back changed");
    programs.curl(&["-X", "DELETE"], "/home/alice/g").await?.expect(204)?;
    programs.curl(&["-X", "DELETE"], "/home/alice/g").await?.expect(404)?;
    programs.curl(&["-X", "DELETE"], "/home/alice/d%20e").await?.expect(204)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_told_and_compared() -> Result<()> {
    let programs = Programs::start().await?;
    // Adler-32 of "a" is 0x00620062: its zeros stay.
    std::fs::write(programs.path("a"), "a")?;
    let (at, file) = ("/home/alice/a", programs.text_of("a"));
    let put = async |sum: &str| programs.curl(&["-T", &file, "-H", sum], at).await;
    let head = async |want: &str| programs.curl(&["-I", "-H", want], at).await;
    let made = put("Digest: adler32=620062").await?;
    made.expect(201)?;
    ensure!(head("Want-Digest: adler32").await?.header("digest") == Some("adler32=00620062"));
    ensure!(head("Want-Digest: crc32c").await?.header("digest") == Some("crc32c=wdBDMA=="));
    ensure!(head("Want-Repr-Digest: adler=5").await?.header("repr-digest") == Some("adler=:AGIAYg==:"));
    ensure!(head("X-None: 1").await?.header("digest").is_none());
    for good in [
        "Digest: md5=DMF1ucDxtqgxw5niaXcmYQ==",
        "Content-MD5: DMF1ucDxtqgxw5niaXcmYQ==",
        "Repr-Digest: sha-256=:ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=:",
    ] {
        put(good).await?.expect(204)?;
    }
    let tag = head("X-None: 1").await?.header("etag").unwrap_or_default().to_owned();
    for bad in [
        "Digest: adler32=00620063",
        "Digest: adler32=xyz",
        "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==",
        "Repr-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
        "Content-Range: bytes 0-0/1",
    ] {
        put(bad).await?.expect(400)?;
        ensure!(head("X-None: 1").await?.header("etag") == Some(&tag), "{bad}: the old file is as it was");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_is_told_why() -> Result<()> {
    let programs = Programs::start().await?;
    programs.write("in", 10, 1)?;
    let file = programs.text_of("in");
    programs.curl(&["-T", &file], "/home/alice/f").await?.expect(201)?;
    let nobody = programs.curl_as(None, &[], "/home/alice/f").await?;
    ensure!(nobody.expect(401)?.contains("no client certificate"));
    ensure!(nobody.header("content-type") == Some("application/problem+json"));
    let bob = Some(&programs.bob);
    programs.curl_as(bob, &["-T", &file], "/home/alice/f").await?.expect(403)?;
    programs.curl_as(bob, &["-X", "DELETE"], "/home/alice/f").await?.expect(403)?;
    programs.curl_as(bob, &["-X", "MKCOL"], "/home/alice/d").await?.expect(403)?;
    programs.curl(&["-X", "COPY", "-H", "Destination: /x"], "/home/alice/f").await?.expect(501)?;
    programs.curl(&["-X", "PATCH"], "/home/alice/f").await?.expect(405)?;
    programs.curl(&[], "/home/alice").await?.expect(405)?;
    programs.curl(&[], "/home/alice/f/g").await?.expect(404)?;
    programs.curl(&[], "/home/alice/%FF").await?.expect(400)?;
    programs.curl(&[], &format!("/{}", "n/".repeat(2500))).await?.expect(400)?;
    programs.curl(&["-X", "PROPFIND"], "/home/alice").await?.expect(403)?;
    programs.curl(&["-X", "PROPFIND", "-H", "Depth: 0", "-d", "<a"], "/home/alice").await?.expect(400)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_its_owner_and_a_disabled_account_is_nobody() -> Result<()> {
    let programs = Programs::start().await?;
    programs.write("in", 10, 1)?;
    let proxy = programs.proxy().await?.display().to_string();
    let as_proxy = async |arguments: &[&str]| {
        let arguments = [&["--cert", proxy.as_str()], arguments].concat();
        programs.curl_as(None, &arguments, "/home/alice/f").await
    };
    as_proxy(&["-T", &programs.text_of("in")]).await?.expect(201)?;
    let catalog = &programs.site.gateway.catalog;
    let account = catalog.account(&wire::id::AccountName::new("alice")?).await?.expect("alice");
    let disabled = catalog::NewAccount {
        name: account.name,
        primary_group: account.primary_group,
        groups: account.groups,
        admin: false,
        disabled: true,
        home: account.home,
    };
    catalog.put_account(disabled).await?;
    ensure!(as_proxy(&[]).await?.expect(403)?.contains("disabled"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory_is_listed_whole() -> Result<()> {
    let programs = Programs::start().await?;
    let who = programs.site.gateway.identities.principal(&programs.alice.subject(), None).await?;
    let files = &programs.site.gateway.files;
    for number in 0..2_100 {
        let path = gateway::files::Files::path(&catalog::TreePath::root(), &format!("/home/alice/d{number}&"))?;
        files.make_directory(&who, &path).await?;
    }
    let listed = programs.curl(&["-X", "PROPFIND", "-H", "Depth: 1"], "/home/alice").await?.expect(207)?;
    ensure!(listed.matches("<D:response>").count() == 2_101, "{}", listed.len());
    ensure!(listed.contains("<D:href>/home/alice/d2099%26/</D:href>") && listed.ends_with("</D:multistatus>\n"));
    let one = programs.curl(&["-X", "PROPFIND", "-H", "Depth: 0"], "/home/alice").await?.expect(207)?;
    ensure!(one.matches("<D:response>").count() == 1 && one.contains("<D:collection/>"), "{one}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn davix_makes_puts_lists_gets_moves_and_removes() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in", 3_000_001, 2)?;
    let at = |path: &str| programs.url("davs", path);
    programs.davix("davix-mkdir", &[&at("/home/alice/d")]).await?.good()?;
    programs.davix("davix-put", &[&programs.text_of("in"), &at("/home/alice/d/f")]).await?.good()?;
    let listed = programs.davix("davix-ls", &["-l", &at("/home/alice/d")]).await?.good()?;
    ensure!(listed.contains("-rw") && listed.contains("3000001") && listed.contains(" f"), "{listed}");
    // davix-mv 0.8.4 ends with 255 whatever happens; an error it would print.
    let moved = programs.davix("davix-mv", &[&at("/home/alice/d/f"), &at("/home/alice/d/g%20h")]).await?;
    ensure!(moved.err.is_empty(), "{}", moved.err);
    programs.davix("davix-get", &[&at("/home/alice/d/g%20h"), &programs.text_of("out")]).await?.good()?;
    ensure!(std::fs::read(programs.path("out"))? == data, "the file came back changed");
    programs.davix("davix-rm", &[&at("/home/alice/d/g%20h")]).await?.good()?;
    ensure!(programs.davix("davix-get", &[&at("/home/alice/d/g%20h")]).await?.failed(), "it is removed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn gfal2_copies_with_sums_lists_and_removes() -> Result<()> {
    let programs = Programs::start().await?;
    let data = programs.write("in", 2_000_003, 3)?;
    let at = |path: &str| programs.url("davs", path);
    let local = |name: &str| format!("file://{}", programs.text_of(name));
    programs.gfal(&["mkdir", &at("/home/alice/d")]).await?.good()?;
    programs.gfal(&["copy", &local("in"), &at("/home/alice/d/f")]).await?.good()?;
    ensure!(programs.gfal(&["stat", &at("/home/alice/d/f")]).await?.good()?.trim() == "2000003");
    let sum = wire::checksum::Sums::of(&data).hex(wire::checksum::Algorithm::Adler32);
    let told = programs.gfal(&["checksum", &at("/home/alice/d/f"), "ADLER32"]).await?.good()?;
    ensure!(Some(told.trim()) == sum.as_deref(), "{told}");
    programs.gfal(&["rename", &at("/home/alice/d/f"), &at("/home/alice/d/g")]).await?.good()?;
    ensure!(programs.gfal(&["list", &at("/home/alice/d")]).await?.good()?.trim() == "g");
    programs.gfal(&["copy", &at("/home/alice/d/g"), &local("out")]).await?.good()?;
    ensure!(std::fs::read(programs.path("out"))? == data, "the file came back changed");
    programs.gfal(&["unlink", &at("/home/alice/d/g")]).await?.good()?;
    programs.gfal(&["rmdir", &at("/home/alice/d")]).await?.good()?;
    Ok(())
}
