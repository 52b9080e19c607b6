//! Transfers against a small server with real sockets: whole, cut, resumed, hostile.

#![allow(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod server;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use client::{
    Client, ClientError, Fetch, How, Limits, Meter, Options, Push, Ready,
    many::{FetchItem, Outcome, StoreItem},
    partial::{part_path, state_path},
};
use server::Server;
use tokio_util::sync::CancellationToken;
use wire::ftp::FtpPath;

fn path(text: &str) -> FtpPath {
    FtpPath::new(text).unwrap()
}

/// Bytes that repeat nowhere near.
fn content(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.next_multiple_of(8)];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

async fn open(server: &Server) -> Client<Ready> {
    open_with(server, Limits { connect: Duration::from_secs(30), ..Limits::default() }).await
}

/// A client that soon loses patience.
fn impatient() -> Limits {
    let second = Duration::from_secs(1);
    Limits { begin: second, stall: second, reply: second, ..Limits::default() }
}

async fn open_with(server: &Server, limits: Limits) -> Client<Ready> {
    let options = Options { limits, ..Options::new(server.address.to_string().parse().unwrap()) };
    Client::open(Arc::new(options)).await.unwrap()
}

fn how() -> How {
    How { block_bytes: 64 << 10, ..How::default() }
}

async fn get(server: &Server, how: &How, local: &Path) -> client::Result<client::Moved> {
    let fetch = Fetch { remote: path("/f"), local: local.to_owned() };
    open(server).await.get(&fetch, how, &Meter::new(), &CancellationToken::new()).await
}

async fn put(server: &Server, how: &How, local: &Path) -> client::Result<client::Moved> {
    let push = Push { local: local.to_owned(), remote: path("/f") };
    open(server).await.put(&push, how, &Meter::new(), &CancellationToken::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_in_any_order_over_several_streams_make_the_file() {
    let server = Server::start().with_file("/f", &content(1_234_567)).with_file("/empty", b"");
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    let moved = get(&server, &how(), &local).await.unwrap();
    assert_eq!((moved.size_bytes, moved.kept_bytes), (1_234_567, 0));
    assert_eq!(moved.verified, Some(wire::checksum::Algorithm::Crc32c));
    assert_eq!(std::fs::read(&local).unwrap(), content(1_234_567));
    assert_eq!(server.store.lock().unwrap().data_connections, 4);
    let empty = Fetch { remote: path("/empty"), local: folder.path().join("empty") };
    open(&server).await.get(&empty, &how(), &Meter::new(), &CancellationToken::new()).await.unwrap();
    assert_eq!(std::fs::read(&empty.local).unwrap(), b"");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_several_addresses_gets_a_part_of_the_file_at_each() {
    let server = Server::start().with_file("/f", &content(500_000));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    let how = How { listen: vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()], ..how() };
    get(&server, &how, &local).await.unwrap();
    assert_eq!(std::fs::read(&local).unwrap(), content(500_000));
    assert_eq!((server.asked("SPOR"), server.asked("PORT")), (1, 0));
    assert_eq!(server.store.lock().unwrap().data_connections, 8, "four at each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_download_goes_on_with_what_is_missing() {
    for (passive, plain) in [(false, false), (true, false), (true, true)] {
        let server = Server::start().with_file("/f", &content(2_000_000));
        server.faults(|faults| (faults.cut_download_after, faults.plain) = (Some(900_000), plain));
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("f");
        let how = How { passive, ..how() };
        let error = get(&server, &how, &local).await.unwrap_err();
        assert_eq!(error.remedy(), client::Remedy::Retry, "{error}");
        assert!(part_path(&local).exists() && state_path(&local).exists() && !local.exists());
        let moved = get(&server, &How { resume: true, ..how }, &local).await.unwrap();
        assert!(moved.kept_bytes > 0, "passive {passive}: nothing was kept");
        assert_eq!(std::fs::read(&local).unwrap(), content(2_000_000));
        assert!(!part_path(&local).exists() && !state_path(&local).exists());
        let restarted = server.asked("REST ") + server.asked("ERET ");
        assert!(restarted > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_behind_a_firewall_fetches_ranges_over_several_sessions() {
    let server = Server::start().with_file("/f", &content(80_000_000));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    get(&server, &How { passive: true, ..how() }, &local).await.unwrap();
    assert_eq!(std::fs::read(&local).unwrap(), content(80_000_000));
    assert_eq!(server.asked("PORT"), 0);
    assert!(server.asked("ERET P") >= 4);
    assert_eq!(server.asked("USER"), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_behind_a_firewall_connects_to_every_mover_that_the_server_names() {
    let server = Server::start().with_file("/f", &content(2_000_000)).with_file("/empty", b"");
    server.faults(|faults| (faults.stripes, faults.cut_download_after) = (true, Some(900_000)));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    let how = How { passive: true, ..how() };
    let error = get(&server, &how, &local).await.unwrap_err();
    assert_eq!(error.remedy(), client::Remedy::Retry, "{error}");
    let moved = get(&server, &How { resume: true, ..how.clone() }, &local).await.unwrap();
    assert!(moved.kept_bytes > 0 && moved.verified.is_some(), "{moved:?}");
    assert_eq!(std::fs::read(&local).unwrap(), content(2_000_000));
    let fetch = Fetch { remote: path("/empty"), local: folder.path().join("empty") };
    open(&server).await.get(&fetch, &how, &Meter::new(), &CancellationToken::new()).await.unwrap();
    assert_eq!(std::fs::read(&fetch.local).unwrap(), b"");
    assert_eq!((server.asked("PORT"), server.asked("ERET"), server.asked("EPSV")), (0, 0, 0));
    assert_eq!(server.asked("USER"), 3, "one session does it");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_files_share_the_connections_of_a_client_behind_a_firewall() {
    let mut server = Server::start();
    for index in 0..100 {
        server = server.with_file(&format!("/s{index}"), &content(index * 7));
    }
    server.faults(|faults| faults.stripes = true);
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(&server).await;
    let listing = session.list(&path("/")).await.unwrap();
    let fetches = listing.entries.into_iter().map(|entry| FetchItem {
        remote: path(&format!("/{}", entry.name)),
        local: folder.path().join(&entry.name),
        size_bytes: entry.facts.size_bytes,
        crc32c: entry.facts.crc32c,
        modified: entry.facts.modified,
    });
    let (report, outcomes) = collect();
    let how = How { passive: true, sessions: 2, ..how() };
    session.get_many(fetches.collect(), &how, &Meter::new(), &CancellationToken::new(), &report).await.unwrap();
    let failed = outcomes.lock().unwrap().iter().filter(|outcome| outcome.result.is_err()).count();
    assert_eq!((outcomes.lock().unwrap().len(), failed), (100, 0));
    for index in 0..100 {
        assert_eq!(std::fs::read(folder.path().join(format!("s{index}"))).unwrap(), content(index * 7), "{index}");
    }
    assert_eq!((server.asked("PORT"), server.store.lock().unwrap().data_connections), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_never_get_the_name_of_the_file() {
    type Fault = fn(&mut server::Faults);
    type Expected = fn(&ClientError) -> bool;
    let faults: [(Fault, Expected); 3] = [
        (|faults| faults.wrong_byte = true, |error| matches!(error, ClientError::Mismatch { .. })),
        (|faults| faults.bad_bit = true, |error| matches!(error, ClientError::ModeE { .. })),
        (|faults| faults.twice = true, |error| matches!(error, ClientError::BadData { .. })),
    ];
    for (fault, expected) in faults {
        let server = Server::start().with_file("/f", &content(300_000));
        server.faults(fault);
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("f");
        std::fs::write(&local, "old").unwrap();
        let error = get(&server, &how(), &local).await.unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert_eq!(std::fs::read(&local).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing of it is kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_sending_is_not_waited_for_forever() {
    let server = Server::start().with_file("/f", &content(300_000));
    server.faults(|faults| faults.silent = true);
    let folder = tempfile::tempdir().unwrap();
    let fetch = Fetch { remote: path("/f"), local: folder.path().join("f") };
    let mut session = open_with(&server, impatient()).await;
    let error = session.get(&fetch, &how(), &Meter::new(), &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_longer_than_the_stall_limit_is_waited_for() {
    for (passive, stripes, small) in
        [(false, false, false), (false, false, true), (true, false, false), (true, true, false), (true, true, true)]
    {
        let size = if small { 9000 } else { 300_000 };
        let server = Server::start().with_file("/f", &content(size));
        server.faults(|faults| (faults.recall_ms, faults.stripes) = (900, stripes));
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("f");
        let limits = Limits { stall: Duration::from_millis(200), ..Limits::default() };
        let mut session = open_with(&server, limits).await;
        let how = How { passive, ..how() };
        if small {
            let item = FetchItem {
                remote: path("/f"),
                local: local.clone(),
                size_bytes: Some(size as u64),
                crc32c: None,
                modified: None,
            };
            let (report, outcomes) = collect();
            session.get_many(vec![item], &how, &Meter::new(), &CancellationToken::new(), &report).await.unwrap();
            assert!(outcomes.lock().unwrap()[0].result.is_ok(), "{:?}", outcomes.lock().unwrap());
        } else {
            let fetch = Fetch { remote: path("/f"), local: local.clone() };
            let fetched = session.get(&fetch, &how, &Meter::new(), &CancellationToken::new()).await;
            fetched.unwrap_or_else(|error| panic!("passive {passive}, stripes {stripes}: {error:?}"));
        }
        assert_eq!(std::fs::read(&local).unwrap(), content(size));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_striped_over_the_movers_and_compared() {
    for verify in [true, false] {
        let server = Server::start();
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("f");
        std::fs::write(&local, content(3_000_000)).unwrap();
        let moved = put(&server, &How { verify, ..how() }, &local).await.unwrap();
        assert_eq!(moved.verified.is_some(), verify);
        assert_eq!(server.file("/f").unwrap(), content(3_000_000));
        assert_eq!((server.asked("SPAS"), server.store.lock().unwrap().data_connections), (1, 8));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_upload_was_refused_in_the_same_flight_knows_its_mode() {
    let server = Server::start().with_file("/a", b"1");
    server.faults(|faults| (faults.full, faults.plain) = (true, true));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    std::fs::write(&local, content(300_000)).unwrap();
    let push = Push { local, remote: path("/f") };
    let mut session = open(&server).await;
    let error = session.put(&push, &how(), &Meter::new(), &CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("552"), "{error}");
    assert_eq!(session.list(&path("/")).await.unwrap().entries.len(), 1);
    assert_eq!(server.asked("MODE"), 2, "extended blocks for the upload, a stream for the listing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_upload_goes_on_with_what_the_server_does_not_hold() {
    let server = Server::start();
    server.faults(|faults| faults.cut_upload_after = Some(200_000));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    std::fs::write(&local, content(3_000_000)).unwrap();
    assert!(put(&server, &how(), &local).await.is_err());
    assert!(server.file("/f").is_none());
    let moved = put(&server, &How { resume: true, ..how() }, &local).await.unwrap();
    assert!(moved.kept_bytes > 0 && moved.verified.is_some(), "{moved:?}");
    assert_eq!(server.file("/f").unwrap(), content(3_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn appending_adds_to_the_end() {
    let server = Server::start().with_file("/f", b"begin ");
    let folder = tempfile::tempdir().unwrap();
    let push = Push { local: folder.path().join("more"), remote: path("/f") };
    std::fs::write(&push.local, "end").unwrap();
    open(&server).await.append(&push, &how(), &Meter::new(), &CancellationToken::new()).await.unwrap();
    assert_eq!(server.file("/f").unwrap(), b"begin end");
}

fn collect() -> (client::many::Report, Arc<Mutex<Vec<Outcome>>>) {
    let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
    let into = outcomes.clone();
    (Arc::new(move |outcome| into.lock().unwrap().push(outcome)), outcomes)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_files_share_sessions_and_connections() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let count = 300;
    let stores: Vec<StoreItem> = (0..count)
        .map(|index| {
            let local = folder.path().join(format!("s{index}"));
            std::fs::write(&local, content(index * 7)).unwrap();
            StoreItem { local, remote: path(&format!("/s{index}")), size_bytes: (index * 7) as u64 }
        })
        .collect();
    server.faults(|faults| faults.refuse = ["/s5".to_owned()].into());
    let mut session = open(&server).await;
    let (report, outcomes) = collect();
    let meter = Meter::new();
    session.put_many(stores, &how(), &meter, &CancellationToken::new(), &report).await.unwrap();
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    assert_eq!(outcomes.len(), count);
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.result.is_err()).map(|outcome| outcome.remote.as_str()).collect();
    assert_eq!(failed, ["/s5"]);
    for index in (0..count).filter(|index| *index != 5) {
        assert_eq!(server.file(&format!("/s{index}")).unwrap(), content(index * 7), "{index}");
    }
    // The refused file may have cost its session a connection.
    assert!(server.store.lock().unwrap().data_connections <= 9);
    assert_eq!((meter.read().files, meter.read().failed), (299, 1));

    for listed in [true, false] {
        server.faults(|faults| faults.no_sums_listed = !listed);
        let into = folder.path().join(format!("got{listed}"));
        std::fs::create_dir(&into).unwrap();
        let listing = session.list(&path("/")).await.unwrap();
        let fetches = listing.entries.into_iter().map(|entry| FetchItem {
            remote: path(&format!("/{}", entry.name)),
            local: into.join(&entry.name),
            size_bytes: entry.facts.size_bytes,
            crc32c: entry.facts.crc32c,
            modified: entry.facts.modified,
        });
        let (report, outcomes) = collect();
        session.get_many(fetches.collect(), &how(), &Meter::new(), &CancellationToken::new(), &report).await.unwrap();
        let failed = outcomes.lock().unwrap().iter().filter(|outcome| outcome.result.is_err()).count();
        assert_eq!((outcomes.lock().unwrap().len(), failed), (count - 1, 0));
        for index in (0..count).filter(|index| *index != 5) {
            assert_eq!(std::fs::read(into.join(format!("s{index}"))).unwrap(), content(index * 7), "{index}");
        }
    }
    assert!(server.store.lock().unwrap().data_connections <= 25);
}

/// Sends `count` files over one session, and says which failed; all others are compared.
async fn put_over_one_session(server: &Server, count: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let item = |index: usize| {
        let local = folder.path().join(format!("s{index}"));
        // Some are empty, and neighbours differ in size.
        std::fs::write(&local, content(index % 5 * 1000 + index)).unwrap();
        StoreItem { local, remote: path(&format!("/s{index}")), size_bytes: 0 }
    };
    let (report, outcomes) = collect();
    let how = How { sessions: 1, ..how() };
    let mut session = open(server).await;
    let items = (0..count).map(item).collect();
    session.put_many(items, &how, &Meter::new(), &CancellationToken::new(), &report).await.unwrap();
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    assert_eq!(outcomes.len(), count, "each file is told once");
    let failed: Vec<_> =
        outcomes.iter().filter(|outcome| outcome.result.is_err()).map(|outcome| outcome.remote.to_string()).collect();
    for index in 0..count {
        let name = format!("/s{index}");
        let stored = server.file(&name);
        let wanted = (!failed.contains(&name)).then(|| content(index % 5 * 1000 + index));
        assert!(stored == wanted, "{name} is not what was sent");
    }
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn data_ahead_of_a_refusal_never_become_the_next_file_and_are_sent_again() {
    let server = Server::start();
    let refused = ["/s40", "/s41", "/s42", "/s90", "/s199"];
    server.faults(|faults| faults.refuse = refused.map(str::to_owned).into());
    let mut failed = put_over_one_session(&server, 200).await;
    failed.sort_by_key(|name| name[2..].parse::<u32>().unwrap());
    assert_eq!(failed, refused);
    let connections = server.store.lock().unwrap().data_connections;
    assert!((2..=6).contains(&connections), "{connections} connections: data went ahead, and a refusal costs one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_connection_that_breaks_costs_none_of_the_files_on_their_way() {
    let server = Server::start();
    server.faults(|faults| faults.cut_upload_after = Some(4050));
    assert_eq!(put_over_one_session(&server, 100).await, [""; 0]);
    assert!(server.store.lock().unwrap().data_connections >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_download_leaves_a_state_and_a_session_that_can_be_used() {
    let server = Server::start().with_file("/f", &content(300_000));
    server.faults(|faults| faults.silent = true);
    let folder = tempfile::tempdir().unwrap();
    let fetch = Fetch { remote: path("/f"), local: folder.path().join("f") };
    let cancel = CancellationToken::new();
    let mut session = open_with(&server, impatient()).await;
    let stop = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
    });
    let error = session.get(&fetch, &how(), &Meter::new(), &cancel).await.unwrap_err();
    // The server here never answers again; what matters is that we do not wait for it for long.
    assert!(matches!(error, ClientError::Cancelled | ClientError::Timeout { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_work_with_and_without_mlsc_and_hostile_names_are_left_out() {
    let server = Server::start().with_file("/a", b"1").with_file("/b c", b"22");
    server.faults(|faults| faults.names = vec!["../../x".into(), "/etc/passwd".into(), "..".into()]);
    for plain in [false, true] {
        server.faults(|faults| faults.plain = plain);
        let listing = open(&server).await.list(&path("/")).await.unwrap();
        let names: Vec<&str> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b c"]);
        assert_eq!(listing.refused.len(), 2);
    }
    assert!(server.asked("MLSC") == 1 && server.asked("MLSD") == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_told_as_the_server_tells_it() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let error = get(&server, &how(), &folder.path().join("f")).await.unwrap_err();
    assert!(error.is_missing(), "{error}");
    assert_eq!(error.to_string(), "MLST /f: 550 /f: No such file or directory");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_made_with_those_above_them() {
    let server = Server::start();
    let mut session = open(&server).await;
    session.make_folders(&path("/a/b/c")).await.unwrap();
    session.make_folders(&path("/a/b/c")).await.unwrap();
    assert!(session.is_folder(&path("/a/b/c")).await.unwrap());
    assert!(!session.is_folder(&path("/a/x")).await.unwrap());
}
