//! Next hops behind an index of at most 16 bits, for tables whose entries cannot hold a 24-bit id.
//!
//! Uses are counted. An index without uses may be given to another next hop only after a grace period: a reader may
//! have read the index and not yet the id behind it.

use crate::publish::Publish as _;
use fib::{EngineError, NextHopId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::AtomicU32;

/// Distinct next hops that 16 bits can index; index 0 is reserved.
pub const HOPS_MAX: usize = (1 << 16) - 1;

/// The writer's side. Readers share an array of ids with `limit + 1` elements.
#[derive(Debug)]
pub struct HopIndex {
    limit: u16,
    what: &'static str,
    by_id: FxHashMap<NextHopId, u16>,
    /// Id and number of uses by index; index 0 is never used.
    entries: Vec<(NextHopId, u32)>,
    free: Vec<u16>,
    /// Indices that lost their last use since the last grace period began.
    limbo: Vec<u16>,
    refused: FxHashSet<NextHopId>,
}

impl HopIndex {
    /// An empty index of `1..=limit`. `what` names the next hops in a refusal.
    #[must_use]
    pub fn new(limit: u16, what: &'static str) -> Self {
        Self {
            limit,
            what,
            by_id: FxHashMap::default(),
            entries: vec![(NextHopId::NONE, 0)],
            free: Vec::new(),
            limbo: Vec::new(),
            refused: FxHashSet::default(),
        }
    }

    /// The index of `id`, if it has one.
    #[must_use]
    pub fn index(&self, id: NextHopId) -> Option<u16> {
        self.by_id.get(&id).copied()
    }

    /// A free index, if there is one. It is not reserved.
    #[must_use]
    pub fn unused(&self) -> Option<u16> {
        let fresh = || u16::try_from(self.entries.len()).ok().filter(|index| *index <= self.limit);
        self.free.last().copied().or_else(fresh)
    }

    /// Whether an index waits for a grace period.
    #[must_use]
    pub fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Frees the indices in limbo, after a grace period.
    pub fn end_grace(&mut self) {
        for index in self.limbo.drain(..) {
            let (id, uses) = &mut self.entries[usize::from(index)];
            // An index that was reused and released again while in limbo is listed twice; its id is gone at the second.
            if *uses == 0 && !id.is_none() {
                self.by_id.remove(id);
                *id = NextHopId::NONE;
                self.free.push(index);
            }
        }
    }

    /// Whether all of `ids`, at most `count`, fit together with the next hops in use.
    #[must_use]
    pub fn fits(&self, count: usize, ids: impl Iterator<Item = NextHopId>) -> bool {
        if self.by_id.len() + count <= self.limit.into() {
            return true;
        }
        let mut new = FxHashSet::default();
        new.extend(ids.filter(|id| !self.by_id.contains_key(id)));
        self.by_id.len() + new.len() <= usize::from(self.limit)
    }

    /// The index of `id`, with one use more; `None` when all are in use, which [`Self::fits`] rules out.
    pub fn acquire(&mut self, ids: &[AtomicU32], id: NextHopId) -> Option<u16> {
        if let Some(&index) = self.by_id.get(&id) {
            self.entries[usize::from(index)].1 += 1;
            return Some(index);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() > usize::from(self.limit) => {
                self.refused.insert(id);
                return None;
            }
            None => {
                self.entries.push((NextHopId::NONE, 0));
                u16::try_from(self.entries.len() - 1).unwrap_or(u16::MAX)
            }
        };
        self.entries[usize::from(index)] = (id, 1);
        self.by_id.insert(id, index);
        ids[usize::from(index)].publish(id.get());
        Some(index)
    }

    /// Checks that [`Self::acquire`] found an index for every next hop.
    ///
    /// # Errors
    /// [`EngineError::Full`].
    pub fn check(&self) -> Result<(), EngineError> {
        if self.refused.is_empty() {
            return Ok(());
        }
        Err(EngineError::Full {
            what: self.what,
            used: (self.by_id.len() + self.refused.len()) as u64,
            limit: self.limit.into(),
        })
    }

    /// Removes one use of `index`.
    pub fn release(&mut self, index: u16) {
        let uses = &mut self.entries[usize::from(index)].1;
        *uses -= 1;
        if *uses == 0 {
            self.limbo.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn an_index_is_reused_only_after_a_grace_period() {
        let ids: Vec<AtomicU32> = (0..=HOPS_MAX).map(|_| AtomicU32::new(0)).collect();
        let mut hops = HopIndex::new(u16::MAX, "next hops");
        let [a, b, c] = [1, 2, 3].map(|id| NextHopId::new(id).unwrap());
        let first = hops.acquire(&ids, a).unwrap();
        hops.release(first);
        assert_ne!(hops.acquire(&ids, b).unwrap(), first);
        hops.end_grace();
        assert_eq!(hops.acquire(&ids, c).unwrap(), first);
        assert_eq!(ids[usize::from(first)].load(Ordering::Relaxed), 3);
        // taken again while in limbo: stays
        hops.release(first);
        assert_eq!(hops.acquire(&ids, c).unwrap(), first);
        hops.end_grace();
        // released twice within one grace period: free once
        hops.release(first);
        hops.acquire(&ids, c).unwrap();
        hops.release(first);
        hops.end_grace();
        assert_eq!(hops.acquire(&ids, a).unwrap(), first);
        assert_ne!(hops.acquire(&ids, c).unwrap(), first);
    }

    #[test]
    fn more_than_65535_are_refused() {
        let ids: Vec<AtomicU32> = (0..=HOPS_MAX).map(|_| AtomicU32::new(0)).collect();
        let mut hops = HopIndex::new(u16::MAX, "next hops");
        let id = |id: usize| NextHopId::new(u32::try_from(id).unwrap()).unwrap();
        assert!(hops.fits(HOPS_MAX, (1..=HOPS_MAX).map(id)));
        assert!(!hops.fits(HOPS_MAX + 1, (1..=HOPS_MAX + 1).map(id)));
        for used in 1..=HOPS_MAX {
            assert_eq!(usize::from(hops.acquire(&ids, id(used)).unwrap()), used);
        }
        assert!(hops.fits(1, [id(7)].into_iter()) && !hops.fits(1, [id(HOPS_MAX + 1)].into_iter()));
        assert_eq!((hops.check(), hops.acquire(&ids, id(HOPS_MAX + 1))), (Ok(()), None));
        assert!(matches!(hops.check(), Err(EngineError::Full { used: 65_536, limit: 65_535, .. })));
        assert_eq!(hops.unused(), None);
        hops.release(9);
        hops.end_grace();
        assert_eq!(hops.unused(), Some(9));
    }
}
