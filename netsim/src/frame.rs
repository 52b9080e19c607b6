//! Packets as the kernel hands them over: a virtio-net header, and an IP packet that may stand for many wire frames.
//!
//! With segmentation offload the kernel gives us up to 64 KiB of one TCP stream in a single read, and takes as much in
//! a single write. [`Frame`] knows how many wire frames that is, and cuts it where the model drops or delays some of
//! them: headers, sequence numbers, flags, lengths and checksums as a NIC would make them.
//!
//! # Source
//!
//! struct `virtio_net_hdr`: virtio 1.2 section 5.1.6. TCP segmentation: RFC 9293 section 3.1; IPv4 header checksum:
//! RFC 1071.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fabric::Packet;

/// Bytes of the virtio-net header in front of every packet.
pub const VNET_HEADER_BYTES: usize = 10;

/// What a frame costs on gigabit Ethernet besides its IP packet: preamble 8, header 14, check sequence 4, gap 12.
///
/// With a 1,500 byte MTU, TCP with time stamps then gets 1448 / 1538 of the rate: 941 Mb/s.
pub const LINK_OVERHEAD_BYTES: usize = 38;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_ECN`, or-ed to the kind.
const GSO_ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// One packet, whole or a part of one.
#[derive(Debug)]
pub struct Frame {
    buffer: Vec<u8>,
    /// Link-layer bytes in front of the IP packet: 14 on an Ethernet device, 0 on a TUN device.
    link_bytes: usize,
    segmented: Option<Segmented>,
}

/// A TCP packet that stands for several wire frames.
#[derive(Clone, Copy, Debug)]
struct Segmented {
    frames: usize,
    segment_bytes: usize,
    /// Link, IP and TCP headers together.
    header_bytes: usize,
}

impl Frame {
    /// Takes what a device gave: virtio-net header, link header of `link_bytes`, IP packet.
    ///
    /// `None` if it is too short or contradicts itself; such a packet is dropped.
    #[must_use]
    pub fn new(buffer: Vec<u8>, link_bytes: usize) -> Option<Self> {
        let packet_bytes = buffer.len().checked_sub(VNET_HEADER_BYTES + link_bytes)?;
        if packet_bytes < 20 {
            return None;
        }
        let kind = buffer[1] & !GSO_ECN;
        if kind != GSO_TCP_V4 && kind != GSO_TCP_V6 {
            return Some(Self { buffer, link_bytes, segmented: None });
        }
        let segment_bytes = usize::from(u16::from_le_bytes([buffer[4], buffer[5]]));
        // Where the TCP header begins: the checksum is computed from there.
        let tcp = usize::from(u16::from_le_bytes([buffer[6], buffer[7]]));
        let data_offset = usize::from(*buffer.get(VNET_HEADER_BYTES + tcp + 12)? >> 4) * 4;
        let header_bytes = tcp + data_offset;
        let payload = buffer.len().checked_sub(VNET_HEADER_BYTES + header_bytes)?;
        if segment_bytes == 0 || data_offset < 20 || tcp < link_bytes + 20 {
            return None;
        }
        let frames = payload.div_ceil(segment_bytes).max(1);
        Some(Self { buffer, link_bytes, segmented: Some(Segmented { frames, segment_bytes, header_bytes }) })
    }

    /// What to write to a device.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Sets the Ethernet destination, on a device that has one.
    pub fn set_link_destination(&mut self, address: [u8; 6]) {
        if self.link_bytes >= address.len() {
            self.buffer[VNET_HEADER_BYTES..VNET_HEADER_BYTES + address.len()].copy_from_slice(&address);
        }
    }

    /// The buffer, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Whom the packet is for; `None` if it is not IP.
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        let packet = &self.buffer[VNET_HEADER_BYTES + self.link_bytes..];
        match packet.first()? >> 4 {
            4 => Some(Ipv4Addr::from(*packet.get(16..20)?.first_chunk::<4>()?).into()),
            6 => Some(Ipv6Addr::from(*packet.get(24..40)?.first_chunk::<16>()?).into()),
            _ => None,
        }
    }

    fn payload_bytes(&self, segmented: Segmented) -> usize {
        self.buffer.len() - VNET_HEADER_BYTES - segmented.header_bytes
    }
}

impl Packet for Frame {
    fn frames(&self) -> usize {
        self.segmented.map_or(1, |segmented| segmented.frames)
    }

    fn wire_bytes(&self, first: usize, behind: usize) -> usize {
        let Some(segmented) = self.segmented else {
            return self.buffer.len() - VNET_HEADER_BYTES - self.link_bytes + LINK_OVERHEAD_BYTES;
        };
        let size = segmented.segment_bytes;
        let payload = (behind * size).min(self.payload_bytes(segmented)) - first * size;
        payload + (behind - first) * (segmented.header_bytes - self.link_bytes + LINK_OVERHEAD_BYTES)
    }

    fn cut(&self, first: usize, behind: usize) -> Self {
        let Some(segmented) = self.segmented.filter(|all| (first, behind) != (0, all.frames)) else {
            return Self { buffer: self.buffer.clone(), ..*self };
        };
        let start = first * segmented.segment_bytes;
        let end = (behind * segmented.segment_bytes).min(self.payload_bytes(segmented));
        let headers = VNET_HEADER_BYTES + segmented.header_bytes;
        let mut buffer = Vec::with_capacity(headers + end - start);
        buffer.extend_from_slice(&self.buffer[..headers]);
        buffer.extend_from_slice(&self.buffer[headers + start..headers + end]);
        let kind = buffer[1] & !GSO_ECN;
        if behind - first == 1 {
            buffer[1] = GSO_NONE;
            buffer[4..6].fill(0);
        }
        let link_bytes = self.link_bytes;
        let packet = &mut buffer[VNET_HEADER_BYTES + link_bytes..];
        let tcp_at = usize::from(u16::from_le_bytes([self.buffer[6], self.buffer[7]])) - link_bytes;
        let pseudo = set_ip_lengths(packet, tcp_at, kind, first);
        let tcp = &mut packet[tcp_at..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
            .wrapping_add(u32::try_from(start).expect("a packet is below 64 KiB"));
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if behind != segmented.frames {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if first != 0 {
            tcp[13] &= !TCP_CWR;
        }
        // The device completes the checksum; it wants the sum over the pseudo header to begin with.
        tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
        let segmented = Segmented { frames: behind - first, ..segmented };
        Self { buffer, link_bytes, segmented: Some(segmented).filter(|part| part.frames > 1) }
    }
}

/// Sets the lengths of an IP header to those of `packet`, and returns the sum over TCP's pseudo header.
fn set_ip_lengths(packet: &mut [u8], tcp_at: usize, kind: u8, first: usize) -> u16 {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    let tcp_bytes = packet.len() - tcp_at;
    if kind == GSO_TCP_V6 {
        let payload = total.saturating_sub(40);
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        return sum(&packet[8..40], 6 + u32::try_from(tcp_bytes).unwrap_or_default());
    }
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let identification = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(first as u16);
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    packet[10..12].fill(0);
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let checksum = !sum(&packet[..header_bytes], 0);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    sum(&packet[12..20], 6 + u32::try_from(tcp_bytes).unwrap_or_default())
}

/// One's complement sum, not inverted (RFC 1071).
fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut total = start;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TCP packet of `payload` bytes in segments of 1,000, as a TUN device gives it.
    fn segmented(ipv6: bool, payload: usize, flags: u8) -> Vec<u8> {
        let ip = if ipv6 { 40 } else { 20 };
        let mut buffer = vec![0; VNET_HEADER_BYTES + ip + 20];
        buffer[0] = 1; // VIRTIO_NET_HDR_F_NEEDS_CSUM
        buffer[1] = if ipv6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
        buffer[2..4].copy_from_slice(&((ip + 20) as u16).to_le_bytes());
        buffer[4..6].copy_from_slice(&1000u16.to_le_bytes());
        buffer[6..8].copy_from_slice(&(ip as u16).to_le_bytes());
        buffer[8..10].copy_from_slice(&16u16.to_le_bytes());
        let packet = &mut buffer[VNET_HEADER_BYTES..];
        if ipv6 {
            packet[0] = 0x60;
            packet[6] = 6;
            packet[8..24].copy_from_slice(&[7; 16]);
            packet[24..40].copy_from_slice(&[9; 16]);
        } else {
            packet[0] = 0x45;
            packet[9] = 6;
            packet[12..16].copy_from_slice(&[10, 0, 0, 7]);
            packet[16..20].copy_from_slice(&[10, 0, 0, 9]);
        }
        packet[ip + 4..ip + 8].copy_from_slice(&(u32::MAX - 500).to_be_bytes());
        packet[ip + 12] = 5 << 4;
        packet[ip + 13] = flags;
        buffer.extend((0..payload).map(|at| at as u8));
        buffer
    }

    #[test]
    fn the_pieces_of_a_packet_are_the_segments_a_nic_would_send() {
        for ipv6 in [false, true] {
            let ip = if ipv6 { 40 } else { 20 };
            let whole =
                Frame::new(segmented(ipv6, 3500, TCP_FIN | TCP_PSH | TCP_CWR | 0x10), 0).expect("a good packet");
            assert_eq!(whole.frames(), 4);
            let middle = whole.cut(1, 3);
            assert_eq!(middle.frames(), 2);
            let packet = &middle.bytes()[VNET_HEADER_BYTES..];
            let length = if ipv6 {
                u16::from_be_bytes([packet[4], packet[5]]) + 40
            } else {
                u16::from_be_bytes([packet[2], packet[3]])
            };
            assert_eq!(usize::from(length), packet.len());
            assert_eq!(packet[ip + 13], 0x10, "FIN, PSH and CWR are on the ends only");
            let sequence = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().expect("four bytes"));
            assert_eq!(sequence, (u32::MAX - 500).wrapping_add(1000), "sequence numbers wrap around");
            assert_eq!(packet.len() - ip - 20, 2000);
            let last = whole.cut(3, 4);
            assert_eq!(last.bytes()[1], GSO_NONE);
            assert_eq!(last.bytes()[VNET_HEADER_BYTES + ip + 13], TCP_FIN | TCP_PSH | 0x10);
            assert_eq!(last.bytes().len() - VNET_HEADER_BYTES - ip - 20, 500);
            if !ipv6 {
                assert_eq!(sum(&packet[..20], 0), 0xffff, "the header's checksum is right");
            }
            // What a NIC goes on from: addresses, zero, protocol, length (RFC 9293 section 3.1, RFC 8200 section 8.1).
            let addresses = if ipv6 { &packet[8..40] } else { &packet[12..20] };
            let length = (packet.len() - ip) as u32;
            let pseudo = [addresses, &length.to_be_bytes(), &[0, 0, 0, 6]].concat();
            assert_eq!(packet[ip + 16..ip + 18], sum(&pseudo, 0).to_be_bytes(), "TCP's checksum begins as it should");
        }
    }

    #[test]
    fn a_packet_says_whom_it_is_for() {
        let v4 = Frame::new(segmented(false, 10, 0), 0).expect("a good packet");
        assert_eq!(v4.destination(), Some("10.0.0.9".parse().expect("an address")));
        let v6 = Frame::new(segmented(true, 10, 0), 0).expect("a good packet");
        assert_eq!(v6.destination(), Some(Ipv6Addr::from([9; 16]).into()));
    }

    proptest! {
        #[test]
        fn the_wire_bytes_of_the_pieces_are_those_of_the_whole(payload in 1usize..9000, cut in 0usize..10) {
            let whole = Frame::new(segmented(false, payload, 0), 0).expect("a good packet");
            let frames = whole.frames();
            let cut = cut.min(frames);
            if cut > 0 && cut < frames {
                let (head, tail) = (whole.cut(0, cut), whole.cut(cut, frames));
                let pieces = head.wire_bytes(0, head.frames()) + tail.wire_bytes(0, tail.frames());
                prop_assert_eq!(pieces, whole.wire_bytes(0, frames));
                prop_assert_eq!(head.frames() + tail.frames(), frames);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), link in prop::sample::select(vec![0usize, 14])) {
            if let Some(frame) = Frame::new(bytes, link) {
                let _ = frame.destination();
                let frames = frame.frames();
                let _ = frame.wire_bytes(0, frames);
                for first in 0..frames.min(4) {
                    let _ = frame.cut(first, first + 1);
                }
            }
        }
    }
}
