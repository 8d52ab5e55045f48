//! Checks one packet of any form against the forwarding rules.
//!
//! [`check`] applies the rules in order and returns the [`DropReason`] of the first that fails: the slow path of [`super::parse`]. Rules
//! of both are in [`dpdk_ffi::simd::rules`]. The fast path reads half of an IPv6 address and leaves undecided ones to [`check`].

use super::DropReason;
use dpdk_ffi::simd::rules::{checksum_is_right, lengths_agree_v4, lengths_agree_v6, may_hop, unicast_v4};

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// VLAN tags: IEEE 802.1Q, 802.1ad, and the ethertype that QinQ used before 802.1ad.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TAGS_MAX: usize = 2;
pub(crate) const ETHERNET_BYTES: usize = 14;
/// The shortest frame without its checksum; shorter ones are padded.
pub(crate) const FRAME_BYTES_MIN: usize = 60;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;

/// Host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    V4(u32),
    V6(u128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) destination: Destination,
    /// Offset of the IP header in the frame, bytes.
    pub(crate) ip_at: u16,
    /// Length of the IP packet according to its header, bytes.
    pub(crate) ip_bytes: u32,
}

/// `head` is the first segment of the frame, `frame_bytes` its whole length.
pub(crate) fn check(head: &[u8], frame_bytes: u32) -> Result<Checked, DropReason> {
    let (ethertype, ip_at) = layer2(head)?;
    let packet = &head[ip_at..];
    let there = u32::try_from(ip_at).map_or(0, |at| frame_bytes.saturating_sub(at));
    let (destination, ip_bytes) = match ethertype {
        IPV4 => ipv4(packet, there)?,
        IPV6 => ipv6(packet, there)?,
        _ => return Err(DropReason::NotIp),
    };
    // At most 22: the Ethernet header and two tags.
    let ip_at = u16::try_from(ip_at).map_err(|_| DropReason::Malformed)?;
    Ok(Checked { destination, ip_at, ip_bytes })
}

/// The destination even of a packet that may not be forwarded. `None` if it is no IP packet or is truncated.
pub(super) fn destination(head: &[u8]) -> Option<Destination> {
    let (ethertype, ip_at) = layer2(head).ok()?;
    let packet = &head[ip_at..];
    match ethertype {
        IPV4 => Some(Destination::V4(u32::from_be_bytes(*packet.get(16..)?.first_chunk()?))),
        IPV6 => Some(Destination::V6(u128::from_be_bytes(*packet.get(24..)?.first_chunk()?))),
        _ => None,
    }
}

/// The ethertype after at most two tags, and the offset of its payload. A frame with a third tag is `not_ip`.
pub(crate) fn layer2(head: &[u8]) -> Result<(u16, usize), DropReason> {
    let mut at = ETHERNET_BYTES - 2;
    let mut ethertype = be16(head, at)?;
    for _ in 0..TAGS_MAX {
        if !TAGS.contains(&ethertype) {
            break;
        }
        at += 4;
        ethertype = be16(head, at)?;
    }
    Ok((ethertype, at + 2))
}

/// The VLAN id of the outermost tag of a frame that begins with `start`; `None` without a tag. It is 0 for a tag without a VLAN.
pub(super) fn outer_vlan(start: &[u8; ETHERNET_BYTES + 2]) -> Option<u16> {
    let [.., type0, type1, tci0, tci1] = *start;
    TAGS.contains(&u16::from_be_bytes([type0, type1])).then(|| u16::from_be_bytes([tci0, tci1]) & 0xfff)
}

/// The ids in the VLAN tags of a frame that has passed [`check`], the outermost first; 0 is none. A tag without a VLAN has no id.
pub(super) fn vlans(frame: &[u8]) -> [u16; 2] {
    let mut vlans = [0; 2];
    let tags = frame.get(ETHERNET_BYTES - 2..).unwrap_or_default().chunks_exact(4);
    let is_tag = |tag: &&[u8]| TAGS.contains(&u16::from_be_bytes([tag[0], tag[1]]));
    let ids = tags.take_while(is_tag).map(|tag| u16::from_be_bytes([tag[2], tag[3]]) & 0xfff);
    vlans.iter_mut().zip(ids.filter(|id| *id != 0)).for_each(|(vlan, id)| *vlan = id);
    vlans
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, DropReason> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(DropReason::Malformed),
    }
}

/// RFC 1812 5.2.2, then addresses (5.3.7), then TTL (5.3.1). `there` is the frame's length from the IP header on, bytes.
fn ipv4(packet: &[u8], there: u32) -> Result<(Destination, u32), DropReason> {
    let header = packet.first_chunk::<IPV4_BYTES>().ok_or(DropReason::Malformed)?;
    // (3) version 4 and (4) a header of at least 20 bytes: plain frames meet both by definition, their first byte is 0x45.
    let header_bytes = u32::from(header[0] & 15) * 4;
    let total_bytes = u32::from(u16::from_be_bytes([header[2], header[3]]));
    let whole = packet.get(..header_bytes as usize).ok_or(DropReason::Malformed)?;
    if header[0] >> 4 != 4 || whole.len() < IPV4_BYTES || !lengths_agree_v4(header_bytes, total_bytes, there)
    {
        return Err(DropReason::Malformed);
    }
    // The checksum covers the options too, so it is checked after the lengths.
    let words = whole.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    if !checksum_is_right(words.sum()) {
        return Err(DropReason::BadChecksum);
    }
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let destination = u32::from_be_bytes([d0, d1, d2, d3]);
    if !unicast_v4(u32::from_be_bytes([s0, s1, s2, s3])) {
        return Err(DropReason::Martian);
    }
    if !unicast_v4(destination) {
        // RFC 1112 4: 224/4.
        return Err(if d0 >> 4 == 0xe { DropReason::Multicast } else { DropReason::Martian });
    }
    if !may_hop(header[8]) {
        return Err(DropReason::TtlExpired);
    }
    Ok((Destination::V4(destination), total_bytes))
}

/// RFC 8200 3, then addresses (RFC 4291 2.5, 2.7), then the hop limit. Extension headers are not inspected.
fn ipv6(packet: &[u8], there: u32) -> Result<(Destination, u32), DropReason> {
    let header = packet.first_chunk::<IPV6_BYTES>().ok_or(DropReason::Malformed)?;
    let ip_bytes = 40 + u32::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || !lengths_agree_v6(ip_bytes, there) {
        return Err(DropReason::Malformed);
    }
    let mut address = [0; 16];
    address.copy_from_slice(&header[8..24]);
    let source = u128::from_be_bytes(address);
    address.copy_from_slice(&header[24..40]);
    let destination = u128::from_be_bytes(address);
    if !unicast_v6(source) {
        return Err(DropReason::Martian);
    }
    if !unicast_v6(destination) {
        return Err(if multicast_v6(destination) { DropReason::Multicast } else { DropReason::Martian });
    }
    if !may_hop(header[7]) {
        return Err(DropReason::TtlExpired);
    }
    Ok((Destination::V6(destination), ip_bytes))
}

pub(crate) const fn is_unicast(destination: Destination) -> bool {
    match destination {
        Destination::V4(address) => unicast_v4(address),
        Destination::V6(address) => unicast_v6(address),
    }
}

/// RFC 4291 2.5.2, 2.5.3, 2.5.5.2, 2.5.6, 2.7: not `::`, `::1`, `fe80::/10`, an IPv4-mapped address (`::ffff:0:0/96`), or
/// multicast.
#[inline(always)]
const fn unicast_v6(address: u128) -> bool {
    !((address <= 1) | (address >> 118 == 0x3fa) | (address >> 32 == 0xffff) | multicast_v6(address))
}

/// RFC 4291 2.7: `ff00::/8`.
const fn multicast_v6(address: u128) -> bool {
    address >> 120 == 0xff
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::{V4, V6};
    use super::*;
    use DropReason::{BadChecksum, Malformed, Martian, Multicast, NotIp, TtlExpired};
    use dpdk_ffi::simd::rules::surely_unicast_v6;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn verdict(frame: &[u8]) -> Result<Checked, DropReason> {
        check(frame, u32::try_from(frame.len()).unwrap())
    }

    #[test]
    fn good_packets_pass_with_and_without_tags() {
        for (tags, ip_at) in
            [(&[][..], 14), (&[0x8100], 18), (&[0x88a8, 0x8100], 22), (&[0x9100, 0x8100], 22)]
        {
            let v4 = verdict(&V4::default().tagged(tags)).unwrap();
            let destination = Destination::V4(u32::from(Ipv4Addr::new(198, 51, 100, 7)));
            assert_eq!(v4, Checked { destination, ip_at, ip_bytes: 28 });
            let v6 = verdict(&V6::default().tagged(tags)).unwrap();
            assert_eq!((v6.ip_at, v6.ip_bytes), (ip_at, 48));
        }
    }

    #[test]
    fn layer_2() {
        assert_eq!(verdict(&V4::default().tagged(&[0x8100, 0x8100, 0x8100])), Err(NotIp));
        for ethertype in [0x0806_u16, 0x0026, 0x88cc, 0xffff] {
            let mut frame = V4::default().frame();
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            assert_eq!(verdict(&frame), Err(NotIp));
        }
        let tagged = V4::default().tagged(&[0x88a8, 0x8100]);
        for bytes in [0, 13, 14, 15, 17, 18, 21] {
            assert_eq!(verdict(&tagged[..bytes]), Err(Malformed), "cut at {bytes}");
        }
    }

    #[test]
    fn ipv4_lengths_and_version() {
        let whole = V4::default().frame();
        for bytes in 0..whole.len() {
            assert_eq!(verdict(&whole[..bytes]), Err(Malformed), "cut at {bytes}");
        }
        for first in [0x05, 0x35, 0x55, 0x65, 0x40, 0x44, 0x4f] {
            assert_eq!(verdict(&V4 { first, ..V4::default() }.frame()), Err(Malformed), "{first:x}");
        }
        for total in [0, 19, 29, 65535] {
            assert_eq!(
                verdict(&V4 { total: Some(total), ..V4::default() }.frame()),
                Err(Malformed),
                "{total}"
            );
        }
        let mut padded = whole.clone();
        padded.resize(60, 0);
        assert!(verdict(&padded).is_ok());
        let options = V4 { first: 0x46, options: vec![1, 1, 1, 0], ..V4::default() };
        assert_eq!(verdict(&options.frame()).unwrap().ip_bytes, 32);
        let beyond = V4 { first: 0x46, total: Some(20), options: vec![1, 1, 1, 0], ..V4::default() };
        assert_eq!(verdict(&beyond.frame()), Err(Malformed));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_a_bad_checksum() {
        let whole = V4::default().frame();
        for at in [15, 18, 19, 20, 21, 22, 23, 24, 25, 26, 29, 30, 33] {
            let mut frame = whole.clone();
            frame[at] ^= 0x10;
            assert_eq!(verdict(&frame), Err(BadChecksum), "byte {at}");
        }
    }

    #[test]
    fn ipv4_addresses() {
        let bad: [[u8; 4]; 8] = [
            [0, 0, 0, 0],
            [0, 1, 2, 3],
            [127, 0, 0, 1],
            [169, 254, 0, 0],
            [169, 254, 255, 255],
            [240, 0, 0, 0],
            [255, 255, 255, 255],
            [127, 255, 255, 255],
        ];
        for address in bad {
            assert_eq!(
                verdict(&V4 { source: address, ..V4::default() }.frame()),
                Err(Martian),
                "{address:?}"
            );
            assert_eq!(verdict(&V4 { destination: address, ..V4::default() }.frame()), Err(Martian));
        }
        for address in [[224, 0, 0, 0], [239, 255, 255, 255]] {
            assert_eq!(verdict(&V4 { source: address, ..V4::default() }.frame()), Err(Martian));
            assert_eq!(verdict(&V4 { destination: address, ..V4::default() }.frame()), Err(Multicast));
        }
        for address in
            [[1, 0, 0, 0], [126, 255, 255, 255], [128, 0, 0, 0], [169, 253, 255, 255], [169, 255, 0, 0]]
        {
            assert!(verdict(&V4 { source: address, destination: address, ..V4::default() }.frame()).is_ok());
        }
        assert!(verdict(&V4 { source: [223, 255, 255, 255], ..V4::default() }.frame()).is_ok());
        // The source is checked before the destination, and addresses before the TTL.
        let both = V4 { source: [127, 0, 0, 1], destination: [224, 0, 0, 1], ttl: 0, ..V4::default() };
        assert_eq!(verdict(&both.frame()), Err(Martian));
    }

    #[test]
    fn ipv6_addresses() {
        let parse = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        for text in ["::", "::1", "fe80::", "febf:ffff::1", "::ffff:0:0", "::ffff:192.0.2.1"] {
            assert_eq!(verdict(&V6 { source: parse(text), ..V6::default() }.frame()), Err(Martian), "{text}");
            assert_eq!(verdict(&V6 { destination: parse(text), ..V6::default() }.frame()), Err(Martian));
        }
        for text in ["ff00::", "ff02::1", "ffff::"] {
            assert_eq!(verdict(&V6 { source: parse(text), ..V6::default() }.frame()), Err(Martian));
            assert_eq!(verdict(&V6 { destination: parse(text), ..V6::default() }.frame()), Err(Multicast));
        }
        for text in ["::2", "fec0::1", "fe7f::1", "feff::", "::1:ffff:0:0", "::fffe:0:0", "64:ff9b::1"] {
            let address = parse(text);
            assert!(
                verdict(&V6 { source: address, destination: address, ..V6::default() }.frame()).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn ipv6_lengths_and_version() {
        let whole = V6::default().frame();
        for bytes in 0..whole.len() {
            assert_eq!(verdict(&whole[..bytes]), Err(Malformed), "cut at {bytes}");
        }
        for first in [0x00, 0x40, 0x45, 0x50, 0x70, 0xf0] {
            assert_eq!(verdict(&V6 { first, ..V6::default() }.frame()), Err(Malformed));
        }
        assert_eq!(verdict(&V6 { payload: Some(9), ..V6::default() }.frame()), Err(Malformed));
        assert_eq!(verdict(&V6 { payload: Some(0), ..V6::default() }.frame()).unwrap().ip_bytes, 40);
    }

    #[test]
    fn half_an_address_is_enough_only_where_the_other_half_does_not_matter() {
        let lasts = [0, 1, 2, 0xffff_0000_0000, 0xffff_ffff_ffff, u64::MAX];
        for first in
            [0, 1, 0x2001_0db8 << 32, 0xfdff << 48, 0xfe00 << 48, 0xfe80 << 48, 0xff02 << 48, u64::MAX]
        {
            let addresses = lasts.map(|last| u128::from(first) << 64 | u128::from(last));
            assert!(!surely_unicast_v6(first) || addresses.into_iter().all(unicast_v6), "{first:x}");
        }
        assert!(surely_unicast_v6(1) && surely_unicast_v6(0xfdff << 48));
    }

    #[test]
    fn ttl_and_hop_limit() {
        for hops in [0, 1] {
            assert_eq!(verdict(&V4 { ttl: hops, ..V4::default() }.frame()), Err(TtlExpired));
            assert_eq!(verdict(&V6 { hop_limit: hops, ..V6::default() }.frame()), Err(TtlExpired));
        }
        assert!(verdict(&V4 { ttl: 2, ..V4::default() }.frame()).is_ok());
        assert!(verdict(&V6 { hop_limit: 2, ..V6::default() }.frame()).is_ok());
    }
}
