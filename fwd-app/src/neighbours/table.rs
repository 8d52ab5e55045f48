//! The neighbours of all interfaces: resolves their addresses, keeps the answers fresh, and notices when they change or vanish.
//!
//! IPv4 and IPv6 neighbours have the states of RFC 4861 7.3.2; [`super::arp`] and [`super::ndp`] write the messages. The table has
//! neither sockets nor a clock. Callers pass in the time and what was heard, and carry out the [`Action`]s that come back; between
//! calls they wait until [`Neighbours::next_due`] and call [`Neighbours::tick`].
//!
//! The datapath sends to known MACs without telling this table. Two things replace the reports of use that RFC 4861 expects: a
//! pinned entry (the gateway of a route) counts as always in use, and a stale entry is probed before it is forgotten.
//!
//! There are limits of entries and unanswered entries of an interface, of packets that wait for one neighbour and for all neighbours, and
//! of new resolutions in a second. So a scan of a large prefix costs neither memory nor the known neighbours.

use super::action::{Action, Unsent, dropped, release};
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

/// The least time to anything, so that `tick` ends whatever is configured.
const TIME_MIN: Duration = Duration::from_millis(1);

/// Entries that make room for one that is asked for, in this order.
const FOR_ASKED: &[Spare] = &[Spare::Failed, Spare::Stale, Spare::Incomplete, Spare::Doubtful];
/// Entries that make room for one that was heard of: nobody waits for them.
const FOR_HEARD: &[Spare] = &[Spare::Failed, Spare::Stale];

/// Whether what was heard replaces another MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overrides {
    /// Never: it only casts doubt on the other one (RFC 4861 7.2.5 I).
    Never,
    /// Unless the other one was learned just now.
    UnlessRecent,
    /// Always.
    Always,
}

/// What a message tells about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Its MAC, if the message has it.
    pub(crate) mac: Option<MacAddr>,
    /// The tags of the frame.
    pub(crate) tags: Tags,
    /// Whether it answers us. If we have asked, that shows that the neighbour receives what we send.
    pub(crate) is_solicited: bool,
    /// Whether the MAC replaces another one.
    pub(crate) overrides: Overrides,
    /// Whether a neighbour that is not known is added.
    pub(crate) may_create: bool,
}

/// The neighbours of all interfaces; `T` is a packet that waits.
#[derive(Debug)]
pub(crate) struct Neighbours<T> {
    config: NeighbourConfig,
    entries: Entries<T>,
    pace: Pace,
    resolutions: FxHashMap<InterfaceId, Bucket>,
    /// When an answer was last dropped before it came here.
    answers_lost: FxHashMap<InterfaceId, Duration>,
}

impl<T> Neighbours<T> {
    /// An empty table.
    pub(crate) fn new(config: NeighbourConfig) -> Self {
        let (entries, pace) = (Entries::default(), Pace::new(config.resolutions));
        let (resolutions, answers_lost) = (FxHashMap::default(), FxHashMap::default());
        Self { config, entries, pace, resolutions, answers_lost }
    }

    /// The entry of a neighbour.
    #[cfg(test)]
    pub(crate) fn get(&self, key: Key) -> Option<&NeighbourEntry<T>> {
        self.entries.get(key)
    }

    /// All entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &NeighbourEntry<T>)> {
        self.entries.iter()
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.entries.next_due()
    }

    /// Sends a packet to a neighbour: at once if its MAC is known, else after it has answered. `tags` are those of the packet.
    pub(crate) fn resolve(
        &mut self,
        now: Duration,
        ports: &PortTable,
        key: Key,
        (packet, tags): (T, Tags),
        out: &mut Vec<Action<T>>,
    ) {
        let mut entry = match self.entries.take(key) {
            Some(entry) => entry,
            None => match self.admit(now, ports, key, out) {
                Ok(()) => self.begin(now, ports, key, NeighbourEntry::new(now, tags), out),
                Err(why) => return dropped(key, why, [packet], out),
            },
        };
        match (entry.state, entry.mac) {
            (_, Some(mac)) => {
                self.note_use(now, key, &mut entry);
                release(key, mac, [packet], out);
            }
            (NeighbourState::Incomplete { .. }, None) => {
                entry.waiting.push_back(packet);
                let excess = entry.waiting.len().saturating_sub(self.config.waiting_max);
                dropped(key, Unsent::QueueFull, entry.waiting.drain(..excess), out);
                let all = self.entries.waiting() + entry.waiting.len();
                let excess = all.saturating_sub(self.config.waiting_all_max).min(entry.waiting.len());
                dropped(key, Unsent::AllFull, entry.waiting.drain(..excess), out);
            }
            _ => dropped(key, Unsent::Unreachable, [packet], out),
        }
        self.entries.put(key, entry);
    }

    /// Tells that an answer which came by an interface may have been dropped: no neighbour there is given up for a question of before.
    pub(crate) fn answers_lost(&mut self, now: Duration, interface: InterfaceId) {
        self.answers_lost.insert(interface, now);
    }

    /// Resolves a neighbour and keeps it resolved, until [`Self::unpin`]. Returns false when there is no room, or when it cannot be
    /// resolved; the caller may try again later.
    pub(crate) fn pin(
        &mut self,
        now: Duration,
        ports: &PortTable,
        (key, tags): (Key, Tags),
        out: &mut Vec<Action<T>>,
    ) -> bool {
        let known = self.entries.take(key);
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

    /// Ends [`Self::pin`].
    pub(crate) fn unpin(&mut self, key: Key) {
        if let Some(mut entry) = self.entries.take(key) {
            entry.is_pinned = false;
            self.entries.put(key, entry);
        }
    }

    /// Removes an entry.
    fn remove(&mut self, key: Key, out: &mut Vec<Action<T>>) {
        if let Some(entry) = self.entries.take(key) {
            end(key, entry, Unsent::Removed, out);
        }
    }

    /// Removes the entries of an address of an interface, in whatever VLAN.
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

    /// Removes all entries of an interface.
    pub(crate) fn remove_all(&mut self, interface: InterfaceId, out: &mut Vec<Action<T>>) {
        for key in self.keys(|key| key.interface == interface) {
            self.remove(key, out);
        }
        self.resolutions.remove(&interface);
        self.answers_lost.remove(&interface);
    }

    /// Forgets what was learned on an interface whose link went down. Pinned neighbours stay, without a MAC, for [`Self::link_up`].
    pub(crate) fn link_down(&mut self, now: Duration, interface: InterfaceId, out: &mut Vec<Action<T>>) {
        for (key, pinned) in self.forget(now, |key| key.interface == interface, out) {
            if let Some(mut entry) = pinned {
                self.enter(now, key, &mut entry, NeighbourState::Failed);
                self.entries.put(key, entry);
            }
        }
    }

    /// Asks for the neighbours of an interface whose link is up again: what was asked before went nowhere. Those that are not
    /// pinned and were given up are forgotten, so that the next packet asks.
    pub(crate) fn link_up(
        &mut self,
        now: Duration,
        ports: &PortTable,
        interface: InterfaceId,
        out: &mut Vec<Action<T>>,
    ) {
        for key in self.keys(|key| key.interface == interface) {
            let Some(mut entry) = self.entries.take(key) else { continue };
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

    /// Forgets what was learned of one address, on every interface that has it as a neighbour, or without one of all. Pinned
    /// ones are asked for at once. Returns how many entries were forgotten.
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

    /// Takes out the entries of the neighbours that are wanted. Returns them, pinned ones with a new entry.
    fn forget(
        &mut self,
        now: Duration,
        is_wanted: impl Fn(Key) -> bool,
        out: &mut Vec<Action<T>>,
    ) -> Vec<(Key, Option<NeighbourEntry<T>>)> {
        let keys = self.keys(is_wanted);
        let forgotten = keys.into_iter().filter_map(|key| {
            let entry = self.entries.take(key)?;
            let tags = entry.is_pinned.then_some(entry.tags);
            end(key, entry, Unsent::Removed, out);
            Some((key, tags.map(|tags| NeighbourEntry { is_pinned: true, ..NeighbourEntry::new(now, tags) })))
        });
        forgotten.collect()
    }

    /// The neighbours that are wanted, by interface and address.
    fn keys(&self, is_wanted: impl Fn(Key) -> bool) -> Vec<Key> {
        let keys = self.entries.iter().map(|(key, _)| key);
        let mut keys: Vec<_> = keys.filter(|key| is_wanted(*key)).collect();
        keys.sort_unstable();
        keys
    }

    /// Takes in what a message tells about its sender, RFC 4861 7.2.3 and 7.2.5. Returns whether it was of use.
    pub(crate) fn heard(&mut self, now: Duration, key: Key, heard: &Heard, out: &mut Vec<Action<T>>) -> bool {
        let Some(mut entry) = self.entries.take(key) else {
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
        (new, heard): (MacAddr, &Heard),
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
            // The datapath may use the new MAC: probe it after a while, as if the entry were in use (RFC 4861 7.3.3).
            self.enter(now, key, entry, NeighbourState::Delay);
        }
        is_other || is_answer
    }

    /// Does what is due: repeats requests, gives up, probes, forgets.
    pub(crate) fn tick(&mut self, now: Duration, ports: &PortTable, out: &mut Vec<Action<T>>) {
        while let Some(key) = self.entries.first_due(now) {
            let Some(entry) = self.entries.take(key) else { break };
            if let Some(entry) = self.expired(now, ports, key, entry, out) {
                self.entries.put(key, entry);
            }
        }
    }

    /// What becomes of an entry that is due; `None` when it is removed.
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
            dropped(key, Unsent::Unreachable, entry.waiting.drain(..), out);
        }
        Some(entry)
    }

    /// Whether an answer may have been dropped since the neighbour, which is due, was asked last.
    fn may_have_answered(&self, key: Key, entry: &NeighbourEntry<T>) -> bool {
        let asked = entry.due.unwrap_or_default().saturating_sub(self.config.retransmit.max(TIME_MIN));
        self.answers_lost.get(&key.interface).is_some_and(|lost| *lost >= asked)
    }

    /// Whether a new neighbour may be asked for. Makes room for it.
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

    /// Whether there is room for one more entry, if need be in place of the oldest of these kinds.
    fn make_room(&mut self, interface: InterfaceId, kinds: &[Spare], out: &mut Vec<Action<T>>) -> bool {
        let has_room = self.entries.len(interface) < self.config.entries_max;
        has_room || kinds.iter().any(|kind| self.evict(interface, *kind, out))
    }

    /// Removes the oldest entry of a kind. Returns false when there is none.
    fn evict(&mut self, interface: InterfaceId, kind: Spare, out: &mut Vec<Action<T>>) -> bool {
        let oldest = self.entries.oldest(interface, kind);
        let Some((key, entry)) = oldest.and_then(|key| Some((key, self.entries.take(key)?))) else {
            return false;
        };
        end(key, entry, Unsent::TableFull, out);
        true
    }

    /// Asks for an address for the first time.
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

    /// RFC 4861 7.3.3: a stale entry in use is probed after a while.
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
        // Repeated requests are one state: the oldest resolution is the one that began first.
        if std::mem::discriminant(&entry.state) != std::mem::discriminant(&state) {
            entry.since = now;
        }
        entry.state = state;
        entry.due = time.map(|time| now.saturating_add(time.max(TIME_MIN)));
    }

    /// How long a confirmation is good for. RFC 4861 6.3.2 draws it at random, so that neighbours are not probed all at once; here it
    /// follows from the address.
    fn reachable(&self, key: Key) -> Duration {
        let thousandths = 500 + FxBuildHasher.hash_one(key) % 1001;
        (self.config.reachable / 1000).saturating_mul(u32::try_from(thousandths).unwrap_or(1000))
    }
}

/// Whether the address can be asked for on that interface.
fn is_resolvable(ports: &PortTable, key: Key) -> bool {
    let is_broadcast =
        matches!(key.address, IpAddr::V4(address) if ports.is_any_broadcast(key.interface, address));
    let is_neighbour = is_host(key.address) && !is_broadcast && !ports.is_local(key.interface, key.address);
    is_neighbour && ports.source(key.interface, key.address).is_some()
}

/// Asks for the address of an entry: all, or its MAC if it has one.
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

/// Gives an entry a MAC, and releases the packets that waited for it.
fn learn<T>(now: Duration, key: Key, entry: &mut NeighbourEntry<T>, mac: MacAddr, out: &mut Vec<Action<T>>) {
    match entry.mac.replace(mac) {
        None => out.push(Action::Resolved { key, mac }),
        Some(old) if old != mac => out.push(Action::Changed { key, old, new: mac }),
        Some(_) => {}
    }
    entry.updated = now;
    release(key, mac, entry.waiting.drain(..), out);
}

/// What remains to be done when an entry has been removed.
fn end<T>(key: Key, entry: NeighbourEntry<T>, why: Unsent, out: &mut Vec<Action<T>>) {
    if let Some(mac) = entry.mac {
        out.push(Action::Lost { key, mac });
    }
    dropped(key, why, entry.waiting, out);
}
