//! Which hosts and links a lab has, as a command line says it.

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};
use netsim::{Link, Medium, Profile, Topology};

/// Hosts and links.
#[derive(Clone, Debug, Args)]
pub struct Shape {
    /// A link that has a name: lan, campus, supersinet, indiana-florida, continental, transatlantic, satellite.
    #[arg(long, default_value = "supersinet")]
    pub profile: Profile,
    /// Round-trip time instead of the profile's, such as `3.5ms`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub rtt: Option<Duration>,
    /// Rate instead of the profile's, in bits a second, such as `100M`.
    #[arg(long, value_name = "BITS", value_parser = rate)]
    pub rate: Option<u64>,
    /// Bytes that wait in front of the link's rate, such as `1M`.
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub queue: Option<u64>,
    /// How much the delay varies, either way.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub jitter: Option<Duration>,
    /// Share of frames that are lost, such as `0.0001`.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub loss: Option<f64>,
    /// What the hosts of the site share.
    #[arg(long, value_enum, default_value_t = Sharing::Switched)]
    pub medium: Sharing,
    /// Rate of each host's NIC; the link's if left out.
    #[arg(long, value_name = "BITS", value_parser = rate)]
    pub nic: Option<u64>,
    /// Hosts of movers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub movers: u16,
    /// Hosts of clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub clients: u16,
    /// Over how many movers the site stripes a file; over all if left out.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub stripe: Option<u16>,
    /// Run a gateway and the movers on their hosts.
    #[arg(long)]
    pub site: bool,
}

/// What the hosts of a site share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sharing {
    /// Nothing: a switch, every host at full rate both ways.
    Switched,
    /// One medium for everything that any of them sends or receives.
    Shared,
    /// Each has one medium for what it sends and receives: half duplex, or a slow bus.
    HalfDuplex,
}

impl Shape {
    /// The link between clients and site.
    #[must_use]
    pub fn link(&self) -> Link {
        let usual = self.profile.link();
        Link {
            rtt: self.rtt.unwrap_or(usual.rtt),
            rate_bps: self.rate.unwrap_or(usual.rate_bps),
            queue_bytes: self.queue.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usual.queue_bytes),
            jitter: self.jitter.unwrap_or(usual.jitter),
            loss: self.loss.unwrap_or(usual.loss),
            ..usual
        }
    }

    /// All of it.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let link = self.link();
        let nic = self.nic.unwrap_or(link.rate_bps);
        let medium = match self.medium {
            Sharing::Switched => Medium::Switched,
            Sharing::Shared => Medium::Shared { rate_bps: nic },
            Sharing::HalfDuplex => Medium::HalfDuplex { rate_bps: nic },
        };
        topology(link, medium, nic, usize::from(self.clients), usize::from(self.movers))
    }

    /// The arguments that say the same.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<String> = vec![
            format!("--profile={}", self.profile),
            format!("--movers={}", self.movers),
            format!("--clients={}", self.clients),
            format!("--medium={}", self.medium.to_possible_value().expect("none is skipped").get_name()),
        ];
        let times = [("rtt", self.rtt), ("jitter", self.jitter)];
        arguments.extend(
            times
                .iter()
                .filter_map(|(name, time)| Some(format!("--{name}={}us", time.as_ref()?.as_nanos() as f64 / 1e3))),
        );
        let numbers = [("rate", self.rate), ("queue", self.queue), ("nic", self.nic)];
        arguments.extend(numbers.iter().filter_map(|(name, number)| Some(format!("--{name}={}", number.as_ref()?))));
        arguments.extend(self.loss.map(|loss| format!("--loss={loss}")));
        arguments.extend(self.stripe.map(|stripe| format!("--stripe={stripe}")));
        arguments.extend(self.site.then(|| "--site".to_owned()));
        arguments.into_iter().map(OsString::from).collect()
    }
}

/// Clients at home, and a centre with a gateway and movers. Hosts are called `client`, `client2`, …, `gateway`, `mover1`,
/// `mover2`, ….
#[must_use]
pub fn topology(link: Link, medium: Medium, nic_bps: u64, clients: usize, movers: usize) -> Topology {
    let mut topology = Topology::new();
    topology.add_site("home", Medium::Switched, nic_bps, &["client"]);
    for number in 2..=clients {
        topology.add_host("home", &format!("client{number}"));
    }
    topology.add_site("centre", medium, nic_bps, &["gateway"]);
    for number in 1..=movers {
        topology.add_host("centre", &format!("mover{number}"));
    }
    topology.join("home", "centre", link);
    topology
}

fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some((number, unit.trim()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time: write 500us, 3.5ms or 1s");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return Err(bad()),
    };
    if seconds > 60.0 {
        return Err(format!("{text}: more than a minute is no link"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn rate(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no rate: write 56K, 100M or 1G");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let factor = match unit {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(bad()),
    };
    let value = number * factor;
    if (1.0..=1e12).contains(&value) { Ok(value as u64) } else { Err(format!("{text} is not between 1 and 1000G")) }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| format!("{text:?} is no share: write a number between 0 and 1"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    #[test]
    fn what_is_said_again_means_the_same() {
        let said =
            ["lab", "--rtt", "3.25ms", "--rate", "100M", "--queue", "64K", "--loss", "0.001", "--medium", "shared"];
        let said =
            Line::parse_from(said.into_iter().chain(["--movers", "3", "--clients", "2", "--jitter", "10us"])).shape;
        let again = Line::parse_from([OsString::from("lab")].into_iter().chain(said.arguments())).shape;
        assert_eq!(again.link(), said.link());
        assert_eq!(again.link().rtt, Duration::from_micros(3250));
        let names = |shape: &Shape| shape.topology().hosts().iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&again), ["client", "client2", "gateway", "mover1", "mover2", "mover3"]);
        assert_eq!(names(&again), names(&said));
        assert_eq!(again.medium, Sharing::Shared);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in ["", "ms", "3", "3 h", "100s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["", "G", "0", "1e9", "2000G", "-1"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert!(share("1.5").is_err() && share("x").is_err());
        assert_eq!(rate("1.5G"), Ok(1_500_000_000));
    }
}
