//! Gfarm, 2006: files on many file servers, each read by a client of its own, against one file server behind one NIC.
//!
//! Each NIC has 50 Mb/s here, so that sixteen of them fit on one machine; what matters is how the sum grows.

use netsim::{Link, Profile};

use super::{
    bench::{Effort, Manner, Place, megabits, rate_row},
    table::{Row, Table},
};

const RATE: &str = "Rate of all readers together";
const TIME: &str = "Time to read a data set of sixteen files";
const NIC_BPS: u64 = 50_000_000;
/// Files of the data set.
const FILES: usize = 16;

/// Measures it all.
///
/// # Errors
///
/// If a lab, a site or a transfer fails.
pub fn run(effort: &Effort) -> anyhow::Result<Table> {
    let mut table = Table::new("Gfarm, 2006: many file servers");
    let size = effort.size_bytes / 16;
    let link = Link { rate_bps: 2_000_000_000, queue_bytes: 2_000_000, ..Profile::Lan.link() };
    let counts = effort.cases(&[1_usize, 2, 4, 8, 16], &[1, 4]);
    let all = counts.iter().copied().max().unwrap_or(1);
    let place = Place { nic_bps: Some(NIC_BPS), clients: all, movers: all, ..Place::new(link) };
    let manner = Manner::streams(1);
    let host = |reader: usize| if reader == 0 { "client".to_owned() } else { format!("client{}", reader + 1) };

    effort.says("gfarm-2006: a file on each file server");
    let bench = effort.start(&Place { apart: true, ..place.clone() })?;
    for mover in 1..=all {
        let name = format!("mover{mover}");
        bench.store(&name, size, &Manner { class: Some(name.clone()), ..manner.clone() })?;
    }
    for &count in &counts {
        for (series, movers, found) in [
            ("a mover for each reader", count, "grows with the file servers"),
            ("one mover for all", 1, "one NIC is the limit"),
        ] {
            let files: Vec<_> =
                (0..count).map(|reader| (host(reader), format!("mover{}", reader % movers + 1))).collect();
            let rate = effort.median(|| Ok(megabits(size * count as u64, bench.fetch_at_once(&files, &manner)?)))?;
            add(&mut table, size, count, series, rate, found);
        }
    }
    drop(bench);

    effort.says("gfarm-2006: replicas of one file");
    let bench = effort.start(&place)?;
    bench.store("file", size, &manner)?;
    for &count in &counts {
        bench.replicate("file", count)?;
        let files: Vec<_> = (0..count).map(|reader| (host(reader), "file".to_owned())).collect();
        let rate = effort.median(|| Ok(megabits(size * count as u64, bench.fetch_at_once(&files, &manner)?)))?;
        add(&mut table, size, count, "one file, a replica for each reader", rate, "grows with the replicas");
    }
    let most = counts.iter().copied().max().unwrap_or(1) as f64;
    let many = table.value(RATE, "a mover for each reader", most);
    let one = table.value(RATE, "one mover for all", most);
    let shared = table.value(RATE, "one file, a replica for each reader", most);
    table.ratio(&format!("{most} movers to one, with {most} readers"), many, one, None, "near the number of servers");
    table.ratio(&format!("{most} replicas to one mover, with {most} readers"), shared, one, None, "near their number");
    Ok(table)
}

fn add(table: &mut Table, size: u64, readers: usize, series: &str, rate: f64, found: &'static str) {
    table.rows.push(rate_row(RATE, "readers", readers as f64, series.to_owned(), rate, None, found));
    table.rows.push(Row {
        experiment: TIME,
        along: "readers",
        at: readers as f64,
        series: series.to_owned(),
        value: (size * FILES as u64) as f64 * 8.0 / 1e6 / rate,
        unit: "s",
        iperf3: None,
        found: "",
    });
}
