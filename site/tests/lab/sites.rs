//! A site over emulated links: what a client far away sees of it.

use std::{
    fs,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use client::{Client, ClientError, Fetch, How, Limits, Meter, Push};
use netsim::{Lab, Link, Medium, Profile};
use site::lab::site::{LabSite, SiteSpec, on_host, shared_options};
use tempfile::tempdir;
use tokio_util::sync::CancellationToken;
use wire::ftp::{FtpPath, Text};

use crate::{PATIENCE, PROGRAM, content, eventually, lab, spec, text};

#[test]
fn a_file_goes_to_tape_and_comes_back_over_the_atlantic() {
    let folder = tempdir().expect("a folder");
    let lab = lab(Profile::Transatlantic.link(), Medium::Switched, 1);
    let site = LabSite::start(&lab, &SiteSpec { tape: true, ..spec(&folder, 1) }).expect("a site");
    let (local, back) = (folder.path().join("here"), folder.path().join("back"));
    let data = content(1_500_000);
    fs::write(&local, &data).expect("written");
    let remote = FtpPath::new(format!("{}/file", site.home())).expect("a path");

    let tape = |options: &mut client::Options| options.class_of_service = Some(Text::new("tape").expect("a name"));
    let options = shared_options(&site, tape).expect("options");
    let push = Push { local, remote: remote.clone() };
    let rtt = on_host(&lab, "client", {
        let options = options.clone();
        async move {
            let mut session = Client::open(options).await?;
            session.put(&push, &How::default(), &Meter::new(), &CancellationToken::new()).await?;
            Ok(session.round_trip())
        }
    });
    let rtt = rtt.expect("stored").expect("the kernel says");
    assert!(rtt >= Duration::from_millis(80) && rtt < Duration::from_millis(90), "{rtt:?}");

    let admin = |words: &[&str]| {
        let mut command = lab.host("gateway").service(PROGRAM).expect("a command");
        let output =
            command.arg("admin").arg("--data").arg(site.folder().path()).args(words).output().expect("it runs");
        assert!(output.status.success(), "{words:?}: {}", text(&output));
        text(&output)
    };
    admin(&["migrate", "--wait", remote.as_str()]);
    admin(&["purge", remote.as_str()]);
    let shown = admin(&["--json", "file", remote.as_str()]);
    assert!(!shown.contains("mover1.disk"), "it is on tape only: {shown}");
    admin(&["stage", "--wait", remote.as_str()]);

    let fetch = Fetch { remote, local: back.clone() };
    let moved = on_host(&lab, "client", async move {
        let mut session = Client::open(options).await?;
        let (streams, how) = (session.automatic_streams(), How { streams: client::network::AUTO, ..How::default() });
        let meter = Meter::new();
        let moved = session.get(&fetch, &how, &meter, &CancellationToken::new()).await?;
        Ok((moved, streams, meter.take_connections()))
    });
    let (moved, streams, connections) = moved.expect("fetched");
    assert!(moved.verified.is_some());
    assert!(fs::read(back).expect("it is there") == data, "it came back as it went");

    // What `auto` took is what this path needs at 1 Gb/s, and both ends say what the connections were like.
    let window = daemon::tcp::largest_window_bytes().expect("the kernel says");
    let needed = |ms| client::network::streams_for(Duration::from_millis(ms), 125e6, window);
    assert!(streams > 1 && (needed(80)..=needed(90)).contains(&streams), "{streams} streams");
    assert_eq!(connections.len(), usize::from(streams));
    let figure = |name: &str| -> f64 {
        let metrics = page(&lab, site.mover_metrics(&lab, "mover1"));
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |figure| figure.parse().expect("a number"))
    };
    // A connection is counted when it ends, which is when the mover has heard that the session has.
    let count = || figure("penstock_mover_connection_rtt_seconds_count");
    eventually("the mover counts them too", || count() >= f64::from(streams));
    let mean = figure("penstock_mover_connection_rtt_seconds_sum") / count();
    assert!((0.08..0.1).contains(&mean), "{mean} s");
    assert!(figure("penstock_mover_connection_segments_total") > 1000.0);
}

/// What a part of the site tells whoever asks for its metrics.
fn page(lab: &Lab, address: std::net::SocketAddr) -> String {
    use std::io::{Read as _, Write as _};
    let ask = move || {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map(|_| page)
    };
    lab.host("gateway").spawn(ask).expect("a thread").join().expect("no panic").expect("an answer")
}

#[test]
fn a_mover_cut_off_in_the_middle_of_a_push_is_an_error_and_what_came_is_kept() {
    let folder = tempdir().expect("a folder");
    // Slow enough to be cut in the middle.
    let mut lab = lab(Link::new(Duration::from_millis(4), 40_000_000), Medium::Switched, 1);
    let site = LabSite::start(&lab, &spec(&folder, 1)).expect("a site");
    let (local, back) = (folder.path().join("here"), folder.path().join("back"));
    let data = content(12_000_000);
    fs::write(&local, &data).expect("written");
    let remote = FtpPath::new(format!("{}/file", site.home())).expect("a path");
    let impatient = |options: &mut client::Options| {
        options.limits = Limits { stall: Duration::from_secs(3), reply: Duration::from_secs(20), ..Limits::default() };
    };
    let options = shared_options(&site, impatient).expect("options");
    let push = Push { local, remote: remote.clone() };
    let fetch = Fetch { remote, local: back.clone() };
    on_host(&lab, "client", {
        let options = options.clone();
        async move {
            let mut session = Client::open(options).await?;
            Ok(session.put(&push, &How::default(), &Meter::new(), &CancellationToken::new()).await?)
        }
    })
    .expect("stored");

    let meter = Meter::new();
    let (told, result) = mpsc::channel();
    let (one, runtime) = (fetch.clone(), lab.host("client").runtime(2).expect("a runtime"));
    let (seen, first) = (meter.clone(), options.clone());
    runtime.spawn(async move {
        let get = async {
            let mut session = Client::open(first).await?;
            session.get(&one, &How::default(), &seen, &CancellationToken::new()).await
        };
        let _ = told.send(get.await);
    });
    eventually("a part has come", || meter.read().bytes > 2_000_000);
    // The mover still sends, but hears nothing any more.
    lab.set_stage("mover1.port", |stage| stage.down = true);
    let error = result.recv_timeout(PATIENCE).expect("it does not hang").expect_err("it cannot succeed");
    assert!(
        matches!(error, ClientError::Timeout { .. } | ClientError::Data { .. } | ClientError::Refused { .. }),
        "{error:?}"
    );
    assert!(!back.exists(), "a part must not have the file's name");
    runtime.shutdown_background();

    // The link comes back, and only what is missing is fetched: as soon as the mover is back with its gateway.
    lab.set_stage("mover1.port", |stage| stage.down = false);
    let began = Instant::now();
    let moved = loop {
        let (again, options) = (fetch.clone(), options.clone());
        let resumed = on_host(&lab, "client", async move {
            let mut session = Client::open(options).await?;
            let how = How { resume: true, ..How::default() };
            Ok(session.get(&again, &how, &Meter::new(), &CancellationToken::new()).await?)
        });
        match resumed {
            Ok(moved) => break moved,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error:#}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(moved.kept_bytes >= 1_000_000, "{moved:?}");
    assert!(fs::read(back).expect("it is there") == data);
}

#[test]
fn a_file_with_replicas_comes_from_all_movers_and_from_the_one_that_is_left() {
    let folder = tempdir().expect("a folder");
    let lab = lab(Link::new(Duration::from_millis(1), 400_000_000), Medium::Switched, 2);
    let mut site = LabSite::start(&lab, &SiteSpec { stripe: 1, ..spec(&folder, 2) }).expect("a site");
    let (local, back) = (folder.path().join("here"), folder.path().join("back"));
    let data = content(12_000_000);
    fs::write(&local, &data).expect("written");
    let remote = FtpPath::new(format!("{}/file", site.home())).expect("a path");
    let options = shared_options(&site, |_| ()).expect("options");
    let push = Push { local, remote: remote.clone() };
    on_host(&lab, "client", {
        let options = options.clone();
        async move {
            let mut session = Client::open(options).await?;
            Ok(session.put(&push, &How::default(), &Meter::new(), &CancellationToken::new()).await?)
        }
    })
    .expect("stored");
    let admin = |site: &LabSite, words: &[&str]| site.admin(&lab, Path::new(PROGRAM), words).expect("done");
    let said = admin(&site, &["replicate", "--copies", "2", remote.as_str()]);
    assert!(said.contains("has 2 copies on disk, 1 of them new"), "{said}");
    let shown = admin(&site, &["--json", "file", remote.as_str()]);
    assert!(shown.contains("mover1.disk") && shown.contains("mover2.disk"), "{shown}");

    // By how many connections it came, and that it came as it was.
    let fetch = || {
        let (fetch, options) = (Fetch { remote: remote.clone(), local: back.clone() }, options.clone());
        let connections = on_host(&lab, "client", async move {
            let mut session = Client::open(options).await?;
            let meter = Meter::new();
            let how = How { streams: 1, ..How::default() };
            session.get(&fetch, &how, &meter, &CancellationToken::new()).await?;
            Ok(meter.take_connections().len())
        });
        let connections = connections.expect("fetched");
        assert!(fs::read(&back).expect("it is there") == data);
        fs::remove_file(&back).expect("removed");
        connections
    };
    assert_eq!(fetch(), 2, "one stream from each mover");
    let first = if shown.find("mover1.disk") < shown.find("mover2.disk") { "mover1" } else { "mover2" };
    site.kill(first);
    assert_eq!(fetch(), 1, "what cannot be reached is left out");
    let said = admin(&site, &["replicate", "--copies", "1", remote.as_str()]);
    assert!(said.contains("1 were dropped"), "{said}");
    let shown = admin(&site, &["--json", "file", remote.as_str()]);
    assert!(!shown.contains(&format!("{first}.disk")), "the copy that is left is the file's: {shown}");
    assert_eq!(fetch(), 1);
}

#[test]
fn the_double_hop_halves_on_a_shared_medium_and_a_handshake_costs_round_trips() {
    let rate = 100_000_000;
    let size = 5_000_000;
    let seconds = |link: Link, medium, manners: &'static [(bool, bool)]| -> Vec<f64> {
        let folder = tempdir().expect("a folder");
        let lab = lab(link, medium, 1);
        let site = LabSite::start(&lab, &SiteSpec { front: true, stripe: 1, ..spec(&folder, 1) }).expect("a site");
        let local = folder.path().join("here");
        fs::write(&local, content(size)).expect("written");
        let remote = FtpPath::new(format!("{}/file", site.home())).expect("a path");
        let push = Push { local, remote: remote.clone() };
        let options = shared_options(&site, |_| ()).expect("options");
        on_host(&lab, "client", async move {
            let mut session = Client::open(options).await?;
            Ok(session.put(&push, &How::default(), &Meter::new(), &CancellationToken::new()).await?)
        })
        .expect("stored");
        let one = |&(relayed, handshake): &(bool, bool)| {
            let class = |options: &mut client::Options| {
                options.class_of_service = relayed.then(|| Text::new("front").expect("a name"));
            };
            let options = shared_options(&site, class).expect("options");
            let fetch = Fetch { remote: remote.clone(), local: folder.path().join("back") };
            on_host(&lab, "client", async move {
                let mut session = Client::open(options).await?;
                session.set_told_early(relayed);
                let how = How { streams: 1, passive: relayed, handshake, block_bytes: 256 << 10, ..How::default() };
                let began = Instant::now();
                session.get(&fetch, &how, &Meter::new(), &CancellationToken::new()).await?;
                Ok(began.elapsed().as_secs_f64())
            })
            .expect("fetched")
        };
        manners.iter().map(one).collect()
    };
    let near = Link::new(Duration::from_micros(200), rate);
    let shared = seconds(near, Medium::Shared { rate_bps: rate }, &[(false, false), (true, false)]);
    let ratio = shared[1] / shared[0];
    assert!((1.6..3.0).contains(&ratio), "double hop to direct on a shared medium: {shared:?}");
    let far = Link::new(Duration::from_millis(40), rate);
    let asked = seconds(far, Medium::Switched, &[(false, false), (false, true)]);
    // Twenty blocks, forty milliseconds each, on top of 0.43 s at full rate.
    assert!(asked[1] - asked[0] > 0.4, "push and handshake: {asked:?}");
}
