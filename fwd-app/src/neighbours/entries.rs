//! Entries of the neighbour table, indexed by due time and by order of eviction.

use super::frame::{Tags, Vlans};
use crate::ports::InterfaceId;
use fib::MacAddr;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) interface: InterfaceId,
    pub(crate) address: IpAddr,
    /// Its VLANs, outermost first.
    pub(crate) vlans: Vlans,
}

impl Key {
    pub(crate) fn new(interface: InterfaceId, address: IpAddr, tags: &Tags) -> Self {
        Self { interface, address, vlans: tags.vlans() }
    }

    pub(crate) const fn untagged(interface: InterfaceId, address: IpAddr) -> Self {
        Self { interface, address, vlans: [0; 2] }
    }
}

/// A change of a neighbour's MAC, for the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) key: Key,
    /// `None` when it has stopped answering.
    pub(crate) mac: Option<MacAddr>,
}

/// The states of RFC 4861 7.3.2, for ARP too, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeighbourState {
    /// Requested, not answered yet.
    Incomplete {
        /// Requests sent.
        requests: u32,
    },
    /// Recently confirmed.
    Reachable,
    /// The MAC is known, its confirmation has expired.
    Stale,
    /// Stale and in use: about to be probed.
    Delay,
    /// Probed by unicast.
    Probe {
        /// Requests sent.
        requests: u32,
    },
    /// Did not answer; held down until the entry is due.
    Failed,
}

impl NeighbourState {
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

#[derive(Debug)]
pub(crate) struct NeighbourEntry<T> {
    pub(crate) state: NeighbourState,
    /// `None` in the states [`NeighbourState::Incomplete`] and [`NeighbourState::Failed`].
    pub(crate) mac: Option<MacAddr>,
    pub(crate) tags: Tags,
    /// Whether routes use it: it is kept and probed without traffic.
    pub(crate) is_pinned: bool,
    pub(crate) since: Duration,
    /// When the MAC was last learned or confirmed.
    pub(crate) updated: Duration,
    pub(crate) due: Option<Duration>,
    /// Queued packets, oldest first.
    pub(crate) waiting: VecDeque<T>,
}

impl<T> NeighbourEntry<T> {
    pub(crate) fn new(now: Duration, tags: Tags) -> Self {
        let (state, waiting) = (NeighbourState::Failed, VecDeque::new());
        Self { state, mac: None, tags, is_pinned: false, since: now, updated: now, due: None, waiting }
    }
}

/// Kinds of entries that may be evicted, in order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spare {
    Failed,
    Stale,
    Incomplete,
    /// In delay or probe: a host that announces one MAC after another stays there.
    Doubtful,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: usize,
    /// Entries of kind [`Spare::Incomplete`]: pinned ones are bounded by the number of routes.
    incomplete: usize,
}

/// All entries with their indexes. To change an entry, take it out and put it back: that keeps the indexes correct.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    entries: FxHashMap<Key, NeighbourEntry<T>>,
    due: BTreeSet<(Duration, Key)>,
    spare: BTreeSet<(InterfaceId, Spare, Duration, (IpAddr, Vlans))>,
    counts: FxHashMap<InterfaceId, Counts>,
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
    pub(crate) fn remove(&mut self, key: Key) -> Option<NeighbourEntry<T>> {
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

    /// Inserts an entry; the key must be vacant.
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

    #[cfg(test)]
    pub(crate) fn get(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.entries.get(&key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    pub(crate) fn len(&self, interface: InterfaceId) -> usize {
        self.counts.get(&interface).map_or(0, |counts| counts.all)
    }

    pub(crate) fn incomplete(&self, interface: InterfaceId) -> usize {
        self.counts.get(&interface).map_or(0, |counts| counts.incomplete)
    }

    /// Packets queued in all entries that are not taken out.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The entry of a kind that has been in its state for longest.
    pub(crate) fn oldest(&self, interface: InterfaceId, kind: Spare) -> Option<Key> {
        let first = (interface, kind, Duration::ZERO, (IpAddr::V4(Ipv4Addr::UNSPECIFIED), [0; 2]));
        let last =
            (interface, kind, Duration::MAX, (IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)), [u16::MAX; 2]));
        let (_, _, _, (address, vlans)) = self.spare.range(first..=last).next()?;
        Some(Key { interface, address: *address, vlans: *vlans })
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

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
        entries.remove(key(3)).unwrap();
        let mut second = entries.remove(key(2)).unwrap();
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Stale), Some(key(1)));
        second.is_pinned = true;
        entries.put(key(2), second);
        entries.remove(key(1)).unwrap();
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Stale), None, "a pinned entry stays");
        assert_eq!((entries.len(InterfaceId(1)), entries.incomplete(InterfaceId(1))), (1, 0));
        entries.put(key(5), entry(NeighbourState::Delay, 1, Some(6)));
        assert_eq!(entries.oldest(InterfaceId(1), Spare::Doubtful), Some(key(5)), "none is kept by new MACs");
        entries.remove(key(5)).unwrap();
        assert_eq!(entries.next_due(), Some(Duration::from_secs(11)));
        assert!(entries.remove(key(9)).is_none() && entries.get(key(2)).is_some());
        assert_eq!(entries.iter().count(), 2);
    }
}
