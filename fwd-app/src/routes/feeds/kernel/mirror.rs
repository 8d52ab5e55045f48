//! Mirror of the kernel's routes by key; several routes of a key are in the kernel's order.
//!
//! The kernel may have several routes of one prefix and metric (`ip route append`, one subnet on two interfaces) and uses the first. The
//! mirror keeps all and reports the first of a key when it changes. Few keys have more than one route, so further ones are in a second map.
//! A digest in each entry distinguishes IPv4 routes that differ only in attributes besides the next hops.
//!
//! The flags of a notification give the position of a new route: `NLM_F_REPLACE` replaces the first, `NLM_F_APPEND` follows the last,
//! `NLM_F_CREATE` alone precedes the first, and `NLM_F_EXCL` is the only one. IPv6 routes with a gateway are paths of one route; other IPv6
//! routes follow the last. A dump lists the routes of a key consecutively.
//!
//! A dump replaces the routes of a key; [`Mirror::sweep`] removes routes missing from the pass. The kernel fills parts of a dump without a
//! lock, so a notification may precede an older part. Therefore a pass replays its notifications on the dumped routes of each key.

use crate::routes::feeds::nexthops::{RouteKey, Told};
use crate::routes::feeds::{Path, Route};
use fib::{IpPrefix, Key, Prefix};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Below this number of distinct routes, unused ones are not dropped.
const DISTINCT_MIN: usize = 1 << 10;
/// The most notifications of a key that are replayed. With more of them its dump is ignored.
const REPEATED_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Entry {
    told: Told,
    /// [`RouteMessage::digest`](crate::routes::feeds::netlink::RouteMessage::digest).
    digest: u32,
    pass: u32,
}

impl Entry {
    fn is_same(&self, other: &Self) -> bool {
        self.told == other.told && self.digest == other.digest
    }

    /// Whether it is an IPv6 route whose paths may be added and deleted one by one.
    fn is_multipath(&self) -> bool {
        match &self.told {
            Told::Is(route) => match &**route {
                Route::Paths(paths) => paths.iter().all(|path| path.gateway.is_some()),
                _ => false,
            },
            Told::Object(_) => false,
        }
    }

    /// Its paths; empty for an object.
    fn paths(&self) -> &[Path] {
        match &self.told {
            Told::Is(route) => match &**route {
                Route::Paths(paths) => paths,
                _ => &[],
            },
            Told::Object(_) => &[],
        }
    }
}

struct Table<K: Key> {
    first: FxHashMap<(usize, Prefix<K>, u32), Entry>,
    /// Further routes of keys, in order.
    behind: FxHashMap<(usize, Prefix<K>, u32), Vec<Entry>>,
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self { first: FxHashMap::default(), behind: FxHashMap::default() }
    }
}

impl<K: Key> Table<K> {
    /// Appends the routes of a key to `list`; [`Self::put`] stores them again.
    fn take(&mut self, key: (usize, Prefix<K>, u32), list: &mut Vec<Entry>) {
        list.extend(self.first.get(&key).cloned());
        if !self.behind.is_empty() {
            list.extend(self.behind.remove(&key).into_iter().flatten());
        }
    }

    /// Makes `list` the routes of a key.
    fn put(&mut self, key: (usize, Prefix<K>, u32), list: &mut Vec<Entry>) {
        let mut list = list.drain(..);
        match list.next() {
            Some(first) => self.first.insert(key, first),
            None => self.first.remove(&key),
        };
        if list.len() > 0 {
            self.behind.insert(key, list.collect());
        }
    }

    /// The keys with routes from before `pass`.
    fn stale(&self, pass: u32) -> impl Iterator<Item = RouteKey> {
        let first = self.first.iter().filter(move |(_, entry)| entry.pass != pass).map(|(key, _)| key);
        let is_stale = move |entries: &[Entry]| entries.iter().any(|entry| entry.pass != pass);
        let behind = self.behind.iter().filter(move |(_, entries)| is_stale(entries)).map(|(key, _)| key);
        first.chain(behind).map(|&(vrf, prefix, metric)| (vrf, K::wrap(prefix), metric))
    }

    /// The keys with a route after the first that names an object.
    fn behind_of(&self, object: u32) -> impl Iterator<Item = RouteKey> {
        let names = move |entries: &[Entry]| entries.iter().any(|entry| entry.told == Told::Object(object));
        let behind = self.behind.iter().filter(move |(_, entries)| names(entries));
        behind.map(|(&(vrf, prefix, metric), _)| (vrf, K::wrap(prefix), metric))
    }
}

/// A notification about the routes of a key.
enum Edit {
    Add(Entry, u16),
    /// A deleted route or path; `None` if the message names no next hop.
    Remove(Option<Entry>),
}

impl Edit {
    fn added(&self) -> Option<&Entry> {
        match self {
            Self::Add(entry, _) => Some(entry),
            Self::Remove(_) => None,
        }
    }

    fn apply(&self, list: &mut Vec<Entry>, is_v6: bool) {
        match self {
            Self::Add(entry, flags) => add(list, entry, *flags, is_v6),
            Self::Remove(gone) => drop(remove(list, gone.as_ref(), is_v6)),
        }
    }
}

fn add(list: &mut Vec<Entry>, entry: &Entry, flags: u16, is_v6: bool) {
    let is_lone = flags & NLM_F_EXCL != 0;
    // The kernel also sends it when the hardware state, or the paths of its object, change.
    if let Some(known) = list.iter_mut().find(|known| !is_lone && known.is_same(entry)) {
        known.pass = entry.pass;
        return;
    }
    let entry = entry.clone();
    let of_kind = list.iter().position(|known| known.is_multipath() == entry.is_multipath());
    let (is_replacing, is_creating) = (flags & NLM_F_REPLACE != 0, flags & NLM_F_CREATE != 0);
    let is_path = is_v6 && entry.is_multipath() && of_kind.is_some();
    if !list.is_empty() && is_replacing || is_creating && !is_lone && is_path {
        list[of_kind.filter(|_| is_v6).unwrap_or(0)] = entry;
    } else if is_creating && !is_lone {
        let is_last = is_v6 || flags & NLM_F_APPEND != 0;
        list.insert(if is_last { list.len() } else { 0 }, entry);
    } else {
        list.clear();
        list.push(entry);
    }
}

/// Removes a route, or paths of one. Returns whether it existed.
fn remove(list: &mut Vec<Entry>, gone: Option<&Entry>, is_v6: bool) -> bool {
    let Some(gone) = gone else { return false };
    let names = |path: &Path| {
        gone.paths().iter().any(|gone| (gone.gateway, gone.ifindex) == (path.gateway, path.ifindex))
    };
    let has_path = |known: &Entry| is_v6 && known.paths().iter().any(names);
    if let Some(at) = list.iter().position(|known| known.is_same(gone)) {
        list.remove(at);
    } else if let Some(at) = list.iter().position(has_path) {
        let left: Box<[Path]> = list[at].paths().iter().filter(|path| !names(path)).copied().collect();
        if left.is_empty() {
            list.remove(at);
        } else {
            list[at].told = Told::Is(Arc::new(Route::Paths(left)));
        }
    } else {
        return false;
    }
    true
}

/// Replays the notifications of the pass on the dumped routes of a key. The dump may be older or newer than each notification, so routes in
/// the mirror keep its order, announced routes are kept, and routes unknown to the mirror are kept unless a notification removes them.
fn caught_up(dumped: &[Entry], mirror: &[Entry], edits: &[Edit], is_v6: bool) -> Vec<Entry> {
    let has = |list: &[Entry], entry: &Entry| list.iter().any(|of| of.is_same(entry));
    let is_added = |entry: &Entry| edits.iter().filter_map(Edit::added).any(|added| added.is_same(entry));
    let is_removed = |entry: &Entry| {
        edits.iter().any(|edit| matches!(edit, Edit::Remove(Some(gone)) if gone.is_same(entry)))
    };
    let mut after = dumped.to_vec();
    edits.iter().for_each(|edit| edit.apply(&mut after, is_v6));
    let is_there = |entry: &&Entry| has(dumped, entry) || has(&after, entry) || is_added(entry);
    let mut known = mirror.iter().filter(is_there);
    let mut all = Vec::with_capacity(after.len());
    for entry in &after {
        if has(mirror, entry) {
            all.extend(known.next());
        } else if !is_added(entry) && !is_removed(entry) {
            all.push(entry);
        }
    }
    all.extend(known);
    all.into_iter().cloned().collect()
}

enum Edits {
    All(Vec<Edit>),
    /// Too many, or the only route: the mirror is right without the dump.
    Whole,
}

pub(super) struct Change {
    pub(super) key: RouteKey,
    pub(super) first: Option<Told>,
}

pub(super) struct Mirror {
    v4: Table<u32>,
    v6: Table<u128>,
    /// Numbers of keys by VRF.
    keys: FxHashMap<usize, usize>,
    /// The most keys of a VRF.
    keys_max: usize,
    /// Routes left out at this limit.
    pub(super) over_limit: u64,
    /// Routes by content, so that equal ones share memory.
    distinct: FxHashSet<Arc<Route>>,
    /// The number of distinct routes at which unused ones are dropped.
    prune_at: usize,
    pass: u32,
    /// The notifications of the running pass by key; `None` between passes.
    edits: Option<FxHashMap<RouteKey, Edits>>,
    /// Whether a notification concerned a key unknown before, so that the order of its routes is uncertain.
    is_doubtful: bool,
    /// The last key of the running dump and its routes so far.
    run: Option<RouteKey>,
    run_entries: Vec<Entry>,
    /// Keys whose routes the running pass has changed.
    mended: u64,
    /// Taken by the caller.
    pub(super) changes: Vec<Change>,
    /// Kept for its memory.
    list: Vec<Entry>,
}

impl Mirror {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            v4: Table::default(),
            v6: Table::default(),
            keys: FxHashMap::default(),
            keys_max,
            over_limit: 0,
            distinct: FxHashSet::default(),
            prune_at: DISTINCT_MIN,
            pass: 0,
            edits: None,
            is_doubtful: false,
            run: None,
            run_entries: Vec::new(),
            mended: 0,
            changes: Vec::new(),
            list: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        self.mended = 0;
        self.edits = Some(FxHashMap::default());
        self.is_doubtful = false;
    }

    /// Whether another pass must confirm the routes of this one.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    pub(super) fn end(&mut self) {
        self.edits = None;
    }

    pub(super) fn has(&self, (vrf, prefix, metric): RouteKey) -> bool {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.first.contains_key(&(vrf, prefix, metric)),
            IpPrefix::V6(prefix) => self.v6.first.contains_key(&(vrf, prefix, metric)),
        }
    }

    /// Applies a notification of a new route.
    pub(super) fn announced(&mut self, key: RouteKey, told: Told, digest: u32, flags: u16) {
        let add = Edit::Add(self.entry(told, digest), flags);
        let (is_passing, mut replaced) = (self.edits.is_some(), Vec::new());
        self.edit(key, |list| {
            let before = if is_passing { list.clone() } else { Vec::new() };
            add.apply(list, is_v6(key));
            let is_left = |entry: &Entry| list.iter().any(|of| of.is_same(entry));
            replaced.extend(before.into_iter().filter(|entry| !is_left(entry)));
        });
        replaced.into_iter().for_each(|entry| self.note(key, Edit::Remove(Some(entry))));
        self.note(key, add);
    }

    pub(super) fn dumped(&mut self, key: RouteKey, told: Told, digest: u32) {
        if self.run != Some(key) {
            self.end_run();
            self.run = Some(key);
        }
        let entry = self.entry(told, digest);
        self.run_entries.push(entry);
    }

    /// Removes a route of this key, or a path of it, as the kernel's message names it. Returns whether the mirror had it.
    pub(super) fn gone(&mut self, key: RouteKey, told: Option<Told>, digest: u32) -> bool {
        let mut gone = told.map(|told| Entry { told, digest, pass: self.pass });
        let mut is_known = true;
        self.edit(key, |list| {
            let has_paths = gone.iter().any(|gone| !gone.paths().is_empty());
            if remove(list, gone.as_ref(), is_v6(key)) {
                return;
            }
            match list.len() {
                0 => {}
                // The message may name no next hop, or a dead one.
                1 if !(is_v6(key) && has_paths) => gone = list.pop(),
                _ => is_known = false,
            }
        });
        self.note(key, Edit::Remove(gone));
        is_known
    }

    /// Records a notification, to be replayed on the dumped routes of its key.
    fn note(&mut self, key: RouteKey, edit: Edit) {
        let Some(edits) = &mut self.edits else { return };
        let edits = edits.entry(key).or_insert_with(|| Edits::All(Vec::new()));
        let is_lone = matches!(edit, Edit::Add(_, flags) if flags & NLM_F_EXCL != 0);
        match edits {
            Edits::All(all) if !is_lone && all.len() < REPEATED_MAX => all.push(edit),
            Edits::All(_) => {
                // Of many notifications the mirror may lack a route that the dump has.
                self.is_doubtful |= !is_lone;
                *edits = Edits::Whole;
            }
            Edits::Whole => {}
        }
    }

    /// Removes the routes that name a deleted object; `first` are the keys whose first route names it.
    pub(super) fn object_gone(&mut self, object: u32, first: Vec<RouteKey>) {
        let is_other = |entry: &Entry| entry.told != Told::Object(object);
        self.run_entries.retain(is_other);
        let behind = self.v4.behind_of(object).chain(self.v6.behind_of(object)).collect::<Vec<_>>();
        for key in first.into_iter().chain(behind) {
            self.edit(key, |list| list.retain(is_other));
            if let Some(Edits::All(all)) = self.edits.as_mut().and_then(|edits| edits.get_mut(&key)) {
                all.retain(|edit| edit.added().is_none_or(is_other));
            }
        }
    }

    /// Ends the run of routes of one key in a dump.
    pub(super) fn end_run(&mut self) {
        let Some(key) = self.run.take() else { return };
        let mut entries = std::mem::take(&mut self.run_entries);
        let (pass, mut is_mended, mut is_doubtful) = (self.pass, false, false);
        let edits = self.edits.take();
        let is_kept = self.edit(key, |list| {
            match edits.as_ref().and_then(|edits| edits.get(&key)) {
                Some(Edits::All(all)) => entries = caught_up(&entries, list, all, is_v6(key)),
                Some(Edits::Whole) => entries.clone_from(list),
                None => {}
            }
            entries.iter_mut().for_each(|entry| entry.pass = pass);
            let is_notified = edits.as_ref().is_some_and(|edits| edits.contains_key(&key));
            is_mended = list.len() != entries.len()
                || list.iter().zip(&entries).any(|(before, entry)| !before.is_same(entry));
            is_doubtful |= is_mended && is_notified;
            std::mem::swap(list, &mut entries);
        });
        self.edits = edits;
        self.is_doubtful |= is_doubtful;
        self.mended += u64::from(is_mended && is_kept);
        entries.clear();
        self.run_entries = entries;
    }

    /// Ends a pass: removes the routes missing from it. Returns how many keys the pass has changed.
    pub(super) fn sweep(&mut self) -> u64 {
        self.end();
        let pass = self.pass;
        let stale = self.v4.stale(pass).chain(self.v6.stale(pass)).collect::<Vec<_>>();
        self.mended += stale.len() as u64;
        for key in stale {
            self.edit(key, |list| list.retain(|entry| entry.pass == pass));
        }
        std::mem::take(&mut self.mended)
    }

    fn entry(&mut self, told: Told, digest: u32) -> Entry {
        let told = match told {
            Told::Is(route) => Told::Is(self.shared(route)),
            object @ Told::Object(_) => object,
        };
        Entry { told, digest, pass: self.pass }
    }

    /// The shared copy of a route.
    fn shared(&mut self, route: Arc<Route>) -> Arc<Route> {
        if let Some(known) = self.distinct.get(&route) {
            return Arc::clone(known);
        }
        if self.distinct.len() >= self.prune_at {
            self.distinct.retain(|route| Arc::strong_count(route) > 1);
            self.prune_at = DISTINCT_MIN.max(2 * self.distinct.len());
        }
        self.distinct.insert(Arc::clone(&route));
        route
    }

    /// Changes the routes of a key, and records a change of the first. Returns false for a key beyond the limit, which is left out.
    fn edit(&mut self, key: RouteKey, change: impl FnOnce(&mut Vec<Entry>)) -> bool {
        let (vrf, prefix, metric) = key;
        let Self { v4, v6, list, .. } = self;
        match prefix {
            IpPrefix::V4(prefix) => v4.take((vrf, prefix, metric), list),
            IpPrefix::V6(prefix) => v6.take((vrf, prefix, metric), list),
        }
        let before = list.first().map(|first| first.told.clone());
        change(list);
        let first = list.first().map(|first| first.told.clone());
        if before.is_some() != first.is_some() {
            let keys = self.keys.entry(vrf).or_default();
            if before.is_some() {
                *keys -= 1;
            } else if *keys < self.keys_max {
                *keys += 1;
            } else {
                self.over_limit += 1;
                list.clear();
                return false;
            }
        }
        match prefix {
            IpPrefix::V4(prefix) => v4.put((vrf, prefix, metric), list),
            IpPrefix::V6(prefix) => v6.put((vrf, prefix, metric), list),
        }
        if before != first {
            self.changes.push(Change { key, first });
        }
        true
    }
}

fn is_v6((_, prefix, _): RouteKey) -> bool {
    matches!(prefix, IpPrefix::V6(_))
}
