//! The IP packet within a frame: locates its parts, and edits them with correct lengths and checksums.
//!
//! Arbitrary bytes are allowed. Frames that are not IP, or end before the field to change, are kept.

use crate::datapath::check::{self, Destination, IPV4_BYTES, IPV6_BYTES};
use dpdk_ffi::simd::rules::checksum_is_right;
use fib::Family;

/// The longest IP packet, bytes. For IPv6 this excludes the header.
const IP_BYTES_MAX: usize = 65_535;
/// Most extension headers skipped.
const EXTENSIONS_MAX: usize = 8;

pub(super) const UDP: u8 = 17;
/// No next header (RFC 8200 4.7).
pub(super) const NOTHING: u8 = 59;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const UDP_LITE: u8 = 136;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpLayout {
    family: Family,
    ip_at: usize,
    /// Start of the transport header; may lie beyond the end of the frame.
    l4_at: usize,
    /// The transport protocol, or the extension header that the frame truncates.
    protocol: u8,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A whole packet to its final destination: the transport checksum covers exactly this packet.
    Whole,
    /// The first fragment: its checksum covers the other fragments, too.
    First,
    /// A later fragment, without a transport header; or a packet with routing segments left: its checksum uses the final destination.
    Other,
}

impl Part {
    /// From the fragment offset, in any unit, and the more-fragments bit.
    const fn of_fragment(offset: u16, more: u16) -> Self {
        match (offset, more) {
            (0, 0) => Self::Whole,
            (0, _) => Self::First,
            _ => Self::Other,
        }
    }
}

impl IpLayout {
    /// `None` for frames that are not IP, or are shorter than a header without options.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let (ethertype, ip_at) = check::layer2(frame).ok()?;
        let packet = frame.get(ip_at..)?;
        let version = packet.first()? >> 4;
        match (ethertype, version) {
            (check::IPV4, 4) => {
                let header: &[u8; IPV4_BYTES] = packet.first_chunk()?;
                let header_bytes = usize::from(header[0] & 15) * 4;
                let part = Part::of_fragment(be16(header, 6) & 0x1fff, be16(header, 6) & 0x2000);
                let (family, l4_at, protocol) = (Family::V4, ip_at + header_bytes, header[9]);
                (header_bytes >= IPV4_BYTES).then_some(Self { family, ip_at, l4_at, protocol, part })
            }
            (check::IPV6, 6) => {
                packet.first_chunk::<IPV6_BYTES>()?;
                let (protocol, at, part) = behind_extensions(packet);
                Some(Self { family: Family::V6, ip_at, l4_at: ip_at + at, protocol, part })
            }
            _ => None,
        }
    }

    fn ip_bytes(&self, frame: &[u8]) -> usize {
        match self.family {
            Family::V4 => usize::from(be16(frame, self.ip_at + 2)),
            Family::V6 => IPV6_BYTES + usize::from(be16(frame, self.ip_at + 4)),
        }
    }

    pub(super) fn frame_bytes(&self, frame: &[u8]) -> usize {
        self.ip_at + self.ip_bytes(frame)
    }

    /// Whether the IP header is valid; the packet may be longer than its frame.
    pub(super) fn is_sound(&self, frame: &[u8]) -> bool {
        if self.family == Family::V6 {
            return true;
        }
        let header = frame.get(self.ip_at..self.l4_at);
        header.is_some_and(|header| checksum_is_right(sum(header))) && self.frame_bytes(frame) >= self.l4_at
    }

    pub(super) fn destination(&self, frame: &[u8]) -> Destination {
        let address = &frame[self.destination_at()..];
        match self.family {
            Family::V4 => Destination::V4(address.first_chunk().copied().map_or(0, u32::from_be_bytes)),
            Family::V6 => Destination::V6(address.first_chunk().copied().map_or(0, u128::from_be_bytes)),
        }
    }

    fn destination_at(&self) -> usize {
        self.ip_at + if self.family == Family::V4 { 16 } else { 24 }
    }

    /// Replaces the destination by one of the same family. Checksums are updated by the difference (RFC 1624), so wrong ones stay wrong.
    pub(super) fn set_destination(&self, frame: &mut [u8], destination: Destination) {
        let (new, bytes) = match destination {
            Destination::V4(address) => (u128::from(address) << 96, 4),
            Destination::V6(address) => (address, 16),
        };
        let at = self.destination_at();
        let place = &mut frame[at..at + bytes];
        let old = sum(place);
        place.copy_from_slice(&new.to_be_bytes()[..bytes]);
        // RFC 1624, equation 3: complements of the old words plus the new words.
        let change = 0xffff * u32::from(self.family.bits()) / 16 - old + sum(place);
        if self.family == Family::V4 {
            adjust(frame, self.ip_at + 10, change);
        }
        let Some(at) =
            checksum_at(self.protocol).filter(|_| self.part != Part::Other && self.protocol != ICMP)
        else {
            return;
        };
        let at = self.l4_at + at;
        let is_without = |checksum: &[u8]| self.protocol == UDP && *checksum == [0, 0];
        if frame.get(at..at + 2).is_some_and(|checksum| !is_without(checksum)) {
            adjust(frame, at, change);
            self.mark_udp_sum(frame, at);
        }
    }

    /// UDP sends a checksum of 0 as all ones; 0 means no checksum.
    fn mark_udp_sum(&self, frame: &mut [u8], at: usize) {
        if self.protocol == UDP && frame[at..at + 2] == [0, 0] {
            frame[at..at + 2].fill(0xff);
        }
    }

    fn l4_bytes(&self, frame: &[u8]) -> usize {
        match self.protocol {
            _ if self.part != Part::Whole => 0,
            TCP => frame.get(self.l4_at + 12).map_or(20, |byte| usize::from(byte >> 4) * 4).max(20),
            UDP | UDP_LITE | ICMP | ICMPV6 => 8,
            DCCP => 16,
            _ => 0,
        }
    }

    /// Truncates or zero-pads the payload to `frame_bytes` in total; sets lengths and the checksums of IPv4, TCP, UDP and ICMP. Frames never
    /// become shorter than their headers or longer than IP allows. Fragments stay fragments, but can no longer be reassembled.
    pub(super) fn resize(&self, frame: &mut Vec<u8>, frame_bytes: usize) {
        let header_bytes = self.l4_at + self.l4_bytes(frame) - self.ip_at;
        let ip_bytes_max = IP_BYTES_MAX + if self.family == Family::V6 { IPV6_BYTES } else { 0 };
        let ip_bytes = frame_bytes.saturating_sub(self.ip_at).max(header_bytes).min(ip_bytes_max);
        frame.truncate(self.frame_bytes(frame));
        frame.resize(self.ip_at + ip_bytes, 0);
        let (at, length) = match self.family {
            Family::V4 => (self.ip_at + 2, ip_bytes),
            Family::V6 => (self.ip_at + 4, ip_bytes - IPV6_BYTES),
        };
        set_be16(frame, at, length);
        if self.family == Family::V4 {
            set_sum(frame, self.ip_at + 10, self.ip_at..self.l4_at, 0);
        }
        if self.part == Part::Whole {
            self.finish_l4(frame);
        }
    }

    fn finish_l4(&self, frame: &mut [u8]) {
        let length = frame.len().saturating_sub(self.l4_at);
        if self.protocol == UDP {
            set_be16(frame, self.l4_at + 4, length);
        }
        let Some(at) = checksum_at(self.protocol) else { return };
        let at = self.l4_at + at;
        let is_without = self.protocol == UDP && self.family == Family::V4 && frame[at..at + 2] == [0, 0];
        if is_without || matches!(self.protocol, DCCP | UDP_LITE) {
            return;
        }
        let addresses = match self.family {
            Family::V4 => self.ip_at + 12..self.ip_at + 20,
            Family::V6 => self.ip_at + 8..self.ip_at + 40,
        };
        let pseudo = match self.protocol {
            ICMP => 0,
            protocol => sum(&frame[addresses]) + u32::from(protocol) + u32::try_from(length).unwrap_or(0),
        };
        set_sum(frame, at, self.l4_at..frame.len(), pseudo);
        self.mark_udp_sum(frame, at);
    }
}

/// Offset of the checksum in a transport header, for protocols with a pseudo-header checksum and for ICMP.
const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        ICMP | ICMPV6 => Some(2),
        TCP => Some(16),
        UDP | UDP_LITE | DCCP => Some(6),
        _ => None,
    }
}

/// The protocol after the extension headers of an IPv6 packet, its offset and its part. A truncated extension header is the protocol.
fn behind_extensions(packet: &[u8]) -> (u8, usize, Part) {
    let (mut next, mut at, mut part) = (packet[6], IPV6_BYTES, Part::Whole);
    for _ in 0..EXTENSIONS_MAX {
        let Some(header) = packet.get(at..).and_then(<[u8]>::first_chunk::<8>) else { break };
        let units = usize::from(header[1]);
        let bytes = match next {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => (units + 1) * 8,
            44 => 8,
            // Authentication header, RFC 4302 2.2.
            51 => (units + 2) * 4,
            _ => break,
        };
        match next {
            // Segments left.
            43 if header[3] > 0 => part = Part::Other,
            44 if part == Part::Whole => {
                part = Part::of_fragment(be16(header, 2) & 0xfff8, be16(header, 2) & 1)
            }
            _ => {}
        }
        let is_fragment = next == 44 && part == Part::Other;
        (next, at) = (header[0], at + bytes);
        if is_fragment {
            break;
        }
    }
    (next, at, part)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set_be16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes()[6..]);
}

/// The unfolded sum of 16-bit words (RFC 1071); an odd last byte is padded with zero.
fn sum(bytes: &[u8]) -> u32 {
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
    bytes.chunks(2).map(word).sum()
}

fn set_complement(bytes: &mut [u8], at: usize, mut sum: u32) {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes()[2..]);
}

fn set_sum(bytes: &mut [u8], at: usize, range: std::ops::Range<usize>, more: u32) {
    bytes[at..at + 2].fill(0);
    let sum = sum(&bytes[range]) + more;
    set_complement(bytes, at, sum);
}

fn adjust(bytes: &mut [u8], at: usize, change: u32) {
    let complement = 0xffff - u32::from(be16(bytes, at));
    set_complement(bytes, at, complement + change);
}
