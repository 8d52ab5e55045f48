//! What the router's caller has to do: send frames, tell the datapath of neighbours, release or drop packets that waited.

use super::entries::Key;
use crate::ports::InterfaceId;
use fib::MacAddr;

/// Why packets that waited for a neighbour are dropped. All but [`Self::AllFull`] count as `no_neighbour`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unsent {
    /// It did not answer: the destination is unreachable, and the sender may be told so.
    Unreachable,
    /// Later packets took their place in the queue.
    QueueFull,
    /// Too many packets wait for neighbours.
    AllFull,
    /// There are too many neighbours, or too many unanswered ones.
    TableFull,
    /// There were too many new neighbours in a short time.
    Limited,
    /// The entry was removed.
    Removed,
    /// No host has the address, it is our own, or the interface has no address to ask from.
    Unresolvable,
}

/// What the caller has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action<T> {
    /// Send a frame of our own.
    Send {
        /// By this port.
        interface: InterfaceId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// The MAC of a neighbour is known from now on.
    Resolved {
        /// The neighbour.
        key: Key,
        /// Its MAC.
        mac: MacAddr,
    },
    /// The MAC of a known neighbour is another one from now on.
    Changed {
        /// The neighbour.
        key: Key,
        /// Its MAC until now.
        old: MacAddr,
        /// Its MAC from now on.
        new: MacAddr,
    },
    /// A neighbour does not answer any more, or its entry was removed.
    Lost {
        /// The neighbour.
        key: Key,
        /// Its MAC until now.
        mac: MacAddr,
    },
    /// Send packets that waited.
    Release {
        /// To this neighbour.
        key: Key,
        /// At this MAC.
        mac: MacAddr,
        /// The packets, in order of arrival.
        packets: Vec<T>,
    },
    /// Drop packets that waited, and count them.
    Dropped {
        /// The neighbour they were for.
        key: Key,
        /// Why.
        why: Unsent,
        /// The packets, in order of arrival.
        packets: Vec<T>,
    },
    /// Another station uses an address of ours.
    Conflict {
        /// Where it is, and our address.
        key: Key,
        /// The other's MAC.
        mac: MacAddr,
    },
}

/// Adds [`Action::Release`] if there are packets.
pub(crate) fn release<T>(
    key: Key,
    mac: MacAddr,
    packets: impl IntoIterator<Item = T>,
    out: &mut Vec<Action<T>>,
) {
    let packets: Vec<T> = packets.into_iter().collect();
    if !packets.is_empty() {
        out.push(Action::Release { key, mac, packets });
    }
}

/// Adds [`Action::Dropped`] if there are packets.
pub(crate) fn dropped<T>(
    key: Key,
    why: Unsent,
    packets: impl IntoIterator<Item = T>,
    out: &mut Vec<Action<T>>,
) {
    let packets: Vec<T> = packets.into_iter().collect();
    if !packets.is_empty() {
        out.push(Action::Dropped { key, why, packets });
    }
}
