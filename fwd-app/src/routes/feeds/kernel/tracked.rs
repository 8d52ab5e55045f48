//! A small table of the kernel, with the last pass of each entry.

use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;

/// The most keys of notifications in a pass. Beyond it the dump is ignored, and another pass follows.
pub(super) const NOTIFIED_MAX: usize = 1 << 16;

/// Entries, each with the number of the last pass that contained it.
pub(super) struct Tracked<K, V> {
    entries: FxHashMap<K, (V, u64)>,
    pass: u64,
    /// Keys of notifications in the running pass, whose dump may be older; `None` between passes.
    notified: Option<FxHashSet<K>>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { entries: FxHashMap::default(), pass: 0, notified: None }
    }
}

impl<K: Copy + Eq + Hash, V: PartialEq> Tracked<K, V> {
    pub(super) fn begin(&mut self) {
        self.pass += 1;
        self.notified = Some(FxHashSet::default());
    }

    pub(super) fn end(&mut self) {
        self.notified = None;
    }

    /// Whether the running pass had too many notifications to be compared with the table.
    pub(super) fn is_overrun(&self) -> bool {
        self.notified.as_ref().is_some_and(|notified| notified.len() >= NOTIFIED_MAX)
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (value, _))| (key, value))
    }

    /// Whether a message is part of a dump (`is_answer`) that may be older than a notification about the same entry.
    pub(super) fn is_outdated(&mut self, key: K, is_answer: bool) -> bool {
        if self.is_overrun() {
            return is_answer;
        }
        match &mut self.notified {
            Some(notified) if is_answer => notified.contains(&key),
            Some(notified) => {
                notified.insert(key);
                false
            }
            None => false,
        }
    }

    /// Sets an entry, unless the message is outdated. Returns whether it is new or has changed.
    pub(super) fn set(&mut self, key: K, value: V, is_answer: bool) -> bool {
        if self.is_outdated(key, is_answer) {
            return false;
        }
        let before = self.entries.get(&key).is_some_and(|(before, _)| *before == value);
        self.entries.insert(key, (value, self.pass));
        !before
    }

    /// Removes an entry, unless the message is outdated. Returns whether it existed.
    pub(super) fn remove(&mut self, key: &K, is_answer: bool) -> bool {
        !self.is_outdated(*key, is_answer) && self.entries.remove(key).is_some()
    }

    pub(super) fn sweep(&mut self) -> impl Iterator<Item = K> {
        self.end();
        let pass = self.pass;
        self.entries.extract_if(move |_, (_, told)| *told != pass).map(|(key, _)| key)
    }
}
