//! Next hops behind a 16-bit index, so that a hash-table slot is one 32-bit store.
//!
//! Entries count their uses. An index whose last use is gone may be given to another next hop only after a grace period:
//! a reader may have read the index and not yet the id behind it.

use fib::{EngineError, NextHopId};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Distinct next hops that can be indexed; index 0 means "empty slot".
pub(crate) const HOPS_MAX: usize = (1 << 16) - 1;

/// The writer's side; readers share an array of `HOPS_MAX + 1` ids.
#[derive(Debug, Default)]
pub(crate) struct HopIndex {
    by_id: FxHashMap<NextHopId, u16>,
    /// Id and uses of each index; index 0 is never used.
    entries: Vec<(NextHopId, u32)>,
    free: Vec<u16>,
    /// Unused since the last grace period began.
    limbo: Vec<u16>,
}

impl HopIndex {
    pub(crate) fn new() -> Self {
        Self { entries: vec![(NextHopId::NONE, 0)], ..Self::default() }
    }

    /// Whether an index waits for a grace period.
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// A grace period is over: what was in limbo is free.
    pub(crate) fn end_grace(&mut self) {
        for index in self.limbo.drain(..) {
            let (id, uses) = &mut self.entries[usize::from(index)];
            // An index that was taken and released again since stands here twice; its id is gone at the second.
            if *uses == 0 && !id.is_none() {
                self.by_id.remove(id);
                *id = NextHopId::NONE;
                self.free.push(index);
            }
        }
    }

    /// Whether all of `ids` could be used at once beside what is in use.
    pub(crate) fn fits(&self, ids: impl Iterator<Item = NextHopId>) -> Result<(), EngineError> {
        let mut new = rustc_hash::FxHashSet::default();
        new.extend(ids.filter(|id| !self.by_id.contains_key(id)));
        let used = self.by_id.len() + new.len();
        if used > HOPS_MAX {
            return Err(full(used));
        }
        Ok(())
    }

    /// The index of `id`, one use more. `fits` must have said yes.
    pub(crate) fn take(&mut self, ids: &[AtomicU32], id: NextHopId) -> u16 {
        if let Some(&index) = self.by_id.get(&id) {
            self.entries[usize::from(index)].1 += 1;
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.entries.len();
            assert!(index <= HOPS_MAX, "next hops were counted before they were taken");
            self.entries.push((NextHopId::NONE, 0));
            u16::try_from(index).unwrap_or(u16::MAX)
        });
        self.entries[usize::from(index)] = (id, 1);
        self.by_id.insert(id, index);
        ids[usize::from(index)].store(id.get(), Ordering::Release);
        index
    }

    /// One use of `index` less.
    pub(crate) fn release(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].1;
        *uses -= 1;
        if *uses == 0 {
            self.limbo.push(index);
        }
    }
}

pub(crate) fn full(used: usize) -> EngineError {
    EngineError::Full {
        what: "distinct next hops behind hashed prefixes",
        used: used as u64,
        limit: HOPS_MAX as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_reused_only_after_a_grace_period() {
        let ids: Vec<AtomicU32> = (0..=HOPS_MAX).map(|_| AtomicU32::new(0)).collect();
        let mut hops = HopIndex::new();
        let [a, b, c] = [1, 2, 3].map(|id| NextHopId::new(id).unwrap());
        let first = hops.take(&ids, a);
        hops.release(first);
        assert_ne!(hops.take(&ids, b), first);
        hops.end_grace();
        assert_eq!(hops.take(&ids, c), first);
        assert_eq!(ids[usize::from(first)].load(Ordering::Relaxed), 3);
        // taken again while in limbo: stays
        hops.release(first);
        assert_eq!(hops.take(&ids, c), first);
        hops.end_grace();
        // released twice within one grace period: free once
        hops.release(first);
        hops.take(&ids, c);
        hops.release(first);
        hops.end_grace();
        assert_eq!(hops.take(&ids, a), first);
        assert_ne!(hops.take(&ids, c), first);
    }

    #[test]
    fn more_than_65535_are_refused() {
        let hops = HopIndex::new();
        assert!(hops.fits((1..=65_535).map(|id| NextHopId::new(id).unwrap())).is_ok());
        let refused = hops.fits((1..=65_536).map(|id| NextHopId::new(id).unwrap()));
        assert!(matches!(refused, Err(EngineError::Full { used: 65_536, limit: 65_535, .. })));
    }
}
