//! Mirror of the kernel's routes by key; several routes of a key are in the kernel's order.
//!
//! The kernel may have several routes of one prefix and metric (`ip route append`, one subnet on two interfaces) and uses the first. The
//! mirror keeps all and reports changes of the first. A digest distinguishes IPv4 routes that differ only in attributes besides the next
//! hops. The flags of a notification give the position of a new route: `NLM_F_REPLACE` replaces the first, `NLM_F_APPEND` follows the last,
//! `NLM_F_CREATE` alone precedes the first, and `NLM_F_EXCL` is the only one. IPv6 routes with a gateway are paths of one route; other IPv6
//! routes follow the last.
//!
//! A dump lists the routes of a key consecutively and replaces them; [`Mirror::sweep`] removes routes missing from the pass. The kernel
//! fills parts of a dump without a lock, so a notification may precede an older part. Therefore a pass replays its notifications on the
//! dumped routes of each key.

use crate::routes::feeds::nexthops::{KeyOf, RouteKey, Told};
use crate::routes::feeds::{Path, Route};
use fib::{IpPrefix, Key};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Below this number of distinct routes, unused ones are not dropped.
const DISTINCT_MIN: usize = 1 << 10;
/// The most notifications of a key that are replayed. With more of them its dump is ignored.
const REPEATED_MAX: usize = 16;
/// The most keys and notifications of a pass, counted together, that are kept for replay: some tens of megabytes. Beyond it the dump is
/// ignored, and another pass follows.
const EDITS_MAX: usize = 1 << 18;

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

    fn names(&self, path: &Path) -> bool {
        self.paths().iter().any(|own| (own.gateway, own.ifindex) == (path.gateway, path.ifindex))
    }

    /// Whether it may be the same as `other`, with other attributes or dead paths.
    fn may_be(&self, other: &Self) -> bool {
        self.told == other.told || other.paths().iter().any(|path| self.names(path))
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
    first: FxHashMap<KeyOf<K>, Entry>,
    /// Further routes of keys, in order.
    behind: FxHashMap<KeyOf<K>, Vec<Entry>>,
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self { first: FxHashMap::default(), behind: FxHashMap::default() }
    }
}

impl<K: Key> Table<K> {
    /// Appends the routes of a key to `list`; [`Self::store_routes`] stores them again.
    fn take_routes(&mut self, key: KeyOf<K>, list: &mut Vec<Entry>) {
        list.extend(self.first.get(&key).cloned());
        if !self.behind.is_empty() {
            list.extend(self.behind.remove(&key).into_iter().flatten());
        }
    }

    fn store_routes(&mut self, key: KeyOf<K>, list: &mut Vec<Entry>) {
        let mut list = list.drain(..);
        match list.next() {
            Some(first) => self.first.insert(key, first),
            None => self.first.remove(&key),
        };
        if list.len() > 0 {
            self.behind.insert(key, list.collect());
        }
    }

    fn stale(&self, pass: u32) -> impl Iterator<Item = RouteKey> {
        let first = self.first.iter().filter(move |(_, entry)| entry.pass != pass).map(|(key, _)| key);
        let is_stale = move |entries: &[Entry]| entries.iter().any(|entry| entry.pass != pass);
        let behind = self.behind.iter().filter(move |(_, entries)| is_stale(entries)).map(|(key, _)| key);
        first.chain(behind).map(KeyOf::wrap)
    }

    /// The keys with a route after the first that names an object.
    fn behind_of(&self, object: u32) -> impl Iterator<Item = RouteKey> {
        let names = move |entries: &[Entry]| entries.iter().any(|entry| entry.told == Told::Object(object));
        let behind = self.behind.iter().filter(move |(_, entries)| names(entries));
        behind.map(|(key, _)| key.wrap())
    }
}

enum Edit {
    Add {
        entry: Entry,
        flags: u16,
        /// The routes in the mirror that it has replaced.
        replaced: Vec<Entry>,
    },
    /// A deleted route or path; `None` if the message names no next hop.
    Remove(Option<Entry>),
}

impl Edit {
    fn added(&self) -> Option<&Entry> {
        match self {
            Self::Add { entry, .. } => Some(entry),
            Self::Remove(_) => None,
        }
    }

    fn removed(&self) -> &[Entry] {
        match self {
            Self::Add { replaced, .. } => replaced,
            Self::Remove(gone) => gone.as_slice(),
        }
    }

    fn apply(&self, list: &mut Vec<Entry>, is_v6: bool) {
        match self {
            Self::Add { entry, flags, replaced } => {
                let at = list.iter().position(|known| has(replaced, known)).filter(|_| !has(list, entry));
                if let Some(at) = at {
                    list[at] = entry.clone();
                }
                list.retain(|known| !has(replaced, known));
                if at.is_none() {
                    add(list, entry, *flags, is_v6);
                }
            }
            Self::Remove(gone) => drop(remove(list, gone.as_ref(), is_v6)),
        }
    }
}

fn has(list: &[Entry], entry: &Entry) -> bool {
    list.iter().any(|of| of.is_same(entry))
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
    let has_path = |known: &Entry| is_v6 && known.paths().iter().any(|path| gone.names(path));
    if let Some(at) = list.iter().position(|known| known.is_same(gone)) {
        list.remove(at);
    } else if let Some(at) = list.iter().position(has_path) {
        let left: Box<[Path]> = list[at].paths().iter().filter(|path| !gone.names(path)).copied().collect();
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
    let is_added = |entry: &Entry| edits.iter().filter_map(Edit::added).any(|added| added.is_same(entry));
    let mut after = dumped.to_vec();
    edits.iter().for_each(|edit| edit.apply(&mut after, is_v6));
    let is_there = |entry: &&Entry| has(dumped, entry) || has(&after, entry) || is_added(entry);
    let mut known = mirror.iter().filter(is_there);
    let mut all = Vec::with_capacity(after.len());
    for entry in &after {
        if has(mirror, entry) {
            all.extend(known.next());
        } else if !is_added(entry) && !is_removed(edits, entry) {
            all.push(entry);
        }
    }
    all.extend(known);
    all.into_iter().cloned().collect()
}

fn is_removed(edits: &[Edit], entry: &Entry) -> bool {
    edits.iter().any(|edit| has(edit.removed(), entry))
}

/// Whether notifications explain that a dumped route is gone. A dump with an announced route is newer than the announcement, so the routes
/// that this replaced do not explain it.
fn is_explained(edits: &[Edit], dumped: &[Entry], entry: &Entry) -> bool {
    edits.iter().any(|edit| match edit {
        Edit::Add { entry: new, replaced, .. } => has(replaced, entry) && !has(dumped, new),
        Edit::Remove(gone) => gone.iter().any(|gone| gone.is_same(entry) || gone.may_be(entry)),
    })
}

enum Edits {
    All(Vec<Edit>),
    /// Too many, or the only route: the mirror is right without the dump.
    Whole,
}

struct PassEdits {
    by_key: FxHashMap<RouteKey, Edits>,
    count: usize,
    max: usize,
}

impl PassEdits {
    fn is_full(&self) -> bool {
        self.count >= self.max
    }
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
    keys_max: usize,
    pub(super) over_limit: u64,
    /// Routes by content, so that equal ones share memory.
    distinct: FxHashSet<Arc<Route>>,
    /// The number of distinct routes at which unused ones are dropped.
    prune_at: usize,
    pass: u32,
    /// `None` between passes.
    edits: Option<PassEdits>,
    pub(super) edits_max: usize,
    /// Whether another pass must confirm the routes of this one: its notifications were too many for a key, or do not explain its dump.
    is_doubtful: bool,
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
            edits_max: EDITS_MAX,
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
        self.edits = Some(PassEdits { by_key: FxHashMap::default(), count: 0, max: self.edits_max });
        self.is_doubtful = false;
    }

    /// Whether the running pass had too many notifications to be compared with the mirror.
    pub(super) fn is_overrun(&self) -> bool {
        self.edits.as_ref().is_some_and(PassEdits::is_full)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    pub(super) fn end(&mut self) {
        self.edits = None;
    }

    pub(super) fn has(&self, key: RouteKey) -> bool {
        match key.prefix {
            IpPrefix::V4(prefix) => self.v4.first.contains_key(&key.with_prefix(prefix)),
            IpPrefix::V6(prefix) => self.v6.first.contains_key(&key.with_prefix(prefix)),
        }
    }

    pub(super) fn announced(&mut self, key: RouteKey, told: Told, digest: u32, flags: u16) {
        let mut add = Edit::Add { entry: self.entry(told, digest), flags, replaced: Vec::new() };
        let is_passing = self.edits.is_some();
        let mut is_unknown = false;
        let is_kept = self.edit(key, |list| {
            is_unknown = list.is_empty();
            let mut before = if is_passing { list.clone() } else { Vec::new() };
            add.apply(list, is_v6(key));
            if let Edit::Add { replaced, .. } = &mut add {
                before.retain(|entry| !has(list, entry));
                *replaced = before;
            }
        });
        // The key has further routes, since the kernel does not call this one its only route.
        self.is_doubtful |= is_passing && is_kept && is_unknown && flags & NLM_F_EXCL == 0;
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
                // The message may name no next hop, or a dead one. A dump may have removed the route before.
                1 if !(is_v6(key) && has_paths) && gone.as_ref().is_none_or(|gone| gone.may_be(&list[0])) => {
                    gone = list.pop();
                }
                _ => is_known = false,
            }
        });
        self.note(key, Edit::Remove(gone));
        is_known
    }

    fn note(&mut self, key: RouteKey, edit: Edit) {
        let Some(pass) = self.edits.as_mut().filter(|pass| !pass.is_full()) else { return };
        let is_lone = matches!(edit, Edit::Add { flags, .. } if flags & NLM_F_EXCL != 0);
        let edits = pass.by_key.entry(key).or_insert_with(|| {
            pass.count += 1;
            Edits::All(Vec::new())
        });
        match edits {
            Edits::All(all) if !is_lone && all.len() < REPEATED_MAX => {
                pass.count += 1;
                all.push(edit);
            }
            Edits::All(_) => {
                // Of many notifications the mirror may lack a route that the dump has.
                self.is_doubtful |= !is_lone;
                *edits = Edits::Whole;
            }
            Edits::Whole => {}
        }
        if pass.is_full() {
            pass.by_key = FxHashMap::default();
        }
    }

    /// Removes the routes that name a deleted object; `first` are the keys whose first route names it.
    pub(super) fn object_gone(&mut self, object: u32, first: Vec<RouteKey>) {
        let is_other = |entry: &Entry| entry.told != Told::Object(object);
        self.run_entries.retain(is_other);
        let behind = self.v4.behind_of(object).chain(self.v6.behind_of(object)).collect::<Vec<_>>();
        for key in first.into_iter().chain(behind) {
            self.edit(key, |list| list.retain(is_other));
            let edits = self.edits.as_mut().and_then(|pass| pass.by_key.get_mut(&key));
            if let Some(Edits::All(all)) = edits {
                all.retain(|edit| edit.added().is_none_or(is_other));
            }
        }
    }

    pub(super) fn end_run(&mut self) {
        let Some(key) = self.run.take() else { return };
        let mut entries = std::mem::take(&mut self.run_entries);
        let (pass, mut is_mended, mut is_doubtful) = (self.pass, false, false);
        let edits = self.edits.take();
        let is_kept = self.edit(key, |list| {
            let of_key = edits.as_ref().and_then(|pass| pass.by_key.get(&key));
            match of_key {
                Some(Edits::All(all)) => {
                    let dumped = std::mem::take(&mut entries);
                    entries = caught_up(&dumped, list, all, is_v6(key));
                    // A replayed replacement removes the first dumped route. The kernel may have replaced another.
                    is_doubtful = dumped
                        .iter()
                        .any(|entry| !has(&entries, entry) && !is_explained(all, &dumped, entry));
                }
                Some(Edits::Whole) => entries.clone_from(list),
                None if edits.as_ref().is_some_and(PassEdits::is_full) => entries.clone_from(list),
                None => {}
            }
            entries.iter_mut().for_each(|entry| entry.pass = pass);
            let is_notified = of_key.is_some();
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
        let Self { v4, v6, list, .. } = self;
        match key.prefix {
            IpPrefix::V4(prefix) => v4.take_routes(key.with_prefix(prefix), list),
            IpPrefix::V6(prefix) => v6.take_routes(key.with_prefix(prefix), list),
        }
        let before = list.first().map(|first| first.told.clone());
        change(list);
        let first = list.first().map(|first| first.told.clone());
        if before.is_some() != first.is_some() {
            let keys = self.keys.entry(key.vrf).or_default();
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
        match key.prefix {
            IpPrefix::V4(prefix) => v4.store_routes(key.with_prefix(prefix), list),
            IpPrefix::V6(prefix) => v6.store_routes(key.with_prefix(prefix), list),
        }
        if before != first {
            self.changes.push(Change { key, first });
        }
        true
    }
}

fn is_v6(key: RouteKey) -> bool {
    matches!(key.prefix, IpPrefix::V6(_))
}

#[cfg(test)]
#[path = "mirror_test.rs"]
mod tests;
