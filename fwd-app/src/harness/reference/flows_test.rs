//! Flows over groups: each packet against the reference at every kernel level; rerouting after a failed path; shares by weight.

use super::{Reference, Verdict};
use crate::datapath::check::{Destination, check};
use crate::datapath::egress::Inputs;
use crate::datapath::egress::learned::Learned;
use crate::datapath::egress::tests::ports;
use crate::datapath::flow;
use crate::datapath::packet_state::PacketState;
use crate::datapath::parse::parse;
use crate::datapath::test_frames::{self, V4, V6};
use crate::datapath::verdict::verdict;
use crate::datapath::{Batch, DropReason, EgressPort, EgressTable};
use dpdk_ffi::simd::Level;
use dpdk_ffi::{Burst, testing};
use fib::feed::{Hop, parse_neighbour, parse_route};
use fib::{MacAddr, NextHopId, NextHopTable, Rib};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEED: u64 = 77;

struct FlowRig {
    rib: Rib,
    hops: NextHopTable,
    ports: Vec<EgressPort>,
}

impl FlowRig {
    fn new(text: &str) -> Self {
        let mut ports = ports(4);
        ports[3].mtu_bytes = 600;
        let mut rig = Self { rib: Rib::new(), hops: NextHopTable::new(), ports };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix("neigh ") {
                Some(neighbour) => rig.hops.set_neighbour(parse_neighbour(neighbour).unwrap()),
                None => {
                    let (prefix, hop) = parse_route(line).unwrap();
                    let id = match hop {
                        Hop::Id(id) => rig.hops.bare(id.get()),
                        Hop::Hop(hop) => rig.hops.intern(hop),
                    };
                    rig.rib.set(prefix, id.unwrap());
                }
            }
        }
        rig
    }

    fn table(&self) -> EgressTable {
        let Self { rib, hops, ports } = self;
        let learned = Learned::default();
        let inputs = Inputs { ecmp_seed: SEED, ..Inputs::new(hops, ports, rib, &learned) };
        EgressTable::build(&inputs).unwrap()
    }

    fn forward(&self, table: &EgressTable, frames: &[Vec<u8>], level: Level) -> Option<Batch> {
        let mut batch = Batch::alone(Burst::with_capacity(testing::eal()?, 128).with_level(level));
        test_frames::add(&mut batch, frames);
        parse(&mut batch);
        let id = |address: std::net::IpAddr| self.rib.longest(address).map_or(NextHopId::NONE, |(_, id)| id);
        for k in 0..batch.v4.len {
            batch.v4.hops[k] = id(batch.keys4[k].to_be_bytes().into());
        }
        for k in 0..batch.v6.len {
            let key = u128::from(batch.keys6.0[k]) << 64 | u128::from(batch.keys6.1[k]);
            batch.v6.hops[k] = id(key.to_be_bytes().into());
        }
        verdict(&mut batch, table);
        Some(batch)
    }

    /// The port and MAC or drop reason of each frame; all levels must agree with the reference.
    fn judge(&self, frames: &[Vec<u8>]) -> Option<Vec<Result<(usize, MacAddr), DropReason>>> {
        let reference = Reference::new(&self.rib, self.ports.clone(), SEED);
        let wanted = frames.iter().map(|frame| match reference.verdict(frame, &self.hops) {
            Verdict::Tx { port, destination, .. } | Verdict::Fragments { port, destination, .. } => {
                Ok((port, destination))
            }
            Verdict::Drop(reason) => Err(reason),
        });
        let wanted: Vec<_> = wanted.collect();
        let table = self.table();
        for level in Level::ALL {
            let batch = self.forward(&table, frames, level)?;
            let found = |place| match batch.slot(place) {
                PacketState::Dropped(reason) => Err(reason),
                _ => {
                    let mac = *batch.egress[place].macs.first_chunk().unwrap();
                    Ok((usize::from(batch.egress[place].port), MacAddr(mac)))
                }
            };
            for (place, wanted) in wanted.iter().enumerate() {
                assert_eq!(found(place), *wanted, "{level:?}: {place}: {:x?}", frames[place]);
            }
            let drops = wanted.iter().filter(|wanted| wanted.is_err()).count();
            assert_eq!(batch.drops.total(), drops as u64);
        }
        Some(wanted)
    }
}

const ROUTES: &str = "
    10.0.0.0/8 nexthop via 192.0.2.1 dev 0 weight 1 nexthop via 192.0.2.2 dev 1 weight 3 nexthop via 192.0.2.3 dev 3
    10.64.0.0/10 nexthop via 192.0.2.1 dev 0 nexthop via 192.0.2.8 dev 1 nexthop dev 2
    10.128.0.0/10 nexthop via 192.0.2.8 dev 0 nexthop via 192.0.2.9 dev 1
    10.192.0.0/12 via 172.16.0.1
    10.208.0.0/12 nexthop via 172.16.0.1 nexthop via 192.0.2.3 dev 2 nexthop via 172.17.0.1 nexthop via 172.18.0.1
    10.224.0.0/12 500
    172.16.0.0/16 nexthop via 192.0.2.1 dev 0 nexthop via 192.0.2.2 dev 1
    172.17.0.0/16 via 172.17.0.1
    blackhole 172.18.0.0/16
    unreachable 172.18.1.0/24
    prohibit 172.18.2.0/24
    10.240.0.0/13 via 172.18.1.1
    10.248.0.0/13 nexthop via 172.18.2.1 nexthop via 172.18.1.1
    prohibit 10.232.0.0/14
    2001:db8::/32 nexthop via fe80::1 dev 1 weight 2 nexthop via inet 192.0.2.3 dev 3
    2001:db9::/32 via 2001:db8::9
    neigh 192.0.2.1 lladdr 02:00:00:00:01:01 dev 0
    neigh 192.0.2.2 lladdr 02:00:00:00:01:02 dev 1
    neigh 192.0.2.3 lladdr 02:00:00:00:01:03 dev 2
    neigh 10.64.0.1 lladdr 02:00:00:00:02:01 dev 2
    neigh fe80::1 lladdr 02:00:00:00:06:01 dev 1
";

fn v4(destination: u32, port: u16, payload_bytes: usize) -> Vec<u8> {
    let mut frame = V4 { destination: destination.to_be_bytes(), payload_bytes, ..V4::default() }.frame();
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn flows_take_the_paths_that_are_alive() {
    let rig = FlowRig::new(ROUTES);
    let flows = |destination: u32, payload_bytes| {
        let frames: Vec<_> = (0..100).map(|port| v4(destination, port, payload_bytes)).collect();
        let mut ends = BTreeMap::new();
        for end in rig.judge(&frames)? {
            *ends.entry(format!("{end:?}").replace(' ', "")).or_insert(0) += 1;
        }
        Some(ends)
    };
    let Some(three) = flows(0x0a00_0001, 40) else { return };
    assert_eq!(three.len(), 3, "{three:?}");
    let long = flows(0x0a00_0001, 1000).unwrap();
    assert!(long.len() == 3 && long.contains_key("Err(MtuExceeded)"), "{long:?}");
    assert_eq!(flows(0x0a40_0001, 40).unwrap().len(), 2);
    assert!(flows(0x0a40_0002, 40).unwrap().contains_key("Err(NoNeighbour)"));
    assert_eq!(flows(0x0a80_0001, 40).unwrap().keys().collect::<Vec<_>>(), ["Err(NoNeighbour)"]);
    assert_eq!(flows(0x0ac0_0001, 40).unwrap().len(), 2);
    assert_eq!(
        flows(0x0ad0_0001, 40).unwrap().len(),
        3,
        "a path that loops and one into a blackhole are dead"
    );
    assert_eq!(flows(0x0ae0_0001, 40).unwrap().len(), 1);
    for (destination, reason) in [
        (0xac11_0001, "Err(NoNeighbour)"),
        (0xac12_0001, "Err(Blackhole)"),
        (0xac12_0101, "Err(Unreachable)"),
        (0xac12_0201, "Err(Prohibited)"),
        (0x0af0_0001, "Err(Unreachable)"),
        (0x0af8_0001, "Err(NoNeighbour)"),
    ] {
        assert_eq!(flows(destination, 40).unwrap().keys().collect::<Vec<_>>(), [reason]);
    }
}

#[test]
fn a_path_that_fails_moves_its_own_flows_and_gets_them_back() {
    let mut rig = FlowRig::new(ROUTES);
    let frames: Vec<_> = (0..120).map(|port| v4(0x0a00_0001, port, 40)).collect();
    let Some(before) = rig.judge(&frames) else { return };
    for failed in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        let address = failed.parse().unwrap();
        let neighbour = rig.hops.neighbour(address).unwrap().clone();
        rig.hops.remove_neighbour(address);
        let during = rig.judge(&frames).unwrap();
        for (before, during) in before.iter().zip(&during) {
            let was_its = before.as_ref().unwrap().1 == neighbour.mac;
            assert_eq!(before != during, was_its);
            assert_ne!(during.as_ref().unwrap().1, neighbour.mac);
        }
        rig.hops.set_neighbour(neighbour);
        assert_eq!(rig.judge(&frames).unwrap(), before);
    }
    // Announcing the group without the path gives the same result.
    let less = "10.0.0.0/8 nexthop via 192.0.2.1 dev 0 weight 1 nexthop via 192.0.2.3 dev 3";
    let less = FlowRig::new(&format!("{ROUTES}\n{less}")).judge(&frames).unwrap();
    assert!(less.iter().zip(&before).all(|(less, before)| less == before || before.unwrap().0 == 1));
}

#[test]
fn shares_of_many_flows_are_near_the_weights() {
    let rig = FlowRig::new(ROUTES);
    let table = rig.table();
    let mut counts = [0_f64; 4];
    for round in 0..200_u16 {
        let frames: Vec<_> =
            (0..120).map(|port| v4(0x0a00_0001 + u32::from(round), port * 7 + round, 40)).collect();
        let Some(batch) = rig.forward(&table, &frames, Level::Avx512) else { return };
        batch.ports[..120].iter().for_each(|port| counts[usize::from(*port)] += 1.0);
    }
    let total: f64 = counts.iter().sum();
    for (port, weight) in [(0, 1.0), (1, 3.0), (3, 1.0)] {
        let share = counts[port] / total / (weight / 5.0);
        assert!((0.93..1.07).contains(&share), "{counts:?}");
    }
}

#[test]
fn tagged_packets_and_fragments_take_the_path_of_their_flow() {
    let rig = FlowRig::new(ROUTES);
    let packet = V4 { destination: [10, 0, 0, 1], payload_bytes: 40, ..V4::default() };
    let tags: [&[u16]; 3] = [&[], &[0x8100], &[0x88a8, 0x8100]];
    let mut frames: Vec<_> = tags.iter().map(|tags| packet.tagged(tags)).collect();
    for port in 0..20 {
        // Only the first fragment has ports.
        for [high, low] in [[0x20, 0], [0x20, 185], [0, 250]] {
            let mut frame = v4(0x0a00_0001, port, 40);
            let ip = &mut frame[14..];
            let before = u16::from_be_bytes([ip[6], ip[7]]);
            (ip[6], ip[7]) = (high, low);
            let sum = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + u32::from(before);
            let sum = sum + u32::from(!u16::from_be_bytes([high, low]));
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frames.push(frame);
        }
    }
    let Some(ends) = rig.judge(&frames) else { return };
    assert!(ends.iter().all(Result::is_ok) && ends[0] == ends[1] && ends[0] == ends[2]);
    assert!(ends[3..].iter().all(|end| *end == ends[3]));
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..90);
    let tags = prop_oneof![
        4 => Just(&[][..]),
        1 => Just(&[0x8100_u16][..]),
        1 => Just(&[0x88a8, 0x8100][..]),
    ];
    let next =
        prop_oneof![Just(6_u8), Just(17), Just(0), Just(43), Just(44), Just(51), Just(60), any::<u8>()];
    (any::<bool>(), any::<u32>(), bytes, tags, next, any::<[u8; 4]>(), 0..3_usize).prop_map(
        |(is_v6, low, bytes, tags, next, first, words)| {
            let payload_bytes = bytes.len();
            let mut frame = if is_v6 {
                let mut destination = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
                destination[3] += u8::try_from(low % 2).unwrap();
                V6 { destination, payload_bytes, ..V6::default() }.tagged(tags)
            } else {
                let [_, b, c, d] = low.to_be_bytes();
                let options = vec![1; words * 4];
                let first = 0x45 + u8::try_from(words).unwrap();
                V4 { first, destination: [10, b, c, d], payload_bytes, options, ..V4::default() }.tagged(tags)
            };
            let ip_at = 14 + 4 * tags.len();
            let end = frame.len();
            frame[end - payload_bytes..].copy_from_slice(&bytes);
            if is_v6 {
                frame[ip_at + 1..ip_at + 4].copy_from_slice(&first[1..]);
                frame[ip_at + 6] = next;
                if let Some(second) = frame.get_mut(ip_at + 40..ip_at + 42) {
                    second.copy_from_slice(&[first[0] % 64, first[3] % 4]);
                }
            }
            frame
        },
    )
}

proptest! {
    #[test]
    fn every_frame_goes_where_the_reference_says(frames in proptest::collection::vec(frame(), 1..128)) {
        let rig = FlowRig::new(ROUTES);
        for frame in &frames {
            let checked = check(frame, u32::try_from(frame.len()).unwrap()).unwrap();
            prop_assert!(matches!(checked.destination, Destination::V4(_) | Destination::V6(_)));
        }
        rig.judge(&frames);
    }
}

#[test]
fn a_flow_that_is_asked_for_takes_the_path_of_its_packets() {
    let rig = FlowRig::new(ROUTES);
    let table = rig.table();
    let (mut frames, mut flows) = (Vec::new(), Vec::new());
    for n in 0..120_u16 {
        let protocol = [17, 6, 1, 132, 33, 58][usize::from(n % 6)];
        let ports = if flow::has_ports(protocol) { [n * 7, 443 + n] } else { [0, 0] };
        let ports_bytes = [(n * 7).to_be_bytes(), (443 + n).to_be_bytes()].concat();
        let last = n.to_be_bytes()[1];
        if n.is_multiple_of(3) {
            let mut address = "2001:db8::".parse::<std::net::Ipv6Addr>().unwrap().octets();
            (address[3], address[15]) = (0xb8 + (n % 2) as u8, last);
            let mut frame = V6 { destination: address, payload_bytes: 40, ..V6::default() }.frame();
            let label = u32::from(n) * 999;
            frame[14..18].copy_from_slice(&(6 << 28 | label).to_be_bytes());
            frame[20] = protocol;
            frame[54..58].copy_from_slice(&ports_bytes);
            let source = std::net::IpAddr::from(V6::default().source);
            flows.push((std::net::IpAddr::from(address), flow::Flow { source, protocol, ports, label }));
            frames.push(frame);
        } else {
            let address = [10, [1, 65, 210][usize::from(n % 3)], last, 1];
            let mut frame = V4 { destination: address, payload_bytes: 40, ..V4::default() }.frame();
            frame[34..38].copy_from_slice(&ports_bytes);
            // Protocol and TTL share a word of the checksum: add the difference.
            let sum =
                u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 17 + (0xffff - u32::from(protocol));
            let sum = (sum & 0xffff) + (sum >> 16);
            frame[24..26].copy_from_slice(&u16::try_from(sum & 0xffff).unwrap().to_be_bytes());
            frame[23] = protocol;
            let source = std::net::IpAddr::from(V4::default().source);
            flows.push((std::net::IpAddr::from(address), flow::Flow { source, protocol, ports, label: 0 }));
            frames.push(frame);
        }
    }
    let Some(batch) = rig.forward(&table, &frames, Level::Scalar) else { return };
    let mut ends = BTreeMap::new();
    for (place, (address, flow)) in flows.iter().enumerate() {
        let id = rig.rib.longest(*address).unwrap().1;
        let (path, entry) = table.path_of(id, flow.hash(table.hash_key(), *address).unwrap());
        assert_eq!(
            (batch.indices[place], batch.egress[place].macs),
            (path.get(), entry.macs),
            "{address} {flow:?}"
        );
        *ends.entry(entry.port).or_insert(0) += 1;
    }
    assert!(ends.len() > 2, "{ends:?}");
    assert!(flows[0].1.hash(0, "192.0.2.1".parse().unwrap()).is_none(), "two families");
}
