//! A running topology, and processes, threads and runtimes on its hosts.

use std::{
    ffi::OsStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
    thread::JoinHandle,
};

use crate::{
    device::{self, Device},
    emulator::{Emulator, Statistics},
    fabric::{Counters, StageSpec},
    namespace::Namespace,
    topology::{Link, Topology},
};

/// Why a lab could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine cannot do it.
    #[error("links cannot be emulated here: {0}")]
    Unavailable(String),
    /// The kernel refused.
    #[error("set up host {host}")]
    Host {
        /// Which host.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The emulator's thread could not be started.
    #[error("start the emulator")]
    Emulator(#[source] io::Error),
}

/// A running topology. Dropped, it is gone, with all its namespaces and devices, as soon as the processes on its hosts
/// have ended.
#[derive(Debug)]
pub struct Lab {
    // The emulator ends before the namespaces do.
    emulator: Emulator,
    hosts: Vec<Host>,
    stages: Vec<(String, StageSpec)>,
}

/// One host of a lab.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    address6: Option<Ipv6Addr>,
    namespace: Namespace,
}

impl Lab {
    /// Builds the hosts and starts carrying packets.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] if this machine has no TUN devices, no `iproute2`, or the caller may not make network
    /// namespaces.
    pub fn start(topology: &Topology) -> Result<Self, LabError> {
        if let Some(missing) = device::missing() {
            return Err(LabError::Unavailable(missing));
        }
        let mut devices = Vec::new();
        let mut hosts = Vec::new();
        for spec in topology.hosts() {
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    LabError::Unavailable("network namespaces need root (CAP_SYS_ADMIN, CAP_NET_ADMIN)".to_owned())
                }
                _ => LabError::Host { host: spec.name.clone(), source },
            };
            let namespace = Namespace::new().map_err(failed)?;
            let device = Device::open(&namespace, &spec.device).map_err(failed)?;
            let (address, address6) = (spec.device.address, spec.device.address6());
            devices
                .push((device, [Some(IpAddr::V4(address)), address6.map(IpAddr::V6)].into_iter().flatten().collect()));
            hosts.push(Host { name: spec.name.clone(), address, address6, namespace });
        }
        let plan = topology.plan();
        let stages = plan.stages.clone();
        let emulator = Emulator::start(devices, plan, topology.seed).map_err(LabError::Emulator)?;
        Ok(Self { emulator, hosts, stages })
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of that name.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap_or_else(|| panic!("no host is called {name}"))
    }

    /// Changes the link between two sites, both directions, from now on.
    ///
    /// # Panics
    ///
    /// If they are not joined.
    pub fn set_link(&mut self, one: &str, other: &str, link: &Link) {
        for (from, to) in [(one, other), (other, one)] {
            let name = format!("{from}-{to}");
            let stage = self.stage(&name);
            let mut spec = link.one_way();
            // The part of the delay that the LANs at its ends contribute stays where it is.
            spec.delay = spec.delay.saturating_sub(self.lan_delay(from, to));
            self.stages[stage].1 = spec.clone();
            self.emulator.set_stage(stage, spec);
        }
    }

    fn lan_delay(&self, from: &str, to: &str) -> std::time::Duration {
        [from, to].iter().map(|site| self.stages[self.stage(&format!("{site}.switch"))].1.delay).sum()
    }

    fn stage(&self, name: &str) -> usize {
        self.stages.iter().position(|(stage, _)| stage == name).unwrap_or_else(|| panic!("no stage is called {name}"))
    }

    /// Changes one stage by its name, such as `home-centre` (a link's one direction) or `mover1.port`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn set_stage(&mut self, name: &str, change: impl FnOnce(&mut StageSpec)) {
        let stage = self.stage(name);
        change(&mut self.stages[stage].1);
        self.emulator.set_stage(stage, self.stages[stage].1.clone());
    }

    /// What has happened so far; at most a tenth of a second old.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.emulator.statistics()
    }

    /// The counters of one stage.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    #[must_use]
    pub fn counters(&self, stage: &str) -> Counters {
        let at = self.stage(stage);
        self.statistics().stages.get(at).map(|(_, counters)| *counters).unwrap_or_default()
    }
}

impl Host {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its address of version 6; `None` where the kernel has no IPv6.
    #[must_use]
    pub const fn address6(&self) -> Option<Ipv6Addr> {
        self.address6
    }

    /// A command that will run on this host.
    ///
    /// # Errors
    ///
    /// If the namespace's file descriptor cannot be duplicated.
    pub fn command(&self, program: impl AsRef<OsStr>) -> io::Result<Command> {
        self.namespace.command(program)
    }

    /// As [`Host::command`], for a process that must not outlive the thread that starts it: it is killed when that thread
    /// ends, also if that is by `kill -9`.
    ///
    /// # Errors
    ///
    /// If the namespace's file descriptor cannot be duplicated.
    pub fn service(&self, program: impl AsRef<OsStr>) -> io::Result<Command> {
        self.namespace.service(program)
    }

    /// Where other processes find the host's network namespace while this one lives: for `setns(2)` or
    /// `nsenter --net=`.
    #[must_use]
    pub fn namespace_path(&self) -> std::path::PathBuf {
        self.namespace.path()
    }

    /// Runs `work` on a thread on this host: every socket it makes is this host's.
    ///
    /// # Errors
    ///
    /// If the namespace's file descriptor cannot be duplicated.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let namespace = self.namespace.try_clone()?;
        std::thread::Builder::new().name(self.name.clone()).spawn(move || {
            namespace.enter().expect("a namespace of this lab can be entered");
            work()
        })
    }

    /// A tokio runtime whose workers and blocking threads are on this host.
    ///
    /// What runs in `block_on` itself is on the caller's host: spawn everything that makes sockets.
    ///
    /// # Errors
    ///
    /// If the threads cannot be started.
    pub fn runtime(&self, workers: usize) -> io::Result<tokio::runtime::Runtime> {
        let namespace = self.namespace.try_clone()?;
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name(self.name.clone())
            .enable_all()
            .on_thread_start(move || namespace.enter().expect("a namespace of this lab can be entered"))
            .build()
    }
}
