//! What is archived, as clients see it: rules that move objects to tape, what is refused there, and restoring it.

use std::time::Duration;

use anyhow::{Result, ensure};
use daemon::config::TimeSpan;
use serde_json::Value;
use tests::{Site, SiteBuilder, soon};

use crate::{
    LARGE,
    programs::{Programs, Said, installed},
};

fn with_tape() -> SiteBuilder {
    Site::builder().tape(2, 6).eager()
}

impl Programs {
    /// What HEAD says of an object, by the aws command.
    async fn head(&self, key: &str) -> Result<Value> {
        let said = self.aws(&["s3api", "head-object", "--bucket", "data", "--key", key]).await?.good()?;
        Ok(serde_json::from_str(&said)?)
    }

    /// Waits until HEAD says so of an object.
    async fn until(&self, key: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        soon(what, async {
            loop {
                let head = self.head(key).await?;
                if is(&head) {
                    return Ok(head);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    }

    async fn restore(&self, key: &str, days: u32) -> Result<Said> {
        let request = format!("Days={days},GlacierJobParameters={{Tier=Expedited}}");
        let arguments = ["s3api", "restore-object", "--bucket", "data", "--key", key, "--restore-request", &request];
        self.aws(&arguments).await
    }

    /// Lets go of a restored copy before its time.
    async fn release(&self, key: &str) -> Result<()> {
        let bitfile = self.site.bitfile(&format!("/data/{key}")).await;
        self.site.gateway.hsm.release(vec![bitfile]).await?;
        self.site.sink(bitfile).await;
        Ok(())
    }

    /// Takes an object off the disk when it is on tape.
    async fn sink(&self, key: &str) {
        let bitfile = self.site.bitfile(&format!("/data/{key}")).await;
        self.site.sink(bitfile).await;
    }
}

fn is_restored(head: &Value) -> bool {
    head["Restore"].as_str().is_some_and(|said| said.contains("ongoing-request=\"false\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_object_is_refused_restored_read_and_goes_again_by_aws() -> Result<()> {
    let programs = Programs::of(with_tape()).await?;
    let data = programs.write("large", LARGE, 21)?;
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;
    let (local, out) = (programs.text_of("large"), programs.text_of("out"));
    // In parts, which lie on both movers.
    programs.aws(&["s3", "cp", "--storage-class", "GLACIER", &local, "s3://data/k"]).await?.good()?;
    programs.sink("k").await;
    let head = programs.head("k").await?;
    ensure!(head["StorageClass"] == "GLACIER" && head.get("Restore").is_none(), "{head}");
    ensure!(head["ContentLength"] == LARGE, "{head}");
    let get = ["s3api", "get-object", "--bucket", "data", "--key", "k", out.as_str()];
    let refused = programs.aws(&get).await?.failed()?;
    ensure!(refused.contains("InvalidObjectState"), "{refused}");

    programs.restore("k", 1).await?.good()?;
    let head = programs.until("k", "the restored copy", is_restored).await?;
    ensure!(head["StorageClass"] == "GLACIER", "restored, it is of its class still: {head}");
    let first = head["Restore"].as_str().unwrap_or_default().to_owned();
    programs.aws(&get).await?.good()?;
    ensure!(programs.read("out")? == data, "the object came back changed");
    // The tool looks at the class, then at the restore.
    programs.aws(&["s3", "cp", "s3://data/k", &out]).await?.good()?;
    programs.restore("k", 3).await?.good()?;
    let extended = programs.head("k").await?;
    let later = extended["Restore"].as_str().unwrap_or_default();
    ensure!(later.contains("ongoing-request=\"false\"") && later != first, "{first} became {later}");

    programs.release("k").await?;
    let head = programs.head("k").await?;
    ensure!(head["StorageClass"] == "GLACIER" && head.get("Restore").is_none(), "{head}");
    programs.aws(&get).await?.failed()?;
    programs.aws(&["s3", "rm", "s3://data/k"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_restores_what_is_archived_and_tells_how_it_fares() -> Result<()> {
    let programs = Programs::of(with_tape()).await?;
    // Debian's knows no `restore-status`.
    let new = installed("rclone")?;
    let rclone = async |arguments: &[&str]| programs.rclone_of(&new, arguments).await;
    programs.write("in/d/one", 300_000, 22)?;
    programs.write("in/d/two", 4000, 23)?;
    rclone(&["mkdir", "site:data"]).await?.good()?;
    let copy = ["copy", "--s3-storage-class", "DEEP_ARCHIVE", &programs.text_of("in"), "site:data"];
    rclone(&copy).await?.good()?;
    for key in ["d/one", "d/two"] {
        programs.sink(key).await;
    }
    let out = programs.text_of("out");
    rclone(&["copy", "--retries", "1", "--low-level-retries", "1", "site:data", &out]).await?.failed()?;
    let options = ["-o", "priority=Standard", "-o", "lifetime=1"];
    let restore = [&["backend", "restore", "site:data/d"][..], &options].concat();
    let said = rclone(&restore).await?.good()?;
    ensure!(said.matches("\"Status\": \"OK\"").count() == 2, "{said}");
    let status = ["backend", "restore-status", "site:data/d"];
    soon("both restored copies", async {
        loop {
            let said: Value = serde_json::from_str(&rclone(&status).await?.good()?)?;
            let all = said.as_array().map(Vec::as_slice).unwrap_or_default();
            let done = |one: &Value| one["RestoreStatus"]["IsRestoreInProgress"] == false;
            if all.len() == 2 && all.iter().all(done) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await?;
    rclone(&["copy", "site:data", &out]).await?.good()?;
    rclone(&["check", "--download", &programs.text_of("in"), "site:data"]).await?.good()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_move_objects_to_tape_and_on_to_more_tapes() -> Result<()> {
    let day = TimeSpan::milliseconds(500);
    let programs = Programs::of(with_tape().gateway(move |config| config.s3.lifecycle_day = day)).await?;
    let data = programs.write("in", 200_000, 24)?;
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("in"), "s3://data/old/k"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("in"), "s3://data/stays"]).await?.good()?;
    let unknown = rules(&[(1, "ONEZONE_IA")]);
    let put = ["s3api", "put-bucket-lifecycle-configuration", "--bucket", "data", "--lifecycle-configuration"];
    let refused = programs.aws(&[&put[..], &[unknown.as_str()]].concat()).await?.failed()?;
    ensure!(refused.contains("InvalidStorageClass") && refused.contains("GLACIER_IR"), "{refused}");

    programs.aws(&[&put[..], &[rules(&[(1, "GLACIER")]).as_str()]].concat()).await?.good()?;
    programs.until("old/k", "the first class", |head| head["StorageClass"] == "GLACIER").await?;
    programs.sink("old/k").await;
    let bitfile = programs.site.bitfile("/data/old/k").await;
    let copies = async || programs.site.gateway.catalog.locate_one(bitfile).await.map(|it| it.bitfile.residency);
    ensure!(copies().await?.tape_copies == 1, "one copy for this class");

    // On tape only, it is asked back for the second copy.
    programs.aws(&[&put[..], &[rules(&[(1, "GLACIER"), (2, "DEEP_ARCHIVE")]).as_str()]].concat()).await?.good()?;
    programs.until("old/k", "the second class", |head| head["StorageClass"] == "DEEP_ARCHIVE").await?;
    programs.site.on_tape(bitfile).await;
    ensure!(copies().await?.tape_copies == 2, "two copies for this class");
    ensure!(programs.site.bitfile("/data/old/k").await == bitfile, "it is the same file");
    ensure!(programs.head("stays").await?.get("StorageClass").is_none(), "no rule is for it");
    let got = programs.curl(&[], "data/old/k").await?.out;
    ensure!(got == data, "the object came back changed");
    Ok(())
}

/// One rule for what begins with `old/`: after so many days, this class.
fn rules(transitions: &[(u32, &str)]) -> String {
    let transitions: Vec<_> =
        transitions.iter().map(|(days, class)| serde_json::json!({"Days": days, "StorageClass": class})).collect();
    let rule = serde_json::json!({
        "ID": "cold", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Transitions": transitions,
    });
    serde_json::json!({"Rules": [rule]}).to_string()
}
