//! The neighbour table of all interfaces: resolves addresses, confirms entries, detects changed and lost neighbours.
//!
//! IPv4 and IPv6 neighbours have the states of RFC 4861 7.3.2. The table has neither sockets nor a clock: callers pass in times and
//! received messages, carry out the returned [`Action`]s, and call [`Neighbours::tick`] at [`Neighbours::next_due`].
//!
//! The datapath does not report use of an entry, which RFC 4861 expects. Instead a pinned entry (a route's gateway) counts as in use, and a
//! stale entry is probed before it is deleted. Limits keep a scan of a large prefix from exhausting memory or displacing known neighbours.

use super::action::{Action, Unsent, end_wait};
use super::config::NeighbourConfig;
use super::entries::{Entries, Key, NeighbourEntry, NeighbourState, Spare};
use super::frame::Tags;
use super::limiter::{Bucket, Pace};
use super::{arp, ndp};
use crate::ports::InterfaceId;
use crate::ports::PortTable;
use crate::ports::address::is_host;
use fib::MacAddr;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

/// Lower bound of every timer, so that `tick` terminates with any configuration.
const TIME_MIN: Duration = Duration::from_millis(1);

/// Kinds evicted for a resolution, in order.
const FOR_ASKED: &[Spare] = &[Spare::Failed, Spare::Stale, Spare::Incomplete, Spare::Doubtful];
/// Kinds evicted for a neighbour learned from its own request, which no packet waits for.
const FOR_HEARD: &[Spare] = &[Spare::Failed, Spare::Stale];

/// Whether a message may replace a known MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overrides {
    /// It only makes the entry stale (RFC 4861 7.2.5 I).
    Never,
    /// Unless the known MAC is more recent than the lock time.
    UnlessRecent,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeardMac {
    pub(crate) mac: Option<MacAddr>,
    pub(crate) tags: Tags,
    /// Whether it answers us. After a request, that confirms the neighbour is reachable.
    pub(crate) is_solicited: bool,
    pub(crate) overrides: Overrides,
    pub(crate) may_create: bool,
}

/// The table; `T` is a queued packet.
#[derive(Debug)]
pub(crate) struct Neighbours<T> {
    config: NeighbourConfig,
    entries: Entries<T>,
    pace: Pace,
    resolutions: FxHashMap<InterfaceId, Bucket>,
    /// When an answer on the interface may last have been dropped.
    answers_lost: FxHashMap<InterfaceId, Duration>,
}

impl<T> Neighbours<T> {
    pub(crate) fn new(config: NeighbourConfig) -> Self {
        let (entries, pace) = (Entries::default(), Pace::new(config.resolutions));
        let (resolutions, answers_lost) = (FxHashMap::default(), FxHashMap::default());
        Self { config, entries, pace, resolutions, answers_lost }
    }

    #[cfg(test)]
    pub(crate) fn get(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.entries.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.entries.iter()
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.entries.next_due()
    }

    /// Sends a packet with VLAN `tags` to a neighbour: at once if its MAC is known, else once it has answered.
    pub(crate) fn resolve(
        &mut self,
        now: Duration,
        ports: &PortTable,
        key: Key,
        (packet, tags): (T, Tags),
        out: &mut Vec<Action<T>>,
    ) {
        let mut entry = match self.entries.remove(key) {
            Some(entry) => entry,
            None => match self.admit(now, ports, key, out) {
                Ok(()) => self.begin(now, ports, key, NeighbourEntry::new(now, tags), out),
                Err(why) => return end_wait(key, Err(why), [packet], out),
            },
        };
        match (entry.state, entry.mac) {
            (_, Some(mac)) => {
                self.note_use(now, key, &mut entry);
                end_wait(key, Ok(mac), [packet], out);
            }
            (NeighbourState::Incomplete { .. }, None) => {
                entry.waiting.push_back(packet);
                let excess = entry.waiting.len().saturating_sub(self.config.waiting_max);
                end_wait(key, Err(Unsent::QueueFull), entry.waiting.drain(..excess), out);
                let all = self.entries.waiting() + entry.waiting.len();
                let excess = all.saturating_sub(self.config.waiting_all_max).min(entry.waiting.len());
                end_wait(key, Err(Unsent::AllFull), entry.waiting.drain(..excess), out);
            }
            _ => end_wait(key, Err(Unsent::Unreachable), [packet], out),
        }
        self.entries.put(key, entry);
    }

    /// Reports a possibly dropped answer on an interface: no neighbour there is given up for an earlier request.
    pub(crate) fn answers_lost(&mut self, now: Duration, interface: InterfaceId) {
        self.answers_lost.insert(interface, now);
    }

    /// Keeps a neighbour resolved until [`Self::unpin`]. Returns false when the table is full or the address cannot be resolved.
    pub(crate) fn pin(
        &mut self,
        now: Duration,
        ports: &PortTable,
        (key, tags): (Key, Tags),
        out: &mut Vec<Action<T>>,
    ) -> bool {
        let known = self.entries.remove(key);
        if known.is_none() && !(is_resolvable(ports, key) && self.make_room(key.interface, FOR_ASKED, out)) {
            return false;
        }
        let mut entry = known.unwrap_or_else(|| NeighbourEntry::new(now, tags));
        entry.is_pinned = true;
        if entry.state == NeighbourState::Failed {
            entry = self.begin(now, ports, key, entry, out);
        }
        self.note_use(now, key, &mut entry);
        self.entries.put(key, entry);
        true
    }

    pub(crate) fn unpin(&mut self, key: Key) {
        if let Some(mut entry) = self.entries.remove(key) {
            entry.is_pinned = false;
            self.entries.put(key, entry);
        }
    }

    fn remove(&mut self, key: Key, out: &mut Vec<Action<T>>) {
        if let Some(entry) = self.entries.remove(key) {
            end(key, entry, Unsent::Removed, out);
        }
    }

    /// Removes the entries of an address in all VLANs of an interface.
    pub(crate) fn remove_address(
        &mut self,
        interface: InterfaceId,
        address: IpAddr,
        out: &mut Vec<Action<T>>,
    ) {
        for key in self.keys(|key| (key.interface, key.address) == (interface, address)) {
            self.remove(key, out);
        }
    }

    pub(crate) fn remove_all(&mut self, interface: InterfaceId, out: &mut Vec<Action<T>>) {
        for key in self.keys(|key| key.interface == interface) {
            self.remove(key, out);
        }
        self.resolutions.remove(&interface);
        self.answers_lost.remove(&interface);
    }

    /// Deletes the entries of an interface whose link went down. Pinned ones stay without a MAC until [`Self::link_up`].
    pub(crate) fn link_down(&mut self, now: Duration, interface: InterfaceId, out: &mut Vec<Action<T>>) {
        for (key, pinned) in self.forget(now, |key| key.interface == interface, out) {
            if let Some(mut entry) = pinned {
                self.enter(now, key, &mut entry, NeighbourState::Failed);
                self.entries.put(key, entry);
            }
        }
    }

    /// Repeats requests after a link up, since earlier ones were lost. Deletes failed entries that are not pinned, so that the next packet
    /// asks again.
    pub(crate) fn link_up(
        &mut self,
        now: Duration,
        ports: &PortTable,
        interface: InterfaceId,
        out: &mut Vec<Action<T>>,
    ) {
        for key in self.keys(|key| key.interface == interface) {
            let Some(mut entry) = self.entries.remove(key) else { continue };
            match entry.state {
                NeighbourState::Failed if !entry.is_pinned => continue,
                NeighbourState::Failed | NeighbourState::Incomplete { .. } => {
                    entry = self.begin(now, ports, key, entry, out);
                }
                _ => {}
            }
            self.entries.put(key, entry);
        }
    }

    /// Deletes the entries of one address, or all; asks again for pinned neighbours. Returns the number deleted.
    pub(crate) fn clear(
        &mut self,
        now: Duration,
        ports: &PortTable,
        address: Option<IpAddr>,
        out: &mut Vec<Action<T>>,
    ) -> usize {
        let forgotten = self.forget(now, |key| address.is_none_or(|address| address == key.address), out);
        let count = forgotten.len();
        for (key, pinned) in forgotten {
            if let Some(entry) = pinned {
                let entry = self.begin(now, ports, key, entry, out);
                self.entries.put(key, entry);
            }
        }
        count
    }

    /// Takes out the wanted entries, and returns their keys. Pinned ones come with a fresh entry.
    fn forget(
        &mut self,
        now: Duration,
        is_wanted: impl Fn(Key) -> bool,
        out: &mut Vec<Action<T>>,
    ) -> Vec<(Key, Option<NeighbourEntry<T>>)> {
        let keys = self.keys(is_wanted);
        let forgotten = keys.into_iter().filter_map(|key| {
            let entry = self.entries.remove(key)?;
            let tags = entry.is_pinned.then_some(entry.tags);
            end(key, entry, Unsent::Removed, out);
            Some((key, tags.map(|tags| NeighbourEntry { is_pinned: true, ..NeighbourEntry::new(now, tags) })))
        });
        forgotten.collect()
    }

    fn keys(&self, is_wanted: impl Fn(Key) -> bool) -> Vec<Key> {
        let keys = self.entries.iter().map(|(key, _)| key);
        let mut keys: Vec<_> = keys.filter(|key| is_wanted(*key)).collect();
        keys.sort_unstable();
        keys
    }

    /// Applies a message about a neighbour, RFC 4861 7.2.3 and 7.2.5. Returns whether it changed or confirmed the entry.
    pub(crate) fn heard(
        &mut self,
        now: Duration,
        key: Key,
        heard: &HeardMac,
        out: &mut Vec<Action<T>>,
    ) -> bool {
        let Some(mut entry) = self.entries.remove(key) else {
            let Some(mac) =
                heard.mac.filter(|_| heard.may_create && self.make_room(key.interface, FOR_HEARD, out))
            else {
                return false;
            };
            let mut entry = NeighbourEntry::new(now, heard.tags);
            learn(now, key, &mut entry, mac, out);
            self.enter(now, key, &mut entry, NeighbourState::Stale);
            self.entries.put(key, entry);
            return true;
        };
        let new = heard.mac.or(entry.mac);
        let is_of_use = new.is_some_and(|new| self.update(now, key, &mut entry, (new, heard), out));
        self.entries.put(key, entry);
        is_of_use
    }

    fn update(
        &mut self,
        now: Duration,
        key: Key,
        entry: &mut NeighbourEntry<T>,
        (new, heard): (MacAddr, &HeardMac),
        out: &mut Vec<Action<T>>,
    ) -> bool {
        let is_other = entry.mac != Some(new);
        let overrides = match heard.overrides {
            Overrides::Never => false,
            Overrides::UnlessRecent => now >= entry.updated.saturating_add(self.config.lock),
            Overrides::Always => true,
        };
        if entry.mac.is_some() && is_other && !overrides {
            let casts_doubt = entry.state == NeighbourState::Reachable && heard.overrides == Overrides::Never;
            if casts_doubt {
                self.enter(now, key, entry, NeighbourState::Stale);
            }
            return casts_doubt;
        }
        // RFC 4861 7.2.5 trusts the Solicited flag. Any host can set it, so it counts only while a request is unanswered.
        let was_asked =
            matches!(entry.state, NeighbourState::Incomplete { .. } | NeighbourState::Probe { .. });
        let is_answer = heard.is_solicited && was_asked;
        if is_other || is_answer {
            learn(now, key, entry, new, out);
        }
        if is_answer {
            self.enter(now, key, entry, NeighbourState::Reachable);
        } else if is_other {
            // The datapath may use the new MAC: enter the delay state, as for an entry in use (RFC 4861 7.3.3).
            self.enter(now, key, entry, NeighbourState::Delay);
        }
        is_other || is_answer
    }

    pub(crate) fn tick(&mut self, now: Duration, ports: &PortTable, out: &mut Vec<Action<T>>) {
        while let Some(key) = self.entries.first_due(now) {
            let Some(entry) = self.entries.remove(key) else { break };
            if let Some(entry) = self.expired(now, ports, key, entry, out) {
                self.entries.put(key, entry);
            }
        }
    }

    /// The next state of an entry that is due; `None` when it is removed.
    fn expired(
        &mut self,
        now: Duration,
        ports: &PortTable,
        key: Key,
        mut entry: NeighbourEntry<T>,
        out: &mut Vec<Action<T>>,
    ) -> Option<NeighbourEntry<T>> {
        let config = &self.config;
        let next = match entry.state {
            NeighbourState::Incomplete { requests } if requests < config.requests => {
                NeighbourState::Incomplete { requests: requests + 1 }
            }
            NeighbourState::Probe { requests } if requests < config.probes => {
                NeighbourState::Probe { requests: requests + 1 }
            }
            NeighbourState::Probe { requests } if self.may_have_answered(key, &entry) => {
                NeighbourState::Probe { requests }
            }
            NeighbourState::Incomplete { .. } => NeighbourState::Failed,
            NeighbourState::Reachable if !entry.is_pinned => NeighbourState::Stale,
            NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Delay => {
                NeighbourState::Probe { requests: 1 }
            }
            NeighbourState::Probe { .. } | NeighbourState::Failed if entry.is_pinned => {
                if let Some(mac) = entry.mac.take() {
                    out.push(Action::Lost { key, mac });
                }
                return Some(self.begin(now, ports, key, entry, out));
            }
            NeighbourState::Probe { .. } | NeighbourState::Failed => {
                end(key, entry, Unsent::Unreachable, out);
                return None;
            }
        };
        self.enter(now, key, &mut entry, next);
        if matches!(next, NeighbourState::Incomplete { .. } | NeighbourState::Probe { .. }) {
            ask(ports, key, &entry, out);
        }
        if next == NeighbourState::Failed {
            end_wait(key, Err(Unsent::Unreachable), entry.waiting.drain(..), out);
        }
        Some(entry)
    }

    /// Whether an answer may have been dropped since the last request to the neighbour, which is due.
    fn may_have_answered(&self, key: Key, entry: &NeighbourEntry<T>) -> bool {
        let asked = entry.due.unwrap_or_default().saturating_sub(self.config.retransmit.max(TIME_MIN));
        self.answers_lost.get(&key.interface).is_some_and(|lost| *lost >= asked)
    }

    /// Checks that a new neighbour may be asked for, and makes room for it.
    fn admit(
        &mut self,
        now: Duration,
        ports: &PortTable,
        key: Key,
        out: &mut Vec<Action<T>>,
    ) -> Result<(), Unsent> {
        if !is_resolvable(ports, key) {
            return Err(Unsent::Unresolvable);
        }
        let bucket = self.resolutions.entry(key.interface).or_default();
        *bucket = self.pace.taken(*bucket, now).ok_or(Unsent::Limited)?;
        if self.entries.incomplete(key.interface) >= self.config.incomplete_max
            && !self.evict(key.interface, Spare::Incomplete, out)
        {
            return Err(Unsent::TableFull);
        }
        if self.make_room(key.interface, FOR_ASKED, out) { Ok(()) } else { Err(Unsent::TableFull) }
    }

    /// Makes room for one entry, if necessary by evicting the oldest of these kinds. Returns false on failure.
    fn make_room(&mut self, interface: InterfaceId, kinds: &[Spare], out: &mut Vec<Action<T>>) -> bool {
        let has_room = self.entries.len(interface) < self.config.entries_max;
        has_room || kinds.iter().any(|kind| self.evict(interface, *kind, out))
    }

    /// Removes the oldest entry of a kind. Returns false when the kind has no entry.
    fn evict(&mut self, interface: InterfaceId, kind: Spare, out: &mut Vec<Action<T>>) -> bool {
        let oldest = self.entries.oldest(interface, kind);
        let Some((key, entry)) = oldest.and_then(|key| Some((key, self.entries.remove(key)?))) else {
            return false;
        };
        end(key, entry, Unsent::TableFull, out);
        true
    }

    fn begin(
        &self,
        now: Duration,
        ports: &PortTable,
        key: Key,
        mut entry: NeighbourEntry<T>,
        out: &mut Vec<Action<T>>,
    ) -> NeighbourEntry<T> {
        self.enter(now, key, &mut entry, NeighbourState::Incomplete { requests: 1 });
        ask(ports, key, &entry, out);
        entry
    }

    /// RFC 4861 7.3.3: a stale entry in use is probed after a delay.
    fn note_use(&self, now: Duration, key: Key, entry: &mut NeighbourEntry<T>) {
        if entry.state == NeighbourState::Stale {
            self.enter(now, key, entry, NeighbourState::Delay);
        }
    }

    fn enter(&self, now: Duration, key: Key, entry: &mut NeighbourEntry<T>, state: NeighbourState) {
        let config = &self.config;
        let state =
            if state == NeighbourState::Stale && entry.is_pinned { NeighbourState::Delay } else { state };
        let time = match state {
            NeighbourState::Incomplete { .. } | NeighbourState::Probe { .. } => Some(config.retransmit),
            NeighbourState::Reachable => Some(self.reachable(key)),
            NeighbourState::Stale => Some(config.stale),
            NeighbourState::Delay => Some(config.delay),
            NeighbourState::Failed => Some(config.hold_down),
        };
        // A repeated request keeps `since`: the oldest resolution is the earliest begun.
        if std::mem::discriminant(&entry.state) != std::mem::discriminant(&state) {
            entry.since = now;
        }
        entry.state = state;
        entry.due = time.map(|time| now.saturating_add(time.max(TIME_MIN)));
    }

    /// How long a confirmation is valid. RFC 4861 6.3.2 draws it at random to spread the probes; here it depends on the address.
    fn reachable(&self, key: Key) -> Duration {
        let thousandths = 500 + FxBuildHasher.hash_one(key) % 1001;
        (self.config.reachable / 1000).saturating_mul(u32::try_from(thousandths).unwrap_or(1000))
    }
}

fn is_resolvable(ports: &PortTable, key: Key) -> bool {
    let is_broadcast =
        matches!(key.address, IpAddr::V4(address) if ports.is_broadcast_in_vrf(key.interface, address));
    let is_neighbour = is_host(key.address) && !is_broadcast && !ports.is_local(key.interface, key.address);
    is_neighbour && ports.source(key.interface, key.address).is_some()
}

/// Requests the address of an entry: by multicast, or by unicast to its known MAC.
fn ask<T>(ports: &PortTable, key: Key, entry: &NeighbourEntry<T>, out: &mut Vec<Action<T>>) {
    let Some(interface) = ports.interface(key.interface) else { return };
    let frame = match (key.address, ports.source(key.interface, key.address)) {
        (IpAddr::V4(to), Some(IpAddr::V4(from))) => arp::request(interface, from, to, entry.mac, entry.tags),
        (IpAddr::V6(to), Some(IpAddr::V6(from))) => {
            ndp::solicitation(interface, from, to, entry.mac, entry.tags)
        }
        _ => return,
    };
    out.push(Action::Send { interface: key.interface, frame });
}

/// Sets an entry's MAC, and releases its queued packets.
fn learn<T>(now: Duration, key: Key, entry: &mut NeighbourEntry<T>, mac: MacAddr, out: &mut Vec<Action<T>>) {
    match entry.mac.replace(mac) {
        None => out.push(Action::Resolved { key, mac }),
        Some(old) if old != mac => out.push(Action::Changed { key, old, new: mac }),
        Some(_) => {}
    }
    entry.updated = now;
    end_wait(key, Ok(mac), entry.waiting.drain(..), out);
}

/// Reports the loss of a removed entry, and drops its queued packets.
fn end<T>(key: Key, entry: NeighbourEntry<T>, why: Unsent, out: &mut Vec<Action<T>>) {
    if let Some(mac) = entry.mac {
        out.push(Action::Lost { key, mac });
    }
    end_wait(key, Err(why), entry.waiting, out);
}
