//! Labs as a user makes them, and a whole site over emulated links. Needs root, `/dev/net/tun` and iproute2.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use client::{Client, ClientError, Fetch, How, Limits, Meter, Push};
use netsim::{Lab, Link, Medium, Profile};
use site::lab::{
    paper::bench::{Effort, Place},
    registry::Registry,
    shape::topology,
    site::{LabSite, SiteSpec, on_host, shared_options},
};
use tempfile::{TempDir, tempdir};
use tokio_util::sync::CancellationToken;
use wire::ftp::{FtpPath, Text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");
/// Nothing takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn lab(link: Link, medium: Medium, movers: usize) -> Lab {
    let nic = link.rate_bps;
    Lab::start(&topology(link, medium, nic, 1, movers)).expect("root, /dev/net/tun and iproute2")
}

fn spec(folder: &TempDir, movers: usize) -> SiteSpec {
    let movers: Vec<_> = (1..=movers).map(|number| format!("mover{number}")).collect();
    SiteSpec::new(PROGRAM.into(), folder.path().join("site"), &movers)
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits for a state.
fn eventually(what: &str, state: impl Fn() -> bool) {
    let began = Instant::now();
    while !state() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// ---- A site over emulated links

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

#[test]
fn a_paper_is_measured_and_written_with_its_plots() {
    let folder = tempdir().expect("a folder");
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "paper", "gfarm-2006", "--quick", "--size", "64MB", "--congestion", "reno"]);
    command.arg("--out").arg(folder.path().join("out"));
    let output = command.arg("--scratch").arg(folder.path()).output().expect("penstock runs");
    assert!(output.status.success(), "{}", text(&output));
    let out = folder.path().join("out");
    let table: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("gfarm-2006.json")).expect("figures")).expect("JSON");
    let ratio = table["ratios"][0]["value"].as_f64().expect("a ratio");
    assert!(ratio > 1.5, "four movers carry more than one: {table}");
    let markdown = fs::read_to_string(out.join("gfarm-2006.md")).expect("a table");
    let command = "`penstock lab paper gfarm-2006 --quick --congestion reno --size 64000000` with reno on ";
    assert!(markdown.contains(command), "{markdown}");
    let said = text(&output);
    assert!(said.contains("this takes about") && said.contains("gfarm-2006 is done"), "{said}");
    assert!(markdown.contains("one NIC is the limit"), "{markdown}");
    let drawings = fs::read_dir(&out).expect("a folder").filter(|entry| {
        let path = entry.as_ref().expect("an entry").path();
        path.extension().is_some_and(|extension| extension == "svg")
    });
    assert_eq!(drawings.count(), 2);
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    assert_eq!(left, [out], "nothing else is left");
}

/// Processes that name a folder, other than those that only look for it.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a plain path").as_bytes();
    let all = fs::read_dir("/proc").expect("procfs").flatten().map(|entry| entry.path());
    let lines = all.filter_map(|process| fs::read(process.join("cmdline")).ok());
    let named = lines.filter(|line| line.windows(folder.len()).any(|part| part == folder));
    named.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}

/// A paper in the middle of its first measurement: its site is up.
fn paper_under_way(scratch: &Path) -> std::process::Child {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "paper", "gfarm-2006", "--quick", "--size", "256MB", "--scratch"]).arg(scratch);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let paper = command.spawn().expect("penstock runs");
    eventually("its site is up", || {
        entries(scratch).first().is_some_and(|folder| folder.join("site/doors.json").exists())
    });
    assert!(processes_in(scratch).len() > 4, "the paper, a gateway, movers: {:?}", processes_in(scratch));
    paper
}

#[test]
fn a_paper_that_is_told_to_end_leaves_no_process_and_no_file() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let scratch = tempdir().expect("a folder");
        let mut paper = paper_under_way(scratch.path());
        let told = Command::new("kill").args([format!("-{name}"), paper.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        assert_eq!(paper.wait().expect("it ends").code(), Some(128 + number), "SIG{name}");
        assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new(), "SIG{name}");
        eventually("its processes have ended", || processes_in(scratch.path()).is_empty());
        assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new(), "what they wrote last is gone too");
    }
}

#[test]
fn what_a_killed_paper_left_is_removed_by_the_next_even_if_that_fails() {
    let scratch = tempdir().expect("a folder");
    let mut paper = paper_under_way(scratch.path());
    paper.kill().expect("killed");
    paper.wait().expect("it ends");
    eventually("its processes have ended", || processes_in(scratch.path()).is_empty());
    assert_eq!(entries(scratch.path()).len(), 1, "nobody was left to remove it");
    let mut next = Command::new(PROGRAM);
    next.args(["lab", "paper", "gfarm-2006", "--quick", "--scratch"]).arg(scratch.path()).env("PATH", "/nowhere");
    let output = next.output().expect("penstock runs");
    assert!(!output.status.success());
    assert!(text(&output).contains("iproute2"), "{}", text(&output));
    assert_eq!(entries(scratch.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_refused_before_anything_starts() {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["lab", "paper", "gfarm-2006", "--congestion", "vegan"]).output().expect("penstock runs");
    assert!(!output.status.success());
    assert!(text(&output).contains("the kernel has no congestion control vegan; it has "), "{}", text(&output));
}

/// The Globus server over the same links, in the same lab.
#[test]
fn globus_goes_over_the_same_links_where_it_is_installed() {
    let installed = ["/usr/sbin/globus-gridftp-server", "/usr/bin/globus-url-copy"];
    let folder = tempdir().expect("a folder");
    let paper = site::lab::paper::Paper {
        names: Vec::new(),
        quick: true,
        size: None,
        out: None,
        scratch: Some(folder.path().to_owned()),
        congestion: None,
        repeat: 1,
    };
    let effort = Effort::with_program(&paper, PROGRAM.into()).expect("an effort");
    let bench = effort.start(&Place::new(Profile::Campus.link())).expect("a lab with a site");
    for to_client in [true, false] {
        for streams in [1, 4] {
            let rate = effort.globus(&bench, 20_000_000, streams, to_client).expect("measured, or not there");
            assert_eq!(rate.is_some(), installed.iter().all(|program| Path::new(program).exists()));
            // The link has 1 Gb/s, and what passes it is not faster.
            assert!(rate.is_none_or(|rate| (10.0..945.0).contains(&rate)), "{rate:?} Mb/s");
        }
    }
    assert!(
        entries(bench.site().folder().path().parent().expect("the scratch folder"))
            .iter()
            .all(|path| { !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("globus")) })
    );
}

// ---- Labs that outlive a command

struct Labs {
    folder: TempDir,
}

impl Labs {
    fn new() -> Self {
        Self { folder: tempdir().expect("a folder") }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("lab").args(words).env("PENSTOCK_LABS", self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("penstock runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output));
        text(&output)
    }

    fn registry(&self) -> Registry {
        Registry::at(self.folder.path().to_owned())
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Labs {
    fn drop(&mut self) {
        for running in self.registry().all().unwrap_or_default() {
            let _ = self.registry().end(&running.name);
        }
    }
}

/// What a lab consists of, as the kernel names it: namespaces, and the processes in them.
struct Traces {
    namespaces: BTreeSet<PathBuf>,
}

impl Traces {
    fn of(registry: &Registry, name: &str) -> Self {
        let running = registry.open(name).expect("it runs");
        let link = |path: &Path| fs::read_link(path).expect("a namespace");
        Self { namespaces: running.hosts.iter().map(|host| link(&host.namespace)).collect() }
    }

    /// Processes that are in one of its namespaces or hold one open.
    fn processes(&self) -> Vec<PathBuf> {
        let holds = |process: &PathBuf| {
            let is_one = |path: PathBuf| fs::read_link(path).is_ok_and(|link| self.namespaces.contains(&link));
            let mut files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            is_one(process.join("ns/net")) || files.any(|file| is_one(file.path()))
        };
        let all = fs::read_dir("/proc").expect("procfs").flatten().map(|entry| entry.path());
        let numbered =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
        all.filter(numbered).filter(holds).collect()
    }
}

#[test]
fn a_lab_runs_commands_on_its_hosts_until_it_is_taken_down() {
    let labs = Labs::new();
    let said = labs.done(&["up", "wan", "--rtt", "20ms", "--movers", "1"]);
    assert!(said.contains("wan: 20.0 ms, 1000 Mb/s") && said.contains("mover1"), "{said}");
    let traces = Traces::of(&labs.registry(), "wan");
    let shown =
        labs.done(&["run", "wan", "mover1", "--", "sh", "-c", "ip -br address; echo $LAB_CLIENT $PENSTOCK_LAB_HOST"]);
    let address = labs.registry().open("wan").expect("it runs").host("mover1").expect("a host").address.to_string();
    assert!(shown.contains(&address) && shown.contains("10.77.0.1 mover1"), "{shown}");
    let failed = labs.run(&["run", "wan", "client", "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    let unknown = labs.run(&["run", "wan", "nobody", "--", "true"]);
    assert!(text(&unknown).contains("it has client, gateway, mover1"), "{}", text(&unknown));
    let twice = labs.run(&["up", "wan"]);
    assert!(!twice.status.success() && text(&twice).contains("runs already"), "{}", text(&twice));
    labs.done(&["down", "wan"]);
    eventually("nothing holds a namespace", || traces.processes().is_empty());
    assert_eq!(labs.files(), Vec::<PathBuf>::new());
    assert!(text(&labs.run(&["down", "wan"])).contains("no lab called wan runs"));
}

#[test]
fn a_killed_lab_leaves_no_process_no_namespace_and_no_file() {
    let labs = Labs::new();
    labs.done(&["up", "site", "--profile", "lan", "--movers", "1", "--site"]);
    let traces = Traces::of(&labs.registry(), "site");
    let mut joined = labs.command(&["run", "site", "client", "--", "sleep", "600"]).spawn().expect("it runs");
    eventually("keeper, gateway, mover, run and sleep are there", || traces.processes().len() >= 5);
    let keeper = labs.registry().open("site").expect("it runs").process;
    let killed = Command::new("kill").args(["-9", &keeper.to_string()]).status().expect("kill runs");
    assert!(killed.success());
    eventually("everything in it has ended", || traces.processes().is_empty());
    assert_eq!(joined.wait().expect("it ends").code(), Some(137), "the command on a host was killed");
    assert!(labs.done(&["list"]).is_empty());
    assert_eq!(labs.files(), Vec::<PathBuf>::new(), "whoever looks removes what is left");
}

#[test]
fn a_lab_that_cannot_start_leaves_nothing_and_says_why() {
    let labs = Labs::new();
    let output = labs.command(&["up", "broken"]).env("PATH", "/nowhere").output().expect("penstock runs");
    assert!(!output.status.success());
    assert!(text(&output).contains("install the Debian package iproute2"), "{}", text(&output));
    assert_eq!(labs.files(), Vec::<PathBuf>::new());
}

#[test]
fn labs_with_the_same_addresses_run_side_by_side() {
    let labs = Labs::new();
    for name in ["one", "two"] {
        labs.done(&["up", name, "--profile", "campus", "--movers", "1"]);
    }
    let list = labs.done(&["list"]);
    assert!(list.contains("one: 1.0 ms") && list.contains("two: 1.0 ms"), "{list}");
    for name in ["one", "two"] {
        assert!(labs.done(&["run", name, "client", "--", "ip", "-br", "address"]).contains("10.77.0.1/24"));
    }
    labs.done(&["down"]);
    assert_eq!(labs.done(&["list"]), "");
}

/// A folder of labs and a copy of the program that somebody without rights may use, and the command that does.
fn without_rights() -> (Labs, impl Fn(&[&str]) -> Command) {
    use std::os::unix::fs::PermissionsExt as _;
    let labs = Labs::new();
    fs::set_permissions(labs.folder.path(), fs::Permissions::from_mode(0o777)).expect("allowed");
    // The build's folder may be closed to others.
    let program = labs.folder.path().join("penstock");
    fs::copy(PROGRAM, &program).expect("copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("allowed");
    let own = labs.folder.path().join("labs");
    let command = move |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).arg("lab").args(words);
        command.env("PENSTOCK_LABS", &own).current_dir("/").stdin(Stdio::null());
        command
    };
    (labs, command)
}

/// As somebody without rights, on this machine as it is: it works where that is allowed, and otherwise says what it takes.
#[test]
fn without_root_it_works_in_a_user_namespace_or_says_what_it_takes() {
    let (labs, command) = without_rights();
    let run = |words: &[&str]| command(words).output().expect("setpriv runs");
    let output = run(&["up", "mine", "--movers", "1"]);
    if output.status.success() {
        let shown = run(&["run", "mine", "client", "--", "ip", "-br", "address"]);
        assert!(text(&shown).contains("10.77.0.1/24"), "{}", text(&shown));
        assert!(run(&["down", "mine"]).status.success());
    } else {
        let said = text(&output);
        assert!(said.contains("links cannot be emulated here"), "{said}");
        assert_eq!(entries(&labs.folder.path().join("labs")), Vec::<PathBuf>::new());
    }
}

/// As somebody without rights, where everybody may open `/dev/net/tun`, as usual distributions have it: in a mount
/// namespace where that is so.
#[test]
fn without_root_a_link_is_as_long_as_with_it_where_everybody_may_open_the_device() {
    let (labs, command) = without_rights();
    let device = labs.folder.path().join("device");
    fs::create_dir(&device).expect("a folder");
    let script = r#"mount -t tmpfs none "$1" && mknod "$1/tun" c 10 200 && chmod 666 "$1/tun" &&
        mount --bind "$1/tun" /dev/net/tun && shift && exec "$@""#;
    let up = command(&["up", "mine", "--movers", "1", "--rtt", "300ms"]);
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "sh", "-c", script, "sh"]).arg(&device).arg(up.get_program()).args(up.get_args());
    apart.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/").stdin(Stdio::null());
    let output = apart.output().expect("unshare runs");
    if text(&output).contains("user namespaces, which this machine does not allow") {
        return;
    }
    assert!(output.status.success(), "{}", text(&output));
    let run = |words: &[&str]| command(words).output().expect("setpriv runs");
    // Nobody listens there: the other host says so, one round trip later.
    let began = Instant::now();
    let refused = run(&["run", "mine", "client", "--", "bash", "-c", "exec 3<>/dev/tcp/10.77.0.3/9"]);
    let took = began.elapsed();
    assert!(text(&refused).contains("refused"), "{}", text(&refused));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(run(&["down", "mine"]).status.success());
    eventually("its file is gone", || entries(&labs.folder.path().join("labs")).is_empty());
}
