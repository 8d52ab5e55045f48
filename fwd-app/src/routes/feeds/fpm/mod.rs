//! FPM: the protocol by which FRR's zebra (`-M dplane_fpm_nl`) announces routes to a forwarder, without I/O and clock.
//!
//! A frame is a byte of version (1), a byte of type (1, netlink), 16 bits of length in network order including these four bytes, and
//! netlink messages. A route update is a delete and an add in one frame, so only the last message about a prefix counts.
//!
//! One connection is in use. A new one is on probation until its first valid frame, and then replaces it: a port scan does not disturb
//! zebra, and a restarted zebra need not wait for a timeout of its old connection. An invalid frame closes a connection; a message that does
//! not decode is counted and skipped. FPM has no authentication, so of the users of this host only root, our own and [`FpmOptions::users`]
//! may connect; a remote peer does not replace a connection from another address.
//!
//! When the connection in use ends, its routes become stale. Zebra does not mark the end of its announcements after a restart, so stale
//! routes are withdrawn [`FpmOptions::hold`] after the first valid frame. Next-hop objects are discarded at once, since a new zebra reuses
//! their numbers. Memory is bounded by two frames and the limits on routes and next-hop objects.

pub(crate) mod listener;
mod peers;

use super::netlink::{self, Envelope, Message, NetlinkError, RouteMessage, messages};
use super::nexthops::{NextHops, RouteKey, Told};
use super::{FeedCounts, FeedEvent, FeedId, RoutingTables};
use fib::IpPrefix;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

const HEADER_BYTES: usize = 4;
const FRAME_BYTES_MIN: usize = HEADER_BYTES + netlink::HEADER_BYTES;
/// Version and type of a frame of netlink messages.
const VERSION_AND_TYPE: [u8; 2] = [1, 1];
/// Zebra announces only the best route of a prefix, so one metric suffices.
const METRIC: u32 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FpmOptions {
    pub(crate) feed: FeedId,
    /// How long stale routes stay after a peer reconnects (`--fpm-hold`).
    pub(crate) hold: Duration,
    pub(crate) tables: RoutingTables,
    /// The most routes that may name next-hop objects; further ones are left out and counted.
    pub(crate) routes_max: usize,
    /// Users that may announce routes, besides root and our own (`--fpm-user`).
    pub(crate) users: Vec<u32>,
}

impl Default for FpmOptions {
    /// Zebra's own hold time for routes of its predecessor; four full tables of routes.
    fn default() -> Self {
        Self {
            feed: FeedId(0),
            hold: Duration::from_secs(180),
            tables: RoutingTables::default(),
            routes_max: 1 << 22,
            users: Vec::new(),
        }
    }
}

/// The number of a connection, given by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FpmError {
    #[error("version {version}, type {kind} is not FPM with netlink (1, 1)")]
    Header {
        /// The first byte.
        version: u8,
        kind: u8,
    },
    #[error("a frame of {len} bytes has no message")]
    Length {
        /// The length in the header, bytes.
        len: usize,
    },
    #[error("a frame does not hold whole messages: {0}")]
    Frame(NetlinkError),
}

struct FpmConnection {
    id: ConnectionId,
    partial: Vec<u8>,
}

pub(crate) struct Fpm {
    options: FpmOptions,
    current: Option<FpmConnection>,
    /// The newest connection, until its first valid frame.
    probation: Option<FpmConnection>,
    sweep_at: Option<Instant>,
    objects: NextHops,
    counts: FeedCounts,
    /// The messages of a frame, kept for its memory.
    frame: Vec<Message>,
    /// The last message of a frame about each prefix of a table; kept for its memory.
    last: FxHashMap<(u32, IpPrefix), usize>,
}

impl Fpm {
    pub(crate) fn new(options: FpmOptions) -> Self {
        let objects = NextHops::new(options.feed, options.routes_max);
        Self {
            options,
            current: None,
            probation: None,
            sweep_at: None,
            objects,
            counts: FeedCounts::default(),
            frame: Vec::new(),
            last: FxHashMap::default(),
        }
    }

    pub(crate) fn counts(&self) -> FeedCounts {
        self.counts
    }

    pub(crate) fn refused(&mut self) {
        self.counts.refused += 1;
    }

    pub(crate) fn in_use(&self) -> Option<ConnectionId> {
        self.current.as_ref().map(|current| current.id)
    }

    /// Adds a connection on probation. Returns the replaced one, which the caller must close.
    pub(crate) fn opened(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        self.counts.sessions += 1;
        self.probation.replace(FpmConnection { id, partial: Vec::new() }).map(|before| before.id)
    }

    /// Processes bytes of a connection. Returns the connection that this one has replaced, which the caller must close.
    ///
    /// # Errors
    /// Why the caller must close this connection. The events of its earlier frames have been appended.
    pub(crate) fn received(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        now: Instant,
        out: &mut Vec<FeedEvent>,
    ) -> Result<Option<ConnectionId>, FpmError> {
        let of = |connection: &Option<FpmConnection>| connection.as_ref().is_some_and(|known| known.id == id);
        let mut is_current = of(&self.current);
        if !is_current && !of(&self.probation) {
            return Ok(None);
        }
        let connection = if is_current { &mut self.current } else { &mut self.probation };
        let mut partial =
            connection.as_mut().map(|known| std::mem::take(&mut known.partial)).unwrap_or_default();
        partial.extend_from_slice(bytes);
        let mut rest = partial.as_slice();
        let mut replaced = None;
        let result = loop {
            let frame = match first_frame(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(replaced),
                Err(error) => break Err(error),
            };
            rest = &rest[HEADER_BYTES + frame.len()..];
            let decoded = match self.decode(frame) {
                Ok(decoded) => decoded,
                Err(error) => break Err(error),
            };
            if !is_current && decoded > 0 {
                replaced = self.promote(now, out);
                is_current = true;
            }
            if is_current {
                self.apply(out);
            }
        };
        match &result {
            Ok(_) => {
                let used = partial.len() - rest.len();
                partial.drain(..used);
                let connection = if is_current { &mut self.current } else { &mut self.probation };
                if let Some(known) = connection {
                    known.partial = partial;
                }
            }
            Err(_) => {
                self.counts.errors += 1;
                self.closed(id, out);
            }
        }
        result
    }

    pub(crate) fn closed(&mut self, id: ConnectionId, out: &mut Vec<FeedEvent>) {
        if self.probation.take_if(|known| known.id == id).is_none()
            && self.current.take_if(|known| known.id == id).is_some()
        {
            self.ended(out);
        }
    }

    /// Appends the events due at `now`; call it at [`Self::deadline`] or later.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<FeedEvent>) {
        if self.sweep_at.take_if(|at| *at <= now).is_some() {
            out.push(FeedEvent::Sweep);
            self.objects.sweep(out);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sweep_at
    }

    fn promote(&mut self, now: Instant, out: &mut Vec<FeedEvent>) -> Option<ConnectionId> {
        let replaced = self.current.take().map(|known| known.id);
        if replaced.is_some() {
            self.ended(out);
        }
        self.current = self.probation.take();
        self.sweep_at = now.checked_add(self.options.hold);
        out.push(FeedEvent::Connected);
        replaced
    }

    fn ended(&mut self, out: &mut Vec<FeedEvent>) {
        self.objects.clear(out);
        self.sweep_at = None;
        out.extend([FeedEvent::Disconnected, FeedEvent::Stale]);
    }

    /// Decodes the messages of a frame into `self.frame`. Returns their number.
    fn decode(&mut self, frame: &[u8]) -> Result<usize, FpmError> {
        self.frame.clear();
        for message in messages(frame) {
            match message {
                Ok(Envelope { message, .. }) => self.frame.push(message),
                Err(error @ NetlinkError::Framing { .. }) => return Err(FpmError::Frame(error)),
                Err(NetlinkError::Content { .. } | NetlinkError::Prefix(_)) => self.counts.errors += 1,
            }
        }
        self.counts.messages += self.frame.len() as u64;
        Ok(self.frame.len())
    }

    fn apply(&mut self, out: &mut Vec<FeedEvent>) {
        let mut frame = std::mem::take(&mut self.frame);
        // Most frames have one message, or a delete and an add of one prefix.
        self.last.clear();
        if frame.len() > 1 {
            for (at, message) in frame.iter().enumerate() {
                if let Message::Route(route) = message {
                    self.last.insert((route.table, route.prefix), at);
                }
            }
        }
        for (at, message) in frame.drain(..).enumerate() {
            match message {
                Message::Route(route) => match self.options.tables.vrf(route.table) {
                    Some(vrf) => {
                        if self.last.get(&(route.table, route.prefix)).is_none_or(|last| *last == at) {
                            let RouteMessage { prefix, is_gone, says, .. } = route;
                            let told =
                                if is_gone { None } else { Told::from_message(says, &mut self.counts) };
                            let key = RouteKey { vrf, prefix, metric: METRIC };
                            self.objects.put(key, told, &mut self.counts, out);
                        }
                    }
                    None => self.counts.ignored += 1,
                },
                Message::NextHop { id, object } => {
                    self.counts.over_limit += u64::from(self.objects.set(id, object, out).is_err());
                }
                Message::NextHopGone(id) => {
                    self.objects.remove(id, out);
                }
                Message::Unsupported => self.counts.unsupported += 1,
                _ => self.counts.ignored += 1,
            }
        }
        self.frame = frame;
    }
}

/// The messages of the first frame in `bytes`; `None` while it is incomplete. The header is checked as soon as it has arrived.
fn first_frame(bytes: &[u8]) -> Result<Option<&[u8]>, FpmError> {
    if let [version, kind, ..] = *bytes
        && [version, kind] != VERSION_AND_TYPE
    {
        return Err(FpmError::Header { version, kind });
    }
    let Some(&[_, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len < FRAME_BYTES_MIN {
        return Err(FpmError::Length { len });
    }
    Ok(bytes.get(HEADER_BYTES..len))
}

#[cfg(test)]
pub(crate) mod tests;
