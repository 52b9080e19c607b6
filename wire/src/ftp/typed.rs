//! Replies whose exact form clients parse: made by the server here, read by the client here.
//!
//! Owns the text of 127/129/227/229, striped passive, 213, 250 MLST, 257, 111, 200 PBSZ and Penstock's answer to
//! `SITE PARTIAL`. Checked against what Globus, gfal, ARC, curl and lftp accept (`docs/protocol/ftp.md`).

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use crate::{checksum::Algorithm, extent::Coverage};

use super::{
    FactSet, Facts, FtpPath, FtpTime, MAX_ADDRESSES, Reply, address,
    ranges::{format_ranges, parse_ranges},
};

/// A reply that does not say what was asked for: an error of the server, or text of another form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, the server said: {reply}")]
pub struct UnexpectedReply {
    /// What was asked for.
    pub expected: &'static str,
    /// What came.
    pub reply: Box<Reply>,
}

/// Ranges on one line of a `SITE PARTIAL` reply: a line stays near 4 KiB.
const RANGES_PER_LINE: usize = 100;

impl Reply {
    // ---- Addresses

    /// `227 Entering Passive Mode (h1,h2,h3,h4,p1,p2)`
    pub fn passive(address: &SocketAddrV4) -> Self {
        Self::new(227, format!("Entering Passive Mode ({})", address::format_comma(address)))
    }

    /// `127 Entering Passive Mode (…)`: the address of a delayed PASV or a GFD.47 transaction, after RETR or STOR.
    pub fn delayed_passive(address: &SocketAddrV4) -> Self {
        Self::new(127, format!("Entering Passive Mode ({})", address::format_comma(address)))
    }

    /// `229 Entering Extended Passive Mode (|||port|)`: on the host of the control connection (RFC 2428).
    pub fn extended_passive(port: u16) -> Self {
        Self::new(229, format!("Entering Extended Passive Mode (|||{port}|)"))
    }

    /// `229 Entering Extended Passive Mode (|1|10.0.0.7|port|)`: on another host; grid clients read it, others fail.
    pub fn extended_passive_at(address: &SocketAddr) -> Self {
        Self::new(229, format!("Entering Extended Passive Mode ({})", address::format_delimited(address)))
    }

    /// `129 Entering Extended Passive Mode (|1|10.0.0.7|port|)`: the address of a delayed EPSV.
    pub fn delayed_extended_passive(address: &SocketAddr) -> Self {
        Self::new(129, format!("Entering Extended Passive Mode ({})", address::format_delimited(address)))
    }

    /// `200 Passive delayed.`: the address follows after RETR or STOR.
    pub fn passive_is_delayed() -> Self {
        Self::new(200, "Passive delayed.")
    }

    /// The answer to SPAS: one address a line, in the form of RFC 2428 if the client asked `SPAS 2`.
    pub fn striped_passive(addresses: &[SocketAddr], extended: bool) -> Self {
        Self::striped(229, addresses, extended)
    }

    /// The same as a preliminary reply, 129: the addresses of a delayed SPAS, after RETR or STOR (ours).
    pub fn delayed_striped_passive(addresses: &[SocketAddr], extended: bool) -> Self {
        Self::striped(129, addresses, extended)
    }

    fn striped(code: u16, addresses: &[SocketAddr], extended: bool) -> Self {
        let write = if extended { address::format_delimited } else { address::format_either };
        let mut lines = vec!["Entering Striped Passive Mode.".to_owned()];
        lines.extend(addresses.iter().map(|address| format!(" {}", write(address))));
        lines.push("End".to_owned());
        Self::with_lines(code, lines)
    }

    /// Reads the address of a 227, 127, 229 or 129 reply; `control` is the host of the control connection, for the
    /// form that names none.
    ///
    /// The address is the server's word: any host, since movers are other hosts than the gateway.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if there is none.
    pub fn passive_address(&self, control: IpAddr) -> Result<SocketAddr, UnexpectedReply> {
        let text = self.first();
        let address = match self.code() {
            227 | 127 => {
                // RFC 1123 4.1.2.6: do not count on the parentheses.
                let start = text.find('(').map(|at| at + 1).or_else(|| text.find(|c: char| c.is_ascii_digit()));
                let text = &text[start.unwrap_or(text.len())..];
                let end = text.find(|c: char| !c.is_ascii_digit() && c != ',' && c != ' ').unwrap_or(text.len());
                address::parse_comma(&text[..end]).ok().map(SocketAddr::V4)
            }
            229 | 129 => {
                let inner = text.rsplit_once('(').and_then(|(_, rest)| rest.split_once(')'));
                let parsed = inner.and_then(|(inner, _)| address::parse_delimited(inner).ok());
                parsed.map(|(ip, port)| SocketAddr::new(ip.unwrap_or(control), port))
            }
            _ => None,
        };
        address.filter(|address| address.port() != 0).ok_or_else(|| self.unexpected("the address of a data port"))
    }

    /// Reads the addresses of the answer to SPAS, delayed or not.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if there is none, or more than [`MAX_ADDRESSES`].
    pub fn striped_addresses(&self) -> Result<Vec<SocketAddr>, UnexpectedReply> {
        let unexpected = || self.unexpected("the addresses of data ports");
        let count = self.middle().len();
        if !matches!(self.code(), 229 | 129) || count == 0 || count > MAX_ADDRESSES {
            return Err(unexpected());
        }
        let addresses = self.middle().iter().map(|line| address::parse_either(line).map_err(|_| unexpected()));
        addresses.collect()
    }

    // ---- Values

    /// `213 size`
    pub fn size(bytes: u64) -> Self {
        Self::new(213, bytes.to_string())
    }

    /// Reads the answer to SIZE.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it is no number of bytes that a file can have.
    pub fn as_size(&self) -> Result<u64, UnexpectedReply> {
        let size = if self.code() == 213 { self.first().trim().parse::<u64>().ok() } else { None };
        size.filter(|size| *size <= i64::MAX as u64).ok_or_else(|| self.unexpected("the size of a file"))
    }

    /// `213 YYYYMMDDHHMMSS`
    pub fn time(time: FtpTime) -> Self {
        Self::new(213, time.to_string())
    }

    /// Reads the answer to MDTM.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it is no time.
    pub fn as_time(&self) -> Result<FtpTime, UnexpectedReply> {
        let time = if self.code() == 213 { self.first().trim().parse().ok() } else { None };
        time.ok_or_else(|| self.unexpected("a time"))
    }

    /// `213 hex`: the answer to CKSM.
    pub fn checksum(hex: &str) -> Self {
        Self::new(213, hex)
    }

    /// Reads the answer to CKSM, in lower case.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it is no value of that algorithm.
    pub fn as_checksum(&self, algorithm: Algorithm) -> Result<String, UnexpectedReply> {
        let digits = match algorithm {
            Algorithm::Adler32 | Algorithm::Crc32c => 8,
            Algorithm::Md5 => 32,
            Algorithm::Sha256 => 64,
        };
        let value = self.first().trim().to_ascii_lowercase();
        // Some servers leave out leading zeros of short sums.
        let plausible = if digits == 8 { (1..=8).contains(&value.len()) } else { value.len() == digits };
        if self.code() == 213 && plausible && value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(format!("{value:0>digits$}"));
        }
        Err(self.unexpected("a checksum"))
    }

    /// `200 PBSZ=n`
    pub fn protection_buffer(bytes: u32) -> Self {
        Self::new(200, format!("PBSZ={bytes}"))
    }

    /// `257 "path" text`, quotes in the path doubled (RFC 959 appendix II).
    pub fn directory(path: &str, text: &str) -> Self {
        Self::new(257, format!("\"{}\" {text}", path.replace('"', "\"\"")))
    }

    /// Reads the path of a 257 reply.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if there is none.
    pub fn as_directory(&self) -> Result<FtpPath, UnexpectedReply> {
        let mut path = String::new();
        let mut rest = self.first().trim_start().strip_prefix('"').unwrap_or_default().chars().peekable();
        while let Some(character) = rest.next() {
            if character == '"' && rest.next_if_eq(&'"').is_none() {
                break;
            }
            path.push(character);
        }
        let path = if self.code() == 257 { FtpPath::new(path).ok() } else { None };
        path.ok_or_else(|| self.unexpected("the name of a directory"))
    }

    /// The answer to MLST: `250-…`, ` facts name`, `250 End`.
    pub fn entry(facts: &Facts, wanted: FactSet, path: &str) -> Self {
        let lines = vec![format!("status of {path}"), format!(" {}", facts.line(wanted, path)), "End.".to_owned()];
        Self::with_lines(250, lines)
    }

    /// Reads the answer to MLST: the facts and the path as the server names it.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if there are none.
    pub fn as_entry(&self) -> Result<(Facts, String), UnexpectedReply> {
        let line = if self.code() == 250 { self.middle().first() } else { None };
        let parsed = line.and_then(|line| Facts::parse(line.strip_prefix(' ').unwrap_or(line)).ok());
        parsed.ok_or_else(|| self.unexpected("the facts of a file"))
    }

    /// The answer to MLSC: `250-…`, ` facts name` for each entry, `250 End`.
    pub fn listing<'a>(path: &str, wanted: FactSet, entries: impl IntoIterator<Item = (&'a Facts, &'a str)>) -> Self {
        let mut lines = vec![format!("Listing {path}")];
        lines.extend(entries.into_iter().map(|(facts, name)| format!(" {}", facts.line(wanted, name))));
        lines.push("End.".to_owned());
        Self::with_lines(250, lines)
    }

    /// Reads the answer to MLSC: facts and name of each entry. The names are the server's word.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it is no listing, or one line of it is none.
    pub fn as_listing(&self) -> Result<Vec<(Facts, String)>, UnexpectedReply> {
        let unexpected = || self.unexpected("a listing");
        if self.code() != 250 || self.lines().len() < 2 {
            return Err(unexpected());
        }
        let parse = |line: &String| Facts::parse(line.strip_prefix(' ').unwrap_or(line)).map_err(|_| unexpected());
        self.middle().iter().map(parse).collect()
    }

    // ---- Markers

    /// `111 Range Marker a-b,c-d`: bytes that have safely arrived since the last marker.
    pub fn range_marker(ranges: &Coverage) -> Self {
        Self::new(111, format!("Range Marker {}", format_ranges(ranges)))
    }

    /// Reads a 111 reply.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it holds no ranges.
    pub fn as_range_marker(&self) -> Result<Coverage, UnexpectedReply> {
        let text = if self.code() == 111 { self.first().rsplit_once(' ').map(|(_, ranges)| ranges) } else { None };
        text.and_then(|text| parse_ranges(text).ok()).ok_or_else(|| self.unexpected("a range marker"))
    }

    /// The answer to `SITE PARTIAL`: which bytes of a cut upload the server holds. At least one line of ranges.
    pub fn partial(received: &Coverage) -> Self {
        let ranges: Vec<String> = received.ranges().map(|range| range.to_string()).collect();
        let mut lines = vec!["Received so far:".to_owned()];
        lines.extend(ranges.chunks(RANGES_PER_LINE).map(|chunk| format!(" {}", chunk.join(","))));
        if ranges.is_empty() {
            lines.push(" 0-0".to_owned());
        }
        lines.push("End".to_owned());
        Self::with_lines(213, lines)
    }

    /// Reads the answer to `SITE PARTIAL`.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it holds no ranges; 550 says that no upload was cut there.
    pub fn as_partial(&self) -> Result<Coverage, UnexpectedReply> {
        let unexpected = || self.unexpected("the ranges of a cut upload");
        if self.code() != 213 || self.middle().is_empty() {
            return Err(unexpected());
        }
        let mut received = Coverage::new();
        for line in self.middle() {
            for range in parse_ranges(line).map_err(|_| unexpected())?.ranges() {
                received.merge(range).map_err(|_| unexpected())?;
            }
        }
        Ok(received)
    }

    /// This reply, as an error: it is not what was asked for.
    pub fn unexpected(&self, expected: &'static str) -> UnexpectedReply {
        UnexpectedReply { expected, reply: Box::new(self.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{extent::ByteRange, ftp::EntryKind};

    use super::*;

    const CONTROL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn addresses_in_every_form_seen_are_read() {
        for (code, text, expected) in [
            (227, "Entering Passive Mode (127,0,0,1,223,235)", "127.0.0.1:57323"),
            (127, "PORT (10,0,0,7,0,21)", "10.0.0.7:21"),
            (227, "Entering Passive Mode 10,0,0,7,0,21.", "10.0.0.7:21"),
            (229, "Entering Extended Passive Mode (|||6446|)", "192.0.2.1:6446"),
            (129, "Entering Extended Passive Mode (|1|10.0.0.7|6446|)", "10.0.0.7:6446"),
            (229, "Entering Extended Passive Mode (|2|2001:db8::1|6446|)", "[2001:db8::1]:6446"),
        ] {
            assert_eq!(Reply::new(code, text).passive_address(CONTROL).unwrap(), expected.parse().unwrap());
        }
        for (code, text) in [(227, "ok"), (227, "(1,2,3,4,5)"), (229, "(|||0|)"), (229, "End"), (200, "(1,2,3,4,5,6)")]
        {
            assert!(Reply::new(code, text).passive_address(CONTROL).is_err(), "{text}");
        }
    }

    #[test]
    fn stripes_are_listed_as_globus_lists_them() {
        let addresses = ["127.0.0.1:36197".parse().unwrap(), "127.0.0.2:1".parse().unwrap()];
        let reply = Reply::striped_passive(&addresses, false);
        let text = b"229-Entering Striped Passive Mode.\r\n 127,0,0,1,141,101\r\n 127,0,0,2,0,1\r\n229 End\r\n";
        assert_eq!(&reply.to_bytes()[..], text);
        assert_eq!(reply.striped_addresses().unwrap(), addresses);
        assert_eq!(Reply::striped_passive(&addresses, true).striped_addresses().unwrap(), addresses);
        assert!(Reply::striped_passive(&[], false).striped_addresses().is_err());
    }

    #[test]
    fn values_are_read_back_and_nonsense_is_refused() {
        assert_eq!(Reply::size(5).as_size().unwrap(), 5);
        assert!(Reply::new(213, "18446744073709551615").as_size().is_err());
        assert!(Reply::new(550, "5").as_size().is_err());
        assert_eq!(Reply::checksum("3E80001").as_checksum(Algorithm::Adler32).unwrap(), "03e80001");
        assert!(Reply::checksum("xyz").as_checksum(Algorithm::Md5).is_err());
        assert_eq!(Reply::directory("/a \"b\"", "is current.").as_directory().unwrap().as_str(), "/a \"b\"");
        assert!(Reply::new(257, "no quotes").as_directory().is_err());
        let marker = Reply::new(111, "Range Marker 0-29,31-89").as_range_marker().unwrap();
        assert_eq!(format_ranges(&marker), "0-29,31-89");
    }

    #[test]
    fn a_listing_on_the_control_connection_is_read_back() {
        let entries = [
            (Facts { size_bytes: Some(3), crc32c: Some(0xab), ..Facts::new(EntryKind::File) }, "a b".to_owned()),
            (Facts::new(EntryKind::Directory), "250 not the end".to_owned()),
        ];
        let pairs = entries.iter().map(|(facts, name)| (facts, name.as_str()));
        let reply = Reply::listing("/x", FactSet::default(), pairs);
        let mut decoder = crate::ftp::ReplyDecoder::new();
        let decoded = decoder.next_reply(&mut &reply.to_bytes()[..]).unwrap().unwrap();
        assert_eq!(decoded.as_listing().unwrap(), entries);
        assert!(Reply::listing("/x", FactSet::default(), []).as_listing().unwrap().is_empty());
        assert!(Reply::new(250, "ok").as_listing().is_err());
    }

    proptest! {
        #[test]
        fn a_cut_upload_of_any_shape_survives_the_round_trip(parts in proptest::collection::vec((0u64..1 << 40, 0u64..1000), 0..500)) {
            let mut coverage = Coverage::new();
            for (offset, length) in parts {
                coverage.merge(ByteRange::new(offset, length).unwrap()).unwrap();
            }
            let reply = Reply::partial(&coverage);
            prop_assert_eq!(reply.as_partial().unwrap(), coverage.clone());
            prop_assert!(reply.lines().iter().all(|line| line.len() <= 8192));
        }

        #[test]
        fn any_reply_is_typed_or_an_error(code in 100u16..700, lines in proptest::collection::vec(any::<String>(), 1..4)) {
            let reply = Reply::with_lines(code, lines);
            let _ = (reply.passive_address(CONTROL), reply.striped_addresses(), reply.as_size(), reply.as_time());
            let _ = (reply.as_entry(), reply.as_partial(), reply.as_range_marker(), reply.as_directory(), reply.text());
        }
    }
}
