//! The router: what it does besides forwarding. It resolves neighbours, answers those who ask for it, and tells senders why their packets
//! went no further.
//!
//! [`Router`] is the protocol part alone. It has no sockets, no threads and no clock: time since the start, frames and packets that wait
//! come in, frames and [`Action`]s go out. [`thread`] runs it. Nothing here is on the path of a packet that is simply forwarded.
//!
//! ```text
//! frame not to be forwarded  -> Router::receive    -> Disposition: answered, for the kernel, about a neighbour, ignored
//! packet without a known MAC -> Router::resolve    -> Action::Release or Action::Dropped, at once or later
//! packet that was dropped    -> Router::icmp_error -> the error to send, or why there is none
//! Router::next_due passes    -> Router::tick       -> requests, probes, neighbours that are lost
//! ports have changed         -> Router::set_ports  -> announcements, neighbours that are lost
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`thread`] | the thread of the router: its rings, TAPs and questions |
//! | [`receive`] | what becomes of a frame that is not forwarded |
//! | [`table`], [`entries`] | the neighbour table: its rules, and its bounded memory |
//! | [`action`] | what the caller has to do |
//! | [`config`] | times and limits |
//! | [`conflicts`] | other stations that use an address of ours |
//! | [`arp`], [`ndp`] | messages between neighbours |
//! | [`icmp`], [`icmp_errors`] | echo replies; errors, and when there is none |
//! | [`limiter`] | rate limits |
//! | [`frame`], [`ip`] | headers |

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

/// The answer to a packet that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAnswer {
    /// Send this frame by the port on which the packet came.
    Send(Vec<u8>),
    /// Nothing: the rate limit was reached.
    Limited,
    /// Nothing: the packet must not be answered.
    Not(NoError),
}

/// The protocol part of a router; `T` is a packet that waits for a neighbour.
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
    /// A router without interfaces. All memory of the rate limits is allocated here.
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

    /// The ports as the router knows them.
    pub(crate) fn ports(&self) -> &Arc<PortTable> {
        &self.ports
    }

    /// The entry of a neighbour.
    #[cfg(test)]
    pub(crate) fn neighbour(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.neighbours.get(key)
    }

    /// All neighbours, in no particular order.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.neighbours.iter()
    }

    /// Takes ports, in place of those it has. What was learned on an interface is forgotten when its link is down, pinned
    /// neighbours but for their MACs; an interface that is gone has no neighbours at all. Addresses are announced to the link when they are
    /// new, and when the link is up again.
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
                // What was a neighbour is the router itself now.
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

    /// Changes one port.
    #[cfg(test)]
    pub(crate) fn set_port(&mut self, now: Duration, port: PortRecord, out: &mut Vec<Action<T>>) {
        let mut ports = PortTable::clone(&self.ports);
        let index = port.id.0;
        let missing = u16::try_from(ports.ports.len()).unwrap()..=index;
        ports.ports.extend(missing.map(|id| PortRecord::new(id, String::new(), port.mac, port.mtu_bytes)));
        ports.ports[usize::from(index)] = port;
        self.set_ports(now, Arc::new(ports), out);
    }

    /// Forgets what was learned of one address, or of all. Pinned ones are asked for at once. Returns how many
    /// neighbours were forgotten.
    pub(crate) fn clear_neighbours(
        &mut self,
        now: Duration,
        address: Option<IpAddr>,
        out: &mut Vec<Action<T>>,
    ) -> usize {
        self.neighbours.clear(now, &self.ports, address, out)
    }

    /// Sends a packet to a neighbour: at once if its MAC is known, else after it has answered. `tags` are the VLAN tags of the packet,
    /// which the request for the MAC gets too.
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

    /// Tells that an answer which came by an interface may have been dropped.
    pub(crate) fn answers_lost(&mut self, now: Duration, id: InterfaceId) {
        self.neighbours.answers_lost(now, id);
    }

    /// Resolves a neighbour and keeps it resolved: the gateway of a route. Returns false when that is not possible now.
    pub(crate) fn pin(&mut self, now: Duration, key: Key, tags: Tags, out: &mut Vec<Action<T>>) -> bool {
        self.neighbours.pin(now, &self.ports, (key, tags), out)
    }

    /// Ends [`Self::pin`].
    pub(crate) fn unpin(&mut self, key: Key) {
        self.neighbours.unpin(key);
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.neighbours.next_due()
    }

    /// Does what is due by now.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Action<T>>) {
        self.neighbours.tick(now, &self.ports, out);
    }

    /// The ICMP error about a packet that came on interface `on` in a frame of `frame_bytes` bytes beginning with `head`, as received.
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

    /// Whether to defend our address `key` now, which the station `mac` uses; if so, the conflict is reported.
    fn defends(&mut self, now: Duration, key: Key, mac: MacAddr, out: &mut Vec<Action<T>>) -> bool {
        let is_due = self.conflicts.is_due(now, key);
        if is_due {
            out.push(Action::Conflict { key, mac });
        }
        is_due
    }
}

/// Announces the addresses of an interface: IPv4 as RFC 5227 2.3, IPv6 as RFC 4861 7.2.6 after one question whether another node has the
/// address.
fn announce<T>(interface: &PortRecord, out: &mut Vec<Action<T>>) {
    let v4 = interface.v4().map(|address| arp::announcement(interface, address, Tags::NONE));
    let v6 = interface.v6().flat_map(|address| {
        let detection = ndp::detection(interface, address, Tags::NONE);
        [detection, ndp::announcement(interface, address, Tags::NONE)]
    });
    out.extend(v4.chain(v6).map(|frame| Action::Send { interface: interface.id, frame }));
}
