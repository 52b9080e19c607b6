//! Whole tapes under seeded faults: whatever happens, every committed member is whole and nothing else is there.

use std::collections::BTreeMap;

use super::*;

/// What the catalogue would know: every member of every committed container.
#[derive(Default)]
struct Catalogue {
    members: BTreeMap<u64, (File, Written)>,
    last: u32,
}

fn break_something(bench: &Bench, random: &mut StdRng, next_block: u64) -> &'static str {
    let block = next_block + random.random_range(0..30);
    match random.random_range(0..9) {
        0 => {
            bench.vtl.fail_write(0, block, Sense::new(SenseKey::MediumError, 0x0c, 0), 1);
            "write error"
        }
        1 => {
            bench.vtl.fail_sync(0, Sense::new(SenseKey::HardwareError, 0x44, 0));
            "deferred error"
        }
        2 => {
            bench.vtl.fail_write(0, block, Sense::new(SenseKey::UnitAttention, 0x29, 0x02), 1);
            "reset seen by a write"
        }
        3 => {
            bench.vtl.fail_next(Unit::Drive(0), Some("WRITE(6)"), Failure::Lost);
            "write lost"
        }
        4 => {
            bench.vtl.fail_next(Unit::Drive(0), Some("WRITE(6)"), Failure::AnswerLost);
            "answer to a write lost"
        }
        5 => {
            bench.vtl.fail_next(Unit::Drive(0), Some("WRITE FILEMARKS(6)"), Failure::AnswerLost);
            "answer to a filemark lost"
        }
        6 => {
            bench.vtl.fail_write(0, block, Sense::new(SenseKey::HardwareError, 0x10, 1), 2);
            "guard check"
        }
        7 => {
            bench.vtl.flip_bit(0, block);
            "flipped bit"
        }
        _ => "nothing",
    }
}

fn live(seed: u64, kind: CartridgeKind) {
    let mut random = random(seed);
    let mut bench = Bench::with(kind, 1 << 30);
    let mut catalogue = Catalogue::default();
    let mut epoch = 1;
    let mut bitfile = 1;
    for _ in 0..14 {
        let point = match bench.drive.append_point() {
            Ok(point) => point,
            // A fault of before shows now; asked again, the drive is set up anew.
            Err(_) => bench.drive.append_point().unwrap_or_else(|error| panic!("seed {seed}: {error}")),
        };
        assert!(point.last_sequence >= catalogue.last, "seed {seed}: a committed container is gone");
        let count = random.random_range(1..12);
        let files = random_files(&mut random, bitfile, count);
        bitfile += 100;
        let what = break_something(&bench, &mut random, point.next_block);
        let mut source = Files::new(&files);
        if random.random_range(0..5) == 0 {
            source.fails_at = Some((random.random_range(0..files.len()), random.random_range(0..4000)));
        }
        match bench.append_from(point.last_sequence + 1, &mut source) {
            Ok(report) => {
                assert_eq!(report.members.len(), files.len(), "seed {seed}, {what}");
                catalogue.last = report.container;
                for (file, written) in files.into_iter().zip(report.members) {
                    catalogue.members.insert(file.member.bitfile.0, (file, written));
                }
            }
            Err(error) => println!("{what}: {error}"),
        }
        if random.random_range(0..4) == 0 {
            epoch += 1;
            bench = bench.killed(epoch);
        }
    }
    epoch += 1;
    let mut bench = bench.killed(epoch);
    let (files, written): (Vec<_>, Vec<_>) = catalogue.members.values().cloned().unzip();
    bench.check(&files, &written);
    let scan = bench.drive.scan().unwrap();
    assert!(scan.unreadable.is_empty());
    let mut found: BTreeMap<u64, _> = BTreeMap::new();
    for (member, extent) in scan.containers.iter().flat_map(|container| &container.members) {
        found.insert(member.bitfile.0, (member.clone(), extent.clone()));
    }
    for (bitfile, (file, written)) in &catalogue.members {
        let (member, extent) = &found[bitfile];
        assert_eq!((member, extent), (&file.member, &written.extent), "seed {seed}");
    }
    // A container may be on the tape that the catalogue never heard of, if only the answer was lost; it is whole too.
    let wanted: Vec<_> = found
        .values()
        .map(|(member, extent)| Wanted {
            bitfile: member.bitfile,
            extent: extent.clone(),
            crc32c: Some(member.sums.crc32c),
            range: None,
        })
        .collect();
    let (_, report) = bench.read(&wanted);
    assert!(report.stopped.is_none() && report.members.iter().all(Result::is_ok), "seed {seed}: {report:?}");
}

#[test]
fn every_committed_member_survives_whatever_happens() {
    let seeds = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).map_or(0..10, |seed| seed..seed + 1);
    for seed in seeds {
        live(seed, if seed % 4 == 3 { CartridgeKind::Worm } else { CartridgeKind::Data });
    }
}

#[test]
fn power_cut_at_any_write_leaves_the_last_commit() {
    for cut in (0..24).step_by(2) {
        let mut bench = Bench::new();
        let mut random = random(1000 + cut);
        let first = random_files(&mut random, 1, 6);
        let one = bench.append(1, &first).unwrap();
        let second = random_files(&mut random, 100, 8);
        let sense = Sense::new(SenseKey::AbortedCommand, 0x4e, 0);
        bench.vtl.fail_write(0, one.next_block + cut, sense, 1);
        let outcome = bench.append(2, &second);
        let mut bench = bench.killed(2);
        let scan = bench.drive.scan().unwrap();
        assert_eq!(scan.containers.len(), if outcome.is_ok() { 2 } else { 1 }, "cut {cut}");
        bench.check(&first, &one.members);
        let next = scan.append_point.last_sequence + 1;
        let again = bench.append(next, &second).unwrap();
        bench.check(&second, &again.members);
    }
}
