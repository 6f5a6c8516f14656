//! Packets as they come from a TUN device with a virtio header, and cutting one into runs of segments.
//!
//! Owns nothing, no I/O: bytes in, bytes out. TCP hands over up to 64 KiB as one packet; on a real wire that would be
//! many, each of which can be lost on its own. A run is what is left of them next to each other: it gets a copy of the
//! headers with length, identification, sequence number, flags and checksums made right, and the payload is not
//! copied. Must never touch a packet that it does not fully understand: such a packet counts as one segment.
//!
//! Layouts: virtio 1.2 section 5.1.6 (`virtio_net_hdr`, ten bytes, in the machine's byte order), RFC 791, 8200, 9293.

use std::ops::Range;

/// The virtio header in front of each packet.
pub(super) const VIRTIO_LEN: usize = 10;
/// Room for the largest packet: its length field has sixteen bits, without the header in IPv6.
pub(super) const PACKET_MAX: usize = VIRTIO_LEN + 40 + 65_535;

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const TCP_FIN: u8 = 0x01;
const TCP_PUSH: u8 = 0x08;
const TCP_CONGESTION_REDUCED: u8 = 0x80;
/// Where the TCP checksum is in its header.
const TCP_CHECKSUM: usize = 16;

/// How a packet divides into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// How many there would be on a wire.
    pub(super) segments: u32,
    /// IP and TCP headers of each.
    headers: u32,
    /// Payload of all.
    payload: u32,
    /// Payload of each but the last.
    segment: u32,
}

impl Shape {
    /// Reads it from a packet with its virtio header.
    pub(super) fn of(packet: &[u8]) -> Self {
        let len = packet.len().saturating_sub(VIRTIO_LEN) as u32;
        let whole = Self { segments: 1, headers: len, payload: 0, segment: 0 };
        Self::of_several(packet).unwrap_or(whole)
    }

    fn of_several(packet: &[u8]) -> Option<Self> {
        let virtio = packet.get(..VIRTIO_LEN)?;
        let ip = &packet[VIRTIO_LEN..];
        let version = match virtio[1] & !GSO_ECN {
            GSO_TCP4 => 4,
            GSO_TCP6 => 6,
            _ => return None,
        };
        let segment = u32::from(u16::from_ne_bytes([virtio[4], virtio[5]]));
        let tcp_start = usize::from(u16::from_ne_bytes([virtio[6], virtio[7]]));
        let checksum_place = usize::from(u16::from_ne_bytes([virtio[8], virtio[9]]));
        let tcp = ip.get(tcp_start..)?;
        let headers = tcp_start + usize::from(tcp.get(12)? >> 4) * 4;
        let payload = ip.len().checked_sub(headers)?;
        let understood = virtio[0] & FLAG_NEEDS_CHECKSUM != 0
            && checksum_place == TCP_CHECKSUM
            && ip.first()? >> 4 == version
            && headers >= tcp_start + 20
            && match version {
                4 => tcp_start == usize::from(ip[0] & 0xf) * 4 && tcp_start >= 20 && ip[9] == TCP,
                _ => tcp_start >= 40,
            };
        if !understood || segment == 0 || payload == 0 {
            return None;
        }
        let (headers, payload) = (headers as u32, payload as u32);
        Some(Self { segments: payload.div_ceil(segment), headers, payload, segment })
    }

    /// Bytes on the wire of the first `count` segments, headers included.
    pub(super) fn wire_bytes(&self, count: u32) -> u64 {
        let payload = (u64::from(count) * u64::from(self.segment)).min(u64::from(self.payload));
        u64::from(count) * u64::from(self.headers) + payload
    }

    /// The headers (virtio's included) of a packet with `count` of the segments, from `first`, and where in the whole
    /// packet its payload is. Not for a packet of one segment.
    pub(super) fn cut(&self, packet: &[u8], first: u32, count: u32) -> (Box<[u8]>, Range<usize>) {
        let payload_at = VIRTIO_LEN + self.headers as usize;
        let from = first * self.segment;
        let to = ((first + count) * self.segment).min(self.payload);
        let mut header: Box<[u8]> = packet[..payload_at].into();
        let (virtio, ip) = header.split_at_mut(VIRTIO_LEN);
        let tcp_start = usize::from(u16::from_ne_bytes([virtio[6], virtio[7]]));
        if count == 1 {
            virtio[1] = GSO_NONE;
            virtio[4..6].fill(0);
        }
        let (ip, tcp) = ip.split_at_mut(tcp_start);
        let transport_len = tcp.len() as u32 + (to - from);
        set_ip_length(ip, transport_len, first);
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(from);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if first > 0 {
            tcp[13] &= !TCP_CONGESTION_REDUCED;
        }
        if to < self.payload {
            tcp[13] &= !(TCP_FIN | TCP_PUSH);
        }
        // The kernel adds the sum of the TCP part itself, to the sum of these pseudo header fields.
        let pseudo = pseudo_header_sum(ip, transport_len);
        tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
        (header, payload_at + from as usize..payload_at + to as usize)
    }
}

/// Length, and in IPv4 identification (one more for each segment, as when the kernel cuts) and header checksum.
fn set_ip_length(ip: &mut [u8], transport_len: u32, first: u32) {
    if ip[0] >> 4 == 6 {
        let len = (ip.len() as u32 - 40 + transport_len) as u16;
        ip[4..6].copy_from_slice(&len.to_be_bytes());
        return;
    }
    let len = (ip.len() as u32 + transport_len) as u16;
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let checksum = !fold(sum(ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn pseudo_header_sum(ip: &[u8], transport_len: u32) -> u16 {
    let addresses = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
    fold(sum(addresses) + u32::from(TCP) + (transport_len >> 16) + (transport_len & 0xffff))
}

/// Of sixteen-bit words; at most 65,535 bytes, so 32 bits are enough.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|two| u32::from(u16::from_be_bytes([two[0], two.get(1).copied().unwrap_or(0)])))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u32 = u32::MAX - 1500;

    /// A packet as the kernel hands it over: headers with options, pseudo header sum, patterned payload.
    fn packet(version: u8, segment: u16, payload: usize) -> Vec<u8> {
        let mut ip = if version == 4 {
            let mut ip = vec![0x45, 2, 0, 0, 0xff, 0xfe, 0x40, 0, 64, TCP, 0, 0];
            ip.extend([198, 18, 0, 1, 198, 18, 0, 2]);
            ip
        } else {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, TCP, 64];
            ip.extend((0..32).map(|n| n as u8 * 7));
            ip
        };
        let transport_len = (32 + payload) as u32;
        set_ip_length(&mut ip, transport_len, 0);
        let mut tcp = vec![0x10, 0x20, 0x30, 0x40];
        tcp.extend(SEQUENCE.to_be_bytes());
        tcp.extend([0, 0, 0, 9, 8 << 4, TCP_FIN | TCP_PUSH | TCP_CONGESTION_REDUCED | 0x10, 1, 2]);
        tcp.extend(pseudo_header_sum(&ip, transport_len).to_be_bytes());
        tcp.extend([0, 0, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        let gso = if version == 4 { GSO_TCP4 } else { GSO_TCP6 };
        let mut packet = vec![FLAG_NEEDS_CHECKSUM, gso | GSO_ECN];
        let headers = ip.len() + tcp.len();
        for field in [headers as u16, segment, ip.len() as u16, TCP_CHECKSUM as u16] {
            packet.extend(field.to_ne_bytes());
        }
        packet.extend(ip);
        packet.extend(tcp);
        packet.extend((0..payload).map(|n| ((n * 31) >> 3) as u8));
        packet
    }

    fn whole(packet: &[u8], first: u32, count: u32) -> Vec<u8> {
        let (mut run, payload) = Shape::of(packet).cut(packet, first, count);
        let mut bytes = std::mem::take(&mut run).into_vec();
        bytes.extend_from_slice(&packet[payload]);
        bytes
    }

    /// Finishes the checksum as a network card would, and then adds everything up as a receiver would.
    fn verifies(run: &[u8]) -> bool {
        let ip = &run[VIRTIO_LEN..];
        let tcp_start = usize::from(u16::from_ne_bytes([run[6], run[7]]));
        let (header, tcp) = (&ip[..tcp_start], ip[tcp_start..].to_vec());
        let pseudo = u32::from(pseudo_header_sum(header, tcp.len() as u32));
        let mut finished = tcp.clone();
        let checksum = !fold(sum(&tcp));
        finished[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        let ip_right = header[0] >> 4 == 6 || fold(sum(header)) == 0xffff;
        ip_right && fold(pseudo + sum(&finished)) == 0xffff
    }

    #[test]
    fn a_packet_of_several_segments_is_measured() {
        for (version, headers) in [(4, 52_u64), (6, 72)] {
            let shape = Shape::of(&packet(version, 1000, 4500));
            assert_eq!(shape.segments, 5);
            assert_eq!(shape.wire_bytes(1), headers + 1000);
            assert_eq!(shape.wire_bytes(5), 5 * headers + 4500);
        }
    }

    #[test]
    fn every_run_has_right_headers_and_its_own_bytes() {
        for version in [4, 6] {
            let packet = packet(version, 1000, 4500);
            let headers = packet.len() - 4500;
            for first in 0..5 {
                for count in 1..=5 - first {
                    let run = whole(&packet, first, count);
                    let (from, to) = (first as usize * 1000, (first + count) as usize * 1000);
                    assert_eq!(run[headers..], packet[headers + from..headers + to.min(4500)]);
                    assert!(verifies(&run), "checksums of {count} from {first}, IPv{version}");
                    let tcp = headers - 32;
                    let sequence = u32::from_be_bytes(run[tcp + 4..tcp + 8].try_into().unwrap());
                    assert_eq!(sequence, SEQUENCE.wrapping_add(first * 1000));
                    assert_eq!(run[tcp + 13] & TCP_CONGESTION_REDUCED != 0, first == 0);
                    assert_eq!(run[tcp + 13] & (TCP_FIN | TCP_PUSH) != 0, first + count == 5);
                    assert_eq!(Shape::of(&run).segments, count);
                    let ip = &run[VIRTIO_LEN..];
                    if version == 4 {
                        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                        assert_eq!(
                            u16::from_be_bytes([ip[4], ip[5]]),
                            0xfffe_u16.wrapping_add(first as u16)
                        );
                    } else {
                        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_one_segment() {
        let good = packet(4, 1000, 4500);
        let spoil: [fn(&mut Vec<u8>); 8] = [
            |packet| packet[0] = 0,
            |packet| packet[1] = 3,
            |packet| packet[4..6].fill(0),
            |packet| packet[6..8].fill(0xff),
            |packet| packet[8] = 6,
            |packet| packet[VIRTIO_LEN] = 0x65,
            |packet| packet[VIRTIO_LEN + 20 + 12] = 0xf0 & 0x10,
            |packet| packet.truncate(40),
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut packet = good.clone();
            spoil(&mut packet);
            let shape = Shape::of(&packet);
            assert_eq!(shape.segments, 1, "case {number}");
            assert_eq!(shape.wire_bytes(1), (packet.len() - VIRTIO_LEN) as u64);
        }
        for len in 0..good.len().min(200) {
            assert_eq!(Shape::of(&good[..len]).segments.max(1), Shape::of(&good[..len]).segments);
        }
    }
}
