//! The router's protocol part for fuzz targets, in plain types.

use crate::neighbours::action::Action;
use crate::neighbours::config::NeighbourConfig;
use crate::neighbours::entries::{Key, State};
use crate::neighbours::frame::Tags;
use crate::neighbours::icmp_errors::Cause;
use crate::neighbours::limiter::Rate;
use crate::neighbours::receive::Disposition;
use crate::neighbours::{ErrorAnswer, Router, RouterConfig};
use crate::ports::address::InterfaceAddress;
use crate::ports::{InterfaceId, PortRecord, PortTable};
use fib::MacAddr;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most packets that wait for a neighbour of a [`TestRouter`].
pub const WAITING_MAX: usize = 3;
/// Most entries of an interface of a [`TestRouter`].
pub const ENTRIES_MAX: usize = 12;

/// What a call brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// "answered", "kernel", "neighbour", or the name of a drop reason; empty where no frame was received.
    pub disposition: &'static str,
    /// Frames to send, by port.
    pub sent: Vec<(u16, Vec<u8>)>,
    /// Packets that are sent to a neighbour.
    pub released: Vec<u32>,
    /// Packets that are dropped.
    pub dropped: Vec<u32>,
}

/// A router with tight limits.
#[derive(Debug)]
pub struct TestRouter {
    router: Router<u32>,
    /// What callers know of neighbours.
    macs: BTreeMap<Key, MacAddr>,
}

impl TestRouter {
    /// With a port for each MAC and its addresses with prefix lengths.
    ///
    /// # Errors
    /// What is wrong with an interface.
    pub fn new(ports: &[(MacAddr, &[(IpAddr, u8)])]) -> anyhow::Result<Self> {
        let neighbours = NeighbourConfig {
            waiting_max: WAITING_MAX,
            entries_max: ENTRIES_MAX,
            incomplete_max: ENTRIES_MAX / 2,
            resolutions: Rate { per_second: 20, burst: 20 },
            ..NeighbourConfig::default()
        };
        let mut router = Router::new(&RouterConfig { neighbours, ..RouterConfig::default() });
        let mut table = PortTable::default();
        for (id, (mac, addresses)) in (0..).zip(ports) {
            let addresses = addresses.iter().map(|(address, len)| InterfaceAddress::new(*address, *len));
            let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
            let mut port = PortRecord::new(id, format!("p{id}"), *mac, 1500);
            port.configure(addresses)?;
            table.ports.push(port);
        }
        router.set_ports(Duration::ZERO, Arc::new(table), &mut Vec::new());
        Ok(Self { router, macs: BTreeMap::new() })
    }

    /// A frame arrives.
    pub fn receive(&mut self, now: Duration, port: u16, frame: &[u8]) -> Outcome {
        let mut out = Vec::new();
        let disposition = self.router.receive(now, InterfaceId(port), frame, &mut out);
        let mut outcome = self.outcome(out);
        outcome.disposition = match disposition {
            Disposition::Answered(answer) => {
                outcome.sent.push((port, answer));
                "answered"
            }
            Disposition::ForKernel => "kernel",
            Disposition::Neighbour { .. } => "neighbour",
            Disposition::Limited => "limited",
            Disposition::Ignored(reason) => reason.name(),
        };
        outcome
    }

    /// A packet is to be sent to a neighbour.
    pub fn resolve(&mut self, now: Duration, port: u16, address: IpAddr, packet: u32) -> Outcome {
        let mut out = Vec::new();
        self.router.resolve(now, Key::untagged(InterfaceId(port), address), packet, Tags::NONE, &mut out);
        self.outcome(out)
    }

    /// A neighbour becomes a gateway, or none any more.
    pub fn pin(&mut self, now: Duration, port: u16, address: IpAddr, is_pinned: bool) -> Outcome {
        let (mut out, key) = (Vec::new(), Key::untagged(InterfaceId(port), address));
        if is_pinned {
            self.router.pin(now, key, Tags::NONE, &mut out);
        } else {
            self.router.unpin(key);
        }
        self.outcome(out)
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration) -> Outcome {
        let mut out = Vec::new();
        self.router.tick(now, &mut out);
        self.outcome(out)
    }

    /// The ICMP error about a frame of which only `head` is at hand; the cause is one of ten, by number.
    pub fn error(
        &mut self,
        now: Duration,
        port: u16,
        (head, frame_bytes): (&[u8], usize),
        cause: u8,
    ) -> Option<Vec<u8>> {
        let cause = match cause % 10 {
            0 => Cause::TimeExceeded,
            1 => Cause::NoRoute,
            2 => Cause::AddressUnreachable,
            3 => Cause::Prohibited,
            4 => Cause::TooBig { mtu_bytes: 1400 },
            5 => Cause::ProtocolUnreachable,
            6 => Cause::PortUnreachable,
            7 => Cause::BadField { at: cause },
            8 => Cause::Unreachable,
            _ => Cause::UnknownOption { at: cause },
        };
        match self.router.icmp_error(now, InterfaceId(port), (head, frame_bytes), cause) {
            ErrorAnswer::Send(frame) => Some(frame),
            ErrorAnswer::Limited | ErrorAnswer::Not(_) => None,
        }
    }

    /// Entries of the table, and packets that wait.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let waiting = self.router.neighbours().map(|(_, entry)| entry.waiting.len()).sum();
        (self.router.neighbours().count(), waiting)
    }

    /// Whether what was told of neighbours is what the table has.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let known = self.router.neighbours().filter_map(|(key, entry)| Some((key, entry.mac?)));
        let has_none = |state| matches!(state, State::Incomplete { .. } | State::Failed);
        let is_sound =
            self.router.neighbours().all(|(_, entry)| entry.mac.is_none() == has_none(entry.state));
        is_sound && known.collect::<BTreeMap<_, _>>() == self.macs
    }

    fn outcome(&mut self, actions: Vec<Action<u32>>) -> Outcome {
        let mut outcome = Outcome::default();
        for action in actions {
            match action {
                Action::Send { interface, frame } => outcome.sent.push((interface.0, frame)),
                Action::Resolved { key, mac } | Action::Changed { key, new: mac, .. } => {
                    self.macs.insert(key, mac);
                }
                Action::Lost { key, .. } => {
                    self.macs.remove(&key);
                }
                Action::Release { packets, .. } => outcome.released.extend(packets),
                Action::Dropped { packets, .. } => outcome.dropped.extend(packets),
                Action::Conflict { .. } => {}
            }
        }
        outcome
    }
}
