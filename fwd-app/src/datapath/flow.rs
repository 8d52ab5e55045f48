//! The flow hash of a packet, which selects its path among several.
//!
//! ```text
//! fold(a, b) = low half ^ high half of the 128-bit product of a and b
//! key        = fold(seed ^ K0, K1)                       the seed is --ecmp-seed, by default a random number of this process
//! IPv4 hash  = fold(fold(source:destination ^ key, l4 ^ K1) ^ K2, K3)
//! IPv6 hash  = fold(fold(source ^ key, K1) ^ l4 ^ K2, fold(destination ^ key, K2) ^ K3)
//!              where fold(address ^ key, K) = fold(first half ^ key, last half ^ K)
//! l4         = flow label << 40 | protocol << 32 | source port << 16 | destination port
//! ```
//! Fields are read in network byte order. The flow label of IPv4 is 0. The ports in `l4` are 0 unless the protocol is TCP, UDP, SCTP, DCCP
//! or UDP-Lite and they lie in the first segment. The protocol of IPv6 is the one behind at most [`EXTENSIONS_MAX`] extension headers; else
//! it is 0. Fragments of a packet must take one path and only the first has ports, so their `l4` is 0. VLAN tags are not hashed.

use std::net::IpAddr;

/// Odd constants with as many ones as zeros.
const K: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];
const EXTENSIONS_MAX: usize = 8;
const FRAGMENT: u8 = 44;

pub(crate) const fn key(seed: u64) -> u64 {
    fold(seed ^ K[0], K[1])
}

/// Ethernet header, IPv4 header without options, ports.
const PLAIN_V4_BYTES: usize = 38;
/// Ethernet header, IPv6 header, ports.
const PLAIN_V6_BYTES: usize = 58;

/// [`hash`] of an untagged IPv4 frame without options whose ports are in the first segment: every field has a fixed offset.
#[inline(always)]
pub(crate) fn hash_plain_v4(key: u64, frame: &[u8]) -> Option<u64> {
    let start: &[u8; PLAIN_V4_BYTES] = frame.first_chunk()?;
    let (header, ports) = (start[14..].first_chunk::<20>()?, start[34..].first_chunk::<4>()?);
    if header[0] != 0x45 {
        return None;
    }
    let l4 = if is_fragment(header) { 0 } else { l4_of(header[9], *ports) };
    Some(hash_v4(key, header, l4))
}

/// [`hash_plain_v4`] for IPv6 without extension headers.
#[inline(always)]
pub(crate) fn hash_plain_v6(key: u64, frame: &[u8]) -> Option<u64> {
    let start: &[u8; PLAIN_V6_BYTES] = frame.first_chunk()?;
    let (header, ports) = (start[14..].first_chunk::<40>()?, start[54..].first_chunk::<4>()?);
    if is_extension(header[6]) {
        return None;
    }
    Some(hash_v6(key, header, label(header) | l4_of(header[6], *ports)))
}

/// The hashed fields of a flow, except the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    /// 0 for fragments, of which only the addresses are hashed.
    pub(crate) protocol: u8,
    /// Source and destination port; 0 if the protocol has none.
    pub(crate) ports: [u16; 2],
    /// 0 for IPv4.
    pub(crate) label: u32,
}

impl Flow {
    /// `None` when the address families differ.
    pub(crate) fn hash(&self, key: u64, destination: IpAddr) -> Option<u64> {
        let mut packet = match (self.source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; 20];
                (header[0], header[9]) = (0x45, self.protocol);
                header[12..16].copy_from_slice(&source.octets());
                header[16..].copy_from_slice(&destination.octets());
                header.to_vec()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = [0; 40];
                header[..4].copy_from_slice(&(6 << 28 | self.label & 0xf_ffff).to_be_bytes());
                header[6] = self.protocol;
                header[8..24].copy_from_slice(&source.octets());
                header[24..].copy_from_slice(&destination.octets());
                header.to_vec()
            }
            _ => return None,
        };
        if has_ports(self.protocol) {
            packet.extend(self.ports.map(u16::to_be_bytes).as_flattened());
        }
        Some(hash(key, &packet))
    }
}

/// The flow hash of an IP packet, given the bytes of the first segment from the IP header on. 0 if it is not an IP packet.
#[inline(always)]
pub(crate) fn hash(key: u64, packet: &[u8]) -> u64 {
    match packet.first().map(|first| first >> 4) {
        Some(6) => match packet.first_chunk() {
            Some(header) => hash_v6(key, header, l4_v6(header, packet)),
            None => 0,
        },
        _ => packet.first_chunk().map_or(0, |header| hash_v4(key, header, l4_v4(header, packet))),
    }
}

#[inline(always)]
fn hash_v4(key: u64, header: &[u8; 20], l4: u64) -> u64 {
    fold(fold(be64(header, 12) ^ key, l4 ^ K[1]) ^ K[2], K[3])
}

#[inline(always)]
fn hash_v6(key: u64, header: &[u8; 40], l4: u64) -> u64 {
    let half = |at: usize| be64(header, at);
    let from = fold(half(8) ^ key, half(16) ^ K[1]);
    let to = fold(half(24) ^ key, half(32) ^ K[2]);
    fold(from ^ l4 ^ K[2], to ^ K[3])
}

#[inline(always)]
fn l4_v4(header: &[u8; 20], packet: &[u8]) -> u64 {
    if is_fragment(header) { 0 } else { l4(header[9], packet, usize::from(header[0] & 15) * 4) }
}

/// "More fragments", or an offset.
#[inline(always)]
fn is_fragment(header: &[u8; 20]) -> bool {
    u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0
}

#[inline(always)]
fn l4_v6(header: &[u8; 40], packet: &[u8]) -> u64 {
    let l4 = if has_ports(header[6]) { Some(l4(header[6], packet, 40)) } else { behind(header[6], packet) };
    l4.map_or(0, |l4| label(header) | l4)
}

#[inline(always)]
const fn label(header: &[u8; 40]) -> u64 {
    (u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as u64 & 0xf_ffff) << 40
}

/// `l4` behind extension headers, without the label; `None` for a fragment.
#[cold]
fn behind(mut next: u8, packet: &[u8]) -> Option<u64> {
    let mut at = 40;
    for _ in 0..=EXTENSIONS_MAX {
        let Some([after, len]) = packet.get(at..).and_then(<[u8]>::first_chunk::<2>) else {
            return if is_extension(next) { Some(0) } else { Some(l4(next, packet, at)) };
        };
        at += match next {
            FRAGMENT => return None,
            // The authentication header counts in 4-byte units (RFC 4302 2.2).
            51 => usize::from(*len) * 4 + 8,
            next if is_extension(next) => usize::from(*len) * 8 + 8,
            next => return Some(l4(next, packet, at)),
        };
        next = *after;
    }
    Some(0)
}

/// Hop-by-hop options, routing, fragment, authentication, destination options.
const fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | FRAGMENT | 51 | 60)
}

/// TCP, UDP, DCCP, SCTP, UDP-Lite: the ports are the first four bytes.
#[inline(always)]
pub(crate) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

#[inline(always)]
fn l4(protocol: u8, packet: &[u8], at: usize) -> u64 {
    let ports = packet.get(at..).and_then(|rest| rest.first_chunk());
    l4_of(protocol, ports.copied().unwrap_or_default())
}

#[inline(always)]
fn l4_of(protocol: u8, ports: [u8; 4]) -> u64 {
    let ports = if has_ports(protocol) { u32::from_be_bytes(ports) } else { 0 };
    u64::from(protocol) << 32 | u64::from(ports)
}

#[inline(always)]
fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

/// Folds the two halves of a product: every result bit depends on most bits of both factors.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves of a product")]
pub(super) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::{V4, V6};
    use super::*;

    fn v4(change: impl FnOnce(&mut [u8])) -> u64 {
        let mut frame = V4 { payload_bytes: 40, ..V4::default() }.frame();
        change(&mut frame[14..]);
        hash(7, &frame[14..])
    }

    fn v6(change: impl FnOnce(&mut [u8])) -> u64 {
        let mut frame = V6 { payload_bytes: 80, ..V6::default() }.frame();
        change(&mut frame[14..]);
        hash(7, &frame[14..])
    }

    #[test]
    fn every_field_of_a_flow_counts_and_no_other() {
        for at in [9, 12, 15, 16, 19, 20, 21, 22, 23] {
            assert_ne!(v4(|packet| packet[at] ^= if at == 9 { 17 ^ 6 } else { 1 }), v4(|_| ()), "{at}");
        }
        for at in [1, 2, 3, 4, 5, 8, 10, 11, 24, 39] {
            assert_eq!(v4(|packet| packet[at] ^= 1), v4(|_| ()), "{at}");
        }
        // The last 20 bits of the first word are the flow label.
        for at in [1, 2, 3, 8, 15, 16, 23, 24, 31, 32, 39, 40, 41, 42, 43] {
            assert_ne!(v6(|packet| packet[at] ^= 1), v6(|_| ()), "{at}");
        }
        for at in [0, 4, 5, 7, 44, 60] {
            assert_eq!(v6(|packet| packet[at] ^= 1), v6(|_| ()), "{at}");
        }
        assert_ne!(hash(8, &V4::default().frame()[14..]), hash(7, &V4::default().frame()[14..]));
        assert_ne!(key(0), key(1));
    }

    #[test]
    fn fragments_and_other_protocols_have_no_ports() {
        let first = v4(|packet| packet[6] = 0x20);
        for [high, low] in [[0x20, 0], [0, 1], [0x3f, 0xff]] {
            let ports =
                |packet: &mut [u8]| (packet[6], packet[7], packet[20], packet[9]) = (high, low, 99, 1);
            assert_eq!(v4(ports), first);
        }
        assert_eq!(
            v4(|packet| packet[6] = 0x40),
            v4(|packet| packet[6] = 0),
            "may be fragmented, but is not"
        );
        assert_eq!(v4(|packet| (packet[9], packet[20]) = (1, 9)), v4(|packet| packet[9] = 1));
        assert_ne!(v4(|packet| (packet[0], packet[24]) = (0x46, 9)), v4(|packet| packet[0] = 0x46));
        assert_eq!(v4(|packet| (packet[0], packet[20]) = (0x46, 9)), v4(|packet| packet[0] = 0x46));
        let cut = V4::default().frame();
        assert_eq!(hash(7, &cut[14..37]), hash(7, &cut[14..34]), "half of the ports are none");
    }

    #[test]
    fn extension_headers_are_passed_over() {
        let with = |headers: &[(u8, u8)], ports: usize, port: u8| {
            v6(|packet| {
                let mut at = 40;
                packet[6] = headers[0].0;
                for (i, (kind, len)) in headers.iter().enumerate() {
                    packet[at] = headers.get(i + 1).map_or(17, |next| next.0);
                    packet[at + 1] = *len;
                    at += if *kind == 51 { usize::from(*len) * 4 + 8 } else { usize::from(*len) * 8 + 8 };
                }
                assert_eq!(at, ports);
                packet[ports..ports + 4].copy_from_slice(&[0, port, 0, 9]);
            })
        };
        for (headers, ports) in
            [(&[(0, 0)][..], 48), (&[(60, 1)], 56), (&[(51, 4)], 64), (&[(0, 0), (43, 0), (60, 0)], 64)]
        {
            assert_ne!(with(headers, ports, 1), with(headers, ports, 2), "{headers:?}");
            let same = v6(|packet| packet[40..44].copy_from_slice(&[0, 1, 0, 9]));
            assert_eq!(with(headers, ports, 1), same, "{headers:?}: as without them");
        }
        let fragment = with(&[(44, 0)], 48, 1);
        assert_eq!(with(&[(44, 0)], 48, 2), fragment);
        assert_eq!(with(&[(0, 0), (44, 0)], 56, 2), fragment);
        assert_eq!(with(&[(0, 0); 9], 112, 1), with(&[(0, 0); 9], 112, 2), "too many");
    }

    #[test]
    fn flows_spread_evenly_over_the_high_bits_and_the_next_ones() {
        for shift in [0, 12, 24] {
            let mut counts = [0_u32; 64];
            for flow in 0..64_000_u32 {
                let [a, b, c, d] = flow.to_be_bytes();
                let hash = v4(|packet| packet[16..20].copy_from_slice(&[10 + a, b, c, d]));
                counts[usize::try_from(hash.rotate_left(shift) >> 58).unwrap()] += 1;
            }
            // 1,000 each; the standard deviation is 31.
            assert!(counts.iter().all(|count| (840..1160).contains(count)), "{shift}: {counts:?}");
        }
    }
}
