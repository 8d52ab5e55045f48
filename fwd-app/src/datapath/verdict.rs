//! Verdict: maps next hops to egress entries, and gives every packet its port or its drop reason.

use super::batch::{Batch, NO_ENTRY};
use super::parse::next_place;
use super::{Code, DropReason, Drops, Egress, EgressTable};
use dpdk_ffi::simd::Indexed;
use fib::NextHopId;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Gives every packet its egress entry and its port. Dropped packets are counted in the batch.
///
/// One kernel copies the entries and finds the packets that need care: a code in place of a port, a destination on a connected
/// link, an IP packet longer than the MTU, a bare id beyond the dense entries. They get another entry, one by one.
#[inline]
pub(crate) fn verdict(batch: &mut Batch, table: &EgressTable) {
    let Batch { packets, v4, v6, kinds, indices, is_plain, egress, ip_bytes, ports, .. } = batch;
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
    if packets.verdict(table.dense(), Indexed { indices, ip_bytes }, egress, ports) {
        settle(batch, table);
    }
}

/// Turns codes into counted drops, gives destinations on connected links their own entry, and drops packets above the MTU.
#[cold]
#[inline(never)]
fn settle(batch: &mut Batch, table: &EgressTable) {
    let Batch { packets, keys4, keys6, v4, v6, indices, egress, ip_bytes, ports, drops, .. } = batch;
    let is_code = |port: &u16| *port >= Code::FIRST;
    let (mut at, mut has_connected) = (0, false);
    while let Some(place) = next_place(&ports[..packets.len()], at, is_code) {
        at = place + 1;
        if indices[place] == NO_ENTRY {
            continue; // dropped and counted
        }
        let found = table.get(NextHopId::from_answer(indices[place]));
        if found.port == Code::CONNECTED {
            (ports[place], has_connected) = (found.port, true);
            continue;
        }
        egress[place] = settled(found, &mut ip_bytes[place], drops);
        ports[place] = egress[place].port;
    }
    if !has_connected {
        return;
    }
    // The neighbour is that of the destination, which only the lanes have.
    let addresses4 = keys4.iter().map(|key| Ipv4Addr::from(*key).into());
    let addresses6 = keys6.0.iter().zip(keys6.1.iter());
    let addresses6 =
        addresses6.map(|(hi, lo)| Ipv6Addr::from(u128::from(*hi) << 64 | u128::from(*lo)).into());
    let lane4 = v4.packets[..v4.len].iter().zip(v4.hops.iter()).zip(addresses4);
    let lane6 = v6.packets[..v6.len].iter().zip(v6.hops.iter()).zip(addresses6);
    for ((place, hop), address) in lane4.chain(lane6) {
        let place = usize::from(*place);
        if ports[place] == Code::CONNECTED {
            egress[place] = settled(table.connected(*hop, address), &mut ip_bytes[place], drops);
            ports[place] = egress[place].port;
        }
    }
}

/// The final entry of one packet whose entry is `found`: it has a port, or [`Code::DROPPED`], a count in `drops`, and the reason's
/// number in place of its length.
fn settled(mut found: Egress, ip_bytes: &mut u32, drops: &mut Drops) -> Egress {
    // An entry that drops keeps its own reason, however long the packet is.
    if found.port < Code::FIRST && *ip_bytes > u32::from(found.mtu_bytes) {
        found.port = Code::of(DropReason::MtuExceeded);
    }
    if found.port >= Code::FIRST {
        // At this point every code encodes a drop reason.
        let reason = Code::reason(found.port).unwrap_or(DropReason::EngineStall);
        drops.add(reason, 1);
        (found.port, *ip_bytes) = (Code::DROPPED, reason as u32);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
    use super::super::test_frames::{self, V4, V6};
    use super::*;
    use fib::{MacAddr, Neighbour, NextHop, NextHopId, NextHopTable, PortRef};

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    #[test]
    fn each_packet_gets_a_port_or_a_reason() {
        let mut hops = NextHopTable::new();
        let black = hops.intern(NextHop::Blackhole).unwrap();
        let far = NextHop::Gateway { gateway: "192.0.2.9".parse().unwrap(), port: PortRef::Index(0) };
        let silent = hops.intern(far).unwrap();
        let link = hops.intern(NextHop::Connected { port: PortRef::Index(3) }).unwrap();
        let (address, mac) = ("198.51.100.7".parse().unwrap(), MacAddr([2, 7, 7, 7, 7, 7]));
        hops.set_neighbour(Neighbour { address, port: PortRef::Index(3), mac });
        let table = EgressTable::new(&hops, &ports(4)).unwrap();

        let long = V4 { payload_bytes: 1481, ..V4::default() }.frame();
        let just = V4 { payload_bytes: 1480, ..V4::default() }.frame();
        // All long enough for the kernel, so that the lane has them in order of arrival.
        let v4 = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let frames =
            vec![v4.clone(), v4.clone(), v4.clone(), v4.clone(), long.clone(), just, v4, long.clone(), long];
        let answers = [id(10), black, silent, NextHopId::NONE, id(10), id(10), link, NextHopId::NONE, link];
        let Some(mut batch) = test_frames::batch(&frames) else { return };
        parse(&mut batch);
        batch.v4.hops[..9].copy_from_slice(&answers);
        verdict(&mut batch, &table);
        use DropReason::{Blackhole, MtuExceeded, NoNeighbour, NoRoute};
        let fate = |place| batch.drop_reason(place).ok_or(batch.ports[place]);
        let fates: Vec<_> = (0..9).map(fate).collect();
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
        ];
        assert_eq!(fates, wanted);
        assert_eq!(batch.egress[6].macs[..6], mac.0);
        let counted: Vec<_> = batch.drops.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counted, [(NoRoute, 2), (Blackhole, 1), (NoNeighbour, 1), (MtuExceeded, 2)]);
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
        assert_eq!(batch.ports[..3], [1, Code::DROPPED, Code::DROPPED]);
        assert_eq!(batch.drops.get(DropReason::MtuExceeded), 1);
        assert_eq!(batch.drops.get(DropReason::NoRoute), 1);
    }
}
