//! What the drive path carries over the virtual library: run by hand, optimised, it prints and judges nothing.
//!
//! `cargo test --release -p penstock-mover speed -- --ignored --nocapture`

use std::time::Instant;

use super::*;

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
    let began = Instant::now();
    let report = bench.append_from(1, &mut Memory { left: MEMBERS, read: 0, data, sums }).unwrap();
    println!("write, committed: {:.0} MB/s", bytes / began.elapsed().as_secs_f64() / 1e6);
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let began = Instant::now();
    let mut read = 0;
    let outcome = bench.drive.read(&wanted, &mut |_, part| {
        read += part.len();
        Ok(())
    });
    assert!(outcome.members.iter().all(Result::is_ok) && read as f64 == bytes);
    println!("read, page cache: {:.0} MB/s", bytes / began.elapsed().as_secs_f64() / 1e6);
}

#[test]
#[ignore = "a measurement"]
fn speed_of_small_members() {
    let files: Vec<_> = (0..20_000).map(|n| File::new(n, &format!("dir/file{n}"), vec![1; 4096])).collect();
    let mut bench = Bench::with(CartridgeKind::Data, 16 << 30);
    let began = Instant::now();
    let report = bench.append(1, &files).unwrap();
    println!("write of 4 KiB members: {:.0} a second", files.len() as f64 / began.elapsed().as_secs_f64());
    let began = Instant::now();
    bench.check(&files, &report.members);
    println!("read of 4 KiB members: {:.0} a second", files.len() as f64 / began.elapsed().as_secs_f64());
    let began = Instant::now();
    assert_eq!(bench.drive.scan().unwrap().containers[0].members.len(), files.len());
    println!("scan: {:.0} members a second", files.len() as f64 / began.elapsed().as_secs_f64());
}
