//! Whole transfers over movers that do what the test says.

use wire::{
    checksum::{Algorithm, Sums},
    extent::ByteRange,
    id::FileId,
    mover::{
        BodyReport, BodySpec, BodySum, Event, Fault, FaultKind, Framing, GrantKey, HttpDoor, Job, NewFile, Open,
        Outcome, Request, Security, Sink, Source, VolumeFile,
    },
};

use super::*;
use crate::{
    movers::MoverView,
    testing::{FakeMover, World, authority, outcome, soon, written},
};

fn passive(framing: Framing) -> PortSpec {
    PortSpec {
        door: "test",
        framing,
        streams: 1,
        security: Security::Clear,
        peer: None,
        side: Side::Passive { delayed: true, striped: false, ipv6: false, renew: false },
        buffer_bytes: None,
        cos: Some(CosName::new("disk").expect("a good name")),
        rate_limit: None,
    }
}

fn early(framing: Framing) -> PortSpec {
    PortSpec { side: Side::Passive { delayed: false, striped: false, ipv6: false, renew: false }, ..passive(framing) }
}

async fn store(world: &World, path: &str, mode: StoreMode) -> Store {
    Store {
        target: world.files.target(&world.alice, &World::path(path)).await.expect("a target"),
        principal: world.alice.clone(),
        mode,
        cos: Some(CosName::new("disk").expect("a good name")),
        size_bytes: None,
        sum: None,
        modified_us: None,
        client: None,
    }
}

async fn retrieve(world: &World, path: &str, part: Part) -> Retrieve {
    let file = world.files.readable(&world.alice, &World::path(path)).await.expect("a file");
    Retrieve { file, principal: world.alice.clone(), part }
}

/// A world with one mover.
async fn one_mover() -> (World, FakeMover) {
    let ca = authority();
    let mover = FakeMover::start(&ca, "m1").await;
    let world = World::over(&ca, &[&mover], |_| {}).await;
    (world, mover)
}

fn new_file(job: &Job) -> &NewFile {
    match &job.sink {
        Sink::File(file) => file,
        other => panic!("no upload: {other:?}"),
    }
}

async fn step(running: &mut Running) -> Step {
    soon("a step", running.next()).await.expect("not at its end")
}

/// Stores `data` whole through the fake mover.
async fn put(world: &World, mover: &mut FakeMover, path: &str, data: &[u8]) -> Summary {
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(world, path, StoreMode::Whole).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let file = new_file(&job);
    let parts = if data.is_empty() { Vec::new() } else { vec![written(&file.volume, file.file, 0, data)] };
    mover.say(Event::Received { transfer, bytes: data.len() as u64 });
    mover.say(Event::Finished { transfer, outcome: outcome(parts) });
    soon("the end", running.done()).await.expect("stored")
}

fn kept(request: Request) -> Option<Vec<VolumeFile>> {
    match request {
        Request::Confirm { files } => Some(files),
        _ => None,
    }
}

#[tokio::test]
async fn an_upload_is_published_when_it_is_synced_and_confirmed_to_its_mover() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let what = Store { size_bytes: Some(5), ..store(&world, "/a", StoreMode::Whole).await };
    let mut running = world.transfers.store(&mut port, what);
    let (_, address) = mover.opens().await;
    assert_eq!(step(&mut running).await, Step::Passive(vec![address]));
    let (transfer, job) = mover.starts().await;
    assert!(matches!(&job.source, Source::Channel { expected: Some(range), .. } if range.length() == 5));
    assert_eq!(step(&mut running).await, Step::Opening { reused: false, bytes: Some(5) });
    let ranges = vec![ByteRange::new(0, 2).expect("small")];
    mover.say(Event::Progress { transfer, bytes: 2, ranges: ranges.clone() });
    assert_eq!(step(&mut running).await, Step::Progress(Progress { stripe: 0, stripes: 1, bytes: 2, ranges }));
    assert_eq!(world.transfers.running()[0].bytes, 2);
    mover.say(Event::Received { transfer, bytes: 5 });
    assert_eq!(step(&mut running).await, Step::Received);
    let missing = world.files.stat(&world.alice, &World::path("/a")).await.expect_err("not before it is synced");
    assert_eq!(missing.kind(), FailureKind::NotFound);
    let file = new_file(&job);
    mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&file.volume, file.file, 0, b"hello")]) });
    let Step::Done(Ok(summary)) = step(&mut running).await else { panic!("not stored") };
    let stored = summary.stored.expect("stored");
    assert_eq!((stored.size_bytes, stored.sums, summary.relayed_bytes), (5, Sums::of(b"hello"), 0));
    let (mut confirmed, mut acknowledged) = (Vec::new(), false);
    while confirmed.is_empty() || !acknowledged {
        match mover.next().await {
            Request::Confirm { files } => confirmed = files,
            request => acknowledged |= request == Request::Acknowledge { transfer },
        }
    }
    assert_eq!(confirmed, [VolumeFile { volume: file.volume.clone(), file: file.file }]);
    let item = world.files.stat(&world.alice, &World::path("/a")).await.expect("there");
    assert_eq!(item.entry.file().expect("a file").size_bytes, 5);
    assert!(world.transfers.running().is_empty());
}

#[tokio::test]
async fn a_cut_upload_is_kept_and_goes_on_where_it_was_cut() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let first = new_file(&job).clone();
    let fault = Fault::new(FaultKind::PeerLost, "192.0.2.1 closed its data connection");
    let part = outcome(vec![written(&first.volume, first.file, 0, b"hel")]);
    mover.say(Event::Failed { transfer, fault, outcome: part });
    let failure = soon("the end", running.done()).await.expect_err("cut");
    assert_eq!(failure.kind(), FailureKind::DataConnectionLost);
    mover.until(kept).await;
    let cut = world.files.cut_upload(&world.alice, &World::path("/a")).await.expect("asked").expect("kept");
    assert_eq!(cut.prefix_bytes(), 3);

    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let have = vec![ByteRange::new(0, 3).expect("small")];
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Resume { have }).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let second = new_file(&job);
    assert_ne!(second.file, first.file);
    mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&second.volume, second.file, 0, b"lo")]) });
    let stored = soon("the end", running.done()).await.expect("stored").stored.expect("stored");
    assert_eq!((stored.size_bytes, stored.sums), (5, Sums::of(b"hello")));
    assert_eq!(world.files.cut_upload(&world.alice, &World::path("/a")).await.expect("asked"), None);
    let located = world.catalog.locate_one(stored.bitfile).await.expect("located");
    assert_eq!(located.copy(0).expect("on disk").segments.len(), 2);
}

#[tokio::test]
async fn a_client_that_believes_less_is_there_than_is_sends_it_again() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::ModeE)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let first = new_file(&job).clone();
    let fault = Fault::new(FaultKind::PeerStalled, "192.0.2.1 moved nothing for 300 s");
    let part = outcome(vec![written(&first.volume, first.file, 0, b"hell")]);
    mover.say(Event::Failed { transfer, fault, outcome: part });
    soon("the end", running.done()).await.expect_err("cut");

    let mut port = world.transfers.port(passive(Framing::ModeE)).await.expect("a port");
    let have = vec![ByteRange::new(0, 2).expect("small")];
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Resume { have }).await);
    let (transfer, job) = mover.starts().await;
    let Sink::Files(pieces) = &job.sink else { panic!("no copy of the part that is believed in: {job:?}") };
    let copy = written(&pieces[0].volume, pieces[0].file, 0, b"he");
    mover.say(Event::Finished { transfer, outcome: outcome(vec![copy]) });
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let file = new_file(&job);
    assert_eq!(file.base_bytes, 2, "bytes that are there are refused");
    mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&file.volume, file.file, 2, b"llo")]) });
    let stored = soon("the end", running.done()).await.expect("stored").stored.expect("stored");
    assert_eq!((stored.size_bytes, stored.sums), (5, Sums::of(b"hello")));
}

#[tokio::test]
async fn a_volume_that_refuses_before_the_first_byte_is_replaced() {
    let ca = authority();
    let (mut one, mut two) = (FakeMover::start(&ca, "m1").await, FakeMover::start(&ca, "m2").await);
    let world = World::over(&ca, &[&one, &two], |_| {}).await;
    let (mut port, at_one) = early_port(&world, &mut one, &mut two).await;
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    let (first, second) = if at_one { (&mut one, &mut two) } else { (&mut two, &mut one) };
    let (transfer, _) = first.starts().await;
    let fault = Fault::new(FaultKind::NoSpace, "the volume is full");
    first.say(Event::Failed { transfer, fault, outcome: outcome(Vec::new()) });
    // The client knows the first mover only: it passes on what comes.
    second.opens().await;
    first.until(|request| matches!(request, Request::OpenChannel { .. }).then_some(())).await;
    let (behind, job) = second.starts().await;
    let file = new_file(&job).clone();
    let (relay, job) = first.starts().await;
    assert!(matches!((&job.source, &job.sink), (Source::Channel { .. }, Sink::Channel { .. })));
    first.say(Event::Received { transfer: relay, bytes: 5 });
    first.say(Event::Finished { transfer: relay, outcome: wire::mover::Outcome { bytes: 5, ..Default::default() } });
    second.say(Event::Finished {
        transfer: behind,
        outcome: outcome(vec![written(&file.volume, file.file, 0, b"hello")]),
    });
    let summary = soon("the end", running.done()).await.expect("stored");
    assert_eq!((summary.relayed_bytes, summary.bytes), (5, 5));
}

/// A port that listens at once, and whether that is on the first of two movers.
async fn early_port(world: &World, one: &mut FakeMover, two: &mut FakeMover) -> (DataPort, bool) {
    let opening = world.transfers.port(early(Framing::Stream));
    tokio::pin!(opening);
    let mut first = None;
    loop {
        tokio::select! {
            port = &mut opening => return (port.expect("a port"), first.expect("opened somewhere")),
            _ = one.opens(), if first.is_none() => first = Some(true),
            _ = two.opens(), if first.is_none() => first = Some(false),
        }
    }
}

#[tokio::test]
async fn what_was_announced_and_did_not_come_leaves_the_old_file_whole() {
    let (world, mut mover) = one_mover().await;
    let old = put(&world, &mut mover, "/a", b"old").await.stored.expect("stored");
    for wrong in [
        Store { size_bytes: Some(9), ..store(&world, "/a", StoreMode::Append).await },
        Store { sum: Some((Algorithm::Adler32, "00000001".to_owned())), ..store(&world, "/a", StoreMode::Whole).await },
    ] {
        let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
        let running = world.transfers.store(&mut port, wrong);
        mover.opens().await;
        let (transfer, job) = mover.starts().await;
        let file = new_file(&job).clone();
        mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&file.volume, file.file, 0, b"new")]) });
        let failure = soon("the end", running.done()).await.expect_err("refused");
        assert_eq!(failure.kind(), FailureKind::Mismatch);
        assert_eq!(mover.removes().await, [VolumeFile { volume: file.volume, file: file.file }]);
    }
    let item = world.files.stat(&world.alice, &World::path("/a")).await.expect("there");
    assert_eq!(item.entry.file().expect("a file").bitfile, old.bitfile);
}

#[tokio::test]
async fn an_append_makes_a_new_file_of_the_old_bytes_and_the_new() {
    let (world, mut mover) = one_mover().await;
    put(&world, &mut mover, "/a", b"hel").await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Append).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let file = new_file(&job);
    mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&file.volume, file.file, 0, b"lo")]) });
    let stored = soon("the end", running.done()).await.expect("stored").stored.expect("stored");
    assert_eq!((stored.size_bytes, stored.sums, stored.generation), (5, Sums::of(b"hello"), 2));
}

#[tokio::test]
async fn a_file_is_sent_straight_from_the_mover_that_has_it() {
    let (world, mut mover) = one_mover().await;
    put(&world, &mut mover, "/a", b"hello").await;
    let to = "192.0.2.1:5000".parse().expect("an address");
    let spec = PortSpec { side: Side::Active { to: vec![to] }, ..passive(Framing::Stream) };
    let mut port = world.transfers.port(spec).await.expect("a port");
    let mut running = world.transfers.retrieve(&mut port, retrieve(&world, "/a", Part::From(2)).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let Source::Extents(pieces) = &job.source else { panic!("nothing is sent: {job:?}") };
    assert_eq!((pieces.len(), pieces[0].offset_bytes, pieces[0].extent.length_bytes), (1, 2, 3));
    assert_eq!(step(&mut running).await, Step::Opening { reused: false, bytes: Some(3) });
    mover.say(Event::Finished { transfer, outcome: wire::mover::Outcome { bytes: 3, ..Default::default() } });
    let Step::Done(Ok(summary)) = step(&mut running).await else { panic!("not sent") };
    assert_eq!((summary.bytes, summary.relayed_bytes), (3, 0));
}

#[tokio::test]
async fn a_mover_that_comes_back_in_time_ends_its_upload_as_if_nothing_had_been() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    mover.opens().await;
    let (transfer, job) = mover.starts().await;
    let file = new_file(&job);
    mover.change(|status| status.transfers = vec![transfer]);
    mover.hang_up();
    let mut watched = world.movers.watch();
    let away = |snapshot: &Arc<crate::movers::Snapshot>| !snapshot.movers.values().all(MoverView::is_up);
    soon("the mover's absence", watched.wait_for(away)).await.expect("watched");
    mover.say(Event::Finished { transfer, outcome: outcome(vec![written(&file.volume, file.file, 0, b"hello")]) });
    let stored = soon("the end", running.done()).await.expect("stored").stored.expect("stored");
    assert_eq!(stored.size_bytes, 5);
}

#[tokio::test]
async fn a_mover_that_comes_back_without_the_upload_has_lost_it() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    mover.opens().await;
    let (transfer, _) = mover.starts().await;
    mover.say(Event::Progress { transfer, bytes: 1, ranges: Vec::new() });
    while world.transfers.running()[0].bytes == 0 {
        tokio::task::yield_now().await;
    }
    mover.hang_up();
    let failure = soon("the end", running.done()).await.expect_err("lost");
    assert_eq!((failure.kind(), failure.is_retryable()), (FailureKind::Unavailable, true));
}

#[tokio::test]
async fn a_cancelled_upload_stops_its_mover_and_closes_its_connections() {
    let (world, mut mover) = one_mover().await;
    let mut port = world.transfers.port(passive(Framing::Stream)).await.expect("a port");
    let running = world.transfers.store(&mut port, store(&world, "/a", StoreMode::Whole).await);
    let (channel, _) = mover.opens().await;
    let (transfer, _) = mover.starts().await;
    assert!(world.transfers.cancel(running.number()));
    mover.until(|request| (request == Request::Cancel { transfer }).then_some(())).await;
    let fault = Fault::new(FaultKind::Cancelled, "asked");
    mover.say(Event::Failed { transfer, fault, outcome: outcome(Vec::new()) });
    let failure = soon("the end", running.done()).await.expect_err("cancelled");
    assert_eq!(failure.kind(), FailureKind::Cancelled);
    mover.until(|request| (request == Request::CloseChannel { channel }).then_some(())).await;
}

#[tokio::test]
async fn unconfirmed_files_are_confirmed_if_the_catalogue_has_them_and_removed_if_not() {
    let (world, mut mover) = one_mover().await;
    let stored = put(&world, &mut mover, "/a", b"hello").await.stored.expect("stored");
    let located = world.catalog.locate_one(stored.bitfile).await.expect("located");
    let extent = &located.copy(0).expect("on disk").segments[0].extent;
    let wire::extent::Place::Disk { file, .. } = extent.place else { panic!("not on disk") };
    let known = VolumeFile { volume: extent.volume.clone(), file };
    let stray = VolumeFile { volume: extent.volume.clone(), file: FileId(9_999_999) };
    mover.until(kept).await;
    mover.say(Event::Unconfirmed { files: vec![known.clone(), stray.clone()] });
    assert_eq!(mover.until(kept).await, [known]);
    assert_eq!(mover.removes().await, [stray]);
}

#[tokio::test]
async fn nothing_new_begins_while_the_gateway_goes_down() {
    let (world, _mover) = one_mover().await;
    world.shutdown.stop();
    let failure = world.transfers.port(passive(Framing::Stream)).await.expect_err("refused");
    assert_eq!(failure.ftp_code(), 421);
}

/// Publishes in the catalogue, and keeps what it heard of the body.
struct Listening {
    catalog: Catalog,
    heard: std::sync::Mutex<Option<BodyReport>>,
}

#[async_trait::async_trait]
impl Publisher for Listening {
    fn heard(&self, report: BodyReport) {
        *self.heard.lock().expect("not poisoned") = Some(report);
    }

    async fn publish(&self, file: catalog::NewFile) -> catalog::Result<catalog::Published> {
        assert!(self.heard.lock().expect("not poisoned").is_some(), "heard before");
        self.catalog.publish(file).await
    }
}

#[tokio::test]
async fn an_http_body_goes_to_a_mover_with_a_door_and_is_heard_of_before_it_is_published() {
    let ca = authority();
    let (one, mut two) = (FakeMover::start(&ca, "m1").await, FakeMover::start(&ca, "m2").await);
    let door = HttpDoor { clear: None, tls: Some("https://m2:1".to_owned()), key: GrantKey([5; 32]) };
    two.change(|status| status.http = Some(Box::new(door)));
    let world = World::over(&ca, &[&one, &two], |_| {}).await;
    let body = BodySpec { sum: Some(BodySum::Crc32), ..BodySpec::default() };
    let spec = PortSpec { side: Side::Http { secure: true, body: body.clone() }, ..passive(Framing::Stream) };
    assert!(world.transfers.has_door(spec.cos.as_ref(), true).await);
    let publisher = Arc::new(Listening { catalog: world.catalog.clone(), heard: std::sync::Mutex::default() });
    let mut port = world.transfers.port(spec).await.expect("a port");
    let what = store(&world, "/a", StoreMode::Whole).await;
    let mut running = world.transfers.store_as(&mut port, what, publisher.clone());
    let opens = |request| match request {
        Request::OpenChannel { channel, spec } => Some((channel, spec.open)),
        _ => None,
    };
    let (channel, open) = two.until(opens).await;
    assert_eq!(open, Open::Http { body });
    two.say(Event::ChannelReady { channel, address: None });
    let (transfer, job) = two.starts().await;
    let file = new_file(&job).clone();
    let Step::Door { mover, channel: told } = step(&mut running).await else { panic!("the door comes first") };
    assert_eq!((mover.as_str(), told), ("m2", channel));
    let way = world.transfers.departure((mover, told), true, "/b/k").expect("a way");
    assert!(way.location.starts_with("https://m2:1/b/k?penstock-grant="), "{}", way.location);
    let report = BodyReport { sum: Some(vec![1, 2, 3, 4]), trailer: None };
    let parts = vec![written(&file.volume, file.file, 0, b"hello")];
    two.say(Event::Finished { transfer, outcome: Outcome { body: Some(Box::new(report.clone())), ..outcome(parts) } });
    soon("the end", running.done()).await.expect("stored");
    assert_eq!(*publisher.heard.lock().expect("not poisoned"), Some(report));
}
