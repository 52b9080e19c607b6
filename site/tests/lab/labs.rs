//! Labs that outlive the command that made them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use site::lab::registry::Registry;
use tempfile::{TempDir, tempdir};

use crate::{PROGRAM, entries, eventually, text};

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
