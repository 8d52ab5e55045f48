//! What must become of each packet, by the definition: the oracle's next hop, the port it means, the frame that leaves.
//!
//! Independent of what it judges: no engine, no fast path, no egress table, and the IPv4 checksum is summed anew where the
//! datapath adjusts it. Only the slow path's header checks are shared; the fast path is judged by them.

use crate::datapath::check::{self, Checked, Destination};
use crate::datapath::{DropReason, EgressPort};
use fib::oracle::OraclePair;
use fib::{MacAddr, NextHop, NextHopId, NextHopTable, PortRef, Rib};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What must become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It leaves by this port, to this MAC.
    Tx { port: usize, destination: MacAddr, ip_at: u16 },
    /// It is dropped.
    Drop(DropReason),
}

/// The forwarder by the definition.
pub(crate) struct Reference {
    oracle: OraclePair,
    ports: Vec<EgressPort>,
}

impl Reference {
    /// For the routes of `rib`, over `ports` that send to the next hops' own MACs.
    pub(crate) fn new(rib: &Rib, ports: Vec<EgressPort>) -> Self {
        Self { oracle: OraclePair::of(rib), ports }
    }

    /// The routes, to change.
    pub(crate) fn oracle_mut(&mut self) -> &mut OraclePair {
        &mut self.oracle
    }

    /// The next hop of a destination.
    pub(crate) fn next_hop(&self, destination: Destination) -> NextHopId {
        match destination {
            Destination::V4(key) => self.oracle.v4.lookup(key),
            Destination::V6(key) => self.oracle.v6.lookup(key),
        }
    }

    /// What must become of a frame.
    pub(crate) fn verdict(&self, frame: &[u8], hops: &NextHopTable) -> Verdict {
        match checked(frame) {
            Ok(checked) => self.verdict_by(checked, self.next_hop(checked.destination), hops),
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// What must become of a packet that passed its checks and whose next hop is `id`.
    pub(crate) fn verdict_by(&self, checked: Checked, id: NextHopId, hops: &NextHopTable) -> Verdict {
        let out = match self.way(checked.destination, id, hops) {
            Ok(out) => out,
            Err(reason) => return Verdict::Drop(reason),
        };
        let (port, destination) = out;
        match self.ports.get(port) {
            Some(at) if checked.ip_bytes > u32::from(at.mtu_bytes) => Verdict::Drop(DropReason::MtuExceeded),
            Some(_) => Verdict::Tx { port, destination, ip_at: checked.ip_at },
            // Start-up refuses tables that name such a port.
            None => Verdict::Drop(DropReason::NoNeighbour),
        }
    }

    /// Port and destination MAC.
    fn way(
        &self,
        destination: Destination,
        id: NextHopId,
        hops: &NextHopTable,
    ) -> Result<(usize, MacAddr), DropReason> {
        if id.is_none() {
            return Err(DropReason::NoRoute);
        }
        let by_id = (id.get() as usize - 1) % self.ports.len();
        let of = |port: &PortRef| match port {
            PortRef::Index(index) => usize::from(*index),
            PortRef::Name(name) => self.ports.iter().position(|p| p.name == *name).unwrap_or(usize::MAX),
            PortRef::ById => by_id,
        };
        match hops.get(id).unwrap_or(&NextHop::Bare) {
            NextHop::Bare => Ok((by_id, MacAddr::of_bare_id(id))),
            NextHop::Moved(number) => {
                Ok(((number.get() as usize - 1) % self.ports.len(), MacAddr::of_bare_id(*number)))
            }
            NextHop::Blackhole => Err(DropReason::Blackhole),
            NextHop::Local => Err(DropReason::NotForUs),
            NextHop::Port { port } => {
                Ok((usize::from(*port), MacAddr::of_bare_id(NextHopId::from_answer(u32::from(*port) + 1))))
            }
            NextHop::Gateway { gateway, port } => match (hops.neighbour(*gateway), port) {
                (Some(neighbour), PortRef::ById) => Ok((of(&neighbour.port), neighbour.mac)),
                (Some(neighbour), port) => Ok((of(port), neighbour.mac)),
                (None, _) => Err(DropReason::NoNeighbour),
            },
            NextHop::Connected { port } => {
                let address: IpAddr = match destination {
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

    /// The frame that must leave, into `out`.
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
        ip[10..12].fill(0);
        let header = &ip[..usize::from(ip[0] & 15) * 4];
        let mut sum: u32 =
            header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let [.., high, low] = (!sum).to_be_bytes();
        ip[10..12].copy_from_slice(&[high, low]);
    }
}

/// The header checks on a frame.
pub(crate) fn checked(frame: &[u8]) -> Result<Checked, DropReason> {
    check::check(frame, u32::try_from(frame.len()).unwrap_or(u32::MAX))
}
