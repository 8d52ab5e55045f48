//! The reference: the correct result of each packet, from the oracle's next hop to port and frame.
//!
//! It shares no engine, fast path or egress table with the datapath, and sums the IPv4 checksum from scratch. Only the slow path's header
//! checks are shared. Recursive gateways resolve in the current routes: with updates, those after the last one.

#[cfg(test)]
mod flows_test;
mod fragments;
mod paths;

use crate::datapath::check::{self, Checked, Destination};
use crate::datapath::{DropReason, EgressPort};
use fib::oracle::OraclePair;
use fib::{Group, MacAddr, NextHop, NextHopId, NextHopTable, PortRef, Rib};
use paths::AlivePath;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Shorter frames are padded. Not the constant of the datapath, which is under test.
const FRAME_BYTES_MIN: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Tx { port: usize, destination: MacAddr, ip_at: u16 },
    Fragments { port: usize, destination: MacAddr, ip_at: u16, mtu_bytes: u16 },
    Drop(DropReason),
}

/// The reference forwarder of a VRF.
pub(crate) struct Reference {
    oracle: OraclePair,
    ports: Vec<EgressPort>,
    ecmp_seed: u64,
}

/// Most next hops followed to resolve a gateway.
const REACH_MAX: usize = 256;

impl Reference {
    /// Forwards by the routes of `rib` over `ports`, which send to the next hops' own MACs. `ecmp_seed` selects the paths of flows.
    pub(crate) fn new(rib: &Rib, ports: Vec<EgressPort>, ecmp_seed: u64) -> Self {
        Self { oracle: OraclePair::from(rib), ports, ecmp_seed }
    }

    pub(crate) fn oracle_mut(&mut self) -> &mut OraclePair {
        &mut self.oracle
    }

    pub(crate) fn next_hop(&self, destination: Destination) -> NextHopId {
        match destination {
            Destination::V4(key) => self.oracle.lookup_v4(key),
            Destination::V6(key) => self.oracle.lookup_v6(key),
        }
    }

    pub(crate) fn verdict(&self, frame: &[u8], hops: &NextHopTable) -> Verdict {
        match checked(frame) {
            Ok(checked) => self.verdict_by(frame, checked, self.next_hop(checked.destination), hops),
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// The result of a packet that passed its checks, with next hop `id`; `head` is its first segment.
    pub(crate) fn verdict_by(
        &self,
        head: &[u8],
        checked: Checked,
        id: NextHopId,
        hops: &NextHopTable,
    ) -> Verdict {
        let packet = head.get(usize::from(checked.ip_at)..).unwrap_or_default();
        let out = match self.way((checked.destination, packet), id, hops, 0) {
            Ok(out) => out,
            Err(reason) => return Verdict::Drop(reason),
        };
        let (port, destination) = out;
        match self.ports.get(port) {
            Some(EgressPort { mtu_bytes, .. }) if checked.ip_bytes > u32::from(*mtu_bytes) => {
                let mtu_bytes = *mtu_bytes;
                if fragments::may_fragment(packet, checked.ip_bytes as usize, mtu_bytes.into()) {
                    Verdict::Fragments { port, destination, ip_at: checked.ip_at, mtu_bytes }
                } else {
                    Verdict::Drop(DropReason::MtuExceeded)
                }
            }
            Some(_) => Verdict::Tx { port, destination, ip_at: checked.ip_at },
            // Tables with such a port are refused at start-up.
            None => Verdict::Drop(DropReason::NoNeighbour),
        }
    }

    fn way(
        &self,
        packet: (Destination, &[u8]),
        id: NextHopId,
        hops: &NextHopTable,
        depth: u32,
    ) -> Result<(usize, MacAddr), DropReason> {
        if id.is_none() {
            return Err(DropReason::NoRoute);
        }
        let by_id = (id.get() as usize - 1) % self.ports.len();
        let of = |port: &PortRef| self.port(port).unwrap_or(by_id);
        match hops.get(id).unwrap_or(&NextHop::Bare) {
            NextHop::Bare => Ok((by_id, MacAddr::of_bare_id(id))),
            NextHop::Moved(number) => {
                Ok(((number.get() as usize - 1) % self.ports.len(), MacAddr::of_bare_id(*number)))
            }
            NextHop::Blackhole => Err(DropReason::Blackhole),
            NextHop::Unreachable => Err(DropReason::Unreachable),
            NextHop::Prohibit => Err(DropReason::Prohibited),
            NextHop::Local => Err(DropReason::NotForUs),
            NextHop::Port { port } => {
                Ok((usize::from(*port), MacAddr::of_bare_id(NextHopId::from_answer(u32::from(*port) + 1))))
            }
            NextHop::Gateway { gateway, port } => match (hops.neighbour(*gateway), port) {
                (Some(neighbour), PortRef::ById) => Ok((of(&neighbour.port), neighbour.mac)),
                (Some(neighbour), port) => Ok((of(port), neighbour.mac)),
                (None, PortRef::ById) => {
                    let via = self.via(id, *gateway, hops).ok_or(DropReason::NoNeighbour)?;
                    self.way(packet, via, hops, depth)
                }
                (None, _) => Err(DropReason::NoNeighbour),
            },
            NextHop::Group(group) => {
                let path = self.path(group, packet.1, hops, depth).ok_or(DropReason::NoNeighbour)?;
                self.way(packet, path, hops, depth + 1)
            }
            NextHop::Connected { port } => {
                let address: IpAddr = match packet.0 {
                    Destination::V4(key) => Ipv4Addr::from(key).into(),
                    Destination::V6(key) => Ipv6Addr::from(key).into(),
                };
                match hops.neighbour(address) {
                    Some(neighbour) if of(&neighbour.port) == of(port) => Ok((of(port), neighbour.mac)),
                    _ => Err(DropReason::NoNeighbour),
                }
            }
        }
    }

    /// `None` if the port follows from the id; an unknown name yields an invalid index.
    fn port(&self, port: &PortRef) -> Option<usize> {
        match port {
            PortRef::Index(index) => Some(usize::from(*index)),
            PortRef::Name(name) => {
                Some(self.ports.iter().position(|p| p.name == *name).unwrap_or(usize::MAX))
            }
            PortRef::ById => None,
        }
    }

    fn path(&self, group: &Group, packet: &[u8], hops: &NextHopTable, depth: u32) -> Option<NextHopId> {
        let path = |path: &fib::GroupPath| {
            let id = hops.find(&path.hop)?;
            let port = match &path.hop {
                NextHop::Gateway { port, .. } | NextHop::Connected { port } => self.port(port),
                _ => None,
            };
            let alive = self.is_alive(id, hops);
            alive.then(|| AlivePath { id, gateway: path.hop.gateway(), port, weight: path.weight })
        };
        let alive: Vec<AlivePath> = group.paths().iter().filter_map(path).collect();
        paths::choose(&alive, paths::hash(self.ecmp_seed, packet), depth)
    }

    /// Whether a group may use this path. All links are up.
    fn is_alive(&self, id: NextHopId, hops: &NextHopTable) -> bool {
        match hops.get(id).unwrap_or(&NextHop::Bare) {
            NextHop::Bare => !id.is_none(),
            NextHop::Moved(_) | NextHop::Port { .. } | NextHop::Connected { .. } => true,
            NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit | NextHop::Local => false,
            NextHop::Group(group) => {
                let ids = group.paths().iter().filter_map(|path| hops.find(&path.hop));
                ids.into_iter().any(|id| self.is_alive(id, hops))
            }
            NextHop::Gateway { gateway, port } => {
                let by_route = || self.via(id, *gateway, hops).is_some_and(|via| self.is_alive(via, hops));
                hops.neighbour(*gateway).is_some() || (*port == PortRef::ById && by_route())
            }
        }
    }

    /// Resolves a gateway without port and neighbour entry to the next hop of its route. `None` without a route, for one to this router or
    /// to a link, for a loop, and for too many next hops.
    fn via(&self, id: NextHopId, gateway: IpAddr, hops: &NextHopTable) -> Option<NextHopId> {
        let mut seen = std::collections::BTreeSet::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            next.extend(self.depends_on(id, hops).into_iter().filter(|on| seen.insert(*on)));
        }
        let via = self.route_of(gateway);
        let is_link = |hop: &NextHop| matches!(hop, NextHop::Connected { .. } | NextHop::Local);
        let leads_to_link = match hops.get(via) {
            Some(NextHop::Group(group)) => group.paths().iter().any(|path| is_link(&path.hop)),
            hop => hop.is_some_and(is_link),
        };
        let is_good = !via.is_none() && !leads_to_link && !seen.contains(&id) && seen.len() <= REACH_MAX;
        is_good.then_some(via)
    }

    fn depends_on(&self, id: NextHopId, hops: &NextHopTable) -> Vec<NextHopId> {
        match hops.get(id) {
            Some(NextHop::Group(group)) => {
                group.paths().iter().filter_map(|path| hops.find(&path.hop)).collect()
            }
            Some(NextHop::Gateway { gateway, port: PortRef::ById }) if hops.neighbour(*gateway).is_none() => {
                vec![self.route_of(*gateway)]
            }
            _ => Vec::new(),
        }
    }

    fn route_of(&self, address: IpAddr) -> NextHopId {
        self.next_hop(match address {
            IpAddr::V4(address) => Destination::V4(address.to_bits()),
            IpAddr::V6(address) => Destination::V6(address.to_bits()),
        })
    }

    pub(crate) fn rewrite(
        &self,
        frame: &[u8],
        port: usize,
        destination: MacAddr,
        ip_at: u16,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        out.extend_from_slice(&destination.0);
        out.extend_from_slice(&self.ports[port].mac.0);
        out.extend_from_slice(&frame[12..]);
        let ip = &mut out[usize::from(ip_at)..];
        if ip[0] >> 4 == 6 {
            ip[7] -= 1;
            return;
        }
        ip[8] -= 1;
        let header_bytes = usize::from(ip[0] & 15) * 4;
        set_checksum(ip, header_bytes);
    }

    pub(crate) fn fragments(
        &self,
        frame: &[u8],
        port: usize,
        destination: MacAddr,
        ip_at: u16,
        mtu_bytes: u16,
    ) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        self.rewrite(frame, port, destination, ip_at, &mut whole);
        let (layer2, packet) = whole.split_at(usize::from(ip_at));
        let bytes = usize::from(packet[2]) << 8 | usize::from(packet[3]);
        let packets = fragments::fragments(&packet[..bytes], mtu_bytes.into());
        let frame = |packet: Vec<u8>| {
            let mut frame = [layer2, &packet].concat();
            frame.resize(frame.len().max(FRAME_BYTES_MIN), 0);
            frame
        };
        packets.into_iter().map(frame).collect()
    }
}

fn set_checksum(packet: &mut [u8], header_bytes: usize) {
    packet[10..12].fill(0);
    let header = &packet[..header_bytes];
    let mut sum: u32 = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    packet[10..12].copy_from_slice(&[high, low]);
}

pub(crate) fn checked(frame: &[u8]) -> Result<Checked, DropReason> {
    check::check(frame, u32::try_from(frame.len()).unwrap_or(u32::MAX))
}
