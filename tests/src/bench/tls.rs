//! Data over TLS, against what rustls alone carries.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daemon::Clock;
use daemon::pki::{Holder, SiteCa};
use daemon::role::Role;
use daemon::tls::{Clients, Credential, Expect, HotCredential, Trust, TrustSource, client_config, server_config};
use daemon::trust::{Requirement, TrustOptions};
use rustls::{ClientConfig, ServerConfig};

use super::{Benchmark, Contest, Made, Rounds, Setting, Side, Unit, plain};

const ALONE: &str = "rustls alone, 1 stream";

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    const SIDES: &[Side] = &[
        Side::shown(ALONE, Unit::GigabytesPerSecond),
        Side::compared("rustls alone, both ends on one core", Unit::GigabytesPerSecond, ALONE),
    ];
    vec![Benchmark {
        name: "tls",
        asks: "What does encryption leave of a stream, beside rustls alone with the same suite and the same receiver?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(900),
        set_up,
    }]
}

struct Tls {
    bytes: u64,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    suite: String,
}

fn set_up(setting: &Setting) -> Made<'_> {
    Box::pin(async move {
        let (server, client) = pair(setting)?;
        let bytes = setting.size(2 << 30, 256 << 20);
        Ok(Box::new(Tls { bytes, server, client, suite: String::new() }) as Box<dyn Contest>)
    })
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
        let core = (side == 1).then_some(0);
        let (rate, suite) = plain::rustls_pair(self.server.clone(), self.client.clone(), self.bytes, core).await?;
        self.suite = suite;
        Ok(rate)
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("{} MiB a sample, {}", self.bytes >> 20, self.suite)]
    }
}
