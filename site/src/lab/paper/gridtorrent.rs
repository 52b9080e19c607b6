//! GridTorrent: one file over parallel streams, and from several sources at once, on a LAN and between Indiana and
//! Florida (30 ms, 100 Mb/s).
//!
//! Sources hold whole replicas (`penstock admin replicate`), and each sends a part of the file.

use netsim::{Link, Profile};

use super::{
    bench::{Effort, Manner, Place, rate_row},
    table::{Row, Table},
};

const STREAMS: &str = "Parallel streams from one source";
const SOURCES: &str = "One file from several sources";
const BOTH: &str = "Several sources, four streams each";
const COST: &str = "Bytes on the wire beyond the file";
const SETUP: &str = "Time to log in";

/// What a host of the time had without tuning: 64 KiB.
const OLD_WINDOW_BYTES: u32 = 64 << 10;

/// TCP windows by what they are called; 0 leaves them to the kernel.
const WINDOWS: [(&str, u32); 2] = [("windows of 64 KiB", OLD_WINDOW_BYTES), ("the kernel's windows", 0)];

/// Measures it all.
///
/// # Errors
///
/// If a lab, a site or a transfer fails.
pub fn run(effort: &Effort) -> anyhow::Result<Table> {
    let mut table = Table::new("GridTorrent: parallel streams and several sources");
    let lan = Link { rate_bps: 1_000_000_000, ..Profile::Lan.link() };
    for (place, link) in [("LAN", lan), ("WAN", Profile::IndianaFlorida.link())] {
        // A tenth of the rate gets a quarter of the bytes.
        let size = if place == "LAN" { effort.size_bytes } else { effort.size_bytes / 4 };
        effort.says(&format!("gridtorrent: streams, {place}"));
        streams(effort, &mut table, place, &link, size)?;
        effort.says(&format!("gridtorrent: sources, {place}"));
        sources(effort, &mut table, place, &link, size)?;
    }
    let many = table.value(STREAMS, "WAN, windows of 64 KiB", 4.0);
    let one = table.value(STREAMS, "WAN, windows of 64 KiB", 1.0);
    table.ratio(
        "WAN: four streams to one, windows of 64 KiB",
        many,
        one,
        None,
        "streams add up until the link is full",
    );
    let count = if effort.quick { 2.0 } else { 4.0 };
    let many = table.value(SOURCES, "WAN, windows of 64 KiB", count);
    let one = table.value(SOURCES, "WAN, windows of 64 KiB", 1.0);
    table.ratio(
        &format!("WAN: {count} sources to one, windows of 64 KiB"),
        many,
        one,
        None,
        "sources add up until the link is full",
    );
    Ok(table)
}

fn streams(effort: &Effort, table: &mut Table, place: &str, link: &Link, size: u64) -> anyhow::Result<()> {
    let bench = effort.start(&Place::new(link.clone()))?;
    let slow = small(effort, link, size);
    bench.store("file", size, &Manner::streams(4))?;
    bench.store("small", slow, &Manner::streams(4))?;
    let setup = effort.median(|| Ok(bench.login_time()?.as_secs_f64() * 1e3))?;
    table.rows.push(other(SETUP, "round trip, ms", link.rtt.as_secs_f64() * 1e3, place, setup, "ms"));
    for count in effort.cases(&[1_u16, 2, 4, 8, 16], &[1, 4]) {
        for (windows, bytes) in effort.cases(&WINDOWS, &WINDOWS[..1]) {
            let size = if bytes == 0 { size } else { slow };
            let file = if bytes == 0 { "file" } else { "small" };
            let before = wire_bytes(&bench.lab);
            let rate = bench.rate(effort, file, size, &Manner::streams(count).buffers(bytes))?;
            let carried = (wire_bytes(&bench.lab) - before) as f64 / f64::from(effort.repeat.max(1));
            let beside = effort.iperf3(&bench.lab, "mover1", "client", size, count, bytes);
            let series = format!("{place}, {windows}");
            table.rows.push(rate_row(STREAMS, "streams", count.into(), series.clone(), rate, beside, ""));
            let percent = (carried / size as f64 - 1.0) * 100.0;
            table.rows.push(other(COST, "streams", count.into(), &series, percent, "%"));
        }
    }
    Ok(())
}

/// What one stream with an old window moves in a few seconds.
fn small(effort: &Effort, link: &Link, size: u64) -> u64 {
    let window_bps = f64::from(OLD_WINDOW_BYTES) * 8.0 / link.rtt.as_secs_f64();
    effort.bounded(window_bps.min(link.rate_bps as f64) * 2.0).min(size)
}

fn sources(effort: &Effort, table: &mut Table, place: &str, link: &Link, size: u64) -> anyhow::Result<()> {
    let counts = effort.cases(&[1_usize, 2, 4, 8, 16], &[1, 2]);
    let movers = counts.iter().copied().max().unwrap_or(1);
    let bench = effort.start(&Place { movers, ..Place::new(link.clone()) })?;
    // Large enough that sixteen sources have something to send.
    let size = small(effort, link, size).max(4_200_000 * movers as u64);
    bench.store("file", size, &Manner::streams(4))?;
    for count in counts {
        bench.replicate("file", count)?;
        for (experiment, streams) in [(SOURCES, 1), (BOTH, 4)] {
            for (windows, bytes) in effort.cases(&WINDOWS, &WINDOWS[..1]) {
                let rate = bench.rate(effort, "file", size, &Manner::streams(streams).buffers(bytes))?;
                let series = format!("{place}, {windows}");
                let found = if bytes > 0 { "rises with the sources until the link is full" } else { "" };
                table.rows.push(rate_row(experiment, "sources", count as f64, series, rate, None, found));
            }
        }
    }
    Ok(())
}

fn other(experiment: &'static str, along: &'static str, at: f64, series: &str, value: f64, unit: &'static str) -> Row {
    Row { experiment, along, at, series: series.to_owned(), value, unit, iperf3: None, found: "" }
}

/// What the link has carried towards the client, frames and all. Counters are published every tenth of a second.
fn wire_bytes(lab: &netsim::Lab) -> u64 {
    std::thread::sleep(std::time::Duration::from_millis(150));
    lab.counters("centre-home").bytes
}
