//! The entries of the neighbour table: what is known of each neighbour, when it is due next, and which one goes when there are too many.

use super::frame::{Tags, Vlans};
use crate::ports::InterfaceId;
use fib::MacAddr;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A neighbour: where it is, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The interface to its link.
    pub(crate) interface: InterfaceId,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The VLANs of the link that it is in.
    pub(crate) vlans: Vlans,
}

impl Key {
    /// The neighbour in the VLANs of these tags.
    pub(crate) fn new(interface: InterfaceId, address: IpAddr, tags: &Tags) -> Self {
        Self { interface, address, vlans: tags.vlans() }
    }

    /// The neighbour at this address that is in no VLAN.
    pub(crate) const fn untagged(interface: InterfaceId, address: IpAddr) -> Self {
        Self { interface, address, vlans: [0; 2] }
    }
}

/// The MAC of a neighbour, as the router has found it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The neighbour.
    pub(crate) key: Key,
    /// Its MAC; `None` when it does not answer any more.
    pub(crate) mac: Option<MacAddr>,
}

/// The state of an entry, RFC 4861 7.3.2; ARP entries have the same ones, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeighbourState {
    /// Asked for, no answer yet.
    Incomplete {
        /// Requests sent.
        requests: u32,
    },
    /// Confirmed not long ago.
    Reachable,
    /// The MAC is known, but it has not been confirmed for some time.
    Stale,
    /// Stale and in use: about to be probed.
    Delay,
    /// Asked at its MAC whether it is still there.
    Probe {
        /// Requests sent.
        requests: u32,
    },
    /// Did not answer; not asked for again until the entry is due.
    Failed,
}

impl NeighbourState {
    /// The name in every output: Linux's.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Incomplete { .. } => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe { .. } => "PROBE",
            Self::Failed => "FAILED",
        }
    }
}

/// An entry.
#[derive(Debug)]
pub(crate) struct NeighbourEntry<T> {
    /// Its state.
    pub(crate) state: NeighbourState,
    /// The MAC; there is one unless the state is [`NeighbourState::Incomplete`] or [`NeighbourState::Failed`].
    pub(crate) mac: Option<MacAddr>,
    /// The tags of the frames to it.
    pub(crate) tags: Tags,
    /// Whether routes use it: it is kept, confirmed and asked for without traffic.
    pub(crate) is_pinned: bool,
    /// When the state was entered.
    pub(crate) since: Duration,
    /// When the MAC was learned or confirmed.
    pub(crate) updated: Duration,
    /// When there is something to do.
    pub(crate) due: Option<Duration>,
    /// Packets that wait for the MAC, the oldest first.
    pub(crate) waiting: VecDeque<T>,
}

impl<T> NeighbourEntry<T> {
    /// A new entry, for which nothing has been done.
    pub(crate) fn new(now: Duration, tags: Tags) -> Self {
        let (state, waiting) = (NeighbourState::Failed, VecDeque::new());
        Self { state, mac: None, tags, is_pinned: false, since: now, updated: now, due: None, waiting }
    }
}

/// Which entries make room for others, the first kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spare {
    /// Did not answer.
    Failed,
    /// Not confirmed and not in use.
    Stale,
    /// Not answered yet.
    Incomplete,
    /// About to be probed, or probed: a host that announces one MAC after another stays so.
    Doubtful,
}

/// Entries of an interface.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: usize,
    /// Those of the kind [`Spare::Incomplete`]: routes bound the number of pinned ones.
    incomplete: usize,
}

/// All entries. One that is to be changed is taken out and put back, so that its places in the orders are always right.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    entries: FxHashMap<Key, NeighbourEntry<T>>,
    due: BTreeSet<(Duration, Key)>,
    spare: BTreeSet<(InterfaceId, Spare, Duration, (IpAddr, Vlans))>,
    counts: FxHashMap<InterfaceId, Counts>,
    /// Packets that wait for any of them.
    waiting: usize,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self {
            entries: FxHashMap::default(),
            due: BTreeSet::new(),
            spare: BTreeSet::new(),
            counts: FxHashMap::default(),
            waiting: 0,
        }
    }
}

impl<T> Entries<T> {
    /// Takes an entry out.
    pub(crate) fn take(&mut self, key: Key) -> Option<NeighbourEntry<T>> {
        let entry = self.entries.remove(&key)?;
        if let Some(due) = entry.due {
            self.due.remove(&(due, key));
        }
        if let Some(spare) = spare(&entry) {
            self.spare.remove(&(key.interface, spare, entry.since, (key.address, key.vlans)));
        }
        let counts = self.counts.entry(key.interface).or_default();
        counts.all -= 1;
        counts.incomplete -= usize::from(spare(&entry) == Some(Spare::Incomplete));
        self.waiting -= entry.waiting.len();
        Some(entry)
    }

    /// Puts an entry in, or back. There must be none with this key.
    pub(crate) fn put(&mut self, key: Key, entry: NeighbourEntry<T>) {
        if let Some(due) = entry.due {
            self.due.insert((due, key));
        }
        if let Some(spare) = spare(&entry) {
            self.spare.insert((key.interface, spare, entry.since, (key.address, key.vlans)));
        }
        let counts = self.counts.entry(key.interface).or_default();
        counts.all += 1;
        counts.incomplete += usize::from(spare(&entry) == Some(Spare::Incomplete));
        self.waiting += entry.waiting.len();
        let before = self.entries.insert(key, entry);
        debug_assert!(before.is_none(), "an entry was taken out before it is put back");
    }

    /// The entry of a neighbour.
    #[cfg(test)]
    pub(crate) fn get(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.entries.get(&key)
    }

    /// All entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// Entries of an interface.
    pub(crate) fn len(&self, interface: InterfaceId) -> usize {
        self.counts.get(&interface).map_or(0, |counts| counts.all)
    }

    /// Entries of an interface that are asked for and have not answered, but for pinned ones.
    pub(crate) fn incomplete(&self, interface: InterfaceId) -> usize {
        self.counts.get(&interface).map_or(0, |counts| counts.incomplete)
    }

    /// Packets that wait for the neighbours of all entries that are not taken out.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The entry of this kind whose state is the oldest.
    pub(crate) fn oldest(&self, interface: InterfaceId, kind: Spare) -> Option<Key> {
        let first = (interface, kind, Duration::ZERO, (IpAddr::V4(Ipv4Addr::UNSPECIFIED), [0; 2]));
        let last =
            (interface, kind, Duration::MAX, (IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)), [u16::MAX; 2]));
        let (_, _, _, (address, vlans)) = self.spare.range(first..=last).next()?;
        Some(Key { interface, address: *address, vlans: *vlans })
    }

    /// The time at which the first entry is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// An entry that is due at `now`.
    pub(crate) fn first_due(&self, now: Duration) -> Option<Key> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| *key)
    }
}

fn spare<T>(entry: &NeighbourEntry<T>) -> Option<Spare> {
    match entry.state {
        _ if entry.is_pinned => None,
        NeighbourState::Failed => Some(Spare::Failed),
        NeighbourState::Stale => Some(Spare::Stale),
        NeighbourState::Incomplete { .. } => Some(Spare::Incomplete),
        NeighbourState::Delay | NeighbourState::Probe { .. } => Some(Spare::Doubtful),
        NeighbourState::Reachable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8) -> Key {
        Key::untagged(InterfaceId(1), IpAddr::from([192, 0, 2, last]))
    }

    fn entry(state: NeighbourState, since: u64, due: Option<u64>) -> NeighbourEntry<u32> {
        let (since, due) = (Duration::from_secs(since), due.map(Duration::from_secs));
        NeighbourEntry { state, since, due, ..NeighbourEntry::new(since, Tags::NONE) }
    }

    #[test]
    fn names() {
        let states = [
            NeighbourState::Incomplete { requests: 1 },
            NeighbourState::Reachable,
            NeighbourState::Stale,
            NeighbourState::Delay,
            NeighbourState::Probe { requests: 1 },
            NeighbourState::Failed,
        ];
        let names = "INCOMPLETE REACHABLE STALE DELAY PROBE FAILED";
        assert_eq!(states.map(NeighbourState::name).join(" "), names);
    }

    #[test]
    fn counts_and_orders_follow_the_entries() {
        let mut entries = Entries::default();
        entries.put(key(1), entry(NeighbourState::Stale, 5, Some(9)));
        entries.put(key(2), entry(NeighbourState::Stale, 3, Some(11)));
        entries.put(key(3), entry(NeighbourState::Incomplete { requests: 1 }, 1, Some(4)));
        entries.put(Key { interface: InterfaceId(2), ..key(4) }, entry(NeighbourState::Stale, 0, None));
        assert_eq!((entries.len(InterfaceId(1)), entries.incomplete(InterfaceId(1))), (3, 1));
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Stale), Some(key(2)));
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Failed), None);
        assert_eq!(entries.next_due(), Some(Duration::from_secs(4)));
        assert_eq!(entries.first_due(Duration::from_secs(3)), None);
        assert_eq!(entries.first_due(Duration::from_secs(4)), Some(key(3)));
        entries.take(key(3)).unwrap();
        let mut second = entries.take(key(2)).unwrap();
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Stale), Some(key(1)));
        second.is_pinned = true;
        entries.put(key(2), second);
        entries.take(key(1)).unwrap();
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Stale), None, "a pinned entry stays");
        assert_eq!((entries.len(InterfaceId(1)), entries.incomplete(InterfaceId(1))), (1, 0));
        entries.put(key(5), entry(NeighbourState::Delay, 1, Some(6)));
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Doubtful), Some(key(5)), "none is kept by new MACs");
        entries.take(key(5)).unwrap();
        assert_eq!(entries.next_due(), Some(Duration::from_secs(11)));
        assert!(entries.take(key(9)).is_none() && entries.get(key(2)).is_some());
        assert_eq!(entries.iter().count(), 2);
    }
}
