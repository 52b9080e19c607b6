//! From `penstock serve` to ready.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use site::folder::SiteFolder;

use super::served::{check_program, serve};
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

/// Longer is a failure, not a slow start.
const LIMIT: Duration = Duration::from_secs(60);

const SIDES: &[Side] = &[
    Side::shown("on an empty folder", Unit::Milliseconds).with(Target::AtMost(1000.0)),
    Side::shown("on the same folder again", Unit::Milliseconds),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    vec![Benchmark {
        name: "start",
        asks: "How long from `penstock serve` to the greeting of its FTP door?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(600),
        set_up: |setting| {
            Box::pin(async move {
                check_program(setting)?;
                let setting =
                    Setting { folder: setting.folder.clone(), penstock: setting.penstock.clone(), ..*setting };
                Ok(Box::new(Start { setting, folders: 0 }) as Box<dyn Contest>)
            })
        },
    }]
}

struct Start {
    setting: Setting,
    folders: usize,
}

#[async_trait(?Send)]
impl Contest for Start {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        if side == 0 {
            self.folders += 1;
        }
        let path: PathBuf = self.setting.path(format!("site{}", self.folders));
        let folder = SiteFolder::new(path);
        let began = Instant::now();
        let mut process = serve(&self.setting, &folder)?;
        // A site that ran before has told of doors that are closed; those of this process are looked for.
        let id = process.id();
        let told = || folder.doors().ok().filter(|doors| doors.process == id).filter(|doors| greets(doors.ftp));
        process.wait_for("a greeting", LIMIT, told).await?;
        let elapsed = began.elapsed();
        process.stop().await;
        Ok(elapsed.as_secs_f64() * 1e3)
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "first start: CA, certificates, catalogue, two disk volumes, ten cartridges; stopped in order between"
                .to_owned(),
        ]
    }
}

/// Whether the FTP door says that it is ready.
fn greets(address: SocketAddr) -> bool {
    let greeting = || -> std::io::Result<[u8; 3]> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut code = [0; 3];
        stream.read_exact(&mut code)?;
        Ok(code)
    };
    greeting().is_ok_and(|code| &code == b"220")
}
