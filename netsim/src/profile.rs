//! Links that have a name.

use std::{fmt, str::FromStr, time::Duration};

use crate::topology::Link;

/// A link that has a name: round-trip time, rate, loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// One room: 0.1 ms, 1 Gb/s.
    Lan,
    /// One site: 1 ms, 1 Gb/s.
    Campus,
    /// Super-SINET between Tsukuba and Tokyo, 2003: 3.5 ms, 1 Gb/s; the link on which HPSS was measured.
    SuperSinet,
    /// Indiana to Florida, as GridTorrent was measured: 30 ms, 100 Mb/s.
    IndianaFlorida,
    /// Across a continent: 20 ms, 1 Gb/s.
    Continental,
    /// Across the Atlantic: 80 ms, 1 Gb/s.
    Transatlantic,
    /// Over a geostationary satellite: 600 ms, 50 Mb/s, one frame in 10,000 lost.
    Satellite,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 7] = [
        Self::Lan,
        Self::Campus,
        Self::SuperSinet,
        Self::IndianaFlorida,
        Self::Continental,
        Self::Transatlantic,
        Self::Satellite,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Campus => "campus",
            Self::SuperSinet => "supersinet",
            Self::IndianaFlorida => "indiana-florida",
            Self::Continental => "continental",
            Self::Transatlantic => "transatlantic",
            Self::Satellite => "satellite",
        }
    }

    /// Its round-trip time.
    #[must_use]
    pub const fn rtt(self) -> Duration {
        Duration::from_micros(match self {
            Self::Lan => 100,
            Self::Campus => 1_000,
            Self::SuperSinet => 3_500,
            Self::IndianaFlorida => 30_000,
            Self::Continental => 20_000,
            Self::Transatlantic => 80_000,
            Self::Satellite => 600_000,
        })
    }

    /// The link: both directions alike, with a queue of 1 MB in front of the rate, as a middling router has.
    #[must_use]
    pub fn link(self) -> Link {
        let (rate_bps, loss) = match self {
            Self::IndianaFlorida => (100_000_000, 0.0),
            Self::Satellite => (50_000_000, 1e-4),
            _ => (1_000_000_000, 0.0),
        };
        Link { loss, ..Link::new(self.rtt(), rate_bps) }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|profile| profile.name()).collect();
            format!("no profile is called {text:?}; there are {}", names.join(", "))
        })
    }
}
