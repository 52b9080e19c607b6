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

/// Measures it all.
///
/// # Errors
///
/// If a lab, a site or a transfer fails.
pub fn run(effort: &Effort) -> anyhow::Result<Table> {
    let mut table = Table::new("HPSS over Super-SINET, 2003");
    defaults(effort, &mut table)?;
    buffers(effort, &mut table)?;
    handshake(effort, &mut table)?;
    hops(effort, &mut table)?;
    fleet(effort, &mut table)?;
    clients(effort, &mut table)?;
    small(effort, &mut table)?;
    Ok(table)
}

fn with_file(effort: &Effort, place: &Place) -> anyhow::Result<Bench> {
    let bench = effort.start(place)?;
    bench.store("file", effort.size_bytes, &Manner::streams(4))?;
    Ok(bench)
}

fn milliseconds(profile: Profile) -> f64 {
    profile.rtt().as_secs_f64() * 1e3
}

fn defaults(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "round trip, ms";
    for profile in [Profile::Lan, Profile::SuperSinet, Profile::Continental, Profile::Transatlantic] {
        let (bench, at) = (with_file(effort, &Place::new(profile.link()))?, milliseconds(profile));
        let size = effort.size_bytes;
        for (series, streams) in [("get, one stream", 1), ("get, automatic", client::network::AUTO)] {
            let beside = if streams == 1 {
                effort.iperf3(&bench.lab, "mover1", "client", 1, 0)
            } else {
                let streams = client::network::streams_for(profile.rtt(), 125e6, window());
                effort.iperf3(&bench.lab, "mover1", "client", streams, 0)
            };
            let rate = bench.rate(effort, "file", size, &Manner::streams(streams))?;
            let found = match profile {
                Profile::SuperSinet => "about half of the LAN",
                _ => "",
            };
            table.rows.push(rate_row(DEFAULTS, along, at, series.to_owned(), rate, beside, found));
            let wanted = if at < 25.0 { 0.97 } else { 0.95 };
            if at > 1.0 && (streams != 1 || at < 25.0) {
                let what = format!("{series} at {at} ms to iperf3 with as many streams");
                table.ratio(&what, Some(rate), beside, Some(wanted), "");
            }
        }
        let beside = effort.iperf3(&bench.lab, "client", "mover1", 1, 0);
        let rate = effort.median(|| Ok(megabits(size, bench.store("stored", size, &Manner::streams(1))?)))?;
        table.rows.push(rate_row(DEFAULTS, along, at, "put, one stream".to_owned(), rate, beside, ""));
        if (1.0..25.0).contains(&at) {
            table.ratio(&format!("put, one stream at {at} ms to iperf3"), Some(rate), beside, Some(0.97), "");
        }
    }
    let lan = table.value(DEFAULTS, "get, one stream", 0.1);
    let wan = table.value(DEFAULTS, "get, one stream", 3.5);
    table.ratio("WAN (3.5 ms) to LAN, one stream", wan, lan, Some(0.97), "0.5");
    Ok(())
}

fn window() -> u64 {
    daemon::tcp::largest_window_bytes().unwrap_or(2_621_440)
}

fn buffers(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "TCP buffer, KiB";
    let kib = effort.cases(&[16_u32, 32, 64, 128, 256, 512, 1024, 2048, 4096], &[64, 256, 1024]);
    for (series, profile) in [("LAN, 0.1 ms", Profile::Lan), ("WAN, 3.5 ms", Profile::SuperSinet)] {
        let bench = with_file(effort, &Place::new(profile.link()))?;
        for &kib in &kib {
            let bytes = kib << 10;
            let rate = bench.rate(effort, "file", effort.size_bytes, &Manner::streams(1).buffers(bytes))?;
            let beside = effort.iperf3(&bench.lab, "mover1", "client", 1, bytes);
            let found = match (profile, kib) {
                (Profile::SuperSinet, 512..=1024) => "nothing gained beyond this",
                _ => "",
            };
            table.rows.push(rate_row(BUFFERS, along, kib.into(), series.to_owned(), rate, beside, found));
        }
        if profile == Profile::SuperSinet {
            for streams in effort.cases(&[1_u16, 2, 3, 4, 16], &[1, 4]) {
                for kib in effort.cases(&[16_u32, 64, 256, 1024, 4096], &[64, 256]) {
                    let manner = Manner::streams(streams).buffers(kib << 10);
                    let rate = bench.rate(effort, "file", effort.size_bytes, &manner)?;
                    let found = if streams > 1 && kib < 512 { "helps, up to four" } else { "" };
                    table.rows.push(rate_row(
                        STREAMS,
                        along,
                        kib.into(),
                        format!("{streams} streams"),
                        rate,
                        None,
                        found,
                    ));
                }
            }
        }
    }
    let four = table.value(STREAMS, "4 streams", 64.0);
    let one = table.value(STREAMS, "1 streams", 64.0);
    table.ratio("four streams to one, with buffers of 64 KiB", four, one, None, "more, below 0.5 MB");
    Ok(())
}

fn handshake(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let along = "block, KiB";
    for profile in [Profile::SuperSinet, Profile::Continental] {
        let bench = with_file(effort, &Place::new(profile.link()))?;
        let at = milliseconds(profile);
        for kib in effort.cases(&[256_usize, 1024, 4096, 16_384], &[1024, 4096]) {
            for (protocol, handshake) in [("push", false), ("handshake", true)] {
                let mut manner = Manner::streams(1);
                manner.how.block_bytes = kib << 10;
                manner.how.handshake = handshake;
                let rate = bench.rate(effort, "file", effort.size_bytes, &manner)?;
                let found = if handshake { "a round trip for each block" } else { "" };
                table.rows.push(rate_row(
                    HANDSHAKE,
                    along,
                    kib as f64,
                    format!("{protocol}, {at} ms"),
                    rate,
                    None,
                    found,
                ));
            }
        }
    }
    let push = table.value(HANDSHAKE, "push, 20 ms", 1024.0);
    let asked = table.value(HANDSHAKE, "handshake, 20 ms", 1024.0);
    table.ratio("push to a handshake for each MiB, at 20 ms", push, asked, Some(5.0), "");
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
    for (on, medium) in media {
        let place = Place { medium, front: true, ..Place::new(link.clone()) };
        let bench = with_file(effort, &place)?;
        for (way, manner) in [("direct", Manner::streams(1)), ("double hop", Manner::streams(1).relayed())] {
            let rate = bench.rate(effort, "file", effort.size_bytes, &manner)?;
            let found = if way == "direct" { "" } else { "half" };
            table.rows.push(rate_row(HOPS, along, 0.1, format!("{way}, {on}"), rate, None, found));
        }
        let direct = table.value(HOPS, &format!("direct, {on}"), 0.1);
        let relayed = table.value(HOPS, &format!("double hop, {on}"), 0.1);
        let wanted = matches!(medium, Medium::Shared { .. }).then_some(1.9);
        table.ratio(&format!("direct to the double hop, {on}"), direct, relayed, wanted, "2");
    }
    Ok(())
}

/// Four movers and four clients, each behind a NIC of 200 Mb/s, so that one machine can carry all of them.
fn fleet(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let (nic, all) = (200_000_000, 4);
    let link = Link { rate_bps: 2_000_000_000, queue_bytes: 2_000_000, ..Profile::Lan.link() };
    let size = effort.size_bytes / 2;
    for movers in effort.cases(&[1_usize, 2, 4], &[1, 4]) {
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
    table.ratio("four movers direct to four through one gateway", direct, relayed, Some(3.6), "");
    Ok(())
}

fn clients(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let bench = with_file(effort, &Place::new(Profile::SuperSinet.link()))?;
    for clients in effort.cases(&[1_usize, 2, 4, 6, 8, 10], &[1, 4]) {
        let files = vec![("client".to_owned(), "file".to_owned()); clients];
        let manner = Manner::streams(1);
        let bytes = effort.size_bytes * clients as u64;
        let rate = effort.median(|| Ok(megabits(bytes, bench.fetch_at_once(&files, &manner)?)))?;
        let found = "the sum rises to the link's rate";
        table.rows.push(rate_row(CLIENTS, "clients", clients as f64, "all together".to_owned(), rate, None, found));
    }
    Ok(())
}

/// 64 KiB each, over one session's pipelined channel and a few sessions.
fn small(effort: &Effort, table: &mut Table) -> anyhow::Result<()> {
    let count = if effort.quick { 200 } else { 1_000 };
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
        table.ratio(&format!("{series}: time at 0.1 ms to time at 80 ms"), near, far, Some(0.33), "");
    }
    Ok(())
}
