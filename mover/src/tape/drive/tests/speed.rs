//! What the drive path carries over the virtual library: run by hand, optimised, it prints and judges nothing.
//!
//! `cargo test --release -p penstock-mover speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::*;

/// Wall time, and this thread's own: on a busy machine the second says what the path costs.
struct Watch(Instant, Duration);

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let part = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap());
    part(usage.user_time()) + part(usage.system_time())
}

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), cpu())
    }

    fn print(&self, what: &str, amount: f64, unit: &str) {
        let (wall, own) = (self.0.elapsed().as_secs_f64(), (cpu() - self.1).as_secs_f64());
        println!("{what}: {:.0} {unit}/s, {:.0} {unit} per CPU second", amount / wall, amount / own);
    }
}

/// Members of 64 MiB from memory, without a copy that a pipeline would not make.
struct Memory {
    left: u64,
    read: usize,
    data: Vec<u8>,
    sums: Sums,
}

impl MemberSource for Memory {
    fn next_member(&mut self) -> Result<Option<Member>, SourceError> {
        self.read = 0;
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        Ok(Some(Member::new(BitfileId(left), format!("file {left}"), self.data.len() as u64, self.sums)))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        buf.copy_from_slice(&self.data[self.read..self.read + buf.len()]);
        self.read += buf.len();
        Ok(buf.len())
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_large_members() {
    const MEMBERS: u64 = 32;
    let data: Vec<u8> = (0..64u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bytes = (MEMBERS * data.len() as u64) as f64;
    let mut bench = Bench::with(CartridgeKind::Data, 16 << 30);
    let sums = Sums::of(&data);
    let began = Watch::start();
    let report = bench.append_from(1, &mut Memory { left: MEMBERS, read: 0, data, sums }).unwrap();
    began.print("write, committed", bytes / 1e6, "MB");
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let began = Watch::start();
    let mut read = 0;
    let outcome = bench.drive.read(&wanted, &mut |_, part| {
        read += part.len();
        Ok(())
    });
    assert!(outcome.members.iter().all(Result::is_ok) && read as f64 == bytes);
    began.print("read, page cache", bytes / 1e6, "MB");
}

#[test]
#[ignore = "a measurement"]
fn speed_of_small_members() {
    let files: Vec<_> = (0..20_000).map(|n| File::new(n, &format!("dir/file{n}"), vec![1; 4096])).collect();
    let mut bench = Bench::with(CartridgeKind::Data, 16 << 30);
    let began = Watch::start();
    let report = bench.append(1, &files).unwrap();
    began.print("write of 4 KiB members", files.len() as f64, "members");
    let began = Watch::start();
    bench.check(&files, &report.members);
    began.print("read of 4 KiB members", files.len() as f64, "members");
    let began = Watch::start();
    assert_eq!(bench.drive.scan().unwrap().containers[0].members.len(), files.len());
    began.print("scan", files.len() as f64, "members");
}
