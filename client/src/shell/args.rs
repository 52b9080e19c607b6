//! The command line of `pftp`, as data: help, completions and the manual page all come from here.

use std::path::PathBuf;

use clap::Parser;

use crate::Target;

/// Parallel FTP: files straight between this machine and the movers that hold them.
///
/// Without -c, commands come from the terminal or from standard input. A script stops at the first command that fails;
/// the exit status is 0 if all worked, 1 if a command failed, 2 if there was no session, 130 if it was interrupted.
///
/// The certificate is the first found of --proxy, --cert, $X509_USER_PROXY, $X509_USER_CERT and $X509_USER_KEY,
/// /tmp/x509up_uUID, ~/.config/penstock/{cert,key}.pem, ~/.globus/user{cert,key}.pem. Authorities: --ca, $X509_CERT_DIR,
/// ~/.config/penstock/ca.pem, ~/.globus/certificates, /etc/grid-security/certificates, the system's.
#[derive(Debug, Clone, Parser)]
#[command(name = "pftp", version, max_term_width = 100)]
pub struct Args {
    /// Server, as `[user@]HOST[:PORT]`; the port is 2811 if not given
    pub target: Option<Target>,
    /// Run these commands and exit; separated by semicolons or given several times
    #[arg(short = 'c', long = "command", value_name = "COMMANDS")]
    pub commands: Vec<String>,
    /// Data connections for each mover; `auto` lets round-trip time and rate decide
    #[arg(short = 'w', long, value_name = "N", default_value = "4", value_parser = width)]
    pub width: u16,
    /// Largest block sent, such as 1M
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1M", value_parser = block_size)]
    pub block: usize,
    /// Class of service of stored files, by number or name
    #[arg(short = 'C', long = "cos", value_name = "COS")]
    pub class_of_service: Option<String>,
    /// This machine cannot be connected to: movers listen instead
    #[arg(long)]
    pub passive: bool,
    /// Addresses of this machine that movers connect to, if it has several networks: each gets a part of a large file
    #[arg(long, value_name = "ADDRESS", conflicts_with = "passive")]
    pub listen: Vec<std::net::IpAddr>,
    /// Sessions at once for many small files
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub sessions: u16,
    /// Ask for each block of a download and wait for it, as HPSS's PDATA_AND_MOVER did: slow, to be measured against
    #[arg(long)]
    pub handshake: bool,
    /// Protect data connections by TLS too
    #[arg(long)]
    pub private: bool,
    /// No TLS at all, for servers without
    #[arg(long, conflicts_with_all = ["private", "cert", "key", "proxy", "ca"])]
    pub clear: bool,
    /// Do not compare checksums with the server's catalogue
    #[arg(long)]
    pub no_verify: bool,
    /// Give files the time of their source
    #[arg(short = 'p', long)]
    pub preserve: bool,
    /// Certificate chain in PEM; may hold the key
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Key of --cert in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Proxy certificate in PEM
    #[arg(long, value_name = "FILE", conflicts_with = "cert")]
    pub proxy: Option<PathBuf>,
    /// Trusted authorities: a folder in the IGTF layout or a PEM bundle
    #[arg(long, value_name = "PATH")]
    pub ca: Option<PathBuf>,
    /// One JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
    /// Show what is said on the control connection
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Go on with the script when a command fails
    #[arg(short = 'k', long)]
    pub keep_going: bool,
    /// No progress line
    #[arg(long)]
    pub no_progress: bool,
    /// Seconds without a byte before a transfer is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub stall: u64,
    /// Print completions for a shell
    #[arg(long, value_name = "SHELL", hide = true)]
    pub completions: Option<clap_complete::Shell>,
    /// Print the manual page
    #[arg(long, hide = true)]
    pub man: bool,
}

/// Reads `65536`, `256K`, `1M`, `1MiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(format!("{text:?} is no size: write 65536, 256K, 1M or 2G")),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| format!("{text:?} is no size: write 65536, 256K, 1M or 2G"))
}

/// A number of streams, or `auto`.
pub(super) fn width(text: &str) -> Result<u16, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(crate::network::AUTO);
    }
    let number = text.parse().ok().filter(|width| (1..=64).contains(width));
    number.ok_or_else(|| format!("{text:?} is no width: between 1 and 64, or auto"))
}

/// A block size that makes sense.
pub(super) fn block_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if (4 << 10..=64 << 20).contains(&bytes) {
        Ok(bytes as usize)
    } else {
        Err(format!("{text} is no block size: between 4K and 64M is possible"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
        let args = Args::try_parse_from(["pftp", "-w8", "-b", "256K", "-C", "3", "me@host:21", "-c", "pwd"]).unwrap();
        assert_eq!((args.width, args.block, args.class_of_service.as_deref()), (8, 256 << 10, Some("3")));
        assert_eq!(Args::try_parse_from(["pftp", "-w", "auto"]).unwrap().width, crate::network::AUTO);
        for bad in [&["pftp", "-w0"][..], &["pftp", "-b", "1"], &["pftp", "--key", "k"], &["pftp", "host:x"]] {
            assert!(Args::try_parse_from(bad).is_err(), "{bad:?}");
        }
        assert_eq!((size("2G").unwrap(), size("1MiB").unwrap(), size("7").unwrap()), (2 << 30, 1 << 20, 7));
        assert!(size("99999999999T").is_err() && size("x").is_err() && size("").is_err());
    }
}
