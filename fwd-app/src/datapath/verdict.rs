//! Verdict: next hops become egress entries, and every packet gets its port or its drop reason.

use super::batch::{Batch, Lane};
use super::{Code, DropReason, Drops, Egress, EgressTable};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Gives every packet of the lanes its egress entry and its port. Packets that do not leave are counted in the batch.
pub(crate) fn verdict<P>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { v4, v6, egress, ports, ip_bytes_max, .. } = batch;
    let odd4 = lane(v4, egress, ports, table);
    let odd6 = lane(v6, egress, ports, table);
    if odd4 | odd6 | (*ip_bytes_max > table.mtu_bytes_min()) {
        batch.odd = true;
        settle(batch, table);
    }
}

/// The common part: one entry a packet, no branch. Answers whether any packet has a code in place of a port.
#[inline]
fn lane(lane: &Lane, egress: &mut [Egress], ports: &mut [u16], table: &EgressTable) -> bool {
    let Lane { packets, hops, len, .. } = lane;
    // Of one length, so that one comparison covers both.
    let max = egress.len().min(ports.len());
    let (egress, ports) = (&mut egress[..max], &mut ports[..max]);
    let mut odd = false;
    for (packet, hop) in packets[..*len].iter().zip(&hops[..*len]) {
        let packet = usize::from(*packet);
        let computed;
        // By reference: a copy of 16 bytes in a register would go through memory for its port.
        let found = match table.dense(*hop) {
            Some(found) => found,
            None => {
                computed = table.computed(*hop);
                &computed
            }
        };
        odd |= found.port >= Code::FIRST;
        if packet < max {
            egress[packet] = *found;
            ports[packet] = found.port;
        }
    }
    odd
}

/// The rare part: codes become counted drops, destinations on a link their own entry, and packets above the MTU are found.
#[cold]
#[inline(never)]
fn settle<P>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { keys4, keys6, v4, v6, egress, ports, drops, .. } = batch;
    let addresses4 = keys4.iter().map(|key| IpAddr::V4(Ipv4Addr::from(*key)));
    let addresses6 = keys6.0.iter().zip(&keys6.1);
    let addresses6 =
        addresses6.map(|(hi, lo)| IpAddr::V6(Ipv6Addr::from(u128::from(*hi) << 64 | u128::from(*lo))));
    settle_lane(v4, addresses4, egress, ports, drops, table);
    settle_lane(v6, addresses6, egress, ports, drops, table);
}

fn settle_lane(
    lane: &Lane,
    addresses: impl Iterator<Item = IpAddr>,
    egress: &mut [Egress],
    ports: &mut [u16],
    drops: &mut Drops,
    table: &EgressTable,
) {
    let Lane { packets, ip_bytes, hops, len } = lane;
    let lane = packets[..*len].iter().zip(&ip_bytes[..*len]).zip(&hops[..*len]);
    for (((packet, ip_bytes), hop), address) in lane.zip(addresses) {
        let found = &mut egress[usize::from(*packet)];
        if found.port == Code::CONNECTED {
            *found = table.connected(*hop, address);
        }
        // An entry that sends nothing keeps its own reason, however long the packet is.
        if found.port < Code::FIRST && *ip_bytes > u32::from(found.mtu_bytes) {
            found.port = Code::of(DropReason::MtuExceeded);
        }
        if found.port >= Code::FIRST {
            // Every code that is left is made of a reason.
            drops.add(Code::reason(found.port).unwrap_or(DropReason::EngineStall), 1);
            found.port = Code::DROPPED;
        }
        ports[usize::from(*packet)] = found.port;
    }
}

#[cfg(test)]
mod tests {
    use super::super::egress::tests::ports;
    use super::super::parse::Parse;
    use super::super::test_frames::{V4, V6};
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
        // All long enough to be plain, so that the lane has them in order.
        let v4 = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let frames =
            vec![v4.clone(), v4.clone(), v4.clone(), v4.clone(), long.clone(), just, v4, long.clone(), long];
        let answers = [id(10), black, silent, NextHopId::NONE, id(10), id(10), link, NextHopId::NONE, link];
        let mut batch = Batch::new(frames, 16);
        Parse::new().run(&mut batch);
        batch.v4.hops[..9].copy_from_slice(&answers);
        verdict(&mut batch, &table);
        const D: u16 = Code::DROPPED;
        assert_eq!(batch.ports[..9], [1, D, D, D, D, 1, 3, D, D]);
        assert_eq!(batch.egress[6].macs[..6], mac.0);
        let counted: Vec<_> = batch.drops.iter().filter(|(_, n)| *n > 0).collect();
        use DropReason::{Blackhole, MtuExceeded, NoNeighbour, NoRoute};
        assert_eq!(counted, [(NoRoute, 2), (Blackhole, 1), (NoNeighbour, 1), (MtuExceeded, 2)]);
    }

    #[test]
    fn ipv6_above_and_at_the_mtu() {
        let table = EgressTable::new(&NextHopTable::new(), &ports(2)).unwrap();
        let frame = |payload_bytes| V6 { payload_bytes, ..V6::default() }.frame();
        let mut batch = Batch::new(vec![frame(1460), frame(1461), frame(65_535)], 4);
        Parse::new().run(&mut batch);
        batch.v6.hops[..3].copy_from_slice(&[id(2), id(2), NextHopId::NONE]);
        verdict(&mut batch, &table);
        assert_eq!(batch.ports[..3], [1, Code::DROPPED, Code::DROPPED]);
        assert_eq!(batch.drops.get(DropReason::MtuExceeded), 1);
        assert_eq!(batch.drops.get(DropReason::NoRoute), 1);
    }
}
