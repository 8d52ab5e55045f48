//! Verdict: maps next hops to egress entries, and gives every packet its port or its drop reason.

use super::batch::{Batch, NO_ENTRY};
use super::check::{ETHERNET_BYTES, vlans};
use super::choose::{choose, ip_at};
use super::fragment::Cut;
use super::packet_state::PacketState;
use super::parse::next_place;
use super::punt::{PuntCause, PuntTag, PuntVerdict};
use super::{DropReason, Drops, Egress, EgressTable, Exit, PuntMarker};
use dpdk_ffi::simd::{Indexed, Kind, LengthOrMark};
use fib::NextHopId;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Sets the egress entry and port of every packet. Dropped packets are counted in the batch.
///
/// One kernel copies the entries and finds packets that need care: a code instead of a port, a destination on a link, an IP packet longer
/// than the MTU, a bare id beyond the dense entries. These are resolved one by one.
#[inline]
pub(crate) fn verdict(batch: &mut Batch, table: &EgressTable) {
    let Batch { packets, v4, v6, kinds, indices, is_plain, punting, .. } = batch;
    if *is_plain && v4.len > 0 && v6.len > 0 {
        packets.merge(kinds, [&v4.hops, &v6.hops], indices);
    } else {
        for lane in [v4, v6] {
            let hops = &lane.hops[..lane.len];
            if *is_plain {
                indices.iter_mut().zip(hops).for_each(|(index, hop)| *index = hop.get());
                continue;
            }
            for (place, hop) in lane.packets.iter().zip(hops) {
                indices[usize::from(*place)] = hop.get();
            }
        }
    }
    if let Some(punting) = punting
        && !packets.is_all_to(punting.addresses().mac.0)
    {
        screen(batch);
    }
    let Batch { packets, indices, egress, slots, ports, .. } = batch;
    let mut need_care = packets.verdict(table.dense(), Indexed { indices, lengths: slots }, egress, ports)
        && (!table.has_groups() || choose(batch, table));
    need_care |= table.has_vlans() && !batch.tagged.is_empty() && enter_vlans(batch, table);
    if need_care {
        settle(batch, table);
    }
}

/// Replaces the entries of tagged packets whose gateway has one in their VLAN. Returns whether a packet needs care.
#[cold]
#[inline(never)]
fn enter_vlans(batch: &mut Batch, table: &EgressTable) -> bool {
    let Batch { packets, tagged, indices, egress, slots, ports, .. } = batch;
    let mut need_care = false;
    for place in tagged.iter().map(|tagged| usize::from(tagged.place)) {
        if indices[place] == NO_ENTRY {
            continue;
        }
        let id = NextHopId::from_answer(indices[place]);
        let Some(entry) = table.in_vlans(vlans(packets.head(place)), id) else { continue };
        ports[place] = Exit::for_length(entry, slots[place]);
        egress[place] = entry;
        need_care |= !Exit::is_port(ports[place]);
    }
    need_care
}

/// Filters out packets to other MACs than the port's: broadcasts, and foreign frames on a promiscuous port.
#[cold]
#[inline(never)]
fn screen(batch: &mut Batch) {
    let tsc = batch.stamps().last().map_or(0, |stamp| stamp.tsc);
    let Batch { packets, indices, slots, drops, punting, .. } = batch;
    let Some(punting) = punting else { return };
    for place in 0..packets.len() {
        if indices[place] == NO_ENTRY || packets.header(place) == Some(&punting.addresses().mac.0) {
            continue;
        }
        indices[place] = NO_ENTRY;
        let is_ours = punting.classify(packets.data(place)) == PuntVerdict::ForUs;
        let taken =
            if is_ours { punting.punt_local(packets.data(place), tsc) } else { Err(DropReason::NotForUs) };
        slots[place] = PacketState::from(taken).word();
        taken.err().into_iter().for_each(|reason| drops.add(reason, 1));
    }
}

#[cold]
#[inline(never)]
fn settle(batch: &mut Batch, table: &EgressTable) {
    let tsc = batch.stamps().last().map_or(0, |stamp| stamp.tsc);
    let Batch {
        packets,
        keys4,
        keys6,
        v4,
        v6,
        kinds,
        tagged,
        indices,
        egress,
        slots,
        ports,
        drops,
        punting,
        ..
    } = batch;
    let mut settling = Settling { drops, punting: punting.as_mut(), tsc, has_punts: false };
    let packet = |place: usize| {
        let ip_at = if kinds[place] == Kind::Other { ip_at(tagged, place) } else { ETHERNET_BYTES };
        (packets.data(place), ip_at)
    };
    let is_code = |port: &u16| !Exit::is_port(*port);
    let (mut at, mut has_connected) = (0, false);
    while let Some(place) = next_place(&ports[..packets.len()], at, is_code) {
        at = place + 1;
        if indices[place] == NO_ENTRY {
            // Already dropped and counted, or a punt.
            settling.has_punts |= matches!(PacketState::from_word(slots[place]), PacketState::PuntCause(_));
            continue;
        }
        let id = NextHopId::from_answer(indices[place]);
        let in_vlans = (kinds[place] == Kind::Other && table.has_vlans())
            .then(|| table.in_vlans(vlans(packets.head(place)), id));
        let found = in_vlans.flatten().unwrap_or_else(|| table.get(id));
        if found.port == Exit::Connected.word() {
            (ports[place], has_connected) = (found.port, true);
            continue;
        }
        egress[place] = found;
        ports[place] = settling.port(found, &mut slots[place], || packet(place));
    }
    if !has_connected {
        if settling.has_punts {
            hand_over(batch);
        }
        return;
    }
    // The neighbour is the destination itself, which only the lanes hold.
    let addresses4 = keys4.iter().map(|key| Ipv4Addr::from(*key).into());
    let addresses6 = keys6.0.iter().zip(keys6.1.iter());
    let addresses6 =
        addresses6.map(|(hi, lo)| Ipv6Addr::from(u128::from(*hi) << 64 | u128::from(*lo)).into());
    let lane4 = v4.packets[..v4.len].iter().zip(addresses4);
    let lane6 = v6.packets[..v6.len].iter().zip(addresses6);
    for (place, address) in lane4.chain(lane6) {
        let place = usize::from(*place);
        if ports[place] == Exit::Connected.word() {
            let is_tagged = kinds[place] == Kind::Other && table.has_vlans();
            let vlans = if is_tagged { vlans(packets.head(place)) } else { [0; 2] };
            egress[place] = table.connected_in(vlans, NextHopId::from_answer(indices[place]), address);
            ports[place] = settling.port(egress[place], &mut slots[place], || packet(place));
        }
    }
    if settling.has_punts {
        hand_over(batch);
    }
}

/// Sets the egress port and the tag of punts. They are not rewritten: `Kind::Other` with unchanged MACs leaves the frame as it is.
#[cold]
fn hand_over(batch: &mut Batch) {
    let Batch { packets, input, indices, egress, slots, ports, kinds, tagged, punting, .. } = batch;
    let Some(punting) = punting else { return };
    let (to, from) = (punting.port, punting.addresses().port);
    let input = u16::try_from(*input).unwrap_or(u16::MAX);
    for place in 0..packets.len() {
        let PacketState::PuntCause(cause) = PacketState::from_word(slots[place]) else { continue };
        let value = match cause {
            PuntCause::NoNeighbour => indices[place],
            PuntCause::MtuExceeded => u32::from(egress[place].mtu_bytes),
            _ => 0,
        };
        packets.set_tag(place, PuntTag { cause, port: from, input, value }.tag());
        egress[place].macs = packets.load(place, 0).unwrap_or_default();
        (kinds[place], ports[place]) = (Kind::Other, to);
    }
    tagged.retain(|tagged| ports[usize::from(tagged.place)] != to);
}

struct Settling<'a> {
    drops: &'a mut Drops,
    punting: Option<&'a mut PuntMarker>,
    /// When the last packet was received.
    tsc: u64,
    has_punts: bool,
}

impl Settling<'_> {
    /// The word of the exit of a packet with entry `found`. [`Exit::Fragment`]: too long and may be fragmented. [`Exit::Dropped`]: the
    /// reason is in the slot, counted in `drops` or as a punt. `packet` yields the first bytes and the offset of the IP header.
    fn port<'a>(
        &mut self,
        found: Egress,
        slot: &mut LengthOrMark,
        packet: impl FnOnce() -> (&'a [u8], usize),
    ) -> u16 {
        let (reason, head) = match Exit::from_word(found.port) {
            Exit::Local => (DropReason::NotForUs, Some(packet().0)),
            // An entry that drops keeps its reason, however long the packet is.
            Exit::Drop(reason) => (reason, None),
            Exit::Port(port) if Exit::for_length(found, *slot) == port => return port,
            Exit::Port(_) => {
                let (head, ip_at) = packet();
                if Cut::new(head, ip_at, found.mtu_bytes).is_some() {
                    return Exit::Fragment.word();
                }
                (DropReason::MtuExceeded, None)
            }
            // Groups and links are resolved before; no entry has any other exit.
            _ => (DropReason::EngineStall, None),
        };
        let tsc = self.tsc;
        let taken = match (self.punting.as_mut().filter(|punting| !punting.is_elsewhere), head) {
            (None, _) => Err(reason),
            (Some(punting), Some(head)) => punting.punt_local(head, tsc),
            (Some(punting), None) => punting.punt_dropped(reason, tsc),
        };
        self.has_punts |= taken.is_ok();
        taken.err().into_iter().for_each(|reason| self.drops.add(reason, 1));
        *slot = PacketState::from(taken).word();
        Exit::Dropped.word()
    }
}

#[cfg(test)]
mod tests {
    use super::super::egress::Inputs;
    use super::super::egress::learned::{Learned, LearnedKey, Learner};
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
    use super::super::punt::PuntAddresses;
    use super::super::rewrite::rewrite;
    use super::super::test_frames::{self, V4, V6};
    use super::*;
    use arc_swap::ArcSwap;
    use dpdk_ffi::Burst;
    use dpdk_ffi::simd::Level;
    use fib::{Group, MacAddr, Neighbour, NextHop, NextHopId, NextHopTable, PortRef};
    use std::sync::Arc;

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    #[test]
    fn each_packet_gets_a_port_or_a_reason() {
        let mut hops = NextHopTable::new();
        let black = hops.intern(NextHop::Blackhole).unwrap();
        let unreachable = hops.intern(NextHop::Unreachable).unwrap();
        let prohibit = hops.intern(NextHop::Prohibit).unwrap();
        let far = NextHop::Gateway { gateway: "192.0.2.9".parse().unwrap(), port: PortRef::Index(0) };
        let silent = hops.intern(far).unwrap();
        let link = hops.intern(NextHop::Connected { port: PortRef::Index(3) }).unwrap();
        let (address, mac) = ("198.51.100.7".parse().unwrap(), MacAddr([2, 7, 7, 7, 7, 7]));
        hops.set_neighbour(Neighbour { address, port: PortRef::Index(3), mac });
        let table = EgressTable::new(&hops, &ports(4)).unwrap();

        let long = V4 { payload_bytes: 1481, ..V4::default() }.frame();
        let just = V4 { payload_bytes: 1480, ..V4::default() }.frame();
        // All are long enough for the kernel, so that the lane is in order of arrival.
        let v4 = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let frames = [&v4, &v4, &v4, &v4, &long, &just, &v4, &long, &long, &v4, &long].map(Clone::clone);
        let answers = [
            id(10),
            black,
            silent,
            NextHopId::NONE,
            id(10),
            id(10),
            link,
            NextHopId::NONE,
            link,
            unreachable,
            prohibit,
        ];
        let Some(mut batch) = test_frames::batch(&frames) else { return };
        parse(&mut batch);
        batch.v4.hops[..answers.len()].copy_from_slice(&answers);
        verdict(&mut batch, &table);
        use DropReason::{Blackhole, MtuExceeded, NoNeighbour, NoRoute, Prohibited, Unreachable};
        let fate = |place| match batch.slot(place) {
            PacketState::Dropped(reason) => Ok(reason),
            _ => Err(batch.ports[place]),
        };
        let fates: Vec<_> = (0..answers.len()).map(fate).collect();
        let wanted = [
            Err(1),
            Ok(Blackhole),
            Ok(NoNeighbour),
            Ok(NoRoute),
            Ok(MtuExceeded),
            Err(1),
            Err(3),
            Ok(NoRoute),
            Ok(MtuExceeded),
            Ok(Unreachable),
            Ok(Prohibited),
        ];
        assert_eq!(fates, wanted);
        assert_eq!(batch.egress[6].macs[..6], mac.0);
        let counted: Vec<_> = batch.drops.iter().filter(|(_, n)| *n > 0).collect();
        let wanted = [
            (NoRoute, 2),
            (Blackhole, 1),
            (Unreachable, 1),
            (Prohibited, 1),
            (NoNeighbour, 1),
            (MtuExceeded, 2),
        ];
        assert_eq!(counted, wanted);
    }

    /// Regression: the MAC of the VLAN with the lowest id was used in all VLANs.
    #[test]
    fn who_claims_an_address_in_one_vlan_changes_no_other() {
        let (gateway, host) = ("192.0.2.9".parse().unwrap(), "198.51.100.7".parse().unwrap());
        let mut hops = NextHopTable::new();
        let behind = hops.intern(NextHop::Gateway { gateway, port: PortRef::Index(0) }).unwrap();
        let link = hops.intern(NextHop::Connected { port: PortRef::Index(3) }).unwrap();
        let mut learned = Learned::default();
        let fates = |learned: &Learned| {
            let (ports, rib) = (ports(4), fib::Rib::new());
            let table = EgressTable::build(&Inputs::new(&hops, &ports, &rib, learned)).unwrap();
            let tagged = |vlan: u16| {
                let mut frame = V4 { payload_bytes: 40, destination: [198, 51, 100, 7], ..V4::default() }
                    .tagged(&[0x8100]);
                frame[14..16].copy_from_slice(&(0xe000 | vlan).to_be_bytes());
                frame
            };
            let plain = V4 { payload_bytes: 40, destination: [198, 51, 100, 7], ..V4::default() }.frame();
            let frames = [5, 100, 9].map(tagged).into_iter().chain([plain]);
            let frames: Vec<_> = frames.flat_map(|frame| [frame.clone(), frame]).collect();
            let mut batch = test_frames::batch(&frames)?;
            parse(&mut batch);
            for (hop, packet) in batch.v4.hops.iter_mut().zip(&batch.v4.packets[..frames.len()]) {
                *hop = if packet % 2 == 0 { behind } else { link };
            }
            verdict(&mut batch, &table);
            let fate = |place| match batch.slot(place) {
                PacketState::Dropped(DropReason::NoNeighbour) => 0,
                _ if batch.ports[place] == if place % 2 == 0 { 0 } else { 3 } => batch.egress[place].macs[5],
                other => panic!("{other:?}"),
            };
            let fates: Vec<_> = (0..frames.len()).map(fate).collect();
            let [gateways, hosts] =
                [0, 1].map(|first| fates.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
            Some((gateways, hosts))
        };
        let mut learn = |vlan, last: Option<u8>| {
            for (address, port) in [(gateway, 0), (host, 3)] {
                let mac = last.map(|last| MacAddr([2, 0, 0, 0, 0, last]));
                learned.set(LearnedKey { address, port, by: Learner::Router([vlan, 0]) }, mac);
            }
            fates(&learned)
        };
        let Some(none) = learn(100, None) else { return };
        assert_eq!(none, (vec![0; 4], vec![0; 4]));
        learn(100, Some(1));
        // VLAN 9 has no entry, so its packets cause a resolution there. Untagged packets go to the gateway like to any that is up.
        assert_eq!(learn(5, Some(2)).unwrap(), (vec![2, 1, 0, 2], vec![2, 1, 0, 0]));
        // The MAC without a VLAN is the fallback.
        assert_eq!(learn(0, Some(3)).unwrap(), (vec![2, 1, 3, 3], vec![2, 1, 3, 3]));
        assert_eq!(learn(100, None).unwrap(), (vec![2, 3, 3, 3], vec![2, 3, 3, 3]));
    }

    #[test]
    fn punts_get_a_port_of_their_own_and_stay_as_received() {
        let mac = MacAddr([2, 0xf0, 0, 0, 0, 1]);
        let ours = PuntAddresses { port: 1, mac, v4: vec![0xc633_64ff], ..PuntAddresses::default() };
        let mut hops = NextHopTable::new();
        let local = hops.intern(NextHop::Local).unwrap();
        let [black, unreachable, prohibit] = [NextHop::Blackhole, NextHop::Unreachable, NextHop::Prohibit]
            .map(|hop| hops.intern(hop).unwrap());
        let gateway = "192.0.2.9".parse().unwrap();
        let silent = hops.intern(NextHop::Gateway { gateway, port: PortRef::Index(2) }).unwrap();
        let table = EgressTable::new(&hops, &ports(4)).unwrap();
        assert_eq!(table.wanted(silent, gateway), Some((gateway, Some(2))));
        let to = |mac: [u8; 6], mut frame: Vec<u8>| {
            frame[..6].copy_from_slice(&mac);
            frame
        };
        let v4 = V4 { payload_bytes: 40, ..V4::default() };
        let good = || to(mac.0, v4.frame());
        let broadcast = V4 { destination: [198, 51, 100, 255], payload_bytes: 40, ..V4::default() };
        let frames = [
            good(),
            to([2; 6], v4.frame()),
            good(),
            good(),
            good(),
            to(mac.0, V4 { ttl: 1, payload_bytes: 40, ..V4::default() }.frame()),
            to([0xff; 6], broadcast.frame()),
            to(mac.0, V4 { payload_bytes: 1500, ..V4::default() }.frame()),
            to(mac.0, V4 { payload_bytes: 40, ..V4::default() }.tagged(&[0x8100])),
            good(),
            good(),
            good(),
        ];
        let Some(mut batch) = test_frames::batch(&frames) else { return };
        batch.punting = Some(PuntMarker::new(Arc::new(ArcSwap::from_pointee(ours)), 4, 1024));
        parse(&mut batch);
        // The lane has all packets except the expired one; the tagged one is last.
        let answers =
            [id(10), id(10), local, id(0), silent, id(10), id(10), unreachable, prohibit, black, id(0)];
        assert_eq!(batch.v4.len, answers.len());
        batch.v4.hops[..answers.len()].copy_from_slice(&answers);
        verdict(&mut batch, &table);
        rewrite(&mut batch);
        assert_eq!(
            batch.ports[..12],
            [1, Exit::Dropped.word(), 4, 4, 4, 4, 4, 4, 4, 4, 4, Exit::Dropped.word()]
        );
        assert_eq!(batch.slot(1), PacketState::Dropped(DropReason::NotForUs));
        assert_eq!((batch.drops.total(), batch.drops.get(DropReason::NotForUs)), (2, 1));
        assert_eq!(batch.slot(11), PacketState::Dropped(DropReason::Blackhole), "of which nobody is told");
        let notes: Vec<_> = (2..11).map(|place| PuntTag::from_tag(batch.packets.tag(place))).collect();
        use PuntCause::{ForUs, MtuExceeded, NoNeighbour, NoRoute, Prohibited, TtlExpired, Unreachable};
        let wanted =
            [ForUs, NoRoute, NoNeighbour, TtlExpired, ForUs, MtuExceeded, NoRoute, Unreachable, Prohibited];
        assert_eq!(notes.iter().map(|tag| tag.cause).collect::<Vec<_>>(), wanted);
        assert!(notes.iter().all(|tag| tag.port == 1));
        assert_eq!((notes[2].value, notes[5].value), (silent.get(), 1500));
        for (place, frame) in frames.iter().enumerate().take(11).skip(2) {
            assert_eq!(batch.packets.data(place), frame, "{place}");
        }
        assert_ne!(batch.packets.data(0), frames[0]);
    }

    #[test]
    fn a_packet_too_long_for_its_port_is_none_of_a_group() {
        let mut hops = NextHopTable::new();
        let path = |port| (NextHop::Connected { port: PortRef::Index(port) }, 1);
        let group = Group::next_hop([path(0), path(1)]).unwrap();
        let ids = (0..134).map(|port| hops.intern(NextHop::Port { port }).unwrap()).collect::<Vec<_>>();
        hops.intern(group).unwrap();
        let table = EgressTable::new(&hops, &ports(134)).unwrap();
        assert!(table.has_groups());
        let frame = V4 { payload_bytes: 1481, ..V4::default() }.frame();
        for level in [Level::Scalar, Level::Avx2, Level::Avx512] {
            let Some(mut batch) = test_frames::batch(&vec![frame.clone(); 9]) else { return };
            batch.packets = std::mem::replace(
                &mut batch.packets,
                Burst::with_capacity(dpdk_ffi::testing::eal().unwrap(), 1),
            )
            .with_level(level);
            parse(&mut batch);
            // The codes above the drop reasons, once each.
            batch.v4.hops[..9].copy_from_slice(&ids[125..]);
            verdict(&mut batch, &table);
            assert_eq!(batch.ports[..9], [Exit::Dropped.word(); 9]);
            assert_eq!(batch.drops.get(DropReason::MtuExceeded), 9, "{level:?}");
        }
    }

    #[test]
    fn ipv6_above_and_at_the_mtu() {
        let table = EgressTable::new(&NextHopTable::new(), &ports(2)).unwrap();
        let frame = |payload_bytes| V6 { payload_bytes, ..V6::default() }.frame();
        let frames = [frame(1460), frame(1461), frame(65_535)];
        let Some(mut batch) = test_frames::batch(&frames) else { return };
        parse(&mut batch);
        batch.v6.hops[..3].copy_from_slice(&[id(2), id(2), NextHopId::NONE]);
        verdict(&mut batch, &table);
        assert_eq!(batch.ports[..3], [1, Exit::Dropped.word(), Exit::Dropped.word()]);
        assert_eq!(batch.drops.get(DropReason::MtuExceeded), 1);
        assert_eq!(batch.drops.get(DropReason::NoRoute), 1);
    }
}
