//! Tests of the watch: all wanted packets are copied and no others, even while the filter changes.

use super::*;
use crate::datapath::egress::tests::ports;
use crate::datapath::parse::parse;
use crate::datapath::test_frames::{self, V4, V6};
use crate::datapath::verdict::verdict;
use crate::datapath::{DropReason, EgressTable};
use fib::{NextHopId, NextHopTable};
use std::sync::atomic::AtomicBool;

fn to(prefix: &str) -> PacketFilter {
    PacketFilter { to: Some(prefix.parse().unwrap()), ..PacketFilter::default() }
}

fn v4(destination: [u8; 4]) -> V4 {
    V4 { destination, payload_bytes: 40, ..V4::default() }
}

/// The last bytes of the copied packets' destinations, in order.
fn seen(watch: &Watch) -> Vec<u8> {
    let last = |seen: &WatchedPacket| match check::destination(&seen.frame) {
        Some(Destination::V4(address)) => address.to_le_bytes()[0],
        Some(Destination::V6(address)) => address.to_le_bytes()[0],
        None => 0,
    };
    let mut all = Vec::new();
    while let Some(packet) = watch.next() {
        all.push(last(&packet));
        watch.give_back(packet);
    }
    all
}

/// A batch from `input` in `vrf` with its verdict. IPv4: two packets that leave, an expired TTL, a wrong checksum, no route, and a tagged
/// packet that leaves. IPv6: one that leaves, one without a route. Their destinations end in 1 to 8.
fn batch(input: usize, vrf: usize) -> Option<Batch> {
    let v6 = |last: u8| {
        let mut packet = V6 { payload_bytes: 40, ..V6::default() };
        packet.destination[15] = last;
        packet
    };
    let mut wrong = v4([10, 0, 0, 4]).frame();
    wrong[24] ^= 1;
    let frames = [
        v4([10, 0, 0, 1]).frame(),
        v4([10, 0, 0, 2]).frame(),
        V4 { ttl: 1, ..v4([10, 0, 0, 3]) }.frame(),
        wrong,
        v4([10, 0, 1, 5]).frame(),
        v4([10, 0, 1, 6]).tagged(&[0x88a8, 0x8100]),
        v6(7).frame(),
        v6(8).frame(),
    ];
    let mut batch = test_frames::batch(&frames)?;
    (batch.input, batch.vrf) = (input, vrf);
    parse(&mut batch);
    let id = NextHopId::from_answer;
    batch.v4.hops[..4].copy_from_slice(&[id(1), id(2), id(0), id(3)]);
    batch.v6.hops[..2].copy_from_slice(&[id(1), id(0)]);
    verdict(&mut batch, &EgressTable::new(&NextHopTable::new(), &ports(4)).unwrap());
    Some(batch)
}

fn watch() -> Watch {
    let watch = Watch::default();
    watch.set_ports([0, 0, 1].into_iter());
    watch
}

#[test]
fn only_what_is_wanted_is_seen_among_many_others() {
    let Some(others) = batch(0, 0) else { return };
    let Some(wanted) = batch(2, 1) else { return };
    let watch = watch();
    let reason = |reason| PacketFilter { reason: Some(reason), ..PacketFilter::default() };
    let on = PacketFilter { port: Some(1), ..PacketFilter::default() };
    let in_vrf = PacketFilter { vrf: Some(1), ..PacketFilter::default() };
    for (purpose, filter, numbers) in [
        (Purpose::Trace, on, &[1, 2, 3, 4, 5, 6, 7, 8][..]),
        (Purpose::Trace, in_vrf, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (Purpose::Capture, in_vrf, &[3, 4, 5, 8]),
        (Purpose::Trace, PacketFilter { to: to("10.0.0.0/24").to, ..on }, &[1, 2, 3, 4]),
        (Purpose::Trace, PacketFilter { to: to("10.0.1.6/32").to, ..on }, &[6]),
        (Purpose::Trace, PacketFilter { to: to("0.0.0.0/0").to, ..on }, &[1, 2, 3, 4, 5, 6]),
        (Purpose::Trace, PacketFilter { to: to("2001:db8::/32").to, ..on }, &[7, 8]),
        (Purpose::Trace, PacketFilter { to: to("::/0").to, ..on }, &[7, 8]),
        (Purpose::Trace, PacketFilter { to: to("2001:db8::8/128").to, ..on }, &[8]),
        (Purpose::Trace, PacketFilter { port: Some(1), ..reason(DropReason::NoRoute) }, &[5, 8]),
        (Purpose::Capture, PacketFilter { vrf: Some(1), ..reason(DropReason::BadChecksum) }, &[4]),
        (Purpose::Capture, PacketFilter { to: to("10.0.1.0/24").to, ..on }, &[5]),
        (Purpose::Capture, PacketFilter { vrf: Some(0), ..on }, &[]),
        (Purpose::Trace, PacketFilter { reason: Some(DropReason::TxFull), ..on }, &[]),
    ] {
        watch.want(purpose, 100, filter);
        assert!(watch.is_on());
        for _ in 0..200 {
            watch.copy_matching(&others);
        }
        assert_eq!(watch.free.1.len(), BUFFERS, "{filter:?} took buffers for packets that nobody wants");
        watch.copy_matching(&wanted);
        assert_eq!(watch.left(purpose), 100 - numbers.len() as u64);
        assert_eq!(seen(&watch), numbers, "{purpose:?} {filter:?}");
        watch.stop(purpose);
        assert!(!watch.is_on());
    }
    assert_eq!(watch.missed(), 0);
    watch.want(Purpose::Trace, 3, PacketFilter::default());
    watch.copy_matching(&others);
    watch.copy_matching(&wanted);
    assert_eq!((seen(&watch), watch.is_on()), (vec![1, 2, 3], false), "no more than are wanted");
}

#[test]
fn a_capture_and_a_trace_have_filters_of_their_own() {
    let Some(all) = batch(0, 0) else { return };
    let watch = watch();
    watch.want(Purpose::Trace, 9, to("10.0.0.1/32"));
    watch.want(Purpose::Capture, 9, to("10.0.1.5/32"));
    watch.copy_matching(&all);
    assert_eq!(seen(&watch), [5, 1]);
    watch.copy_matching(&all);
    watch.stop(Purpose::Trace);
    assert_eq!(seen(&watch), [5], "a copy that nobody waits for any more is not shown");
}

#[test]
fn packets_that_are_dropped_late_are_traced_if_their_reason_is_wanted() {
    let watch = watch();
    let frame = v4([10, 0, 0, 1]).frame();
    let packet = (&frame[..], 74);
    let reason = Some(DropReason::NoNeighbour);
    let drop_it = |origin| watch.dropped(packet, origin, DropReason::NoNeighbour);
    watch.want(Purpose::Trace, 9, PacketFilter::default());
    drop_it(PacketOrigin::new(0, 0));
    assert!(seen(&watch).is_empty(), "it was seen with its verdict");
    watch.want(Purpose::Trace, 9, PacketFilter { reason, ..to("10.0.0.0/8") });
    drop_it(PacketOrigin::new(0, 0));
    drop_it(PacketOrigin::UNKNOWN);
    watch.dropped(packet, PacketOrigin::new(0, 0), DropReason::PuntFull);
    assert_eq!(seen(&watch), [1, 1]);
    watch.want(Purpose::Trace, 9, PacketFilter { reason, port: Some(0), ..PacketFilter::default() });
    drop_it(PacketOrigin::UNKNOWN);
    drop_it(PacketOrigin::new(2, 0));
    assert!(seen(&watch).is_empty(), "packets of this router and of another port");
    drop_it(PacketOrigin::new(1, 0));
    assert_eq!(seen(&watch), [1]);
}

#[test]
fn a_filter_takes_the_destinations_that_its_prefix_contains() {
    use proptest::prelude::*;
    proptest!(|(address: u32, flip in 0_u32..32, len in 0_u8..=32, far: u128, deep in 0_u32..128, long in 0_u8..=128)| {
        let other = address ^ 1 << flip;
        let prefix = fib::Prefix::truncating(address, len);
        let words = FilterWords::new(PacketFilter { to: Some(IpPrefix::V4(prefix)), ..PacketFilter::default() });
        let frame = V4 { destination: other.to_be_bytes(), ..V4::default() }.frame();
        prop_assert_eq!(words.takes_destination(&frame), prefix.contains(other));
        prop_assert!(!words.takes_destination(&V6::default().frame()));
        prop_assert!((0..33).all(|end| !words.takes_destination(&frame[..end])));
        let other = far ^ 1 << deep;
        let prefix = fib::Prefix::truncating(far, long);
        let words = FilterWords::new(PacketFilter { to: Some(IpPrefix::V6(prefix)), ..PacketFilter::default() });
        let frame = V6 { destination: other.to_be_bytes(), ..V6::default() }.tagged(&[0x8100]);
        prop_assert_eq!(words.takes_destination(&frame), prefix.contains(other));
        prop_assert!(!words.takes_destination(&V4::default().frame()));
    });
}

#[test]
fn no_packet_of_another_filter_comes_while_filters_change() {
    let (watch, is_over) = (watch(), AtomicBool::new(false));
    let frames: Vec<_> = (0..4).map(|last| v4([10, 0, last, last]).frame()).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for frame in &frames {
                        watch.dropped((frame, 74), PacketOrigin::new(0, 0), DropReason::NoRoute);
                    }
                }
            });
        }
        let mut came = 0;
        for round in 0_u8.. {
            let last = round % 4;
            watch.want(Purpose::Capture, 20, to(&format!("10.0.{last}.0/24")));
            while watch.left(Purpose::Capture) > 10 {
                std::thread::yield_now();
            }
            let numbers = seen(&watch);
            came += numbers.len();
            assert!(numbers.iter().all(|number| *number == last), "{numbers:?} for {last}");
            if came > 2000 || round == u8::MAX {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(came > 500, "{came}");
    });
    watch.stop(Purpose::Capture);
    assert!(seen(&watch).is_empty());
    assert_eq!(watch.free.1.len(), BUFFERS, "no buffer is lost");
}
