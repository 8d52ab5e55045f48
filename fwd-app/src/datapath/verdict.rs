//! Verdict: next hops become egress entries, and every packet gets its port or its drop reason.

use super::batch::{Batch, Lane};
use super::{Code, DropReason, Drops, EgressTable};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Gives every packet of the lanes its egress entry and its port. Packets that do not leave are counted in the batch.
pub(crate) fn verdict<P>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { keys4, keys6, v4, v6, ports, drops, .. } = batch;
    if lane(v4, ports, table) {
        let address = |k: usize| IpAddr::V4(Ipv4Addr::from(keys4[k]));
        settle(v4, ports, drops, table, address);
    }
    if lane(v6, ports, table) {
        let address =
            |k: usize| IpAddr::V6(Ipv6Addr::from(u128::from(keys6.0[k]) << 64 | u128::from(keys6.1[k])));
        settle(v6, ports, drops, table, address);
    }
}

/// The common part: one entry a packet, no branch. Answers whether any packet has a code in place of a port.
fn lane(lane: &mut Lane, ports: &mut [u16], table: &EgressTable) -> bool {
    let Lane { entries, hops, egress, len } = lane;
    let mut odd = false;
    for ((entry, hop), out) in entries[..*len].iter().zip(&hops[..*len]).zip(&mut egress[..*len]) {
        let mut found = table.get(*hop);
        if entry.ip_bytes > u32::from(found.mtu_bytes) {
            found.port = over(found.port);
        }
        odd |= found.port >= Code::FIRST;
        ports[usize::from(entry.packet)] = found.port;
        *out = found;
    }
    odd
}

/// The code of a packet above the MTU. IPv6 packets may be longer than 65,535 bytes with their header, which an entry that
/// sends nothing must survive: its own reason comes first.
#[inline]
fn over(port: u16) -> u16 {
    if port < Code::FIRST { Code::of(DropReason::MtuExceeded) } else { port }
}

/// The rare part: codes become counted drops, destinations on a link their own entry.
#[cold]
#[inline(never)]
fn settle(
    lane: &mut Lane,
    ports: &mut [u16],
    drops: &mut Drops,
    table: &EgressTable,
    address: impl Fn(usize) -> IpAddr,
) {
    for k in 0..lane.len {
        let (entry, found) = (lane.entries[k], &mut lane.egress[k]);
        if found.port == Code::CONNECTED {
            *found = table.connected(lane.hops[k], address(k));
            if entry.ip_bytes > u32::from(found.mtu_bytes) {
                found.port = over(found.port);
            }
            ports[usize::from(entry.packet)] = found.port;
        }
        if found.port >= Code::FIRST {
            // Every code but those two is made of a reason.
            drops.add(Code::reason(found.port).unwrap_or(DropReason::EngineStall), 1);
            found.port = Code::DROPPED;
            ports[usize::from(entry.packet)] = Code::DROPPED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
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
        let v4 = V4::default().frame();
        let frames =
            vec![v4.clone(), v4.clone(), v4.clone(), v4.clone(), long.clone(), just, v4, long.clone(), long];
        let answers = [id(10), black, silent, NextHopId::NONE, id(10), id(10), link, NextHopId::NONE, link];
        let mut batch = Batch::new(frames, 16);
        parse(&mut batch);
        batch.v4.hops[..9].copy_from_slice(&answers);
        verdict(&mut batch, &table);
        const D: u16 = Code::DROPPED;
        assert_eq!(batch.ports[..9], [1, D, D, D, D, 1, 3, D, D]);
        assert_eq!(batch.v4.egress[6].macs[..6], mac.0);
        let counted: Vec<_> = batch.drops.iter().filter(|(_, n)| *n > 0).collect();
        use DropReason::{Blackhole, MtuExceeded, NoNeighbour, NoRoute};
        assert_eq!(counted, [(NoRoute, 2), (Blackhole, 1), (NoNeighbour, 1), (MtuExceeded, 2)]);
    }

    #[test]
    fn ipv6_above_and_at_the_mtu() {
        let table = EgressTable::new(&NextHopTable::new(), &ports(2)).unwrap();
        let frame = |payload_bytes| V6 { payload_bytes, ..V6::default() }.frame();
        let mut batch = Batch::new(vec![frame(1460), frame(1461), frame(65_535)], 4);
        parse(&mut batch);
        batch.v6.hops[..3].copy_from_slice(&[id(2), id(2), NextHopId::NONE]);
        verdict(&mut batch, &table);
        assert_eq!(batch.ports[..3], [1, Code::DROPPED, Code::DROPPED]);
        assert_eq!(batch.drops.get(DropReason::MtuExceeded), 1);
        assert_eq!(batch.drops.get(DropReason::NoRoute), 1);
    }
}
