//! HPSS between Tsukuba and Tokyo, 2003: Super-SINET, 3.5 ms, 1 Gb/s.
//!
//! What was reported: transfers over the WAN reached about half of the LAN's rate; TCP buffers beyond 0.5 to 1 MB gained
//! nothing; up to four parallel streams helped below that; the default protocol's handshake for each block cost a round
//! trip each; and going through the gateway's host ("double hop") halved the rate.

use netsim::{Link, Medium, Profile};

use super::{
    bench::{Bench, Effort, Manner, Place, megabits, rate_row},
    table::Table,
};

const DEFAULTS: &str = "Penstock with its defaults";
const BUFFERS: &str = "One stream at 3.5 ms against TCP buffers";
const STREAMS: &str = "Streams at 3.5 ms against TCP buffers";
const HANDSHAKE: &str = "Push against a handshake for each block";
const HOPS: &str = "Direct against the double hop";
const FLEET: &str = "Movers at once, direct and through one gateway";
const CLIENTS: &str = "Concurrent clients at 3.5 ms";
const SMALL: &str = "Many small files";

/// One question's measurements.
type Part = fn(&Effort, &mut Table) -> anyhow::Result<()>;

/// Measures it all.
///
/// # Errors
///
/// If a lab, a site or a transfer fails.
pub fn run(effort: &Effort) -> anyhow::Result<Table> {
    let mut table = Table::new("HPSS over Super-SINET, 2003");
    let parts: [(&str, Part); 7] = [
        ("defaults", defaults),
        ("buffers and streams", buffers),
        ("push and handshake", handshake),
        ("direct and double hop", hops),
        ("movers at once", fleet),
        ("concurrent clients", clients),
        ("small files", small),
    ];
    for (name, part) in parts {
        effort.says(&format!("hpss-2003: {name}"));
        part(effort, &mut table)?;
    }
    table.notes.push(
        "a handshake costs one round trip for each block, here as in HPSS: announcement and answer are that round trip, the \
         block follows the answer, the word that it is complete follows the block, and the next announcement follows that at \
         once. At 20 ms and 1 Gb/s a block of 1 MiB takes 8.9 ms, and 28.9 ms with its handshake: no more than 3.25 times \
         can be gained on a path that is otherwise used well, whatever the push does"
            .to_owned(),
    );
    Ok(table)
}

fn with_file(effort: &Effort, place: &Place, size: u64) -> anyhow::Result<Bench> {
    let bench = effort.start(place)?;
    bench.store("file", size, &Manner::streams(4))?;
    Ok(bench)
}

fn milliseconds(profile: Profile) -> f64 {
    profile.rtt().as_secs_f64() * 1e3
}

fn defaults(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let profiles = [Profile::Lan, Profile::SuperSinet, Profile::Continental, Profile::Transatlantic];
    for profile in effort.cases(&profiles, &[Profile::Lan, Profile::SuperSinet, Profile::Transatlantic]) {
        effort.says(&format!("hpss-2003: defaults at {} ms", milliseconds(profile)));
        let bench = effort.start(&Place::new(profile.link()))?;
        // Where one stream cannot fill the link, the number that is chosen is what is asked about.
        let chosen = client::network::streams_for(profile.rtt(), 125e6, window());
        let mut ways = vec![("one stream", 1, 1), ("automatic", client::network::AUTO, chosen)];
        if chosen == 1 {
            ways.pop();
        } else if effort.quick {
            ways.remove(0);
        }
        for way in ways {
            for verb in ["put", "get"] {
                default_way(effort, table, (&bench, profile), way, verb)?;
            }
        }
    }
    for verb in ["get, one stream", "put, one stream"] {
        let (lan, wan) = (table.value(DEFAULTS, verb, 0.1), table.value(DEFAULTS, verb, 3.5));
        table.ratio(&format!("WAN (3.5 ms) to LAN: {verb}"), wan, lan, effort.wanted(0.97), "0.5");
    }
    Ok(())
}

/// One way there or back, beside iperf3 and Globus, all in turns.
fn default_way(
    effort: &Effort,
    table: &mut Table,
    (bench, profile): (&Bench, Profile),
    (word, streams, count): (&str, u16, u16),
    verb: &str,
) -> anyhow::Result<()> {
    let (along, at, size) = ("round trip, ms", milliseconds(profile), effort.whole_bytes());
    let (from, to) = if verb == "put" { ("client", "mover1") } else { ("mover1", "client") };
    let manner = Manner::streams(streams);
    let sides = effort.in_turns(
        || match verb {
            "put" => Ok(megabits(size, bench.store("file", size, &manner)?)),
            _ => Ok(megabits(size, bench.fetch("client", "file", &manner)?)),
        },
        || effort.iperf3(&bench.lab, from, to, size, count, 0),
        || if effort.quick { Ok(None) } else { effort.globus(bench, size, count, verb == "get") },
    )?;
    let series = format!("{verb}, {word}");
    let found = if profile == Profile::SuperSinet { "about half of the LAN" } else { "" };
    table.rows.push(rate_row(DEFAULTS, along, at, series.clone(), sides.ours, sides.iperf3, found));
    if let Some(globus) = sides.globus {
        table.rows.push(rate_row(DEFAULTS, along, at, format!("Globus: {series}"), globus, None, ""));
    }
    let asked = if streams == 1 { at < 25.0 } else { at > 25.0 };
    if at > 1.0 && asked {
        let wanted = effort.wanted(if at < 25.0 { 0.97 } else { 0.95 });
        table.add_ratio(&format!("{series} at {at} ms to iperf3 with {count}"), sides.to_iperf3, wanted, "");
    }
    table.add_ratio(&format!("{series} at {at} ms to Globus"), sides.to_globus, None, "");
    Ok(())
}

fn window() -> u64 {
    daemon::tcp::largest_window_bytes().unwrap_or(2_621_440)
}

/// Bits a second that such windows carry at most.
fn expected(link: &Link, streams: u16, window_bytes: u32) -> f64 {
    let windows = f64::from(streams) * f64::from(window_bytes) * 8.0 / link.rtt.as_secs_f64();
    windows.min(link.rate_bps as f64)
}

fn buffers(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "TCP buffer, KiB";
    let kib = effort.cases(&[16_u32, 32, 64, 128, 256, 512, 1024, 2048, 4096], &[64, 1024]);
    for (series, profile) in [("LAN, 0.1 ms", Profile::Lan), ("WAN, 3.5 ms", Profile::SuperSinet)] {
        let (link, bytes) = (profile.link(), effort.size_bytes);
        let bench = with_file(effort, &Place::new(link.clone()), bytes)?;
        // A file for each size that is moved: parts of one would be another question.
        let file = |size: u64| -> anyhow::Result<String> {
            let name = format!("file-{size}");
            if size != bytes {
                bench.store(&name, size, &Manner::streams(4))?;
                return Ok(name);
            }
            Ok("file".to_owned())
        };
        for &kib in &kib {
            let size = effort.bounded(expected(&link, 1, kib << 10));
            let rate = bench.rate(effort, &file(size)?, size, &Manner::streams(1).buffers(kib << 10))?;
            let beside = effort.iperf3(&bench.lab, "mover1", "client", size, 1, kib << 10);
            let found = match (profile, kib) {
                (Profile::SuperSinet, 512..=1024) => "nothing gained beyond this",
                _ => "",
            };
            table.rows.push(rate_row(BUFFERS, along, kib.into(), series.to_owned(), rate, beside, found));
        }
        if profile == Profile::SuperSinet {
            for streams in effort.cases(&[1_u16, 2, 3, 4, 16], &[1, 4]) {
                for kib in effort.cases(&[16_u32, 64, 256, 1024, 4096], &[64]) {
                    let size = effort.bounded(expected(&link, streams, kib << 10));
                    let manner = Manner::streams(streams).buffers(kib << 10);
                    let rate = bench.rate(effort, &file(size)?, size, &manner)?;
                    let found = if streams > 1 && kib < 512 { "helps, up to four" } else { "" };
                    let series = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
                    table.rows.push(rate_row(STREAMS, along, kib.into(), series, rate, None, found));
                }
            }
        }
    }
    let (four, one) = (table.value(STREAMS, "4 streams", 64.0), table.value(STREAMS, "1 stream", 64.0));
    table.ratio("four streams to one, with buffers of 64 KiB", four, one, None, "more, below 0.5 MB");
    Ok(())
}

fn handshake(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "block, KiB";
    let profiles = [Profile::SuperSinet, Profile::Continental, Profile::Transatlantic];
    for profile in effort.cases(&profiles, &[Profile::Continental]) {
        let (size, at) = (effort.whole_bytes(), milliseconds(profile));
        let bench = with_file(effort, &Place::new(profile.link()), size)?;
        for kib in effort.cases(&[256_usize, 1024, 4096, 16_384], &[1024]) {
            let mut push = Manner::streams(1);
            push.how.block_bytes = kib << 10;
            let rate = bench.rate(effort, "file", size, &push)?;
            table.rows.push(rate_row(HANDSHAKE, along, kib as f64, format!("push, {at} ms"), rate, None, ""));
            // A part is enough of what takes so long: each block takes as long as the one before.
            let block_bits = (kib << 10) as f64 * 8.0;
            let block = profile.rtt().as_secs_f64() + block_bits / profile.link().rate_bps as f64;
            let size = effort.bounded(block_bits / block * 2.0).max((8 * kib as u64) << 10);
            bench.store("part", size, &Manner::streams(4))?;
            let mut asked = push.clone();
            asked.how.handshake = true;
            let rate = bench.rate(effort, "part", size, &asked)?;
            let series = format!("handshake, {at} ms");
            table.rows.push(rate_row(HANDSHAKE, along, kib as f64, series, rate, None, "a round trip for each block"));
        }
        let (push, asked) = (format!("push, {at} ms"), format!("handshake, {at} ms"));
        let (push, asked) = (table.value(HANDSHAKE, &push, 1024.0), table.value(HANDSHAKE, &asked, 1024.0));
        let wanted = effort.wanted(5.0).filter(|_| profile == Profile::Continental);
        table.ratio(&format!("push to a handshake for each MiB, at {at} ms"), push, asked, wanted, "");
    }
    Ok(())
}

fn hops(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "round trip, ms";
    let link = Profile::Lan.link();
    let media = [
        ("a switch", Medium::Switched),
        ("one medium", Medium::Shared { rate_bps: link.rate_bps }),
        ("half-duplex hosts", Medium::HalfDuplex { rate_bps: link.rate_bps }),
    ];
    for (on, medium) in effort.cases(&media, &media[1..2]) {
        let place = Place { medium, front: true, ..Place::new(link.clone()) };
        let bench = with_file(effort, &place, effort.size_bytes)?;
        for (way, manner) in [("direct", Manner::streams(1)), ("double hop", Manner::streams(1).relayed())] {
            let rate = bench.rate(effort, "file", effort.size_bytes, &manner)?;
            let found = if way == "direct" { "" } else { "half" };
            table.rows.push(rate_row(HOPS, along, 0.1, format!("{way}, {on}"), rate, None, found));
        }
        let direct = table.value(HOPS, &format!("direct, {on}"), 0.1);
        let relayed = table.value(HOPS, &format!("double hop, {on}"), 0.1);
        let wanted = matches!(medium, Medium::Shared { .. }).then_some(1.9).and_then(|ratio| effort.wanted(ratio));
        table.ratio(&format!("direct to the double hop, {on}"), direct, relayed, wanted, "2");
    }
    Ok(())
}

/// Four movers and four clients, each behind a NIC of 200 Mb/s, so that one machine can carry all of them.
fn fleet(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let (nic, all) = (200_000_000, 4);
    let link = Link { rate_bps: 2_000_000_000, queue_bytes: 2_000_000, ..Profile::Lan.link() };
    let size = effort.size_bytes / 2;
    for movers in effort.cases(&[1_usize, 2, 4], &[4]) {
        let place = Place {
            nic_bps: Some(nic),
            clients: movers,
            movers: all,
            front: true,
            apart: true,
            ..Place::new(link.clone())
        };
        let bench = effort.start(&place)?;
        let hosts: Vec<_> = (1..=movers)
            .map(|number| if number == 1 { "client".to_owned() } else { format!("client{number}") })
            .collect();
        let names: Vec<_> = (1..=movers).map(|number| format!("mover{number}")).collect();
        for name in &names {
            let manner = Manner { class: Some(name.clone()), ..Manner::streams(1) };
            bench.store(name, size, &manner)?;
        }
        for (way, manner) in [("direct", Manner::streams(1)), ("through one gateway", Manner::streams(1).relayed())] {
            let files: Vec<_> = hosts.iter().cloned().zip(names.iter().cloned()).collect();
            let rate = effort.median(|| Ok(megabits(size * movers as u64, bench.fetch_at_once(&files, &manner)?)))?;
            table.rows.push(rate_row(FLEET, "movers", movers as f64, way.to_owned(), rate, None, ""));
        }
    }
    let direct = table.value(FLEET, "direct", 4.0);
    let relayed = table.value(FLEET, "through one gateway", 4.0);
    table.ratio("four movers direct to four through one gateway", direct, relayed, effort.wanted(3.6), "");
    Ok(())
}

fn clients(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let size = effort.size_bytes / 2;
    let bench = with_file(effort, &Place::new(Profile::SuperSinet.link()), size)?;
    for clients in effort.cases(&[1_usize, 2, 4, 6, 8, 10], &[1, 4]) {
        let files = vec![("client".to_owned(), "file".to_owned()); clients];
        let manner = Manner::streams(1);
        let bytes = size * clients as u64;
        let rate = effort.median(|| Ok(megabits(bytes, bench.fetch_at_once(&files, &manner)?)))?;
        let found = "the sum rises to the link's rate";
        table.rows.push(rate_row(CLIENTS, "clients", clients as f64, "all together".to_owned(), rate, None, found));
    }
    Ok(())
}

/// 64 KiB each, over one session's pipelined channel and a few sessions.
fn small(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let count = if effort.quick { 100 } else { 1_000 };
    for profile in [Profile::Lan, Profile::Transatlantic] {
        let bench = effort.start(&Place::new(profile.link()))?;
        let (put, get) = bench.small_files(count, 64 << 10)?;
        for (series, took) in [("put", put), ("get", get)] {
            let mut row = rate_row(
                SMALL,
                "round trip, ms",
                milliseconds(profile),
                format!("{series} {count} × 64 KiB"),
                took.as_secs_f64(),
                None,
                "",
            );
            row.unit = "s";
            table.rows.push(row);
        }
    }
    for series in ["put", "get"] {
        let series = format!("{series} {count} × 64 KiB");
        let (near, far) = (table.value(SMALL, &series, 0.1), table.value(SMALL, &series, 80.0));
        // At most three times as long.
        table.ratio(&format!("{series}: time at 0.1 ms to time at 80 ms"), near, far, effort.wanted(0.33), "");
    }
    Ok(())
}
