//! A Penstock site on the hosts of a lab: gateway and movers as processes of their own, each on its host.
//!
//! Owns the processes and a folder with their configurations, certificates, logs and volumes. Talks to the catalogue
//! before the gateway starts (an account) and while it comes up (volumes). Never moves data itself.
//!
//! Invariant: its processes end with it, and with the thread that started it, by whatever end.

use std::{
    fmt::Write as _,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use catalog::{Catalog, Medium, NewAccount, Options as CatalogOptions};
use client::{Identity, IdentityOptions, Limits, Options, Surroundings, Target};
use daemon::{
    Clock,
    pki::{Holder, SiteCa},
    role::Role,
};
use netsim::Lab;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use wire::id::{AccountName, GroupName};

use super::keeper::check_program;
use crate::{
    folder::{ADMIN_PORT, Doors, FTP_PORT, METRICS_PORT, SiteFolder},
    setup,
};

/// How long a site may take to come up, on a machine that is busy with other things.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long processes may take to end when they are asked to.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Movers listen for gateways on this port, each on its own host.
const MOVER_PORT: u16 = 2814;
/// Movers' metrics.
const MOVER_METRICS_PORT: u16 = 2823;
/// The person who may log in.
const USER: &str = "lab";

/// What site is wanted.
#[derive(Clone, Debug)]
pub struct SiteSpec {
    /// The program `penstock`.
    pub program: PathBuf,
    /// Where everything is kept. Removed with the site if it was made by it.
    pub folder: PathBuf,
    /// The gateway's host.
    pub gateway: String,
    /// The movers' hosts; a mover has its host's name.
    pub movers: Vec<String>,
    /// A further mover, `front`, on the gateway's host. A session that asks for addresses early, with class of service
    /// `front`, is told that mover's, and what lies on others takes a second hop through it: what a store-and-forward
    /// gateway does.
    pub front: bool,
    /// Over how many movers a file is striped.
    pub stripe: u16,
    /// Each mover's volume is a class of service of its own, called as the mover, instead of one class for all.
    pub apart: bool,
    /// A virtual tape library at the first mover; class of service `tape` puts one copy there at once.
    pub tape: bool,
    /// Congestion control of data connections; empty leaves the system's.
    pub congestion: String,
}

/// A site that runs in a lab.
#[derive(Debug)]
pub struct LabSite {
    folder: SiteFolder,
    gateway: Ipv4Addr,
    processes: Vec<Part>,
    made_folder: bool,
}

#[derive(Debug)]
struct Part {
    name: String,
    process: Child,
}

impl SiteSpec {
    /// A gateway on host `gateway`, and these movers, each with a disk volume; files are striped over all.
    #[must_use]
    pub fn new(program: PathBuf, folder: PathBuf, movers: &[String]) -> Self {
        Self {
            program,
            folder,
            gateway: "gateway".to_owned(),
            movers: movers.to_vec(),
            front: false,
            stripe: u16::try_from(movers.len()).unwrap_or(u16::MAX).clamp(1, 64),
            apart: false,
            tape: false,
            congestion: String::new(),
        }
    }

    /// Movers by name, and the hosts they run on.
    fn parts(&self) -> Vec<(String, String)> {
        let movers = self.movers.iter().map(|host| (host.clone(), host.clone()));
        let front = self.front.then(|| ("front".to_owned(), self.gateway.clone()));
        movers.chain(front).collect()
    }
}

impl LabSite {
    /// Starts gateway and movers, and waits until the gateway knows all of them. Call it on a thread that lives as long
    /// as the site should; not inside an asynchronous runtime.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or a process does not come up: the end of its log is part of the error.
    pub fn start(lab: &Lab, spec: &SiteSpec) -> anyhow::Result<Self> {
        check_program(&spec.program)?;
        let made_folder = !spec.folder.exists();
        fs::create_dir_all(&spec.folder).with_context(|| format!("make {}", spec.folder.display()))?;
        let folder = SiteFolder::new(std::path::absolute(&spec.folder)?);
        let gateway = lab.host(&spec.gateway).address();
        let mut site = Self { folder, gateway, processes: Vec::new(), made_folder };
        let ca = site.prepare(lab, spec)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(site.make_user(&ca)).context("make an account")?;
        for (mover, host) in spec.parts() {
            site.spawn(lab, &host, &spec.program, "mover", &mover, &site.folder.path().join(format!("{mover}.toml")))?;
        }
        let configuration = site.folder.gateway_configuration();
        site.spawn(lab, &spec.gateway, &spec.program, "gateway", setup::GATEWAY, &configuration)?;
        runtime.block_on(site.complete(spec.parts().len()))?;
        let doors = Doors {
            ftp: site.ftp(),
            admin: SocketAddr::from((gateway, ADMIN_PORT)),
            metrics: Some(SocketAddr::from((gateway, METRICS_PORT))),
            webdav: None,
            process: site.processes.last().map_or(0, |part| part.process.id()),
        };
        site.folder.set_doors(&doors).context("write doors.json")?;
        Ok(site)
    }

    /// The site's folder: `penstock admin --data` takes it, on a host of the lab.
    #[must_use]
    pub const fn folder(&self) -> &SiteFolder {
        &self.folder
    }

    /// Where the FTP door listens.
    #[must_use]
    pub fn ftp(&self) -> SocketAddr {
        SocketAddr::from((self.gateway, FTP_PORT))
    }

    /// Where a mover's metrics are.
    #[must_use]
    pub fn mover_metrics(&self, lab: &Lab, host: &str) -> SocketAddr {
        SocketAddr::from((lab.host(host).address(), MOVER_METRICS_PORT))
    }

    /// How a session is opened, from any host of the lab.
    ///
    /// # Errors
    ///
    /// If the user's certificate cannot be read.
    pub fn options(&self) -> anyhow::Result<Options> {
        let options = IdentityOptions {
            certificate: Some(self.folder.user_credential(USER)),
            authorities: Some(self.folder.ca_certificate()),
            ..IdentityOptions::default()
        };
        let identity: Identity = options.load(&Surroundings::of_process())?;
        let target = Target { user: None, host: self.gateway.to_string(), port: FTP_PORT };
        Ok(Options { identity: Some(identity), limits: Limits::default(), ..Options::new(target) })
    }

    /// The user's folder on the site.
    #[must_use]
    pub fn home(&self) -> String {
        format!("/home/{USER}")
    }

    /// The arguments of `pftp` that log in.
    #[must_use]
    pub fn login_arguments(&self) -> Vec<std::ffi::OsString> {
        let (ca, user) = (self.folder.ca_certificate(), self.folder.user_credential(USER));
        vec!["--ca".into(), ca.into(), "--cert".into(), user.into(), self.ftp().to_string().into()]
    }

    /// Runs `penstock admin` with these words on the gateway's host; what it printed.
    ///
    /// # Errors
    ///
    /// What it said, if it failed.
    pub fn admin(&self, lab: &Lab, program: &Path, words: &[&str]) -> anyhow::Result<String> {
        let mut command = lab.host("gateway").service(program)?;
        command.arg("admin").arg("--data").arg(self.folder.path()).args(words).stdin(Stdio::null());
        let output = command.output().context("run penstock admin")?;
        let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "admin {}: {said}{complaint}", words.join(" "));
        Ok(said.into_owned())
    }

    /// Kills a part in the middle of whatever it does: a mover by its name, or `gateway1`.
    ///
    /// # Panics
    ///
    /// If there is no part of that name.
    pub fn kill(&mut self, name: &str) {
        let part = self.processes.iter_mut().find(|part| part.name == name);
        let part = part.unwrap_or_else(|| panic!("no part is called {name}"));
        let _ = part.process.kill();
        let _ = part.process.wait();
    }

    /// The processor time that the movers have used, in seconds.
    #[must_use]
    pub fn mover_seconds(&self) -> f64 {
        let movers = self.processes.iter().filter(|part| part.name != setup::GATEWAY);
        movers.map(|part| processor_seconds(part.process.id())).sum()
    }

    /// The numbers of its processes.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.processes.iter().map(|part| part.process.id()).collect()
    }

    fn prepare(&self, lab: &Lab, spec: &SiteSpec) -> anyhow::Result<SiteCa> {
        let clock = Clock::real();
        let ca = SiteCa::open_or_create(&self.folder.certificates(), "lab", &clock)?;
        ca.write_trust_folder(&self.folder.trusted(), None)?;
        let issue = |role, name: &str, hosts: &[String]| {
            ca.keep_current(&self.folder.part_credential(name), &Holder::Part { role, name, hosts }, &clock)
        };
        issue(Role::Gateway, setup::GATEWAY, &[self.gateway.to_string()])?;
        issue(Role::Admin, "admin", &[])?;
        let mut movers = Vec::new();
        for (mover, host) in spec.parts() {
            let address = lab.host(&host).address();
            issue(Role::Mover, &mover, &[address.to_string()])?;
            let text = self.mover_configuration(spec, &mover, address);
            fs::write(self.folder.path().join(format!("{mover}.toml")), text)?;
            movers.push((mover, address));
        }
        fs::write(self.folder.gateway_configuration(), self.gateway_configuration(spec, &movers))?;
        Ok(ca)
    }

    async fn make_user(&self, ca: &SiteCa) -> anyhow::Result<()> {
        let subject = setup::prepare_user(&self.folder, ca, USER)?;
        let catalog = self.catalog().await?;
        let account = AccountName::new(USER)?;
        let new = NewAccount {
            name: account.clone(),
            primary_group: GroupName::new(USER)?,
            groups: Vec::new(),
            admin: false,
            disabled: false,
            home: None,
        };
        catalog.put_account(new).await?;
        catalog.map_subject(&subject, &account).await?;
        catalog.close().await;
        Ok(())
    }

    async fn catalog(&self) -> anyhow::Result<Catalog> {
        let url = format!("sqlite:{}", self.folder.catalogue().display());
        Ok(Catalog::open(&url, CatalogOptions::default()).await?)
    }

    fn spawn(
        &mut self,
        lab: &Lab,
        host: &str,
        program: &Path,
        part: &str,
        name: &str,
        configuration: &Path,
    ) -> anyhow::Result<()> {
        let path = self.log(name);
        let log = File::create(&path).with_context(|| format!("write {}", path.display()))?;
        let mut command: Command = lab.host(host).service(program)?;
        command.arg(part).arg("--config").arg(configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().with_context(|| format!("start {name}"))?;
        self.processes.push(Part { name: name.to_owned(), process });
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Waits until the gateway has heard of every mover's volume, and answers.
    async fn complete(&mut self, volumes: usize) -> anyhow::Result<()> {
        let catalog = self.catalog().await?;
        let began = Instant::now();
        loop {
            let known = catalog.volumes().await.unwrap_or_default();
            if known.iter().filter(|volume| matches!(volume.medium, Medium::Disk { .. })).count() >= volumes {
                break;
            }
            self.check_alive()?;
            ensure!(began.elapsed() < START_LIMIT, "not every mover came up in {START_LIMIT:?}: {}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        catalog.close().await;
        Ok(())
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        for part in &mut self.processes {
            if let Some(status) = part.process.try_wait()? {
                let name = part.name.clone();
                bail!("{name} ended with {status}: {}", self.logs());
            }
        }
        Ok(())
    }

    /// The last lines of what the parts said.
    fn logs(&self) -> String {
        let mut text = String::new();
        for part in &self.processes {
            let said = fs::read_to_string(self.log(&part.name)).unwrap_or_default();
            let lines: Vec<_> = said.lines().collect();
            for line in &lines[lines.len().saturating_sub(5)..] {
                let _ = write!(text, "\n{}: {line}", part.name);
            }
        }
        text
    }

    fn gateway_configuration(&self, spec: &SiteSpec, movers: &[(String, Ipv4Addr)]) -> String {
        let address = |port: u16| SocketAddr::from((self.gateway, port));
        let mut text = format!(
            r#"name = "{name}"
data = {data}
default_cos = "{default}"

[catalogue]
url = {catalogue}

[tls]
certificate = {credential}
key = {credential}
site_ca = {ca}

[identity]
trust = {trusted}

[ftp]
listen = ["{ftp}"]

[admin]
listen = ["{admin}"]
metrics = ["{metrics}"]

[hsm]
batch_wait = "0s"
linger = "500ms"
look_every = "100ms"
purge_idle = "0s"
disk_reserve_bytes = "1 MiB"
"#,
            name = setup::GATEWAY,
            default = if spec.apart { spec.movers[0].as_str() } else { "disk" },
            data = quoted(self.folder.path().join("gateway")),
            catalogue = quoted(format!("sqlite:{}", self.folder.catalogue().display())),
            credential = quoted(self.folder.part_credential(setup::GATEWAY)),
            ca = quoted(self.folder.ca_certificate()),
            trusted = quoted(self.folder.trusted()),
            ftp = address(FTP_PORT),
            admin = address(ADMIN_PORT),
            metrics = address(METRICS_PORT),
        );
        for (mover, address) in movers {
            let _ = write!(text, "\n[[movers]]\nname = \"{mover}\"\naddress = \"{address}:{MOVER_PORT}\"\n");
        }
        text + &classes(spec)
    }

    fn mover_configuration(&self, spec: &SiteSpec, mover: &str, address: Ipv4Addr) -> String {
        let mut text = format!(
            r#"name = "{mover}"

[control]
listen = "{address}:{MOVER_PORT}"

[metrics]
listen = "{address}:{metrics}"

[tls]
certificate = {credential}
key = {credential}
site_ca = {ca}
clients = {trusted}

[data]
listen = ["{address}"]
congestion = {congestion}

[[volumes]]
label = "{mover}.disk"
folder = {disk}
keep_free = "1 MiB"
create = true
"#,
            // A mover of its own host would have the usual port; two on the gateway's host would not.
            metrics = if mover == "front" { MOVER_METRICS_PORT + 1 } else { MOVER_METRICS_PORT },
            credential = quoted(self.folder.part_credential(mover)),
            ca = quoted(self.folder.ca_certificate()),
            trusted = quoted(self.folder.trusted()),
            congestion = quoted(&spec.congestion),
            disk = quoted(self.folder.path().join("disks").join(mover)),
        );
        if spec.tape && spec.movers.first().is_some_and(|first| first == mover) {
            let _ = write!(
                text,
                "\n[[libraries]]\nname = \"library1\"\nrobot = true\n\n[libraries.kind]\ntype = \"virtual\"\n\
                 folder = {}\ndrives = 1\ncartridges = [\"PEN001L8\", \"PEN002L8\"]\ncapacity = \"1 GiB\"\n\
                 time_scale = 0.0\n\n[[drives]]\nname = \"drive1\"\nlibrary = \"library1\"\nindex = 0\n",
                quoted(self.folder.tape()),
            );
        }
        text
    }
}

impl Drop for LabSite {
    fn drop(&mut self) {
        self.end();
    }
}

impl LabSite {
    /// Ends its processes, in order, and removes its folder if it has made it. Once is enough.
    pub fn end(&mut self) {
        let signal = |part: &Part, signal| {
            // Not yet waited for, so the number is still this process's.
            let _ = i32::try_from(part.process.id()).map(|pid| kill(Pid::from_raw(pid), signal));
        };
        for part in &mut self.processes {
            if matches!(part.process.try_wait(), Ok(None)) {
                signal(part, Signal::SIGTERM);
            }
        }
        let asked = Instant::now();
        for part in &mut self.processes {
            while matches!(part.process.try_wait(), Ok(None)) && asked.elapsed() < END_LIMIT {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = part.process.kill();
            let _ = part.process.wait();
        }
        self.processes.clear();
        if self.made_folder {
            let _ = fs::remove_dir_all(self.folder.path());
        }
    }
}

/// Storage classes and classes of service.
fn classes(spec: &SiteSpec) -> String {
    let mut text = String::new();
    let class = |text: &mut String, name: &str, volumes: &str, stripe: u16| {
        let _ = write!(
            text,
            "\n[[storage_class]]\nname = \"{name}\"\nkind = \"disk\"\nvolumes = [\"{volumes}\"]\nstripe_width = {stripe}\n\
             block = \"1 MiB\"\n\n[[hierarchy]]\nname = \"{name}\"\ndisk = \"{name}\"\n\n[[cos]]\nname = \"{name}\"\n\
             hierarchy = \"{name}\"\ncopies = 0\nundelete = \"0s\"\n"
        );
    };
    // The first class that fits has a volume.
    if spec.front {
        class(&mut text, "front", "front.disk", 1);
    }
    if spec.apart {
        for mover in &spec.movers {
            class(&mut text, mover, &format!("{mover}.disk"), 1);
        }
    } else {
        class(&mut text, "disk", "*.disk", spec.stripe);
    }
    if spec.tape {
        text += "\n[[storage_class]]\nname = \"cartridges\"\nkind = \"tape\"\nvolumes = [\"*\"]\n\n[[hierarchy]]\n\
                 name = \"disk-tape\"\ndisk = \"disk\"\ntapes = [\"cartridges\"]\n\n[[cos]]\nname = \"tape\"\n\
                 hierarchy = \"disk-tape\"\ncopies = 1\nmigration_age = \"0s\"\n";
    }
    text
}

/// A TOML string: JSON's form is one.
fn quoted(text: impl AsRef<Path>) -> String {
    serde_json::Value::String(text.as_ref().display().to_string()).to_string()
}

/// User and system time of a process, in seconds; 0 if it is gone.
///
/// # Source
///
/// Linux, proc_pid_stat(5): fields 14 and 15, behind the name in parentheses, in clock ticks.
#[must_use]
pub fn processor_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|field: &&str| field.parse::<f64>().ok()).unwrap_or(0.0);
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    (ticks(11) + ticks(12)) / second as f64
}

/// Runs asynchronous work on a host of the lab, and waits for it.
///
/// # Errors
///
/// Those of the work, and if the runtime cannot be made.
pub fn on_host<T: Send + 'static>(
    lab: &Lab,
    host: &str,
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = lab.host(host).runtime(2)?;
    let done = runtime.block_on(runtime.spawn(work)).context("work on a host of the lab panicked")?;
    // Threads that still wait for something are not waited for.
    runtime.shutdown_background();
    done
}

/// Options in the form sessions want them.
///
/// # Errors
///
/// As [`LabSite::options`].
pub fn shared_options(site: &LabSite, change: impl FnOnce(&mut Options)) -> anyhow::Result<Arc<Options>> {
    let mut options = site.options()?;
    change(&mut options);
    Ok(Arc::new(options))
}

#[cfg(test)]
mod tests {
    use daemon::config;
    use netsim::{Medium as NetMedium, Profile, Topology};

    use super::*;

    #[test]
    fn the_files_it_writes_are_good_configurations() {
        let topology = Topology::client_and_site(Profile::Lan.link(), NetMedium::Switched, 2);
        let movers = ["mover1".to_owned(), "mover2".to_owned()];
        let base = SiteSpec::new("penstock".into(), "/tmp/lab".into(), &movers);
        for spec in [
            base.clone(),
            SiteSpec { front: true, stripe: 1, congestion: "cubic".to_owned(), ..base.clone() },
            SiteSpec { apart: true, ..base.clone() },
            SiteSpec { tape: true, ..base.clone() },
        ] {
            let address = topology.hosts()[1].device.address;
            let site = LabSite {
                folder: SiteFolder::new("/tmp/lab".into()),
                gateway: address,
                processes: Vec::new(),
                made_folder: false,
            };
            let text = site.gateway_configuration(&spec, &[("mover1".to_owned(), address)]);
            let gateway = config::parse::<gateway::config::Config>("gateway.toml", &text, []);
            gateway.unwrap_or_else(|error| panic!("{error}\n{text}"));
            let text = site.mover_configuration(&spec, "mover1", address);
            let mover = config::parse::<mover::MoverConfig>("mover1.toml", &text, []);
            mover.unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }

    #[test]
    fn this_process_has_used_some_time() {
        let mut sum = 0u64;
        while processor_seconds(std::process::id()) < 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(processor_seconds(u32::MAX), 0.0, "{sum}: a process that is not there has used none");
    }
}
