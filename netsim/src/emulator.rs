//! The thread that joins devices and model: what one host sends passes the fabric and reaches another.
//!
//! Owns the devices and the fabric. Takes changes of single stages while it runs, and publishes counters. Never waits
//! for anything but packets, the next due moment, and its end.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{eventfd::EventFd, time::TimeSpec},
};
use serde::Serialize;

use crate::{
    device::Device,
    fabric::{Counters, Fabric, Nanoseconds, PathId, StageId, StageSpec},
    frame::Frame,
    punctual::Punctual,
    topology::Plan,
};

/// Packets read from one device before the others get their turn.
const BATCH: usize = 32;
/// The largest packet a device gives: 64 KiB and headers.
const LARGEST_PACKET_BYTES: usize = 65_536 + 512;
/// Buffers kept for reuse.
const SPARE_BUFFERS: usize = 4_096;
/// How often counters are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// What the emulator has done so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Statistics {
    /// Counters by stage.
    pub stages: Vec<(String, Counters)>,
    /// Packets read, each of one or more frames.
    pub packets: u64,
    /// Packets that no device took.
    pub undelivered: u64,
    /// Packets for an address without a path.
    pub no_path: u64,
    /// How late packets were delivered, on average, in microseconds: the machine's fault, not the model's.
    pub mean_late_us: f64,
    /// The latest that any was, in microseconds.
    pub worst_late_us: f64,
    /// Whether the thread has real-time priority. Without it, a busy machine delivers late.
    pub real_time: bool,
}

/// A running emulator; dropped, it ends.
#[derive(Debug)]
pub struct Emulator {
    changes: Sender<(usize, StageSpec)>,
    wake: Arc<EventFd>,
    shared: Arc<Mutex<Statistics>>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts carrying packets between these devices, each with its addresses.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(devices: Vec<(Device, Vec<IpAddr>)>, plan: Plan, seed: u64) -> io::Result<Self> {
        let (changes, incoming) = channel();
        let wake = Arc::new(EventFd::new().map_err(io::Error::from)?);
        let shared = Arc::default();
        let carrier = Carrier::new(devices, plan, seed, incoming, Arc::clone(&wake), Arc::clone(&shared));
        let thread = thread::Builder::new().name("netsim".to_owned()).spawn(move || carrier.run())?;
        Ok(Self { changes, wake, shared, thread: Some(thread) })
    }

    /// Changes a stage from now on.
    pub fn set_stage(&self, stage: usize, spec: StageSpec) {
        // The thread ends only when this handle is dropped.
        let _ = self.changes.send((stage, spec));
        let _ = self.wake.write(1);
    }

    /// What has happened so far; at most a tenth of a second old.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        lock(&self.shared).clone()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let (closed, _) = channel();
        drop(std::mem::replace(&mut self.changes, closed));
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Statistics>) -> MutexGuard<'_, Statistics> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Carrier {
    devices: Vec<Device>,
    hosts: HashMap<IpAddr, usize>,
    paths: HashMap<(usize, usize), PathId>,
    fabric: Fabric<Frame>,
    stages: Vec<(String, StageId)>,
    changes: Receiver<(usize, StageSpec)>,
    wake: Arc<EventFd>,
    shared: Arc<Mutex<Statistics>>,
    statistics: Statistics,
    late: (Nanoseconds, u64),
    punctual: Punctual,
    spare: Vec<Vec<u8>>,
    began: Instant,
}

impl Carrier {
    fn new(
        devices: Vec<(Device, Vec<IpAddr>)>,
        plan: Plan,
        seed: u64,
        changes: Receiver<(usize, StageSpec)>,
        wake: Arc<EventFd>,
        shared: Arc<Mutex<Statistics>>,
    ) -> Self {
        let mut fabric = Fabric::new(seed);
        let stages: Vec<_> = plan.stages.into_iter().map(|(name, spec)| (name, fabric.add_stage(spec))).collect();
        let paths = plan
            .paths
            .into_iter()
            .map(|(from, to, passed)| {
                ((from, to), fabric.add_path(to, passed.into_iter().map(|stage| stages[stage].1).collect()))
            })
            .collect();
        let addresses = devices.iter().enumerate();
        let hosts = addresses.flat_map(|(host, (_, own))| own.iter().map(move |address| (*address, host))).collect();
        Self {
            devices: devices.into_iter().map(|(device, _)| device).collect(),
            hosts,
            paths,
            fabric,
            stages,
            changes,
            wake,
            shared,
            statistics: Statistics::default(),
            late: (0, 0),
            punctual: Punctual::new(),
            spare: Vec::new(),
            began: Instant::now(),
        }
    }

    fn run(mut self) {
        self.statistics.real_time = become_punctual();
        let mut scratch = vec![0; LARGEST_PACKET_BYTES];
        let mut publish_at = 0;
        loop {
            let now = self.now();
            self.deliver(now);
            if now >= publish_at {
                self.publish();
                publish_at = now + PUBLISH_EVERY.as_nanos() as Nanoseconds;
            }
            if !self.take_changes() {
                break;
            }
            for host in self.wait(publish_at) {
                self.read_from(host, &mut scratch);
            }
        }
        self.publish();
    }

    fn now(&self) -> Nanoseconds {
        self.began.elapsed().as_nanos() as Nanoseconds
    }

    fn take_changes(&mut self) -> bool {
        loop {
            match self.changes.try_recv() {
                Ok((stage, spec)) => self.fabric.set_stage(self.stages[stage].1, spec),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn deliver(&mut self, now: Nanoseconds) {
        if let Some(late) = self.fabric.next_due().and_then(|due| now.checked_sub(due)) {
            self.late = (self.late.0 + late, self.late.1 + 1);
            self.statistics.worst_late_us = self.statistics.worst_late_us.max(late as f64 / 1e3);
        }
        let Self { fabric, devices, statistics, spare, .. } = self;
        fabric.run(now, |host, frame| {
            if devices[host].write(frame.bytes()).is_err() {
                statistics.undelivered += 1;
            }
            if spare.len() < SPARE_BUFFERS {
                spare.push(frame.into_buffer());
            }
        });
    }

    /// Waits for packets, a change, the next due moment or `publish_at`; says which hosts have packets.
    fn wait(&mut self, publish_at: Nanoseconds) -> Vec<usize> {
        let now = self.now();
        let Some(due) = self.fabric.next_due().filter(|due| *due < publish_at) else {
            return self.poll(Duration::from_nanos(publish_at.saturating_sub(now)));
        };
        let sleep = self.punctual.sleep(now, due);
        let ready = self.poll(sleep);
        if !ready.is_empty() {
            return ready;
        }
        let (asked, woke) = (now + sleep.as_nanos() as Nanoseconds, self.now());
        if woke < asked {
            // A change came.
            return ready;
        }
        if !sleep.is_zero() {
            self.punctual.learn(asked, woke);
        }
        let mut ready = Vec::new();
        while ready.is_empty() && self.now() < due {
            ready = self.poll(Duration::ZERO);
        }
        self.punctual.spend(self.now() - woke);
        ready
    }

    fn poll(&self, limit: Duration) -> Vec<usize> {
        let mut polled: Vec<PollFd<'_>> = self
            .devices
            .iter()
            .map(AsFd::as_fd)
            .chain([self.wake.as_fd()])
            .map(|fd: BorrowedFd<'_>| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        if ppoll(&mut polled, Some(TimeSpec::from_duration(limit)), None).unwrap_or(0) <= 0 {
            return Vec::new();
        }
        let ready = |at: usize| polled[at].any().unwrap_or(false);
        if ready(self.devices.len()) {
            let _ = self.wake.read();
        }
        (0..self.devices.len()).filter(|&host| ready(host)).collect()
    }

    fn read_from(&mut self, host: usize, scratch: &mut [u8]) {
        let now = self.now();
        for _ in 0..BATCH {
            let Ok(length) = self.devices[host].read(scratch) else { return };
            self.statistics.packets += 1;
            self.punctual.count(now, 1);
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(&scratch[..length]);
            let Some(frame) = Frame::new(buffer, 0) else { continue };
            let to = frame.destination().and_then(|address| self.hosts.get(&address));
            match to.and_then(|&to| self.paths.get(&(host, to))) {
                Some(&path) => self.fabric.inject(now, path, frame),
                None => self.statistics.no_path += 1,
            }
        }
    }

    fn publish(&mut self) {
        self.statistics.mean_late_us = self.late.0 as f64 / 1e3 / self.late.1.max(1) as f64;
        self.statistics.stages =
            self.stages.iter().map(|(name, stage)| (name.clone(), self.fabric.counters(*stage))).collect();
        lock(&self.shared).clone_from(&self.statistics);
    }
}

/// Asks for exact timers and real-time priority; says whether it got the latter.
///
/// Measured with both cores busy: 4.09 ms median and 4.17 ms at the 99th percentile for 4 ms with it, 4.13 and 22 ms
/// without.
#[allow(unsafe_code)]
fn become_punctual() -> bool {
    // SAFETY: both calls concern the calling thread only and read their arguments before they return.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        let priority = libc::sched_param { sched_priority: 10 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0
    }
}
