//! Changed packets of all kinds must be valid by smoltcp's parsers and checksums.

use super::FrameChanges;
use super::packet::IpLayout;
use super::sizes::SizeMix;
use crate::datapath::check::Destination;
use crate::datapath::test_frames::{V4, V6};
use crate::harness::reference::checked;
use fib::{NextHopId, Rib};
use proptest::prelude::*;
use smoltcp::wire::{
    Icmpv4Packet, Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket,
};

/// Checks lengths and checksums of an untagged frame without fragments or extension headers; returns transport header and payload.
pub(super) fn payload(frame: &[u8]) -> &[u8] {
    let packet = &frame[14..];
    let (protocol, from, to, payload): (_, IpAddress, IpAddress, _) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum(), "{packet:02x?}");
        assert_eq!(usize::from(ip.total_len()), packet.len());
        let header_bytes = usize::from(ip.header_len());
        (ip.next_header(), ip.src_addr().into(), ip.dst_addr().into(), &packet[header_bytes..])
    } else {
        let ip = Ipv6Packet::new_checked(packet).unwrap();
        assert_eq!(usize::from(ip.payload_len()) + 40, packet.len());
        (ip.next_header(), ip.src_addr().into(), ip.dst_addr().into(), &packet[40..])
    };
    let is_right = match (protocol, from, to) {
        (IpProtocol::Udp, ..) => {
            let udp = UdpPacket::new_checked(payload).unwrap();
            assert_eq!(usize::from(udp.len()), payload.len());
            udp.verify_checksum(&from, &to)
        }
        (IpProtocol::Tcp, ..) => TcpPacket::new_checked(payload).unwrap().verify_checksum(&from, &to),
        (IpProtocol::Icmp, ..) => Icmpv4Packet::new_checked(payload).unwrap().verify_checksum(),
        (IpProtocol::Icmpv6, IpAddress::Ipv6(from), IpAddress::Ipv6(to)) => {
            Icmpv6Packet::new_checked(payload).unwrap().verify_checksum(&from, &to)
        }
        _ => true,
    };
    assert!(is_right, "{protocol}: {packet:02x?}");
    payload
}

fn frame(is_v6: bool, protocol: u8, l4: &[u8]) -> Vec<u8> {
    let payload_bytes = l4.len();
    let mut frame = if is_v6 {
        V6 { payload_bytes, ..V6::default() }.frame()
    } else {
        V4 { payload_bytes, ..V4::default() }.frame()
    };
    frame[if is_v6 { 20 } else { 23 }] = protocol;
    if !is_v6 {
        Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    }
    let at = frame.len() - payload_bytes;
    frame[at..].copy_from_slice(l4);
    frame
}

fn sums(frame: &[u8]) -> [bool; 2] {
    let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
    let udp = UdpPacket::new_checked(&frame[34..]).unwrap();
    [ip.verify_checksum(), udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into())]
}

/// Transport headers with payload, each with its protocol; checksums are wrong and nonzero.
fn transport(payload: &[u8]) -> Vec<(bool, u8, Vec<u8>)> {
    let with = |header: &[u8]| [header, payload].concat();
    let udp = with(&[0x12, 0x34, 0, 53, 0, 0, 1, 1]);
    let tcp = |words: u8| {
        let mut header = vec![1; usize::from(words) * 4];
        header[12] = words << 4;
        with(&header)
    };
    let icmp = |kind: u8| with(&[kind, 0, 1, 1, 0, 1, 0, 2]);
    vec![
        (false, 17, udp.clone()),
        (true, 17, udp),
        (false, 6, tcp(5)),
        (true, 6, tcp(8)),
        (false, 1, icmp(8)),
        (true, 58, icmp(128)),
        (false, 47, payload.to_vec()),
        (true, 59, payload.to_vec()),
    ]
}

fn remap() -> FrameChanges {
    let mut rib = Rib::new();
    for prefix in ["10.0.0.0/8", "2001:db8::/32"] {
        rib.set(prefix.parse().unwrap(), NextHopId::new(1).unwrap());
    }
    FrameChanges::new(None, Some(&rib), 3)
}

fn sized(sizes: &str) -> FrameChanges {
    FrameChanges::new(Some(&sizes.parse::<SizeMix>().unwrap()), None, 3)
}

fn changed(frame: &[u8], mut changes: FrameChanges) -> Vec<u8> {
    let mut frame = frame.to_vec();
    changes.apply(&mut frame);
    frame
}

#[test]
fn a_packet_of_any_protocol_gets_a_size_and_a_destination() {
    for (is_v6, protocol, l4) in transport(b"some payload") {
        let original = changed(&frame(is_v6, protocol, &l4), sized("79"));
        let l4 = payload(&original);
        for size in [64, 65, 78, 128, 1518, 9000, 65_535] {
            let resized = changed(&original, sized(&size.to_string()));
            let least = if is_v6 && protocol == 6 { 14 + 40 + 32 } else { 60 };
            let least = if is_v6 && matches!(protocol, 17 | 58) { 62 } else { least };
            assert_eq!(resized.len(), least.max(size - 4), "protocol {protocol}, {size} bytes");
            let kept = payload(&resized);
            let common = kept.len().min(l4.len());
            let header_bytes = if protocol == 6 { 20 } else { 8 }.min(common);
            assert_eq!(kept[header_bytes..common], l4[header_bytes..common]);
            assert!(kept[common..].iter().all(|byte| *byte == 0));
            let remapped = changed(&resized, remap());
            assert_ne!(remapped, resized);
            payload(&remapped);
            match checked(&remapped).unwrap().destination {
                Destination::V4(address) => assert_eq!(address >> 24, 10),
                Destination::V6(address) => assert_eq!(address >> 96, 0x2001_0db8),
            }
        }
    }
}

#[test]
fn what_a_capture_has_cut_is_filled() {
    for (is_v6, protocol, l4) in transport(&[7; 500]) {
        let whole = frame(is_v6, protocol, &l4);
        let ip_bytes = if is_v6 { 54 } else { 34 };
        for cut in [ip_bytes, ip_bytes + 3, ip_bytes + 15, 96, whole.len() - 1] {
            let filled = changed(&whole[..cut], sized("original"));
            assert_eq!(
                (filled.len(), &filled[..ip_bytes]),
                (whole.len(), &whole[..ip_bytes]),
                "cut at {cut}"
            );
            if cut >= ip_bytes + 15 {
                payload(&filled);
            }
            let remapped = changed(&whole[..cut], remap());
            assert_eq!(remapped.len(), cut);
            assert_ne!(remapped, whole[..cut]);
        }
        let mut padded = whole;
        padded.extend([0; 9]);
        assert_eq!(changed(&padded, sized("original")), padded);
    }
}

#[test]
fn what_is_wrong_stays_wrong() {
    let (_, _, l4) = &transport(b"abc")[0];
    let right = changed(&frame(false, 17, l4), sized("100"));
    for at in [24, 40] {
        let mut wrong = right.clone();
        wrong[at] ^= 0x10;
        assert_eq!(sums(&changed(&wrong, remap())), [at != 24, at != 40]);
    }
    let mut bad_sum = right.clone();
    bad_sum[24] ^= 1;
    assert_eq!(changed(&bad_sum, sized("64")), bad_sum, "not a packet that has a size");
    let mut without = right;
    without[40..42].fill(0);
    for changes in [sized("64"), remap()] {
        assert_eq!(changed(&without, changes)[40..42], [0, 0]);
    }
    for (ethertype, first) in [(0x0806, 0x45), (0x0800, 0x65), (0x86dd, 0x45)] {
        let mut other = without.clone();
        other[12..14].copy_from_slice(&u16::to_be_bytes(ethertype));
        other[14] = first;
        for changes in [sized("64"), remap()] {
            assert_eq!(changed(&other, changes), other);
        }
    }
}

#[test]
fn fragments_and_extension_headers() {
    let udp = [0x12, 0x34, 0, 53, 0, 20, 0x55, 0x66, 1, 2, 3, 4];
    let v6 = |next_header: u8, headers: &[u8]| frame(true, next_header, &[headers, &udp].concat());
    let hop_by_hop = v6(0, &[17, 0, 1, 4, 0, 0, 0, 0]);
    let resized = changed(&hop_by_hop, sized("200"));
    assert_eq!((resized.len(), resized[54..62].to_vec()), (196, hop_by_hop[54..62].to_vec()));
    assert_eq!(resized[66..68], [0, 134], "the length of UDP");
    // The same packet without the extension header, to check its checksum.
    let mut plain = [&resized[..54], &resized[62..]].concat();
    plain[18..20].copy_from_slice(&134_u16.to_be_bytes());
    plain[20] = 17;
    payload(&plain);

    // A new destination changes the checksum in the first fragment; later ones have data there. A new size changes neither.
    for (offset, has_sum) in [(1_u16, true), (8, false), (9, false)] {
        let [high, low] = offset.to_be_bytes();
        let fragment = v6(44, &[17, 0, high, low, 0, 0, 0, 1]);
        assert_eq!(changed(&fragment, remap())[68..70] != [0x55, 0x66], has_sum, "{offset}");
        let resized = changed(&fragment, sized("300"));
        assert_eq!((&resized[62..74], resized.len()), (&fragment[62..74], 296));
    }
    for (flags, has_sum) in [(0x2000_u16, true), (0x2001, false), (0x0001, false)] {
        let mut fragment = frame(false, 17, &udp);
        fragment[20..22].copy_from_slice(&flags.to_be_bytes());
        Ipv4Packet::new_unchecked(&mut fragment[14..]).fill_checksum();
        assert!(checked(&fragment).is_ok());
        assert_eq!(changed(&fragment, remap())[40..42] != [0x55, 0x66], has_sum, "{flags:x}");
        assert_eq!(changed(&fragment, sized("300"))[34..46], fragment[34..46]);
    }
    // With segments left the checksum uses the final destination.
    let routed = v6(43, &[17, 0, 4, 1, 0, 0, 0, 0]);
    assert_eq!(changed(&routed, remap())[68..70], [0x55, 0x66]);
    assert_ne!(changed(&v6(43, &[17, 0, 4, 0, 0, 0, 0, 0]), remap())[68..70], [0x55, 0x66]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes_of_any_kind_never_panic(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x0806]),
        first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x40, 0x60, 0x00]),
        next in prop::sample::select(vec![0_u8, 1, 6, 17, 33, 43, 44, 51, 58, 59, 60, 136]),
        size in 64_usize..3000,
    ) {
        for (at, byte) in [(12, kind.to_be_bytes()[0]), (13, kind.to_be_bytes()[1]), (14, first), (20, next), (23, next)] {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        for changes in [sized(&size.to_string()), sized("original"), remap()] {
            let after = changed(&frame, changes);
            prop_assert!(IpLayout::parse(&frame).is_some() || after == frame);
            prop_assert_eq!(&after[..frame.len().min(14)], &frame[..frame.len().min(14)]);
        }
        if let Some(layout) = IpLayout::parse(&frame) {
            let mut resized = frame.clone();
            layout.resize(&mut resized, size - 4);
            prop_assert!(resized.len() >= size - 4 && resized.len() <= 20_000.max(size));
        }
    }
}
