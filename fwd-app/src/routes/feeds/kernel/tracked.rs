//! A small table of the kernel, with what each pass contains.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Entries, each with the number of the last pass that contained it.
pub(super) struct Tracked<K, V> {
    entries: FxHashMap<K, (V, u64)>,
    pass: u64,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { entries: FxHashMap::default(), pass: 0 }
    }
}

impl<K: Copy + Eq + Hash, V: PartialEq> Tracked<K, V> {
    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        self.pass += 1;
    }

    /// The value of an entry.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// The entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (value, _))| (key, value))
    }

    /// Sets an entry. Returns whether it is new or has changed.
    pub(super) fn set(&mut self, key: K, value: V) -> bool {
        let before = self.entries.get(&key).is_some_and(|(before, _)| *before == value);
        self.entries.insert(key, (value, self.pass));
        !before
    }

    /// Removes an entry. Returns whether it was there.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        self.entries.remove(key).is_some()
    }

    /// Removes the entries that this pass did not contain.
    pub(super) fn sweep(&mut self) -> impl Iterator<Item = K> {
        let pass = self.pass;
        self.entries.extract_if(move |_, (_, told)| *told != pass).map(|(key, _)| key)
    }
}
