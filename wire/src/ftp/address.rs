//! Socket addresses as FTP writes them.
//!
//! Owns the forms `h1,h2,h3,h4,p1,p2` (RFC 959) and `|1|address|port|` (RFC 2428). Never decides whether an address may
//! be connected to: that is the session's check against the peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Most addresses in one SPOR command or SPAS reply. A stripe over more hosts than this is out of reach here.
pub const MAX_ADDRESSES: usize = 256;

/// Why an address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedAddress {
    /// Not of the form asked for.
    #[error("an address must read h1,h2,h3,h4,p1,p2 or |1|IPv4|PORT| or |2|IPv6|PORT|")]
    Syntax,
    /// An address family other than 1 (IPv4) and 2 (IPv6); answered 522 (RFC 2428).
    #[error("network protocol not supported, use (1,2)")]
    Family,
    /// More than [`MAX_ADDRESSES`], or none.
    #[error("between 1 and {MAX_ADDRESSES} addresses can be given")]
    Count,
}

/// Address families of RFC 2428 (the numbers of the Address Family registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// 1
    V4,
    /// 2
    V6,
}

impl AddressFamily {
    /// The family's number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }
}

/// What `EPSV` was given (RFC 2428 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EpsvArgument {
    /// Nothing: the family of the control connection.
    Same,
    /// A family.
    Family(AddressFamily),
    /// `ALL`: from now on the client uses EPSV and nothing else.
    All,
}

/// Reads `h1,h2,h3,h4,p1,p2`.
pub(crate) fn parse_comma(text: &str) -> Result<SocketAddrV4, MalformedAddress> {
    let mut numbers = [0u8; 6];
    let mut parts = text.trim().split(',');
    for number in &mut numbers {
        let part = parts.next().ok_or(MalformedAddress::Syntax)?.trim();
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(MalformedAddress::Syntax);
        }
        *number = part.parse().map_err(|_| MalformedAddress::Syntax)?;
    }
    if parts.next().is_some() {
        return Err(MalformedAddress::Syntax);
    }
    let [a, b, c, d, high, low] = numbers;
    Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))
}

/// Writes `h1,h2,h3,h4,p1,p2`.
pub(crate) fn format_comma(address: &SocketAddrV4) -> String {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// The parts of `|family|address|port|`; family and address may be empty in a reply to EPSV.
pub(crate) fn parse_delimited(text: &str) -> Result<(Option<IpAddr>, u16), MalformedAddress> {
    let text = text.trim();
    let delimiter = text.chars().next().filter(char::is_ascii_graphic).ok_or(MalformedAddress::Syntax)?;
    let parts: Vec<&str> = text.split(delimiter).collect();
    let [_, family, address, port, after] = parts[..] else { return Err(MalformedAddress::Syntax) };
    if !after.is_empty() || port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(MalformedAddress::Syntax);
    }
    let port = port.parse().map_err(|_| MalformedAddress::Syntax)?;
    let syntax = |_| MalformedAddress::Syntax;
    let ip = match (family, address) {
        ("", "") => None,
        ("1", address) => Some(IpAddr::V4(address.parse::<Ipv4Addr>().map_err(syntax)?)),
        ("2", address) => Some(IpAddr::V6(address.parse::<Ipv6Addr>().map_err(syntax)?)),
        ("", address) => Some(address.parse().map_err(syntax)?),
        _ => return Err(MalformedAddress::Family),
    };
    Ok((ip, port))
}

/// Writes `|family|address|port|`.
pub(crate) fn format_delimited(address: &SocketAddr) -> String {
    let family = if address.is_ipv4() { AddressFamily::V4 } else { AddressFamily::V6 };
    format!("|{}|{}|{}|", family.number(), address.ip(), address.port())
}

/// Reads either form.
pub(crate) fn parse_either(text: &str) -> Result<SocketAddr, MalformedAddress> {
    let text = text.trim();
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return parse_comma(text).map(SocketAddr::V4);
    }
    match parse_delimited(text)? {
        (Some(ip), port) => Ok(SocketAddr::new(ip, port)),
        (None, _) => Err(MalformedAddress::Syntax),
    }
}

/// Writes the comma form where it exists, the delimited form for IPv6.
pub(crate) fn format_either(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => format_comma(v4),
        SocketAddr::V6(_) => format_delimited(address),
    }
}

/// Reads the addresses of SPOR, separated by spaces.
pub(crate) fn parse_list(text: &str) -> Result<Vec<SocketAddr>, MalformedAddress> {
    let addresses =
        text.split_ascii_whitespace().take(MAX_ADDRESSES + 1).map(parse_either).collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() || addresses.len() > MAX_ADDRESSES { Err(MalformedAddress::Count) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standards_are_read() {
        assert_eq!(parse_either("132,235,1,2,24,131").unwrap(), "132.235.1.2:6275".parse().unwrap());
        assert_eq!(parse_either("|1|132.235.1.2|6275|").unwrap(), "132.235.1.2:6275".parse().unwrap());
        assert_eq!(
            parse_either("|2|1080::8:800:200C:417A|5282|").unwrap(),
            "[1080::8:800:200C:417A]:5282".parse().unwrap()
        );
        assert_eq!(parse_delimited("!!!6446!").unwrap(), (None, 6446));
        assert_eq!(parse_either("|3|x|1|"), Err(MalformedAddress::Family));
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "1,2,3,4,5",
            "1,2,3,4,5,6,7",
            "256,0,0,1,0,1",
            "1,2,3,4,5,+6",
            "|1|::1|5|",
            "|2|127.0.0.1|5|",
            "|1|127.0.0.1|70000|",
            "|1|127.0.0.1|5",
            "|||5|",
            "1.2.3.4:5",
        ] {
            assert!(parse_either(text).is_err(), "{text}");
        }
        assert_eq!(parse_list(""), Err(MalformedAddress::Count));
        assert_eq!(parse_list(&"1,2,3,4,5,6 ".repeat(257)), Err(MalformedAddress::Count));
    }

    proptest! {
        #[test]
        fn every_address_survives_the_round_trip(ip: IpAddr, port: u16) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_either(&format_either(&address)).unwrap(), address);
            prop_assert_eq!(parse_either(&format_delimited(&address)).unwrap(), address);
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text: String) {
            let _ = (parse_either(&text), parse_list(&text));
        }
    }
}
