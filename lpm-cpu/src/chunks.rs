//! The chunks of an array: runs of 256 entries, one for each node that is split (section 4.2).

use fib::Prefix4;

/// Entries of a chunk.
pub(crate) const CHUNK_ENTRIES: usize = 256;

/// Chunk ids of one array, from 1 on. A chunk given back is used again after a grace period: a lookup may have read its id before.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Chunks that there is room for.
    capacity: u32,
    /// Ids given out so far, at least once.
    taken: u32,
    free: Vec<u32>,
    /// Given back since the last grace period began.
    limbo: Vec<u32>,
}

impl Chunks {
    pub(crate) const fn new(capacity: u32) -> Self {
        Self { capacity, taken: 0, free: Vec::new(), limbo: Vec::new() }
    }

    /// Chunks in use.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.taken) - (self.free.len() + self.limbo.len()) as u64
    }

    /// Chunks that can be taken.
    pub(crate) fn available(&self) -> u64 {
        u64::from(self.capacity - self.taken) + self.free.len() as u64
    }

    /// Chunks that can be taken when a grace period has ended.
    pub(crate) fn available_after_grace(&self) -> u64 {
        self.available() + self.limbo.len() as u64
    }

    /// A chunk that no lookup can reach.
    ///
    /// # Panics
    /// When there is none: whoever takes chunks has counted them before.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.taken < self.capacity, "chunks are counted before a delta is taken");
            self.taken += 1;
            self.taken
        })
    }

    /// Gives a chunk back that no new lookup reaches.
    pub(crate) fn give_back(&mut self, chunk: u32) {
        self.limbo.push(chunk);
    }

    /// Whether a chunk waits for a grace period.
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Whether as many chunks wait for a grace period as can be taken without one.
    pub(crate) fn is_short(&self) -> bool {
        self.has_limbo() && self.limbo.len() as u64 >= self.available()
    }

    /// A grace period is over: what was given back before it is free.
    pub(crate) fn end_grace(&mut self) {
        self.free.append(&mut self.limbo);
    }

    /// Bytes of memory.
    pub(crate) const fn bytes(&self) -> u64 {
        (self.free.capacity() + self.limbo.capacity()) as u64 * 4
    }
}

/// The entries of a chunk in its array: `(id - 1) * 256` and on.
pub(crate) const fn entries_of(chunk: u32) -> std::ops::Range<usize> {
    let first = (chunk as usize - 1) * CHUNK_ENTRIES;
    first..first + CHUNK_ENTRIES
}

/// The nodes of `level` that `prefixes` need chunks below.
pub(crate) fn nodes_of(level: u8, prefixes: impl Iterator<Item = Prefix4>) -> impl Iterator<Item = u32> {
    prefixes.filter(move |prefix| prefix.len() > level).map(move |prefix| prefix.address() >> (32 - level))
}

/// The distinct values of `blocks`, of which equal ones are neighbours.
pub(crate) fn distinct<T: Copy + PartialEq>(blocks: impl Iterator<Item = T>) -> u64 {
    let mut last = None;
    blocks.filter(|block| last.replace(*block) != Some(*block)).count() as u64
}

/// Room for so many chunks, and a quarter more to grow, 256 at least, if there is a reserve; at most `limit`.
pub(crate) fn with_reserve(used: u64, has_reserve: bool, limit: u32) -> u32 {
    with_spare(used, 256, has_reserve, limit)
}

/// As [`with_reserve`], with a reserve of `spare_min` at least.
pub(crate) fn with_spare(used: u64, spare_min: u64, has_reserve: bool, limit: u32) -> u32 {
    let spare = if has_reserve { (used / 4).max(spare_min) } else { 0 };
    u32::try_from(used + spare).unwrap_or(u32::MAX).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_used_again_after_a_grace_period_only() {
        let mut chunks = Chunks::new(3);
        assert_eq!([chunks.take(), chunks.take()], [1, 2]);
        chunks.give_back(1);
        assert_eq!((chunks.used(), chunks.available(), chunks.take()), (1, 1, 3));
        assert!(chunks.has_limbo() && chunks.is_short());
        assert_eq!((chunks.available(), chunks.available_after_grace()), (0, 1));
        chunks.end_grace();
        assert_eq!((chunks.used(), chunks.available(), chunks.take()), (2, 1, 1));
        assert_eq!(entries_of(3), 512..768);
        assert_eq!(distinct([1, 1, 2, 3, 3].into_iter()), 3);
        assert_eq!((with_reserve(0, true, 300), with_reserve(2000, true, 2100)), (256, 2100));
        assert_eq!((with_reserve(7, false, 300), with_reserve(4000, true, 9000)), (7, 5000));
    }
}
