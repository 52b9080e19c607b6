//! The door over real sockets and TLS, with the certificates people have.

use std::{net::SocketAddr, sync::Arc};

use catalog::{Amount, BucketUsage, NewAccount, NewBucket};
use daemon::{
    Clock, Shutdown,
    pki::{Holder, SiteCa},
    role::Role,
    telemetry::Telemetry,
    tls::{self, Expect, HotCredential, Trust},
    trust::{TrustOptions, TrustStore},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{AdminConfig, Doors, Keys, Services, open};
use crate::{
    hsm::tests::{
        fake::FakeFleet,
        site::{Site, account},
    },
    identity::Identities,
    s3::secrets::Sealer,
};

struct Door {
    site: Site,
    ca: SiteCa,
    users: SiteCa,
    doors: Doors,
    shutdown: Shutdown,
    _folder: tempfile::TempDir,
}

fn trust(ca: &SiteCa) -> Trust {
    let store = TrustStore::from_pem(ca.certificate_pem().as_bytes(), TrustOptions::default());
    Trust::fixed(store.expect("an authority"))
}

impl Door {
    async fn open() -> Self {
        let site = Site::new(FakeFleet::new(2, 3, 1 << 20)).await;
        let clock = Clock::real();
        let ca = SiteCa::in_memory("test", &clock).expect("an authority");
        let users = SiteCa::in_memory("users", &clock).expect("an authority");
        let hosts = ["127.0.0.1".to_owned()];
        let holder = Holder::Part { role: Role::Gateway, name: "gw1", hosts: &hosts };
        let credential = ca.issue(&holder, &clock).expect("issued").credential().expect("loads");
        let keys = Keys { credential: HotCredential::fixed(credential), site: trust(&ca), users: trust(&users) };
        let folder = tempfile::tempdir().expect("a folder");
        let sealer = Sealer::open(&folder.path().join("key")).expect("a new key");
        let services = Services {
            sealer: Some(Arc::new(sealer)),
            homes: Some("/home".to_owned()),
            gateway: "gw1".parse().expect("a name"),
            catalog: site.catalog.clone(),
            identities: Identities::new(site.catalog.clone(), None),
            movers: None,
            transfers: None,
            hsm: site.hsm.clone(),
            telemetry: Telemetry::install().ok(),
        };
        let anywhere = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let config = AdminConfig { listen: anywhere.clone(), metrics: anywhere, ..AdminConfig::default() };
        let shutdown = Shutdown::new(std::time::Duration::from_secs(2));
        let doors = open(&config, keys, services, &shutdown).await.expect("open");
        Self { site, ca, users, doors, shutdown, _folder: folder }
    }

    fn admin(&self) -> Option<HotCredential> {
        let hosts: [String; 0] = [];
        let holder = Holder::Part { role: Role::Admin, name: "root", hosts: &hosts };
        let issued = self.ca.issue(&holder, &Clock::real()).expect("issued");
        Some(HotCredential::fixed(issued.credential().expect("loads")))
    }

    fn user(&self, name: &str) -> (Option<HotCredential>, String) {
        let issued = self.users.issue(&Holder::User { name }, &Clock::real()).expect("issued");
        let credential = issued.credential().expect("loads");
        let subject = credential.subject().to_owned();
        (Some(HotCredential::fixed(credential)), subject)
    }

    async fn ask(&self, who: Option<&HotCredential>, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let config = tls::client_config(who, &trust(&self.ca), &Expect::Host, &["http/1.1"]);
        let stream = TcpStream::connect(self.doors.admin[0]).await.expect("connected");
        let mut stream = tls::connect(&config, "127.0.0.1", stream).await.expect("a handshake");
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        // The server may end without a close_notify; what came counts.
        let _ = stream.read_to_end(&mut answer).await;
        parse(&String::from_utf8(answer).expect("text"))
    }

    async fn end(self) {
        self.shutdown.finish().await;
        self.site.end().await;
    }
}

fn parse(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_certificate_of_the_site_is_let_in_and_nobody_else_without_the_right() {
    let door = Door::open().await;
    let admin = door.admin();
    let (status, body) = door.ask(admin.as_ref(), "GET", "/v1/status", None).await;
    assert_eq!((status, body["gateway"].as_str()), (200, Some("gw1")), "{body}");
    assert_eq!(body["services"].as_array().map(Vec::len), Some(4));

    let (status, body) = door.ask(None, "GET", "/v1/status", None).await;
    assert_eq!((status, body["code"].as_str()), (403, Some("forbidden")), "{body}");
    assert!(body["message"].as_str().is_some_and(|text| text.contains("no certificate")), "{body}");
    assert!(body["next_step"].is_string());

    let (alice, subject) = door.user("alice");
    let (status, _) = door.ask(alice.as_ref(), "GET", "/v1/status", None).await;
    assert_eq!(status, 403, "not mapped");
    let new = |admin| NewAccount {
        name: account("alice"),
        primary_group: "users".parse().expect("a name"),
        groups: vec!["users".parse().expect("a name")],
        admin,
        disabled: false,
        home: None,
    };
    door.site.catalog.put_account(new(false)).await.expect("made");
    door.site.catalog.map_subject(&subject, &account("alice")).await.expect("mapped");
    let (status, body) = door.ask(alice.as_ref(), "GET", "/v1/status", None).await;
    assert_eq!(status, 403);
    assert!(body["message"].as_str().is_some_and(|text| text.contains("no admin right")), "{body}");
    door.site.catalog.put_account(new(true)).await.expect("changed");
    assert_eq!(door.ask(alice.as_ref(), "GET", "/v1/status", None).await.0, 200);
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_are_made_mapped_limited_and_removed() {
    let door = Door::open().await;
    let admin = door.admin();
    let admin = admin.as_ref();
    let user = serde_json::json!({"groups": ["users"], "home": "/home/bob", "subjects": ["/O=Grid/CN=Bob"]});
    assert_eq!(door.ask(admin, "PUT", "/v1/users/bob", Some(user)).await.0, 200);
    let (_, users) = door.ask(admin, "GET", "/v1/users", None).await;
    assert_eq!(users[0]["subjects"][0], "/O=Grid/CN=Bob", "{users}");
    let limits = serde_json::json!({"bytes": 1000});
    assert_eq!(door.ask(admin, "PUT", "/v1/quotas/bob", Some(limits)).await.0, 200);
    let (_, quotas) = door.ask(admin, "GET", "/v1/quotas", None).await;
    assert_eq!(quotas[0]["limits"]["bytes"], 1000, "{quotas}");
    let members = serde_json::json!({"members": ["bob"]});
    assert_eq!(door.ask(admin, "PUT", "/v1/groups/physics", Some(members)).await.0, 200);
    let (_, groups) = door.ask(admin, "GET", "/v1/groups", None).await;
    assert_eq!(groups.as_array().map(Vec::len), Some(2), "{groups}");
    let bad = serde_json::json!({"subject": "Bob", "account": "bob"});
    let (status, body) = door.ask(admin, "POST", "/v1/maps", Some(bad)).await;
    assert_eq!((status, body["code"].as_str()), (400, Some("bad_request")), "{body}");
    let gone = serde_json::json!({"subject": "/O=Grid/CN=Bob"});
    assert_eq!(door.ask(admin, "DELETE", "/v1/maps", Some(gone)).await.0, 200);
    assert_eq!(door.ask(admin, "DELETE", "/v1/users/bob", None).await.0, 200);
    assert_eq!(door.ask(admin, "DELETE", "/v1/users/bob", None).await.0, 404);
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_made_changed_rotated_and_removed() {
    let door = Door::open().await;
    let admin = door.admin();
    let ask = async |method: &str, path: &str, body: Value| door.ask(admin.as_ref(), method, path, Some(body)).await;
    assert_eq!(ask("PUT", "/v1/users/bob", serde_json::json!({})).await.0, 200);
    let (status, made) = ask("POST", "/v1/keys", serde_json::json!({"account": "bob", "direct": "on"})).await;
    assert_eq!((status, made["secret"].as_str().map(str::len)), (200, Some(40)), "{made}");
    let path = format!("/v1/keys/{}", made["key"].as_str().expect("a key"));
    let direct = async || {
        let (_, keys) = door.ask(admin.as_ref(), "GET", "/v1/keys?account=bob", None).await;
        let of = keys.as_array().expect("a list").iter().find(|key| key["key"] == made["key"]).cloned();
        of.and_then(|key| key["direct"].as_str().map(str::to_owned))
    };
    assert_eq!(direct().await.as_deref(), Some("on"));
    for word in ["off", "auto", "on"] {
        let (status, done) = ask("PUT", &path, serde_json::json!({"direct": word})).await;
        assert_eq!((status, direct().await.as_deref()), (200, Some(word)), "{done}");
    }
    assert_eq!(ask("PUT", &path, serde_json::json!({"direct": "perhaps"})).await.0, 400);
    assert_eq!(ask("PUT", &path, serde_json::json!({})).await.0, 400);
    assert_eq!(ask("PUT", "/v1/keys/NONE", serde_json::json!({"direct": "on"})).await.0, 404);
    let (status, another) = ask("POST", &format!("{path}/rotate"), Value::Null).await;
    assert!(status == 200 && another["key"] != made["key"], "{another}");
    assert_eq!(door.ask(admin.as_ref(), "DELETE", &path, None).await.0, 200);
    let (_, keys) = door.ask(admin.as_ref(), "GET", "/v1/keys", None).await;
    assert_eq!((keys[0]["key"].clone(), keys[0]["direct"].as_str()), (another["key"].clone(), Some("on")), "{keys}");
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_are_told_with_what_was_counted_of_them() {
    let door = Door::open().await;
    let (admin, catalog) = (door.admin(), &door.site.catalog);
    let get = async |path: &str| door.ask(admin.as_ref(), "GET", path, None).await;
    let mut entries = Vec::new();
    for name in ["a", "b", "c"] {
        let new = NewBucket {
            parent: catalog::ROOT,
            name: name.to_owned(),
            owner: account("alice"),
            group: "users".parse().expect("a name"),
            mode: 0o755,
            locking: name == "b",
            settings: "{}".to_owned(),
        };
        entries.push(catalog.create_bucket(new).await.expect("a bucket").entry);
    }
    let amount = |count, bytes| Amount { count, bytes };
    let usage = BucketUsage {
        current: amount(3, 30),
        noncurrent: amount(2, 20),
        markers: 1,
        uploads: 4,
        parts: amount(5, 50),
        counted: catalog::Timestamp(7),
    };
    catalog.keep_usage(entries[1], usage).await.expect("kept");
    let (status, all) = get("/v1/buckets").await;
    let names: Vec<_> = all.as_array().expect("a list").iter().map(|bucket| bucket["bucket"].as_str()).collect();
    assert_eq!((status, names), (200, vec![Some("a"), Some("b"), Some("c")]), "{all}");
    let (_, page) = get("/v1/buckets?after=a&limit=1").await;
    assert_eq!(page.as_array().map(Vec::len), Some(1), "{page}");
    let (_, one) = get("/v1/buckets/b").await;
    assert_eq!(page[0], one);
    assert_eq!((one["owner"].as_str(), one["versioning"].as_str()), (Some("alice"), Some("enabled")), "{one}");
    let expected = serde_json::json!({
        "current": {"count": 3, "bytes": 30}, "noncurrent": {"count": 2, "bytes": 20}, "delete_markers": 1,
        "uploads": 4, "parts": {"count": 5, "bytes": 50}, "counted_us": 7,
    });
    assert_eq!(one["usage"], expected);
    let (_, uncounted) = get("/v1/buckets/c").await;
    assert!(uncounted.get("usage").is_none() && uncounted["versioning"] == "off", "{uncounted}");
    assert_eq!(get("/v1/buckets/d").await.0, 404);
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_migrated_purged_staged_and_told_about_by_command() {
    let door = Door::open().await;
    let admin = door.admin();
    let admin = admin.as_ref();
    let bitfile = door.site.put("f", "dual", &[("m1.disk0", b"some bytes")]).await;
    let paths = serde_json::json!({"paths": ["/f", "/nothing"]});
    let (status, answers) = door.ask(admin, "POST", "/v1/migrate", Some(paths.clone())).await;
    assert_eq!((status, answers[1]["result"]["result"].as_str()), (200, Some("refused")), "{answers}");
    crate::hsm::tests::site::eventually("both copies are on tape", || async {
        door.site.located(bitfile).await.bitfile.residency.tape_copies == 2
    })
    .await;
    let (_, answers) = door.ask(admin, "POST", "/v1/purge", Some(paths.clone())).await;
    assert_eq!(answers[0]["result"]["result"], "done", "{answers}");
    let (_, answers) = door.ask(admin, "POST", "/v1/stage", Some(paths)).await;
    assert_eq!(answers[0]["result"]["result"], "queued", "{answers}");
    let request = answers[0]["result"]["request"].as_u64().expect("a request");
    crate::hsm::tests::site::eventually("it is on disk", || async { door.site.on_disk(bitfile).await }).await;
    let (_, entry) = door.ask(admin, "GET", &format!("/v1/requests/{request}"), None).await;
    assert_eq!(entry["state"], "completed", "{entry}");
    let (_, info) = door.ask(admin, "GET", "/v1/files?path=/f", None).await;
    assert_eq!(info["copies"].as_array().map(Vec::len), Some(3), "{info}");
    let (_, volumes) = door.ask(admin, "GET", "/v1/volumes", None).await;
    assert!(volumes.as_array().is_some_and(|all| all.len() == 5), "{volumes}");
    let reason = serde_json::json!({"reason": "it rattles"});
    assert_eq!(door.ask(admin, "POST", "/v1/drives/drive2/down", Some(reason)).await.0, 200);
    let (_, drives) = door.ask(admin, "GET", "/v1/drives", None).await;
    assert_eq!((drives[1]["state"].as_str(), drives[1]["reason"].as_str()), (Some("down"), Some("it rattles")));
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_health_are_answered_in_clear() {
    let door = Door::open().await;
    for (path, wanted) in [("/healthz", "ready"), ("/metrics", "")] {
        let mut stream = TcpStream::connect(door.doors.metrics[0]).await.expect("connected");
        let text = format!("GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(wanted), "{path}: {answer}");
    }
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_gets_one_json_line_for_each_event() {
    let door = Door::open().await;
    let config = tls::client_config(door.admin().as_ref(), &trust(&door.ca), &Expect::Host, &["http/1.1"]);
    let stream = TcpStream::connect(door.doors.admin[0]).await.expect("connected");
    let mut stream = tls::connect(&config, "127.0.0.1", stream).await.expect("a handshake");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: site\r\n\r\n").await.expect("sent");
    let mut seen = String::new();
    // What happened before the greeting is not told.
    for event in ["hello", "batch"] {
        while !seen.contains(&format!("\"event\":\"{event}\"")) {
            let mut part = vec![0; 4096];
            let read = stream.read(&mut part).await.expect("more");
            assert!(read > 0, "the stream ended after {seen}");
            seen.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        if event == "hello" {
            door.site.put("f", "single", &[("m1.disk0", b"bytes")]).await;
        }
    }
    drop(stream);
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_in_json_like_everything_else() {
    let door = Door::open().await;
    let admin = door.admin();
    let ask = async |method: &str, path: &str, body: Option<Value>| door.ask(admin.as_ref(), method, path, body).await;
    let json = |text: &str| Some(serde_json::from_str::<Value>(text).expect("JSON"));
    for (method, path, body, status, names) in [
        ("POST", "/v1/stage", json(r#"{"paths": 7}"#), 400, "integer `7`"),
        ("POST", "/v1/stage", None, 400, "body"),
        ("GET", "/v1/requests/seven", None, 400, "seven"),
        ("GET", "/v1/queue?limit=many", None, 400, "limit"),
        ("GET", "/v1/files", None, 400, "path"),
        ("PUT", "/v1/users/no%20name%21", json("{}"), 400, "path"),
        ("POST", "/v1/status", None, 405, "POST"),
        ("GET", "/v2/status", None, 404, "path"),
    ] {
        let (code, problem) = ask(method, path, body).await;
        assert_eq!(code, status, "{method} {path}: {problem}");
        assert!(problem["message"].as_str().is_some_and(|text| text.contains(names)), "{method} {path}: {problem}");
        assert!(problem["next_step"].is_string() && problem["code"].is_string(), "{method} {path}: {problem}");
    }
    door.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_tells_the_database_the_queue_and_what_waits_in_it() {
    let door = Door::open().await;
    let admin = door.admin();
    door.site.put("f", "sleepy", &[("m1.disk0", b"some bytes")]).await;
    let (_, status) = door.ask(admin.as_ref(), "GET", "/v1/status", None).await;
    assert!(status["catalogue"].as_str().is_some_and(|text| text.starts_with("SQLite 3.")), "{status}");
    assert_eq!((status["files"].as_u64(), status["bytes"].as_u64()), (Some(1), Some(10)), "{status}");
    let queue = status["queue"].as_array().expect("a list");
    let migrate = queue.iter().find(|row| row["kind"] == "migrate").expect("there");
    assert_eq!((migrate["waiting"].as_u64(), migrate["running"].as_u64()), (Some(1), Some(0)), "{status}");
    assert_eq!(migrate["bytes"].as_u64(), Some(10), "{status}");
    assert!(migrate["oldest_us"].is_i64() && status["moving"].is_array(), "{status}");
    door.end().await;
}
