//! What encryption costs, by clients and client hosts, as the Open Science Grid asked in 2009.
//!
//! The grid's three levels were clear, integrity (`PROT S`) and private over GSI. Integrity alone is a level of GSI's own
//! and has no counterpart in TLS 1.3, so it takes the grid doors: it is left out and the table says so. It is not
//! imitated.

use netsim::Profile;

use super::{
    bench::{Effort, Manner, Place, megabits, rate_row},
    table::{Row, Table},
};

const RATE: &str = "Rate of all clients together";
const COST: &str = "Processor time of the mover for each GB";

/// Measures it all.
///
/// # Errors
///
/// If a lab, a site or a transfer fails.
pub fn run(effort: &Effort) -> anyhow::Result<Table> {
    let mut table = Table::new("Encryption by clients, after OSG 2009");
    let size = effort.size_bytes / 2;
    for hosts in [1_usize, 2] {
        let place = Place { clients: hosts, ..Place::new(Profile::Lan.link()) };
        let bench = effort.start(&place)?;
        bench.store("file", size, &Manner::streams(1))?;
        effort.says(&format!("osg-2009: {hosts} client hosts"));
        for (level, private) in [("clear", false), ("private (TLS)", true)] {
            let manner = Manner { private, ..Manner::streams(1) };
            for clients in effort.cases(&[1_usize, 2, 4, 8], &[1, 4]) {
                let files: Vec<_> = (0..clients)
                    .map(|client| {
                        let host = if client % hosts == 0 { "client" } else { "client2" };
                        (host.to_owned(), "file".to_owned())
                    })
                    .collect();
                let bytes = size * clients as u64;
                let before = bench.site().mover_seconds();
                let rate = effort.median(|| Ok(megabits(bytes, bench.fetch_at_once(&files, &manner)?)))?;
                let spent = bench.site().mover_seconds() - before;
                let series = format!("{level}, {}", if hosts == 1 { "one host" } else { "two hosts" });
                let found = "little between clear and private on a link of 1 Gb/s";
                table.rows.push(rate_row(RATE, "clients", clients as f64, series.clone(), rate, None, found));
                let gigabytes = bytes as f64 * f64::from(effort.repeat.max(1)) / 1e9;
                table.rows.push(Row {
                    experiment: COST,
                    along: "clients",
                    at: clients as f64,
                    series,
                    value: spent / gigabytes,
                    unit: "s",
                    iperf3: None,
                    found: "",
                });
            }
        }
    }
    let clear = table.value(RATE, "clear, one host", 1.0);
    let private = table.value(RATE, "private (TLS), one host", 1.0);
    table.notes.push(
        "integrity (`PROT S`) is not measured: it is a level of GSI, which takes the grid doors; FTP over TLS refuses it"
            .to_owned(),
    );
    table.ratio("private to clear, one client", private, clear, None, "");
    Ok(table)
}
