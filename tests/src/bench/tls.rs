//! Data over TLS, against what rustls alone carries.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Client, Ready};
use daemon::Clock;
use daemon::pki::{Holder, SiteCa};
use daemon::role::Role;
use daemon::tls::{Clients, Credential, Expect, HotCredential, Trust, TrustSource, client_config, server_config};
use daemon::trust::{Requirement, TrustOptions};
use rustls::{ClientConfig, ServerConfig};

use super::moves::{Way, data_tls, fetch};
use super::streams::Stocked;
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit, plain};

const RATE: Unit = Unit::GigabytesPerSecond;
const ALONE: &str = "rustls alone, 1 stream";

const SIDES: &[Side] = &[
    Side::shown(ALONE, RATE),
    Side::compared("rustls alone, both ends on one core", RATE, ALONE),
    Side::compared("Penstock, mover to client, PROT P, 1 stream", RATE, ALONE).with(Target::RatioAtLeast(0.8)),
    Side::compared("Penstock, mover to client, PROT P, MODE E, 4 streams", RATE, ALONE),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    vec![Benchmark {
        name: "tls",
        asks: "What does encryption leave of a stream, beside rustls alone with the same suite and the same receiver?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(900),
        set_up: |setting| Box::pin(set_up(setting)),
    }]
}

struct Tls {
    stocked: Stocked,
    session: Client<Ready>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    suite: String,
}

async fn set_up(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let (server, client) = pair(setting)?;
    let stocked = Stocked::start(setting, 1).await?;
    let session = stocked.site.session(true).await?;
    Ok(Box::new(Tls { stocked, session, server, client, suite: String::new() }))
}

/// Both ends as Penstock's processes configure them.
fn pair(setting: &Setting) -> anyhow::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let clock = Clock::real();
    let ca = SiteCa::in_memory("bench", &clock)?;
    let hosts = ["127.0.0.1".to_owned()];
    let certificate = setting.path("mover.pem");
    ca.issue(&Holder::Part { role: Role::Mover, name: "mover", hosts: &hosts }, &clock)?.create(&certificate)?;
    let authority = setting.path("ca.pem");
    std::fs::write(&authority, ca.certificate_pem())?;
    let credential = HotCredential::fixed(Credential::from_files(&certificate, &certificate)?);
    let options = TrustOptions { signing_policy: Requirement::IfPresent, ..TrustOptions::default() };
    let trust = Trust::load(TrustSource::at(&authority), options)?;
    let server = server_config(&credential, &Clients::Anonymous, &[]);
    Ok((server, client_config(None, &trust, &Expect::Host, &[])))
}

#[async_trait(?Send)]
impl Contest for Tls {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let bytes = self.stocked.bytes;
        let streams = match side {
            0 | 1 => {
                let core = (side == 1).then_some(0);
                let (rate, suite) = plain::rustls_pair(self.server.clone(), self.client.clone(), bytes, core).await?;
                self.suite = suite;
                return Ok(rate);
            }
            2 => 1,
            _ => 4,
        };
        let way = Way { tls: Some(data_tls(&self.session)?), ..Way::push(streams) };
        Ok(fetch(&mut self.session, &self.stocked.path, bytes, &way).await?.rate())
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("{}, {}", self.stocked.size(), self.suite)]
    }
}
