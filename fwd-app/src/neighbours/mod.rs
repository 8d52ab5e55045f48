//! The router's control protocols: neighbour resolution, replies to ARP, NDP and echo requests, ICMP errors.
//!
//! [`Router`] holds the protocols, without sockets, threads or a clock; [`thread`] runs it. Forwarded packets never get here.
//!
//! ```text
//! frame not to be forwarded  -> Router::receive    -> Disposition: answered, for the kernel, about a neighbour, ignored
//! packet without a known MAC -> Router::resolve    -> Action::Release or Action::Dropped, at once or later
//! dropped packet             -> Router::icmp_error -> the error to send, or the reason for silence
//! Router::next_due passes    -> Router::tick       -> requests, probes, lost neighbours
//! ports have changed         -> Router::set_ports  -> announcements, lost neighbours
//! ```

pub(crate) mod action;
pub(crate) mod arp;
pub(crate) mod config;
mod conflicts;
pub(crate) mod entries;
pub(crate) mod frame;
pub(crate) mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod ip;
pub(crate) mod limiter;
pub(crate) mod ndp;
pub(crate) mod receive;
pub(crate) mod table;
pub(crate) mod thread;

#[cfg(test)]
mod icmp_errors_test;
#[cfg(test)]
mod receive_test;
#[cfg(test)]
mod table_test;
#[cfg(test)]
pub(crate) mod test_packets;

pub(crate) use action::Action;
pub(crate) use config::RouterConfig;

use crate::ports::{InterfaceId, PortRecord, PortTable};
use conflicts::Conflicts;
use entries::{Key, NeighbourEntry};
use fib::MacAddr;
use frame::Tags;
use icmp_errors::{Cause, ErrorMessage, NoError};
use limiter::Limiter;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use table::Neighbours;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAnswer {
    Send(Vec<u8>),
    Limited,
    /// The RFCs forbid an answer, or the router has no address for it.
    Not(NoError),
}

/// The protocols; `T` is a packet that waits for a neighbour.
#[derive(Debug)]
pub(crate) struct Router<T> {
    ports: Arc<PortTable>,
    neighbours: Neighbours<T>,
    errors: Limiter,
    too_big: Limiter,
    echoes: Limiter,
    conflicts: Conflicts,
}

impl<T> Router<T> {
    /// Starts without interfaces. Allocates all memory of the rate limits.
    pub(crate) fn new(config: &RouterConfig) -> Self {
        Self {
            ports: Arc::default(),
            neighbours: Neighbours::new(config.neighbours),
            errors: Limiter::new(&config.errors),
            too_big: Limiter::new(&config.too_big),
            echoes: Limiter::new(&config.echoes),
            conflicts: Conflicts::default(),
        }
    }

    pub(crate) fn ports(&self) -> &Arc<PortTable> {
        &self.ports
    }

    #[cfg(test)]
    pub(crate) fn neighbour(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.neighbours.get(key)
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.neighbours.iter()
    }

    /// Replaces the ports. A link down removes the entries of an interface, except pinned ones, which lose only the MAC; a removed
    /// interface loses all. The addresses of an interface are announced when they change and when its link comes up.
    pub(crate) fn set_ports(&mut self, now: Duration, ports: Arc<PortTable>, out: &mut Vec<Action<T>>) {
        let before = std::mem::replace(&mut self.ports, ports);
        let ports = Arc::clone(&self.ports);
        for gone in before.interfaces().filter(|port| ports.interface(port.id).is_none()) {
            self.neighbours.remove_all(gone.id, out);
        }
        let is_ours = |key: &Key| ports.interface(key.interface).is_some_and(|port| port.has(key.address));
        self.conflicts.retain(is_ours);
        for port in ports.interfaces() {
            let was = before.interface(port.id);
            let is_new = was.is_none_or(|was| (was.addresses(), &was.vrfs) != (port.addresses(), &port.vrfs));
            let was_up = was.is_none_or(|was| was.is_up);
            if is_new {
                // A neighbour's address may have become our own.
                port.addresses()
                    .iter()
                    .for_each(|at| self.neighbours.remove_address(port.id, at.address(), out));
            }
            match (was_up, port.is_up) {
                (true, true) if is_new => announce(port, out),
                (false, true) => {
                    announce(port, out);
                    self.neighbours.link_up(now, &ports, port.id, out);
                }
                (true, false) => self.neighbours.link_down(now, port.id, out),
                _ => {}
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn set_port(&mut self, now: Duration, port: PortRecord, out: &mut Vec<Action<T>>) {
        let mut ports = PortTable::clone(&self.ports);
        let index = port.id.0;
        let missing = u16::try_from(ports.ports.len()).unwrap()..=index;
        ports.ports.extend(missing.map(|id| PortRecord::new(id, String::new(), port.mac, port.mtu_bytes)));
        ports.ports[usize::from(index)] = port;
        self.set_ports(now, Arc::new(ports), out);
    }

    /// Deletes the entries of one address, or all; asks again for pinned neighbours. Returns the number deleted.
    pub(crate) fn clear_neighbours(
        &mut self,
        now: Duration,
        address: Option<IpAddr>,
        out: &mut Vec<Action<T>>,
    ) -> usize {
        self.neighbours.clear(now, &self.ports, address, out)
    }

    /// Sends a packet to a neighbour once its MAC is known. The request for the MAC carries the packet's VLAN `tags`.
    pub(crate) fn resolve(
        &mut self,
        now: Duration,
        key: Key,
        packet: T,
        tags: Tags,
        out: &mut Vec<Action<T>>,
    ) {
        self.neighbours.resolve(now, &self.ports, key, (packet, tags), out);
    }

    /// Reports that an answer received on an interface may have been dropped.
    pub(crate) fn answers_lost(&mut self, now: Duration, id: InterfaceId) {
        self.neighbours.answers_lost(now, id);
    }

    /// Resolves a gateway and keeps it resolved. Returns false when that is impossible now.
    pub(crate) fn pin(&mut self, now: Duration, key: Key, tags: Tags, out: &mut Vec<Action<T>>) -> bool {
        self.neighbours.pin(now, &self.ports, (key, tags), out)
    }

    pub(crate) fn unpin(&mut self, key: Key) {
        self.neighbours.unpin(key);
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.neighbours.next_due()
    }

    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Action<T>>) {
        self.neighbours.tick(now, &self.ports, out);
    }

    /// The ICMP error about a packet from a frame of `frame_bytes` bytes received on `on`; `head` holds its first bytes.
    pub(crate) fn icmp_error(
        &mut self,
        now: Duration,
        on: InterfaceId,
        (head, frame_bytes): (&[u8], usize),
        cause: Cause,
    ) -> ErrorAnswer {
        let limiter =
            if matches!(cause, Cause::TooBig { .. }) { &mut self.too_big } else { &mut self.errors };
        match ErrorMessage::about(&self.ports, on, head, frame_bytes, cause) {
            Ok(error) if limiter.allows(now, error.to()) => ErrorAnswer::Send(error.frame()),
            Ok(_) => ErrorAnswer::Limited,
            Err(why) => ErrorAnswer::Not(why),
        }
    }

    /// Whether to defend our address `key` against the station `mac` now; if so, reports the conflict.
    fn defends(&mut self, now: Duration, key: Key, mac: MacAddr, out: &mut Vec<Action<T>>) -> bool {
        let is_due = self.conflicts.is_due(now, key);
        if is_due {
            out.push(Action::Conflict { key, mac });
        }
        is_due
    }
}

/// Announces the addresses of an interface: IPv4 by RFC 5227 2.3, IPv6 by one duplicate address detection and RFC 4861 7.2.6.
fn announce<T>(interface: &PortRecord, out: &mut Vec<Action<T>>) {
    let v4 = interface.v4().map(|address| arp::announcement(interface, address, Tags::NONE));
    let v6 = interface.v6().flat_map(|address| {
        let detection = ndp::detection(interface, address, Tags::NONE);
        [detection, ndp::announcement(interface, address, Tags::NONE)]
    });
    out.extend(v4.chain(v6).map(|frame| Action::Send { interface: interface.id, frame }));
}
