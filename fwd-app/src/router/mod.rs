//! What a router does besides forwarding: it knows its interfaces, resolves neighbours, answers those who ask for it, and tells senders why
//! their packets went no further.
//!
//! This is the protocol part alone. It has no sockets, no threads and no clock: time since the start, frames and packets that wait come in,
//! frames and [`Action`]s go out. Nothing here is on the path of a packet that is simply forwarded.
//!
//! ```text
//! frame not to be forwarded  -> Router::receive    -> Disposition: answered, for the kernel, about a neighbour, ignored
//! packet without a known MAC -> Router::resolve    -> Action::Release or Action::Dropped, at once or later
//! packet that was dropped    -> Router::icmp_error -> the error to send, or why there is none
//! Router::next_due passes    -> Router::tick       -> requests, probes, neighbours that are lost
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`receive`] | what becomes of a frame that is not forwarded |
//! | [`interface`], [`interfaces`] | addresses: which are ours, and which one to send from |
//! | [`neighbours`], [`entries`] | the neighbour table: its rules, and its bounded memory |
//! | [`action`] | what the caller has to do |
//! | [`config`] | times and limits |
//! | [`arp`], [`ndp`] | messages between neighbours |
//! | [`icmp`], [`icmp_errors`] | echo replies; errors, and when there is none |
//! | [`limiter`] | rate limits |
//! | [`frame`], [`ip`] | headers |
//! | [`reason`] | why a frame is discarded |

pub(crate) mod action;
pub(crate) mod arp;
pub(crate) mod config;
pub(crate) mod entries;
pub(crate) mod frame;
pub(crate) mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod interface;
pub(crate) mod interfaces;
pub(crate) mod ip;
pub(crate) mod limiter;
pub(crate) mod ndp;
pub(crate) mod neighbours;
pub(crate) mod reason;
pub(crate) mod receive;

#[cfg(test)]
mod icmp_errors_test;
#[cfg(test)]
mod neighbours_test;
#[cfg(test)]
mod receive_test;
#[cfg(test)]
pub(crate) mod test_packets;

pub(crate) use action::Action;
pub(crate) use config::RouterConfig;
pub(crate) use interface::{Interface, InterfaceId};
pub(crate) use reason::Reason;

use entries::{Entry, Key};
use fib::MacAddr;
use frame::Tags;
use icmp_errors::{Cause, ErrorMessage, NoError};
use interfaces::Interfaces;
use limiter::Limiter;
use neighbours::Neighbours;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::time::Duration;

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
    interfaces: Interfaces,
    neighbours: Neighbours<T>,
    errors: Limiter,
    echoes: Limiter,
    /// When an address of ours was last defended against another station.
    defended: FxHashMap<Key, Duration>,
}

impl<T> Router<T> {
    /// A router without interfaces. All memory of the rate limits is allocated here.
    pub(crate) fn new(config: &RouterConfig) -> Self {
        Self {
            interfaces: Interfaces::default(),
            neighbours: Neighbours::new(config.neighbours),
            errors: Limiter::new(&config.errors),
            echoes: Limiter::new(&config.echoes),
            defended: FxHashMap::default(),
        }
    }

    /// The interfaces.
    pub(crate) fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// The entry of a neighbour.
    pub(crate) fn neighbour(&self, key: Key) -> Option<&Entry<T>> {
        self.neighbours.get(key)
    }

    /// All neighbours, in no particular order.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (Key, &Entry<T>)> {
        self.neighbours.iter()
    }

    /// Adds an interface, or changes one, and announces its addresses to its link.
    pub(crate) fn set_interface(&mut self, interface: Interface, out: &mut Vec<Action<T>>) {
        let id = interface.id();
        for at in interface.addresses() {
            // What was a neighbour is the router itself now.
            self.neighbours.remove_address(id, at.address(), out);
        }
        self.defended.retain(|key, _| key.interface != id || interface.has(key.address));
        self.interfaces.set(interface);
        self.announce(id, out);
    }

    /// Announces the addresses of an interface, when it is new or its link is up again: IPv4 as RFC 5227 2.3, IPv6 as RFC 4861 7.2.6
    /// after one question whether another node has the address.
    pub(crate) fn announce(&self, id: InterfaceId, out: &mut Vec<Action<T>>) {
        let Some(interface) = self.interfaces.get(id) else { return };
        let v4 = interface.v4().map(|address| arp::announcement(interface, address, Tags::NONE));
        let v6 = interface.v6().flat_map(|address| {
            let detection = ndp::detection(interface, address, Tags::NONE);
            [detection, ndp::announcement(interface, address, Tags::NONE)]
        });
        out.extend(v4.chain(v6).map(|frame| Action::Send { interface: id, frame }));
    }

    /// Forgets what was learned on an interface whose link went down. Static and pinned neighbours stay in the table.
    pub(crate) fn link_down(&mut self, now: Duration, id: InterfaceId, out: &mut Vec<Action<T>>) {
        self.neighbours.link_down(now, id, out);
    }

    /// Forgets what was learned of one address, or of all. Static neighbours stay, and pinned ones are asked for at once. Returns how many
    /// neighbours were forgotten.
    pub(crate) fn clear_neighbours(
        &mut self,
        now: Duration,
        address: Option<IpAddr>,
        out: &mut Vec<Action<T>>,
    ) -> usize {
        self.neighbours.clear(now, &self.interfaces, address, out)
    }

    /// Removes an interface and all its neighbours.
    pub(crate) fn remove_interface(&mut self, id: InterfaceId, out: &mut Vec<Action<T>>) {
        self.neighbours.remove_all(id, out);
        self.defended.retain(|key, _| key.interface != id);
        self.interfaces.remove(id);
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
        self.neighbours.resolve(now, &self.interfaces, key, (packet, tags), out);
    }

    /// Tells that the datapath has sent packets to a neighbour.
    pub(crate) fn used(&mut self, now: Duration, key: Key) {
        self.neighbours.used(now, key);
    }

    /// Tells that an answer which came by an interface may have been dropped.
    pub(crate) fn answers_lost(&mut self, now: Duration, id: InterfaceId) {
        self.neighbours.answers_lost(now, id);
    }

    /// Resolves a neighbour and keeps it resolved: the gateway of a route. Returns false when that is not possible now.
    pub(crate) fn pin(&mut self, now: Duration, key: Key, tags: Tags, out: &mut Vec<Action<T>>) -> bool {
        self.neighbours.pin(now, &self.interfaces, (key, tags), out)
    }

    /// Ends [`Self::pin`].
    pub(crate) fn unpin(&mut self, key: Key) {
        self.neighbours.unpin(key);
    }

    /// Sets the MAC of a neighbour for good (`neigh` lines).
    pub(crate) fn set_static(&mut self, now: Duration, key: Key, mac: MacAddr, out: &mut Vec<Action<T>>) {
        self.neighbours.set_static(now, key, mac, out);
    }

    /// Removes a neighbour of any kind.
    pub(crate) fn remove_neighbour(&mut self, key: Key, out: &mut Vec<Action<T>>) {
        self.neighbours.remove(key, out);
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.neighbours.next_due()
    }

    /// Does what is due by now.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Action<T>>) {
        self.neighbours.tick(now, &self.interfaces, out);
    }

    /// The ICMP error about a packet that came on interface `on` in a frame of `frame_bytes` bytes beginning with `head`, as received.
    pub(crate) fn icmp_error(
        &mut self,
        now: Duration,
        on: InterfaceId,
        (head, frame_bytes): (&[u8], usize),
        cause: Cause,
    ) -> ErrorAnswer {
        match ErrorMessage::about(&self.interfaces, on, head, frame_bytes, cause) {
            Ok(error) if self.errors.allows(now, error.to()) => ErrorAnswer::Send(error.frame()),
            Ok(_) => ErrorAnswer::Limited,
            Err(why) => ErrorAnswer::Not(why),
        }
    }

    /// Whether an address of ours that another station uses is to be defended now. The first time and then once in an interval, it is,
    /// and the conflict is reported.
    fn defends(&mut self, now: Duration, key: Key, mac: MacAddr, out: &mut Vec<Action<T>>) -> bool {
        /// RFC 5227 1.1, `DEFEND_INTERVAL`. A router keeps its address, 2.4 (c).
        const INTERVAL: Duration = Duration::from_secs(10);
        let is_due = self.defended.get(&key).is_none_or(|last| now >= last.saturating_add(INTERVAL));
        if is_due {
            self.defended.insert(key, now);
            out.push(Action::Conflict { key, mac });
        }
        is_due
    }
}
