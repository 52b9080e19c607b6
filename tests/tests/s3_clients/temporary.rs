//! Temporary keys for a client certificate: asked for by curl and minio-py, used by aws, boto3 and minio-py.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use catalog::{NewAccount, Timestamp};
use daemon::{
    Clock,
    pki::{Holder, Issued, ProxyOptions, SiteCa, make_proxy},
};
use gateway::s3::{secrets::Sealer, temporary::Session};
use tests::Site;
use tokio::process::Command;
use wire::id::{AccountName, GroupName};

use crate::{
    LARGE,
    programs::{Programs, Said, run},
};

const CALL: &str = "Action=AssumeRoleWithCertificate&Version=2011-06-15";

/// The page's own commands.
const PAGE: &str = include_str!("../../../docs/s3.md");

/// A key as curl got it.
struct Key {
    id: String,
    secret: String,
    token: String,
    expires: time::OffsetDateTime,
}

impl Key {
    fn of(xml: &str) -> Result<Self> {
        let value = |name: &str| {
            let after = xml.split_once(&format!("<{name}>")).map(|(_, after)| after);
            let found =
                after.and_then(|after| after.split_once(&format!("</{name}>"))).map(|(value, _)| value.to_owned());
            found.with_context(|| format!("no {name}: {xml}"))
        };
        let form = &time::format_description::well_known::Rfc3339;
        let expires = time::OffsetDateTime::parse(&value("Expiration")?, form)?;
        let (id, secret, token) = (value("AccessKeyId")?, value("SecretAccessKey")?, value("SessionToken")?);
        Ok(Self { id, secret, token, expires })
    }

    fn as_aws(&self) -> (&str, &str, Option<&str>) {
        (&self.id, &self.secret, Some(&self.token))
    }
}

/// What curl is told that makes the call with this certificate; the status follows in a line of its own.
async fn ask(site: &Site, certificate: Option<&Path>, form: &str) -> Result<String> {
    let door = site.gateway.doors.s3.first().context("the S3 door is open")?;
    let mut command = Command::new("curl");
    command.args(["--disable", "-sS", "-w", "\n%{http_code}\n", "-d", form, "--cacert"]);
    command.arg(site.folder().join("ca.pem"));
    if let Some(certificate) = certificate {
        command.arg("--cert").arg(certificate);
    }
    command.arg(format!("https://localhost:{}/", door.port()));
    run(command).await?.good()
}

async fn key(site: &Site, certificate: &Path, form: &str) -> Result<Key> {
    Key::of(&ask(site, Some(certificate), form).await?)
}

fn refused(said: &str, status: u16, code: &str, why: &str) -> Result<()> {
    let is = said.trim_end().ends_with(&format!("\n{status}"))
        && said.contains(&format!("<Code>{code}</Code>"))
        && said.contains(why)
        && said.contains("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">")
        && said.contains("<RequestId>");
    ensure!(is, "not {status} {code} with {why:?}: {said}");
    Ok(())
}

/// A certificate in a file of the site's folder.
fn written(site: &Site, name: &str, issued: &Issued) -> Result<std::path::PathBuf> {
    let path = site.folder().join(name);
    issued.replace(&path)?;
    Ok(path)
}

fn user(ca: &SiteCa, name: &str) -> Result<Issued> {
    Ok(ca.issue(&Holder::User { name }, &Clock::real())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_commands_give_a_key_that_aws_uses() -> Result<()> {
    let programs = Programs::start().await?;
    programs.curl(&["-X", "PUT"], "photos").await?.good()?;
    let (_, section) = PAGE.split_once("\n## Temporary keys\n").context("the section")?;
    let commands = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).context("commands")?;
    let door = programs.site.gateway.doors.s3.first().context("the S3 door is open")?;
    let commands = commands.replace("localhost:2840", &format!("localhost:{}", door.port()));
    ensure!(commands.contains("AssumeRoleWithCertificate"), "{commands}");
    let mut shell = programs.program("sh");
    shell.args(["-e", "-c", &commands]).current_dir(programs.site.folder());
    shell.env("AWS_EC2_METADATA_DISABLED", "true");
    let said = run(shell).await?.good()?;
    ensure!(said.contains("photos"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_writes_large_objects_and_signs_urls_with_a_temporary_key() -> Result<()> {
    let mut programs = Programs::start().await?;
    let data = programs.write("in", LARGE, 31)?;
    let given = key(&programs.site, &programs.alice.certificate, CALL).await?;
    let left = given.expires - time::OffsetDateTime::now_utc();
    ensure!((3500..=3600).contains(&left.whole_seconds()), "an hour, unless another time is named: {left}");
    let aws = async |programs: &Programs, arguments: &[&str]| programs.aws_as(given.as_aws(), arguments).await;
    aws(&programs, &["s3", "mb", "s3://data"]).await?.good()?;
    aws(&programs, &["s3", "cp", &programs.text_of("in"), "s3://data/in"]).await?.good()?;
    let listed = aws(&programs, &["s3api", "list-objects-v2", "--bucket", "data", "--fetch-owner"]).await?.good()?;
    ensure!(listed.contains("alice"), "the object is the account's: {listed}");
    let url = aws(&programs, &["s3", "presign", "s3://data/in"]).await?.good()?;
    ensure!(url.contains("X-Amz-Security-Token="), "{url}");
    ensure!(programs.fetch(url.trim()).await?.out == data, "the object came back changed");
    // Nothing of the key is in the gateway that gave it.
    programs.site.kill_gateway().await;
    aws(&programs, &["s3", "cp", "s3://data/in", &programs.text_of("out")]).await?.good()?;
    ensure!(programs.read("out")? == data, "the object came back changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_is_told_what_is_wrong_with_a_temporary_key() -> Result<()> {
    let programs = Programs::start().await?;
    let site = &programs.site;
    let good = key(site, &programs.alice.certificate, CALL).await?;
    let sealer = Sealer::open(&site.folder().join("gateway/s3-secrets.key"))?;
    let expires = Timestamp(site.gateway.catalog.now().0 - 1);
    let session = Session { account: AccountName::new("alice")?, subject: programs.alice.subject(), expires };
    let old = sealer.temporary_key(&session)?;
    let arguments =
        [&programs.door(), &good.id, &good.secret, &good.token, &old.id, old.secret.expose(), old.token.expose()];
    let said = programs.script_with("temporary_boto3.py", &arguments.map(String::as_str)).await?;
    ensure!(said.trim() == "all is well", "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_py_asks_for_a_key_by_itself() -> Result<()> {
    let programs = Programs::start().await?;
    let door = programs.site.gateway.doors.s3.first().context("the S3 door is open")?;
    let secure = format!("localhost:{}", door.port());
    let certificate = programs.alice.certificate.display().to_string();
    let arguments = [&secure, &programs.door(), &certificate, &programs.text_of("ca.pem")];
    let said = programs.script_with("temporary_minio.py", &arguments.map(String::as_str)).await?;
    ensure!(said.trim() == "all is well", "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_gets_a_key_that_ends_with_it() -> Result<()> {
    let programs = Programs::start().await?;
    let site = &programs.site;
    let lifetime = Duration::from_secs(1200);
    let options = ProxyOptions { lifetime, ..ProxyOptions::default() };
    let proxy = make_proxy(&user(&site.ca, "alice")?.credential()?, options, &Clock::real())?;
    let given = key(site, &written(site, "proxy.pem", &proxy)?, &format!("{CALL}&DurationSeconds=7200")).await?;
    let left = given.expires - time::OffsetDateTime::now_utc();
    ensure!((1000..=1200).contains(&left.whole_seconds()), "{left}");
    programs.aws_as(given.as_aws(), &["s3", "mb", "s3://data"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_nobody_here_gets_no_key_and_is_told_why() -> Result<()> {
    let programs = Programs::start().await?;
    let site = &programs.site;
    refused(&ask(site, None, CALL).await?, 403, "AccessDenied", "no client certificate was shown")?;
    let other = SiteCa::in_memory("other", &Clock::real())?;
    let stranger = written(site, "stranger.pem", &user(&other, "alice")?)?;
    refused(&ask(site, Some(&stranger), CALL).await?, 403, "AccessDenied", "is not trusted")?;
    let mallory = written(site, "mallory.pem", &user(&site.ca, "mallory")?)?;
    refused(&ask(site, Some(&mallory), CALL).await?, 403, "AccessDenied", "is not mapped to an account")?;
    let clear = programs.plain(&["-d", CALL, "-w", "\n%{http_code}\n"], "").await?.good()?;
    refused(&clear, 403, "AccessDenied", "https")?;

    let alice = &programs.alice.certificate;
    for (form, code) in [
        ("Version=2011-06-15", "MissingAction"),
        ("Action=AssumeRoleWithCertificate", "MissingParameter"),
        ("Action=AssumeRole&Version=2011-06-15", "InvalidAction"),
        (&*format!("{CALL}&DurationSeconds=60"), "InvalidParameterValue"),
        (&*format!("{CALL}&Policy=%7B%7D"), "InvalidParameterValue"),
        (&*format!("{CALL}&Pad={}", "x".repeat(20_000)), "MalformedQueryString"),
    ] {
        refused(&ask(site, Some(alice), form).await?, 400, code, "")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_gets_no_key() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trusted = folder.path().to_owned();
    let ca = SiteCa::in_memory("grid", &Clock::real())?;
    let (good, revoked) = (user(&ca, "alice")?, user(&ca, "alice")?);
    let (_, parsed) = x509_parser::parse_x509_certificate(revoked.chain().first().context("a certificate")?)?;
    let list = ca.revocation_list(&[parsed.raw_serial().to_vec()], Duration::from_secs(3600), &Clock::real())?;
    ca.write_trust_folder(&trusted, Some(&list))?;
    let site = Site::builder().movers(1).gateway(move |config| {
        config.identity.trust = trusted;
        config.s3.listen = vec!["127.0.0.1:0".parse().expect("an address")];
    });
    let site = site.start().await;
    site.user("alice").await;
    let subject = good.credential()?.subject().to_owned();
    site.gateway.catalog.map_subject(&subject, &AccountName::new("alice")?).await?;
    let said = ask(&site, Some(&written(&site, "revoked.pem", &revoked)?), CALL).await?;
    refused(&said, 403, "AccessDenied", "revoked by")?;
    key(&site, &written(&site, "good.pem", &good)?, CALL).await.context("the one beside it is good")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_with_its_certificates_mapping_and_with_its_account() -> Result<()> {
    let programs = Programs::start().await?;
    let (catalog, alice) = (&programs.site.gateway.catalog, AccountName::new("alice")?);
    let given = key(&programs.site, &programs.alice.certificate, CALL).await?;
    let list = async || programs.aws_as(given.as_aws(), &["s3", "ls"]).await;
    let is_refused = |said: &Said| said.text().contains("AccessDenied");
    list().await?.good()?;
    catalog.unmap_subject(&programs.alice.subject()).await?;
    let said = list().await?;
    ensure!(is_refused(&said), "the mapping is gone: {}", said.text());
    programs.site.user("bob").await;
    catalog.map_subject(&programs.alice.subject(), &AccountName::new("bob")?).await?;
    let said = list().await?;
    ensure!(is_refused(&said), "the subject is somebody else now: {}", said.text());
    catalog.map_subject(&programs.alice.subject(), &alice).await?;
    list().await?.good()?;
    let account = NewAccount {
        name: alice,
        primary_group: GroupName::new("users")?,
        groups: Vec::new(),
        admin: false,
        disabled: true,
        home: None,
    };
    catalog.put_account(account).await?;
    let said = list().await?;
    ensure!(is_refused(&said), "the account is disabled: {}", said.text());
    let said = ask(&programs.site, Some(&programs.alice.certificate), CALL).await?;
    refused(&said, 403, "AccessDenied", "is disabled")
}
