//! Verdict: maps next hops to egress entries, and gives every packet its port or its drop reason.

use super::batch::{Batch, Lane};
use super::rewrite;
use super::{Code, DropReason, Drops, Egress, EgressTable, Packets};
use fib::NextHopId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Gives every packet of the lanes its egress entry and its port. Dropped packets are counted in the batch.
pub(crate) fn verdict<P>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { v4, v6, egress, ports, ip_bytes_max, .. } = batch;
    let odd4 = lane(v4, egress, ports, table);
    let odd6 = lane(v6, egress, ports, table);
    if odd4 | odd6 | (*ip_bytes_max > table.mtu_bytes_min()) {
        batch.odd = true;
        settle(batch, table);
    }
}

/// [`verdict`] and [`rewrite`](super::rewrite::rewrite) in one pass, for an lcore that does both. In a batch of plain frames within
/// every port's MTU, the egress entries are not stored in between.
pub(crate) fn verdict_and_rewrite<P: Packets>(batch: &mut Batch<P>, table: &EgressTable) {
    if batch.odd || batch.ip_bytes_max > table.mtu_bytes_min() {
        verdict(batch, table);
        rewrite::rewrite(batch);
        return;
    }
    let Batch { packets, v4, v6, ports, .. } = batch;
    let odd4 = lane_and_rewrite(packets, v4, ports, table, rewrite::forwarded_v4);
    let odd6 = lane_and_rewrite(packets, v6, ports, table, rewrite::forwarded_v6);
    if odd4 | odd6 {
        finish(batch, table);
    }
}

/// Gives every packet of a lane its port and rewrites those that are sent. Returns whether any has a code in place of a port.
#[inline(always)]
fn lane_and_rewrite<P: Packets>(
    packets: &mut P,
    lane: &Lane,
    ports: &mut [u16],
    table: &EgressTable,
    forwarded: impl Fn(u64) -> u64,
) -> bool {
    let Lane { packets: places, hops, len, .. } = lane;
    let mut odd = false;
    for (place, hop) in places[..*len].iter().zip(&hops[..*len]) {
        let place = usize::from(*place);
        packets.prefetch(place + rewrite::PREFETCH_AHEAD);
        let computed;
        let found = match table.dense(*hop) {
            Some(found) => found,
            None => {
                computed = table.computed(*hop);
                &computed
            }
        };
        ports[place] = found.port;
        if found.port >= Code::FIRST {
            odd = true;
        } else if let Some(start) = packets.start_mut(place) {
            rewrite::write(start, &found.macs, &forwarded);
        }
    }
    odd
}

/// Settles and rewrites the packets of a plain batch to which [`verdict_and_rewrite`] gave a code in place of a port.
#[cold]
#[inline(never)]
fn finish<P: Packets>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { packets, keys4, keys6, v4, v6, ports, drops, .. } = batch;
    let (addresses4, addresses6) = (addresses_v4(keys4), addresses_v6(keys6));
    let lane4 = v4.hops[..v4.len].iter().zip(&v4.packets).zip(&v4.ip_bytes).zip(addresses4);
    let lane6 = v6.hops[..v6.len].iter().zip(&v6.packets).zip(&v6.ip_bytes).zip(addresses6);
    let lane4 = lane4.map(|packet| (packet, true));
    for ((((hop, place), ip_bytes), address), is_v4) in lane4.chain(lane6.map(|packet| (packet, false))) {
        let place = usize::from(*place);
        if ports[place] < Code::FIRST {
            continue;
        }
        let found = table.dense(*hop).copied().unwrap_or_else(|| table.computed(*hop));
        let found = settled(found, *hop, address, *ip_bytes, table, drops);
        ports[place] = found.port;
        if found.port < Code::FIRST
            && let Some(start) = packets.start_mut(place)
        {
            let forwarded = if is_v4 { rewrite::forwarded_v4 } else { rewrite::forwarded_v6 };
            rewrite::write(start, &found.macs, forwarded);
        }
    }
}

/// The common case: copies one entry a packet, without branches. Returns whether any packet has a code in place of a port.
#[inline]
fn lane(lane: &Lane, egress: &mut [Egress], ports: &mut [u16], table: &EgressTable) -> bool {
    let Lane { packets, hops, len, .. } = lane;
    // Both slices get the same length, so that one comparison bounds both indices.
    let max = egress.len().min(ports.len());
    let (egress, ports) = (&mut egress[..max], &mut ports[..max]);
    let mut odd = false;
    for (packet, hop) in packets[..*len].iter().zip(&hops[..*len]) {
        let packet = usize::from(*packet);
        let computed;
        // By reference: a 16-byte copy in a vector register would go through memory to extract the port.
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

/// The rare case: turns codes into counted drops, gives destinations on connected links their own entry, and drops packets above
/// the MTU.
#[cold]
#[inline(never)]
fn settle<P>(batch: &mut Batch<P>, table: &EgressTable) {
    let Batch { keys4, keys6, v4, v6, egress, ports, drops, .. } = batch;
    let (addresses4, addresses6) = (addresses_v4(keys4), addresses_v6(keys6));
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
        *found = settled(*found, *hop, address, *ip_bytes, table, drops);
        ports[usize::from(*packet)] = found.port;
    }
}

fn addresses_v4(keys: &[u32]) -> impl Iterator<Item = IpAddr> {
    keys.iter().map(|key| Ipv4Addr::from(*key).into())
}

fn addresses_v6(keys: &(Box<[u64]>, Box<[u64]>)) -> impl Iterator<Item = IpAddr> {
    let halves = keys.0.iter().zip(&keys.1);
    halves.map(|(hi, lo)| Ipv6Addr::from(u128::from(*hi) << 64 | u128::from(*lo)).into())
}

/// The final entry of one packet whose table entry is `found`: it has a port, or [`Code::DROPPED`] and a count in `drops`.
fn settled(
    mut found: Egress,
    hop: NextHopId,
    address: IpAddr,
    ip_bytes: u32,
    table: &EgressTable,
    drops: &mut Drops,
) -> Egress {
    if found.port == Code::CONNECTED {
        found = table.connected(hop, address);
    }
    // An entry that drops keeps its own reason, however long the packet is.
    if found.port < Code::FIRST && ip_bytes > u32::from(found.mtu_bytes) {
        found.port = Code::of(DropReason::MtuExceeded);
    }
    if found.port >= Code::FIRST {
        // At this point every code encodes a drop reason.
        drops.add(Code::reason(found.port).unwrap_or(DropReason::EngineStall), 1);
        found.port = Code::DROPPED;
    }
    found
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
        // All long enough to be plain frames, so that the lane has them in order of arrival.
        let v4 = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let frames =
            vec![v4.clone(), v4.clone(), v4.clone(), v4.clone(), long.clone(), just, v4, long.clone(), long];
        let answers = [id(10), black, silent, NextHopId::NONE, id(10), id(10), link, NextHopId::NONE, link];
        let mut batch = Batch::new(frames, 16);
        Parse::new(fib::Isa::detect()).run(&mut batch);
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
    fn one_pass_does_what_two_do() {
        let mut hops = NextHopTable::new();
        let black = hops.intern(NextHop::Blackhole).unwrap();
        let link = hops.intern(NextHop::Connected { port: PortRef::Index(3) }).unwrap();
        let (address, mac) = ("198.51.100.7".parse().unwrap(), MacAddr([2, 7, 7, 7, 7, 7]));
        hops.set_neighbour(Neighbour { address, port: PortRef::Index(3), mac });
        let table = EgressTable::new(&hops, &ports(4)).unwrap();
        let v4 = |payload_bytes| V4 { payload_bytes, ..V4::default() }.frame();
        let v6 = |payload_bytes| V6 { payload_bytes, ..V6::default() }.frame();
        let plain = vec![v4(40), v6(40), v4(40), v4(40), v6(40), v4(40)];
        let tagged = V4 { payload_bytes: 40, ..V4::default() }.tagged(&[0x8100]);
        let (odd, long) = ([plain.clone(), vec![tagged]].concat(), [plain.clone(), vec![v6(1461)]].concat());
        let last = id(1 << 24); // no route
        for frames in [plain, odd, long] {
            for answers in [[id(5); 4], [id(5), black, link, last], [link; 4], [last, id(5), id(7), black]] {
                let run = |pass: fn(&mut Batch<Vec<Vec<u8>>>, &EgressTable)| {
                    let mut batch = Batch::new(frames.clone(), 16);
                    Parse::new(fib::Isa::detect()).run(&mut batch);
                    for lane in [&mut batch.v4, &mut batch.v6] {
                        for (k, hop) in lane.hops[..lane.len].iter_mut().enumerate() {
                            *hop = answers[k % 4];
                        }
                    }
                    pass(&mut batch, &table);
                    let leave = |i: &usize| batch.ports[*i] < Code::FIRST;
                    let sent: Vec<_> =
                        (0..frames.len()).filter(leave).map(|i| batch.packets[i].clone()).collect();
                    (batch.ports[..frames.len()].to_vec(), batch.drops, sent)
                };
                let two = run(|batch, table| {
                    verdict(batch, table);
                    rewrite::rewrite(batch);
                });
                assert_eq!(run(verdict_and_rewrite), two);
            }
        }
    }

    #[test]
    fn ipv6_above_and_at_the_mtu() {
        let table = EgressTable::new(&NextHopTable::new(), &ports(2)).unwrap();
        let frame = |payload_bytes| V6 { payload_bytes, ..V6::default() }.frame();
        let mut batch = Batch::new(vec![frame(1460), frame(1461), frame(65_535)], 4);
        Parse::new(fib::Isa::detect()).run(&mut batch);
        batch.v6.hops[..3].copy_from_slice(&[id(2), id(2), NextHopId::NONE]);
        verdict(&mut batch, &table);
        assert_eq!(batch.ports[..3], [1, Code::DROPPED, Code::DROPPED]);
        assert_eq!(batch.drops.get(DropReason::MtuExceeded), 1);
        assert_eq!(batch.drops.get(DropReason::NoRoute), 1);
    }
}
