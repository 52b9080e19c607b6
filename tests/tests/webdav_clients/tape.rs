//! Tape REST, and reading what is on tape.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use daemon::config::{ByteSize, TimeSpan};
use serde_json::{Value, json};

use crate::programs::Programs;

/// Polls a request until all of its files have come to an end.
async fn ended(programs: &Programs, id: &str) -> Result<Value> {
    tests::soon("the end of a stage request", async {
        loop {
            let told = programs.call("GET", &format!("stage/{id}"), None).await?;
            told.expect(200)?;
            let told = told.json()?;
            if told.get("completedAt").is_some() {
                return Ok(told);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

async fn stage(programs: &Programs, paths: &[&str]) -> Result<String> {
    let files: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
    let made = programs.call("POST", "stage", Some(json!({ "files": files }))).await?;
    made.expect(201)?;
    Ok(made.json()?["requestId"].as_str().context("a number")?.to_owned())
}

async fn locality(programs: &Programs, paths: &[&str]) -> Result<Value> {
    let told = programs.call("POST", "archiveinfo", Some(json!({ "paths": paths }))).await?;
    told.expect(200)?;
    told.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_staged_polled_released_and_asked_about() -> Result<()> {
    let programs = Programs::with_tape(|_| ()).await?;
    let data = programs.sink("/home/alice/a", 300_000, 1).await?;
    std::fs::write(programs.path("empty"), "")?;
    programs.curl(&["-T", &programs.text_of("empty")], "/home/alice/empty").await?.expect(201)?;

    let found = programs.curl_as(None, &[], "/.well-known/wlcg-tape-rest-api").await?;
    found.expect(200)?;
    let endpoint = found.json()?["endpoints"][0].clone();
    ensure!(endpoint["version"] == "v1" && endpoint["uri"] == programs.url("https", "/api/v1"), "{endpoint}");
    ensure!(endpoint["metadata"]["maxFilesPerStage"] == "10000", "{endpoint}");

    let info = locality(&programs, &["/home/alice//a", "/home/alice/empty", "/home/alice", "/home/alice/x"]).await?;
    ensure!(info[0] == json!({ "path": "/home/alice//a", "locality": "TAPE" }), "the path as it was written: {info}");
    ensure!(info[1]["locality"] == "NONE" && info[1].get("error").is_none(), "{info}");
    ensure!(
        info[2]["error"].is_string() && info[2].get("locality").is_none() && info[3]["error"].is_string(),
        "{info}"
    );

    let files = json!({ "files": [
        { "path": "//home/alice/a", "diskLifetime": "PT1H", "targetedMetadata": { "default": { "x": 1 } } },
        { "path": "/home/alice/a" },
        { "path": "/home/alice/empty" },
        { "path": "/home/alice" },
        { "path": "/home/alice/x", "unknown": null },
    ], "unknown": [] });
    let made = programs.call("POST", "stage", Some(files)).await?;
    made.expect(201)?;
    let id = made.json()?["requestId"].as_str().context("a number")?.to_owned();
    ensure!(made.header("location") == Some(programs.url("https", &format!("/api/v1/stage/{id}")).as_str()));
    let told = ended(&programs, &id).await?;
    let files = told["files"].as_array().context("files")?;
    let states: Vec<_> = files.iter().map(|file| (file["path"].as_str(), file["state"].as_str())).collect();
    let wanted = [
        ("//home/alice/a", "COMPLETED"),
        ("/home/alice/empty", "FAILED"),
        ("/home/alice", "FAILED"),
        ("/home/alice/x", "FAILED"),
    ];
    ensure!(states == wanted.map(|(path, state)| (Some(path), Some(state))), "{told}");
    ensure!(files[0].get("error").is_none() && files[0].get("onDisk").is_none() && files[1]["error"].is_string());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    ensure!(told["createdAt"].as_u64().is_some_and(|at| at.abs_diff(now) < 3600), "seconds: {told}");
    ensure!(told["startedAt"] == told["createdAt"]);
    ensure!(locality(&programs, &["/home/alice/a"]).await?[0]["locality"] == "DISK_AND_TAPE");
    let bitfile = programs.site.bitfile("/home/alice/a").await;
    let expires = async || {
        let located = programs.site.gateway.catalog.locate_one(bitfile).await?;
        let copy = located.copy(catalog::DISK_COPY).context("on disk")?;
        anyhow::Ok(copy.expires.context("promised")?.0 - programs.site.gateway.catalog.now().0)
    };
    let hour = 3600 * 1_000_000;
    ensure!((hour - 600_000_000..=hour).contains(&expires().await?), "kept for its diskLifetime");
    ensure!(programs.curl(&[], "/home/alice/a").await?.body == data);

    // Nobody else's business.
    for (method, call, body) in [
        ("GET", format!("stage/{id}"), None),
        ("DELETE", format!("stage/{id}"), None),
        ("POST", format!("stage/{id}/cancel"), Some(json!({ "paths": ["/home/alice/a"] }))),
        ("POST", format!("release/{id}"), Some(json!({ "paths": ["/home/alice/a"] }))),
    ] {
        programs.call_as(&programs.bob, method, &call, body).await?.expect(403)?;
    }
    let foreign = json!({ "paths": ["/home/alice/a", "/home/alice/other"] });
    programs.call("POST", &format!("release/{id}"), Some(foreign)).await?.expect(400)?;
    ensure!(expires().await? > 0, "nothing was given back");
    let own = json!({ "paths": ["/home/alice/a"] });
    ensure!(programs.call("POST", &format!("release/{id}"), Some(own)).await?.expect(200)?.is_empty());
    ensure!(programs.call("DELETE", &format!("stage/{id}"), None).await?.expect(200)?.is_empty());
    let gone = programs.call("GET", &format!("stage/{id}"), None).await?;
    gone.expect(404)?;
    ensure!(gone.json()?["status"] == 404 && gone.json()?["title"].is_string());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_can_be_cancelled_and_survives_a_restart() -> Result<()> {
    // Nothing is recalled: every drive is down.
    let mut programs = Programs::with_tape(|_| ()).await?;
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        programs.sink(&format!("/home/alice/{name}"), 10_000, seed).await?;
    }
    let drives = programs.site.gateway.hsm.drives().await;
    for drive in &drives {
        programs.site.gateway.hsm.set_drive(&drive.drive, Some("for the test".to_owned())).await?;
    }
    let id = stage(&programs, &["/home/alice/a", "/home/alice/b", "/home/alice/c"]).await?;
    let state = async |programs: &Programs, query: &str| {
        let told = programs.call("GET", &format!("stage/{id}{query}"), None).await?;
        told.expect(200)?;
        let token = told.header("tape-rest-changes").context("a token")?.to_owned();
        let told = told.json()?;
        let files = told["files"].as_array().context("files")?;
        let state = |file: &Value| file["state"].as_str().unwrap_or_default().to_owned();
        anyhow::Ok((files.iter().map(state).collect::<Vec<_>>(), token, told))
    };
    let (states, ..) = state(&programs, "").await?;
    ensure!(states.iter().all(|state| state == "SUBMITTED" || state == "STARTED"), "{states:?}");
    let foreign = json!({ "paths": ["/home/alice/a", "/home/alice/x"] });
    programs.call("POST", &format!("stage/{id}/cancel"), Some(foreign)).await?.expect(400)?;
    ensure!(state(&programs, "").await?.0 == states, "one foreign path, and nothing is cancelled");
    let own = json!({ "paths": ["//home/alice/a"] });
    ensure!(programs.call("POST", &format!("stage/{id}/cancel"), Some(own.clone())).await?.expect(200)?.is_empty());
    ensure!(state(&programs, "").await?.0[0] == "CANCELLED");
    programs.call("POST", &format!("release/{id}"), Some(own)).await?.expect(200)?;
    programs.site.kill_gateway().await;
    let (states, token, told) = state(&programs, "").await?;
    ensure!(states[0] == "CANCELLED" && told.get("completedAt").is_none(), "{told}");
    // Polled again, only what has changed is told; what is new is told again for a while.
    let (changed, ..) = state(&programs, &format!("?changesSince={token}")).await?;
    ensure!(changed.contains(&"CANCELLED".to_owned()), "{changed:?}");
    let later = token.parse::<i64>()? + 3600 * 1_000_000;
    let (changed, ..) = state(&programs, &format!("?changesSince={later}")).await?;
    ensure!(changed.iter().all(|state| state == "STARTED"), "{changed:?}");
    programs.call("GET", &format!("stage/{id}?changesSince=yesterday"), None).await?.expect(400)?;
    for drive in &drives {
        // The gateway that was started again takes the library over when the other's lease is over.
        tests::soon("the drives", async {
            while programs.site.gateway.hsm.set_drive(&drive.drive, None).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    let told = ended(&programs, &id).await?;
    ensure!(told["files"][1]["state"] == "COMPLETED" && told["files"][2]["state"] == "COMPLETED", "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_bounded() -> Result<()> {
    let programs = Programs::with_tape(|config| {
        let limits = &mut config.webdav.tape_rest;
        (limits.max_files, limits.max_paths, limits.max_requests) = (3, 2, 1);
        limits.max_body = ByteSize::kib(8);
        limits.site = "somewhere".to_owned();
        config.webdav.tape_wait = TimeSpan::milliseconds(1);
    })
    .await?;
    programs.sink("/home/alice/a", 10_000, 1).await?;
    for drive in programs.site.gateway.hsm.drives().await {
        programs.site.gateway.hsm.set_drive(&drive.drive, Some("for the test".to_owned())).await?;
    }
    let found = programs.curl(&[], "/.well-known/wlcg-tape-rest-api").await?;
    ensure!(
        found.json()?["sitename"] == "somewhere"
            && found.json()?["endpoints"][0]["metadata"]["maxFilesPerStage"] == "3"
    );
    let file = json!({ "path": "/home/alice/a" });
    let post = async |body: Value, status| programs.call("POST", "stage", Some(body)).await?.expect(status);
    post(json!({ "files": [file, file, file, file] }), 413).await?;
    post(json!({ "files": [{ "path": "x".repeat(9000) }] }), 413).await?;
    post(json!({ "files": [{ "path": "x".repeat(5000) }] }), 400).await?;
    post(json!({ "files": [] }), 400).await?;
    ensure!(post(json!({ "paths": [] }), 400).await?.contains("JSON Validation error"));
    post(json!({ "files": [{ "path": "/home/alice/a", "diskLifetime": "one day" }] }), 400).await?;
    // A second request while the first is open.
    post(json!({ "files": [file] }), 201).await?;
    let busy = programs.call("POST", "stage", Some(json!({ "files": [file] }))).await?;
    busy.expect(429)?;
    ensure!(busy.header("retry-after").is_some());
    let told = locality(&programs, &["/home/alice/a", "/x", "/y", "/z"]).await?;
    ensure!(told.as_array().is_some_and(|told| told.len() == 2), "a part of it, and no error: {told}");
    programs.call("GET", "stage", None).await?.expect(405)?;
    programs.call("GET", "nothing", None).await?.expect(404)?;
    programs.call("POST", "stage/none/cancel", Some(json!({ "paths": [] }))).await?.expect(404)?;
    programs
        .call_as(&programs.bob, "POST", "release/gfal2-placeholder-id", Some(json!({ "paths": ["/x"] })))
        .await?
        .expect(200)?;
    // A read waits no longer than it is told, and its wish stays.
    let read = programs.curl(&[], "/home/alice/a").await?;
    ensure!(read.expect(424)?.contains("on tape") && read.header("retry-after").is_some());
    programs.curl(&["-I"], "/home/alice/a").await?.expect(200)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_tape() -> Result<()> {
    let programs = Programs::with_tape(|_| ()).await?;
    let data = programs.sink("/home/alice/a", 200_000, 1).await?;
    let got = programs.curl(&["-r", "5-"], "/home/alice/a").await?;
    ensure!(got.status == 206 && got.body == data[5..], "{}", got.status);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_refused_at_once_where_the_class_of_service_says_so() -> Result<()> {
    let programs = Programs::with_tape(|config| {
        for class in &mut config.classes {
            class.tape_read = catalog::TapeRead::Refuse;
        }
    })
    .await?;
    let data = programs.sink("/home/alice/a", 200_000, 1).await?;
    programs.curl(&[], "/home/alice/a").await?.expect(424)?;
    let open = catalog::RequestFilter { open_only: true, limit: 1, ..catalog::RequestFilter::default() };
    ensure!(programs.site.gateway.catalog.list_requests(&open).await?.is_empty(), "nothing was asked for");
    let id = stage(&programs, &["/home/alice/a"]).await?;
    ended(&programs, &id).await?;
    ensure!(programs.curl(&[], "/home/alice/a").await?.body == data);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn gfal2_brings_online_polls_asks_for_the_archive_and_evicts() -> Result<()> {
    let programs = Programs::with_tape(|_| ()).await?;
    programs.sink("/home/alice/a", 200_000, 1).await?;
    programs.sink("/home/alice/b", 200_000, 2).await?;
    let (a, b) = (programs.url("davs", "/home/alice/a"), programs.url("davs", "/home/alice/b"));
    let archived = programs.gfal(&["archived", &a, &b]).await?.good()?;
    ensure!(archived.matches("ARCHIVED").count() == 2, "{archived}");
    ensure!(programs.gfal(&["locality", &a]).await?.good()?.trim() == "NEARLINE");
    let staged = programs.gfal(&["stage", &a, &b]).await?.good()?;
    ensure!(staged.matches("ONLINE").count() == 2, "{staged}");
    let token = staged.lines().next().context("a token")?;
    ensure!(programs.gfal(&["locality", &a]).await?.good()?.trim() == "ONLINE_AND_NEARLINE");
    programs.gfal(&["release", token, &a]).await?.good()?;
    // Without the number, by path.
    programs.gfal(&["release", "", &b]).await?.good()?;
    for path in ["/home/alice/a", "/home/alice/b"] {
        let bitfile = programs.site.bitfile(path).await;
        tests::soon("the eviction", async {
            while programs.site.gateway.catalog.locate_one(bitfile).await.is_ok_and(|l| l.bitfile.residency.on_disk) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    Ok(())
}
