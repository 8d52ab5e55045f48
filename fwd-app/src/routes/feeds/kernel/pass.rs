//! A pass over the kernel's tables: one dump at a time, since a socket can have only one in progress.

use super::{PASS_INTERVAL, PASS_INTERVAL_MAX, RECONCILE_INTERVAL};
use crate::routes::feeds::netlink::HEADER_BYTES;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use std::time::{Duration, Instant};

/// The dumps of a pass: type of the request, length of its header, and address family, the header's first byte. Links come first and routes
/// last, so that most events name objects already announced. A feed without routes needs only the first [`WITHOUT_ROUTES`].
const DUMPS: [(u16, usize, u8); 6] = [
    (18, 16, 0),  // RTM_GETLINK, ifinfomsg
    (22, 8, 0),   // RTM_GETADDR, ifaddrmsg
    (30, 12, 0),  // RTM_GETNEIGH, ndmsg
    (106, 8, 0),  // RTM_GETNEXTHOP, nhmsg
    (26, 12, 2),  // RTM_GETROUTE, rtmsg, IPv4
    (26, 12, 10), // and IPv6
];
const WITHOUT_ROUTES: usize = 3;
/// Kernels without next-hop objects refuse this dump, which is harmless.
const NEXT_HOPS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassStep {
    More,
    /// The pass has ended; objects that it did not contain are gone.
    Complete,
    /// The pass was inconsistent; another one follows.
    Torn,
}

pub(super) struct Pass {
    dumps: usize,
    dump: Option<usize>,
    /// Whether its request has been returned.
    is_sent: bool,
    sequence: u32,
    is_torn: bool,
    began: Option<Instant>,
    /// When the next pass is due; a running one ends first.
    due: Option<Instant>,
    /// Least time between the starts of two passes with a reason.
    interval: Duration,
    /// Whether notifications were lost, or a pass was torn, since the last pass began.
    is_troubled: bool,
    reconcile_at: Option<Instant>,
    /// Whether the running pass is periodic, and should find no difference.
    is_reconciling: bool,
    has_links: bool,
}

impl Pass {
    pub(super) fn new(has_routes: bool, now: Instant) -> Self {
        let dumps = if has_routes { DUMPS.len() } else { WITHOUT_ROUTES };
        Self {
            dumps,
            dump: None,
            is_sent: false,
            sequence: 0,
            is_torn: false,
            began: None,
            due: Some(now),
            interval: PASS_INTERVAL,
            is_troubled: false,
            reconcile_at: None,
            is_reconciling: false,
            has_links: false,
        }
    }

    /// Schedules another pass after the running one.
    pub(super) fn is_needed(&mut self, now: Instant) {
        self.is_reconciling = false;
        let earliest = self.began.and_then(|began| began.checked_add(self.interval));
        self.due = self.due.or(Some(earliest.map_or(now, |earliest| earliest.max(now))));
    }

    pub(super) fn overrun(&mut self, now: Instant) {
        self.is_troubled = true;
        self.is_needed(now);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.or(self.reconcile_at).filter(|_| self.dump.is_none())
    }

    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.dump.is_some() || !is_due(self.due) && !is_due(self.reconcile_at) {
            return false;
        }
        let is_calm = |began: Instant| now.saturating_duration_since(began) >= 2 * self.interval;
        if !self.is_troubled || self.began.is_some_and(is_calm) {
            self.interval = PASS_INTERVAL;
        }
        if std::mem::take(&mut self.is_troubled) {
            self.interval = PASS_INTERVAL_MAX.min(2 * self.interval);
        }
        self.is_reconciling = self.due.take().is_none();
        self.reconcile_at = None;
        (self.dump, self.is_sent, self.is_torn, self.began) = (Some(0), false, false, Some(now));
        true
    }

    /// The request for the next dump, once.
    pub(super) fn request(&mut self) -> Option<Vec<u8>> {
        let (kind, header_bytes, family) = DUMPS[self.dump.filter(|_| !self.is_sent)?];
        self.is_sent = true;
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let len = HEADER_BYTES + header_bytes;
        let mut bytes = vec![0; len];
        bytes[HEADER_BYTES] = family;
        let mut buffer = NetlinkBuffer::new(&mut bytes);
        buffer.set_length(u32::try_from(len).unwrap_or_default());
        buffer.set_message_type(kind);
        buffer.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
        buffer.set_sequence_number(self.sequence);
        Some(bytes)
    }

    /// Whether a message with this sequence number answers the running dump's request.
    pub(super) fn is_answer(&self, sequence: u32) -> bool {
        self.dump.is_some() && self.is_sent && sequence == self.sequence
    }

    pub(super) fn is_torn(&mut self) {
        self.is_torn = true;
    }

    /// Marks the running dump as refused. `has_objects`: next-hop objects are known.
    pub(super) fn is_refused(&mut self, has_objects: bool) {
        self.is_torn |= self.dump != Some(NEXT_HOPS) || has_objects;
    }

    pub(super) fn is_reconciling(&self) -> bool {
        self.is_reconciling
    }

    pub(super) fn has_links(&self) -> bool {
        self.has_links
    }

    pub(super) fn advance(&mut self, now: Instant) -> PassStep {
        self.has_links = true;
        let next = self.dump.map_or(0, |dump| dump + 1);
        if next < self.dumps {
            (self.dump, self.is_sent) = (Some(next), false);
            return PassStep::More;
        }
        self.dump = None;
        if self.is_torn {
            self.is_troubled = true;
            self.is_needed(now);
            return PassStep::Torn;
        }
        self.reconcile_at = now.checked_add(RECONCILE_INTERVAL);
        PassStep::Complete
    }
}
