//! Actions that the router asks of its caller: send frames, update MACs, release or drop queued packets.

use super::entries::Key;
use crate::ports::InterfaceId;
use fib::MacAddr;

/// Why queued packets are dropped. All but [`Self::AllFull`] count as `no_neighbour`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unsent {
    /// The neighbour did not answer; the sender may get an ICMP error.
    Unreachable,
    /// Later packets replaced them in the entry's queue.
    QueueFull,
    /// The limit of queued packets over all neighbours.
    AllFull,
    /// The limit of entries, or of unanswered ones.
    TableFull,
    Limited,
    Removed,
    /// The address is no host's or is our own, or the interface has no source address.
    Unresolvable,
}

/// To be carried out in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action<T> {
    Send {
        interface: InterfaceId,
        frame: Vec<u8>,
    },
    Resolved {
        key: Key,
        mac: MacAddr,
    },
    Changed {
        key: Key,
        old: MacAddr,
        new: MacAddr,
    },
    /// A neighbour has stopped answering, or its entry was removed.
    Lost {
        key: Key,
        mac: MacAddr,
    },
    Release {
        key: Key,
        mac: MacAddr,
        packets: Vec<T>,
    },
    /// Drop and count queued packets.
    Dropped {
        key: Key,
        why: Unsent,
        /// In order of arrival.
        packets: Vec<T>,
    },
    /// Another station uses an address of ours.
    Conflict {
        /// Our address, and the link.
        key: Key,
        mac: MacAddr,
    },
}

/// Releases `packets` to the MAC that was found, or drops them.
pub(crate) fn end_wait<T>(
    key: Key,
    found: Result<MacAddr, Unsent>,
    packets: impl IntoIterator<Item = T>,
    out: &mut Vec<Action<T>>,
) {
    let packets: Vec<T> = packets.into_iter().collect();
    if !packets.is_empty() {
        out.push(match found {
            Ok(mac) => Action::Release { key, mac, packets },
            Err(why) => Action::Dropped { key, why, packets },
        });
    }
}
