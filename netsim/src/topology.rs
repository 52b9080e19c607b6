//! Hosts, links and shared media as data.
//!
//! A topology has *sites*: hosts on one LAN. Sites are joined by WAN links. From it follow the stages a packet passes
//! from one host to another:
//!
//! ```text
//! host's medium ─► switch port of the site ─► WAN link ─► switch port ─► host's medium
//! ```
//!
//! The sender's NIC is paced by its own kernel, see [`crate::device`]; what is here is the port of the switch towards
//! the receiver, the WAN link, and *media*: what a host, or a whole LAN, has in common for everything that goes in and
//! out. A relay moves each byte in and out; over a medium with the capacity of one NIC it gets half. That is the double
//! hop of 2003, and it comes out of the topology.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use crate::{
    device::DeviceSpec,
    fabric::{Burst, StageSpec},
};

/// The queue in front of a link's rate, if nothing else is said: bytes.
pub const DEFAULT_QUEUE_BYTES: usize = 1_000_000;

/// A link between two sites; both directions alike.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Round-trip time; half of it each way.
    pub rtt: Duration,
    /// Bits a second on the wire, each way.
    pub rate_bps: u64,
    /// Bytes that wait in front of the rate, each way.
    pub queue_bytes: usize,
    /// How much the one-way delay varies, either way.
    pub jitter: Duration,
    /// Probability that a frame is lost, each way.
    pub loss: f64,
    /// Loss in bursts.
    pub burst: Option<Burst>,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Whether jitter reorders.
    pub reorder: bool,
    /// Whether nothing passes.
    pub down: bool,
}

impl Link {
    /// A clean link.
    #[must_use]
    pub const fn new(rtt: Duration, rate_bps: u64) -> Self {
        Self {
            rtt,
            rate_bps,
            queue_bytes: DEFAULT_QUEUE_BYTES,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            reorder: false,
            down: false,
        }
    }

    /// One direction of it.
    #[must_use]
    pub fn one_way(&self) -> StageSpec {
        StageSpec {
            rate_bps: Some(self.rate_bps),
            queue_bytes: self.queue_bytes,
            delay: self.rtt / 2,
            jitter: self.jitter,
            reorder: self.reorder,
            loss: self.loss,
            burst: self.burst,
            duplicate: self.duplicate,
            down: self.down,
        }
    }
}

/// What the hosts of a site share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A switch: every host sends and receives at its NIC's rate at the same time.
    Switched,
    /// One medium of this capacity, bits a second, for everything any host sends or receives.
    Shared {
        /// The capacity.
        rate_bps: u64,
    },
    /// A switch, but each host moves at most this much in and out together: a bus, or half-duplex Ethernet.
    HalfDuplex {
        /// The capacity of each host.
        rate_bps: u64,
    },
}

/// One host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub device: DeviceSpec,
    site: usize,
}

struct Site {
    name: String,
    medium: Medium,
    rtt: Duration,
    nic_bps: u64,
}

/// Hosts, links and shared media.
pub struct Topology {
    sites: Vec<Site>,
    hosts: Vec<HostSpec>,
    links: BTreeMap<(usize, usize), Link>,
    /// Seed of chance.
    pub seed: u64,
}

/// The stages of a topology, each with a name, and which of them lie between two hosts.
#[derive(Debug, Default)]
pub struct Plan {
    /// Stages by index.
    pub stages: Vec<(String, StageSpec)>,
    /// From host, to host, by which stages.
    pub paths: Vec<(usize, usize, Vec<usize>)>,
}

impl Default for Topology {
    fn default() -> Self {
        Self::new()
    }
}

impl Topology {
    /// A topology without sites.
    #[must_use]
    pub const fn new() -> Self {
        Self { sites: Vec::new(), hosts: Vec::new(), links: BTreeMap::new(), seed: 1 }
    }

    /// Two sites and the link between them: a client's, and one with a gateway and `movers` movers, every NIC as fast
    /// as the link. Hosts are called `client`, `gateway`, `mover1`, ….
    #[must_use]
    pub fn client_and_site(link: Link, medium: Medium, movers: usize) -> Self {
        let mut topology = Self::new();
        let nic_bps = link.rate_bps;
        topology.add_site("home", Medium::Switched, nic_bps, &["client"]);
        topology.add_site("centre", medium, nic_bps, &["gateway"]);
        for number in 1..=movers {
            topology.add_host("centre", &format!("mover{number}"));
        }
        topology.join("home", "centre", link);
        topology
    }

    /// Adds a site whose hosts have NICs of `nic_bps`. Within a site the round trip is 0.1 ms.
    ///
    /// # Panics
    ///
    /// If there is one of that name.
    pub fn add_site(&mut self, name: &str, medium: Medium, nic_bps: u64, hosts: &[&str]) {
        assert!(self.sites.iter().all(|site| site.name != name), "two sites called {name}");
        self.sites.push(Site { name: name.to_owned(), medium, rtt: Duration::from_micros(100), nic_bps });
        for host in hosts {
            self.add_host(name, host);
        }
    }

    /// Adds a host to a site.
    ///
    /// # Panics
    ///
    /// If there is no such site, a host of that name, or no address left (a lab has room for 250 hosts).
    pub fn add_host(&mut self, site: &str, name: &str) {
        let site = self.site(site);
        assert!(self.hosts.iter().all(|host| host.name != name), "two hosts called {name}");
        assert!(self.hosts.len() < 250, "a lab has room for 250 hosts");
        let address = Ipv4Addr::new(10, 77, 0, 1 + self.hosts.len() as u8);
        let nic_bps = Some(self.sites[site].nic_bps);
        let device = DeviceSpec { address, prefix: 24, mtu: 1500, nic_bps };
        self.hosts.push(HostSpec { name: name.to_owned(), device, site });
    }

    /// Gives a host a NIC of its own rate: what it sends, and its switch port.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn set_nic(&mut self, host: &str, nic_bps: u64) {
        let host =
            self.hosts.iter_mut().find(|one| one.name == host).unwrap_or_else(|| panic!("no host is called {host}"));
        host.device.nic_bps = Some(nic_bps);
    }

    /// Joins two sites.
    ///
    /// # Panics
    ///
    /// If there is no such site.
    pub fn join(&mut self, one: &str, other: &str, link: Link) {
        let (one, other) = (self.site(one), self.site(other));
        self.links.insert((one.min(other), one.max(other)), link);
    }

    fn site(&self, name: &str) -> usize {
        self.sites.iter().position(|site| site.name == name).unwrap_or_else(|| panic!("no site is called {name}"))
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[HostSpec] {
        &self.hosts
    }

    /// Works out the stages between every two hosts. Hosts whose sites are not joined have no path.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let mut add = |name: String, spec: StageSpec| {
            plan.stages.push((name, spec));
            plan.stages.len() - 1
        };
        let capacity =
            |rate_bps| StageSpec { rate_bps: Some(rate_bps), queue_bytes: DEFAULT_QUEUE_BYTES, ..StageSpec::default() };
        let shared: Vec<_> = self
            .sites
            .iter()
            .map(|site| match site.medium {
                Medium::Shared { rate_bps } => Some(add(format!("{}.medium", site.name), capacity(rate_bps))),
                Medium::Switched | Medium::HalfDuplex { .. } => None,
            })
            .collect();
        let buses: Vec<_> = self
            .hosts
            .iter()
            .map(|host| match self.sites[host.site].medium {
                Medium::HalfDuplex { rate_bps } => Some(add(format!("{}.bus", host.name), capacity(rate_bps))),
                Medium::Switched | Medium::Shared { .. } => None,
            })
            .collect();
        let ports: Vec<_> = self
            .hosts
            .iter()
            .map(|host| {
                let site = &self.sites[host.site];
                let nic_bps = host.device.nic_bps.unwrap_or(site.nic_bps);
                // A quarter of the LAN's round trip at either end of every path.
                add(format!("{}.port", host.name), StageSpec { delay: site.rtt / 4, ..capacity(nic_bps) })
            })
            .collect();
        let uplinks: Vec<_> = self
            .sites
            .iter()
            .map(|site| add(format!("{}.switch", site.name), StageSpec { delay: site.rtt / 4, ..StageSpec::default() }))
            .collect();
        let mut wan = BTreeMap::new();
        for (&(one, other), link) in &self.links {
            for (from, to) in [(one, other), (other, one)] {
                let name = format!("{}-{}", self.sites[from].name, self.sites[to].name);
                // The LANs at both ends are part of the round trip that was asked for.
                let lan = (self.sites[from].rtt + self.sites[to].rtt) / 4;
                let mut spec = link.one_way();
                spec.delay = spec.delay.saturating_sub(lan);
                wan.insert((from, to), add(name, spec));
            }
        }
        for (from, source) in self.hosts.iter().enumerate() {
            for (to, sink) in self.hosts.iter().enumerate().filter(|&(to, _)| to != from) {
                let mut stages: Vec<_> = buses[from].into_iter().chain(shared[source.site]).collect();
                stages.push(uplinks[source.site]);
                if source.site != sink.site {
                    let Some(&link) = wan.get(&(source.site, sink.site)) else { continue };
                    stages.push(link);
                    stages.extend(shared[sink.site]);
                }
                stages.push(ports[to]);
                stages.extend(buses[to]);
                plan.paths.push((from, to, stages));
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn the_round_trip_is_the_one_that_was_asked_for() {
        for profile in Profile::ALL {
            let topology = Topology::client_and_site(profile.link(), Medium::Switched, 2);
            let plan = topology.plan();
            let delay = |from, to| -> Duration {
                let (_, _, stages) = plan.paths.iter().find(|path| (path.0, path.1) == (from, to)).expect("a path");
                stages.iter().map(|&stage| plan.stages[stage].1.delay).sum()
            };
            let round_trip = delay(0, 2) + delay(2, 0);
            assert!(round_trip.abs_diff(profile.rtt()) < Duration::from_micros(10), "{profile}: {round_trip:?}");
            assert_eq!(delay(1, 2) + delay(2, 1), Duration::from_micros(100), "within the site");
        }
    }

    #[test]
    fn a_relay_on_a_shared_medium_passes_it_twice_and_a_direct_transfer_once() {
        let link = Profile::Lan.link();
        let plan = Topology::client_and_site(link, Medium::Shared { rate_bps: 1_000_000_000 }, 1).plan();
        let medium = plan.stages.iter().position(|(name, _)| name == "centre.medium").expect("a medium");
        let passes = |from, to| {
            let path = plan.paths.iter().find(|path| (path.0, path.1) == (from, to)).expect("a path");
            path.2.iter().filter(|&&stage| stage == medium).count()
        };
        let (client, gateway, mover) = (0, 1, 2);
        assert_eq!(passes(mover, client), 1);
        assert_eq!(passes(mover, gateway) + passes(gateway, client), 2);
    }

    #[test]
    fn a_host_has_the_nic_it_was_given() {
        let mut topology = Topology::client_and_site(Profile::Lan.link(), Medium::Switched, 2);
        topology.set_nic("mover2", 10_000_000);
        assert_eq!(topology.hosts()[3].device.nic_bps, Some(10_000_000));
        let plan = topology.plan();
        let rate = |name: &str| plan.stages.iter().find(|(stage, _)| stage == name).expect("a stage").1.rate_bps;
        assert_eq!((rate("mover1.port"), rate("mover2.port")), (Some(1_000_000_000), Some(10_000_000)));
    }

    #[test]
    fn sites_that_are_not_joined_do_not_reach_each_other() {
        let mut topology = Topology::new();
        topology.add_site("a", Medium::Switched, 1, &["a1"]);
        topology.add_site("b", Medium::Switched, 1, &["b1"]);
        assert!(topology.plan().paths.is_empty());
    }
}
