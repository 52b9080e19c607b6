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
    for &count in &counts {
        for (series, movers) in [("a mover for each reader", count), ("one mover for all", 1)] {
            if movers == 1 && count > 1 && series == "a mover for each reader" {
                continue;
            }
            let place =
                Place { nic_bps: Some(NIC_BPS), clients: count, movers, apart: true, ..Place::new(link.clone()) };
            let bench = effort.start(&place)?;
            for mover in 1..=movers {
                let name = format!("mover{mover}");
                bench.store(&name, size, &Manner { class: Some(name.clone()), ..Manner::streams(1) })?;
            }
            let files: Vec<_> = (0..count)
                .map(|reader| {
                    let host = if reader == 0 { "client".to_owned() } else { format!("client{}", reader + 1) };
                    (host, format!("mover{}", reader % movers + 1))
                })
                .collect();
            let manner = Manner::streams(1);
            let rate = effort.median(|| Ok(megabits(size * count as u64, bench.fetch_at_once(&files, &manner)?)))?;
            let found = if movers == 1 { "one NIC is the limit" } else { "grows with the file servers" };
            table.rows.push(rate_row(RATE, "readers", count as f64, series.to_owned(), rate, None, found));
            table.rows.push(Row {
                experiment: TIME,
                along: "readers",
                at: count as f64,
                series: series.to_owned(),
                value: (size * FILES as u64) as f64 * 8.0 / 1e6 / rate,
                unit: "s",
                iperf3: None,
                found: "",
            });
        }
    }
    let most = counts.iter().copied().max().unwrap_or(1) as f64;
    let many = table.value(RATE, "a mover for each reader", most);
    let one = table.value(RATE, "one mover for all", most);
    table.ratio(&format!("{most} movers to one, with {most} readers"), many, one, None, "near the number of servers");
    Ok(table)
}
