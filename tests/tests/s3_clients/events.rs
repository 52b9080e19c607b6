//! What a bucket tells, as the aws program sets it: to a webhook that is away at first, and to a file.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use daemon::config::TimeSpan;
use gateway::{config::Config, s3::DestinationConfig};
use serde_json::{Value, json};
use tests::Site;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::{LARGE, programs::Programs};

/// How a webhook takes a post.
#[derive(Clone, Copy)]
enum Mood {
    Answers(u16),
    Hangs,
}

/// A webhook that does what the test says, and keeps what it acknowledged.
#[derive(Clone, Default)]
struct Webhook {
    moods: Arc<Mutex<VecDeque<Mood>>>,
    /// What it does when no mood is left.
    away: Arc<Mutex<bool>>,
    taken: Arc<Mutex<Vec<Value>>>,
    posts: Arc<Mutex<Vec<String>>>,
}

impl Webhook {
    async fn start(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let webhook = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let webhook = webhook.clone();
                tokio::spawn(async move { webhook.answer(stream).await.ok() });
            }
        });
        Ok(format!("http://{address}/events?from=site"))
    }

    async fn answer(&self, stream: TcpStream) -> Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let status = match self.moods.lock().expect("moods").pop_front() {
            Some(Mood::Answers(status)) => status,
            Some(Mood::Hangs) => 0,
            None if *self.away.lock().expect("away") => 503,
            None => 204,
        };
        self.posts.lock().expect("posts").push(head);
        if status == 0 {
            std::future::pending::<()>().await;
        }
        if (200..300).contains(&status) {
            self.taken.lock().expect("taken").push(serde_json::from_slice(&body)?);
        }
        let location = if status == 307 { "location: /elsewhere\r\n" } else { "" };
        stream.write_all(format!("HTTP/1.1 {status} So\r\n{location}content-length: 0\r\n\r\n").as_bytes()).await?;
        Ok(())
    }

    fn posts(&self) -> usize {
        self.posts.lock().expect("posts").len()
    }

    /// The records that it has acknowledged, in order.
    fn records(&self) -> Vec<Value> {
        let taken = self.taken.lock().expect("taken");
        taken.iter().filter_map(|body| body["Records"].as_array()).flatten().cloned().collect()
    }
}

async fn until(what: &str, mut state: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..1200 {
        if state() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("never came true: {what}")
}

fn names(records: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    records.iter().map(|record| (text(&record["eventName"]), text(&record["s3"]["object"]["key"]))).collect()
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(name, key)| ((*name).to_owned(), (*key).to_owned())).collect()
}

fn destinations(config: &mut Config, webhook: &str, header: &Path, file: &Path) {
    let hook = DestinationConfig {
        webhook: Some(webhook.to_owned()),
        header_file: Some(header.to_owned()),
        timeout: TimeSpan::milliseconds(700),
        ..DestinationConfig::default()
    };
    let log = DestinationConfig { file: Some(file.to_owned()), ..DestinationConfig::default() };
    config.s3.notify = [("hook".to_owned(), hook), ("log".to_owned(), log)].into();
    config.hsm.lease = TimeSpan::seconds(2);
}

impl Programs {
    async fn notify(&self, bucket: &str, configuration: &Value) -> Result<crate::programs::Said> {
        let text = configuration.to_string();
        self.aws(&[
            "s3api",
            "put-bucket-notification-configuration",
            "--bucket",
            bucket,
            "--notification-configuration",
            &text,
        ])
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_was_away_hears_everything_in_order_and_a_gateway_killed_meanwhile_forgets_nothing() -> Result<()>
{
    let own = tempfile::tempdir()?;
    let (header, file) = (own.path().join("header"), own.path().join("events.jsonl"));
    std::fs::write(&header, "Authorization: Bearer let-me-in\n")?;
    let webhook = Webhook::default();
    webhook.moods.lock().expect("moods").extend([Mood::Answers(500), Mood::Hangs, Mood::Answers(307)]);
    let address = webhook.start().await?;
    let mut programs = {
        let (header, file) = (header.clone(), file.clone());
        let change = move |config: &mut Config| destinations(config, &address, &header, &file);
        Programs::of(Site::builder().gateway(change)).await?
    };
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;

    let queue = |name: &str, prefix: &str, events: &[&str]| {
        json!({
            "Id": format!("to-{name}"),
            "QueueArn": format!("arn:penstock:s3:::{name}"),
            "Events": events,
            "Filter": { "Key": { "FilterRules": [{ "Name": "prefix", "Value": prefix }] } },
        })
    };
    let everything = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"];
    let wrong = programs.notify("data", &json!({ "QueueConfigurations": [queue("nowhere", "", &everything)] })).await?;
    let why = wrong.failed()?;
    ensure!(why.contains("InvalidArgument") && why.contains("arn:penstock:s3:::hook"), "{why}");
    let wanted = json!({
        "QueueConfigurations": [queue("hook", "in/", &everything)],
        "TopicConfigurations": [{
            "Id": "to-log", "TopicArn": "arn:penstock:s3:::log", "Events": ["s3:ObjectCreated:Put"],
            "Filter": { "Key": { "FilterRules": [{ "Name": "suffix", "Value": ".log" },
                { "Name": "prefix", "Value": "out/" }] } },
        }],
    });
    let nobody = programs.plain(&["-X", "PUT", "-d", "<NotificationConfiguration/>"], "data?notification").await?;
    let nobody = nobody.good()?;
    ensure!(nobody.contains("<Code>AccessDenied</Code>"), "{nobody}");
    programs.notify("data", &wanted).await?.good()?;
    let shown = programs.aws(&["s3api", "get-bucket-notification-configuration", "--bucket", "data"]).await?.good()?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["QueueConfigurations"][0]["QueueArn"] == "arn:penstock:s3:::hook", "{shown}");
    ensure!(shown["QueueConfigurations"][0]["Events"] == json!(everything), "{shown}");
    ensure!(shown["TopicConfigurations"][0]["Id"] == "to-log", "{shown}");

    let small = programs.write("small", 1000, 1)?;
    programs.write("large", LARGE, 2)?;
    programs.aws(&["s3", "cp", &programs.text_of("small"), "s3://data/in/red flower.log"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("small"), "s3://data/out/a.log"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("small"), "s3://data/out/a.txt"]).await?.good()?;
    programs.aws(&["s3", "cp", &programs.text_of("large"), "s3://data/in/large"]).await?.good()?;
    programs.aws(&["s3", "cp", "s3://data/out/a.txt", "s3://data/in/copy"]).await?.good()?;
    programs.ftp(&["-T", &programs.text_of("small")], "data/in/ftp").await?.good()?;
    until("the webhook was asked in all its moods", || webhook.posts() >= 4).await?;
    *webhook.away.lock().expect("away") = true;
    programs.aws(&["s3", "rm", "s3://data/in/copy"]).await?.good()?;
    let before = webhook.posts();
    until("the webhook is away", || webhook.posts() > before).await?;

    programs.site.kill_gateway().await;
    programs.aws(&["s3", "rm", "s3://data/in/ftp"]).await?.good()?;
    *webhook.away.lock().expect("away") = false;
    let told = [
        ("ObjectCreated:Put", "in/red+flower.log"),
        ("ObjectCreated:CompleteMultipartUpload", "in/large"),
        ("ObjectCreated:Copy", "in/copy"),
        ("ObjectCreated:Put", "in/ftp"),
        ("ObjectRemoved:Delete", "in/copy"),
        ("ObjectRemoved:Delete", "in/ftp"),
    ];
    until("the webhook has heard everything", || webhook.records().len() >= told.len()).await?;
    let records = webhook.records();
    ensure!(names(&records) == pairs(&told), "{:?}", names(&records));
    let sequencers: Vec<_> = records.iter().map(|record| record["s3"]["object"]["sequencer"].to_string()).collect();
    ensure!(sequencers.is_sorted(), "{sequencers:?}");
    let first = &records[0];
    ensure!(first["userIdentity"]["principalId"] == "alice" && first["awsRegion"] == "us-east-1", "{first}");
    ensure!(first["requestParameters"]["sourceIPAddress"] == "127.0.0.1", "{first}");
    ensure!(first["responseElements"]["x-amz-request-id"].is_string(), "{first}");
    ensure!(first["s3"]["configurationId"] == "to-hook" && first["s3"]["bucket"]["name"] == "data", "{first}");
    let object = &first["s3"]["object"];
    ensure!(object["size"] == small.len() && object["eTag"].as_str().is_some_and(|tag| tag.len() == 32), "{object}");
    let test = webhook.taken.lock().expect("taken")[0].clone();
    ensure!(test["Event"] == "s3:TestEvent" && test["Bucket"] == "data", "{test}");
    let posts = webhook.posts.lock().expect("posts").clone();
    let good = |head: &String| {
        head.starts_with("POST /events?from=site HTTP/1.1")
            && head.to_ascii_lowercase().contains("authorization: bearer let-me-in")
    };
    ensure!(posts.iter().all(good), "no redirect is followed, and the header is there: {posts:?}");

    let lines = lines_of(&file)?;
    ensure!(lines.len() == 2 && lines[0]["Event"] == "s3:TestEvent", "{lines:?}");
    ensure!(names(&lines[1..]) == pairs(&[("ObjectCreated:Put", "out/a.log")]), "{lines:?}");

    programs.notify("data", &json!({})).await?.good()?;
    let catalog = &programs.site.gateway.catalog;
    let bucket = catalog.bucket("data").await?.context("the bucket")?;
    ensure!(bucket.events.is_empty(), "an empty configuration ends it");
    Ok(())
}

fn lines_of(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_hears_of_restored_copies_and_of_what_rules_expire_and_move() -> Result<()> {
    let own = tempfile::tempdir()?;
    let file = own.path().join("events.jsonl");
    let programs = {
        let file = file.clone();
        let change = move |config: &mut Config| {
            let log = DestinationConfig { file: Some(file), ..DestinationConfig::default() };
            config.s3.notify = [("log".to_owned(), log)].into();
            config.s3.lifecycle_day = TimeSpan::seconds(1);
        };
        Programs::of(Site::builder().tape(1, 2).eager().gateway(change)).await?
    };
    programs.aws(&["s3", "mb", "s3://data"]).await?.good()?;
    let events = ["s3:ObjectRestore:*", "s3:LifecycleExpiration:*", "s3:LifecycleTransition"];
    let queue = json!({ "QueueArn": "arn:penstock:s3:::log", "Events": events });
    programs.notify("data", &json!({ "QueueConfigurations": [queue] })).await?.good()?;
    programs.write("small", 5000, 3)?;
    let small = programs.text_of("small");
    programs.aws(&["s3", "cp", "--storage-class", "GLACIER", &small, "s3://data/cold/k"]).await?.good()?;

    let gateway = &programs.site.gateway;
    let bitfile = programs.site.bitfile("/data/cold/k").await;
    programs.site.sink(bitfile).await;
    let restore = ["s3api", "restore-object", "--bucket", "data", "--key", "cold/k", "--restore-request", "Days=1"];
    programs.aws(&restore).await?.good()?;
    let told = |wanted: usize| lines_of(&file).is_ok_and(|lines| lines.len() > wanted);
    until("the copy is back", || told(2)).await?;
    gateway.hsm.release(vec![bitfile]).await?;
    until("the copy is gone", || told(3)).await?;

    let rules = json!({ "Rules": [
        { "ID": "expire", "Status": "Enabled", "Filter": { "Prefix": "tmp/" }, "Expiration": { "Days": 1 } },
        { "ID": "move", "Status": "Enabled", "Filter": { "Prefix": "old/" },
            "Transitions": [{ "Days": 1, "StorageClass": "GLACIER" }] },
    ] });
    programs.aws(&["s3", "cp", &small, "s3://data/tmp/x"]).await?.good()?;
    programs.aws(&["s3", "cp", &small, "s3://data/old/y"]).await?.good()?;
    let rules = rules.to_string();
    let set = ["s3api", "put-bucket-lifecycle-configuration", "--bucket", "data", "--lifecycle-configuration", &rules];
    programs.aws(&set).await?.good()?;
    until("the rules were followed", || told(5)).await?;

    let lines = lines_of(&file)?;
    let wanted =
        [("ObjectRestore:Post", "cold/k"), ("ObjectRestore:Completed", "cold/k"), ("ObjectRestore:Delete", "cold/k")];
    ensure!(names(&lines[1..4]) == pairs(&wanted), "{lines:?}");
    ensure!(lines[1]["userIdentity"]["principalId"] == "alice", "{}", lines[1]);
    ensure!(lines[1]["responseElements"]["x-amz-request-id"].is_string(), "{}", lines[1]);
    let restored = &lines[2]["glacierEventData"]["restoreEventData"];
    ensure!(restored["lifecycleRestoreStorageClass"] == "GLACIER", "{restored}");
    let expires = restored["lifecycleRestorationExpiryTime"].as_str().unwrap_or_default();
    ensure!(expires.ends_with('Z') && expires > lines[2]["eventTime"].as_str().unwrap_or_default(), "{restored}");
    let by_name = |name: &str| lines.iter().find(|line| line["eventName"] == name).context("it was told");
    let expired = by_name("LifecycleExpiration:Delete")?;
    ensure!(expired["s3"]["object"]["key"] == "tmp/x" && expired["eventVersion"] == "2.3", "{expired}");
    ensure!(expired["userIdentity"]["principalId"] == "penstock", "{expired}");
    let moved = by_name("LifecycleTransition")?;
    ensure!(moved["s3"]["object"]["key"] == "old/y" && moved["s3"]["object"]["size"] == 5000, "{moved}");
    let class = &moved["lifecycleEventData"]["transitionEventData"]["destinationStorageClass"];
    ensure!(class == "GLACIER", "{moved}");
    ensure!(lines.len() == 6, "{lines:?}");
    Ok(())
}
