//! Chunk ids of an array: a chunk is a run of 256 entries for a node that is split (section 4.2).

use fib::Prefix4;

pub(crate) const CHUNK_ENTRIES: usize = 256;

/// Chunk ids of one array, from 1 on. A freed chunk is reused only after a grace period, since a lookup may have read its id.
#[derive(Debug)]
pub(crate) struct Chunks {
    capacity: u32,
    taken: u32,
    free: Vec<u32>,
    limbo: Vec<u32>,
}

impl Chunks {
    pub(crate) const fn new(capacity: u32) -> Self {
        Self { capacity, taken: 0, free: Vec::new(), limbo: Vec::new() }
    }

    pub(crate) fn used(&self) -> u64 {
        u64::from(self.taken) - (self.free.len() + self.limbo.len()) as u64
    }

    pub(crate) fn available(&self) -> u64 {
        u64::from(self.capacity - self.taken) + self.free.len() as u64
    }

    pub(crate) fn available_after_grace(&self) -> u64 {
        self.available() + self.limbo.len() as u64
    }

    /// Takes a chunk that no lookup can reach. Panics if the chunks run out: callers check [`Self::available`] first.
    pub(crate) fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.taken < self.capacity, "callers check that enough chunks are available");
            self.taken += 1;
            self.taken
        })
    }

    /// Frees a chunk that new lookups cannot reach.
    pub(crate) fn free(&mut self, chunk: u32) {
        self.limbo.push(chunk);
    }

    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Returns whether at least as many chunks wait for a grace period as are available.
    pub(crate) fn is_short(&self) -> bool {
        self.has_limbo() && self.limbo.len() as u64 >= self.available()
    }

    pub(crate) fn end_grace(&mut self) {
        self.free.append(&mut self.limbo);
    }

    pub(crate) const fn bytes(&self) -> u64 {
        (self.free.capacity() + self.limbo.capacity()) as u64 * 4
    }
}

/// The entries of a chunk: `(chunk - 1) * 256` and the next 255.
pub(crate) const fn entries_of(chunk: u32) -> std::ops::Range<usize> {
    let first = (chunk as usize - 1) * CHUNK_ENTRIES;
    first..first + CHUNK_ENTRIES
}

pub(crate) fn nodes_of(level: u8, prefixes: impl Iterator<Item = Prefix4>) -> impl Iterator<Item = u32> {
    prefixes.filter(move |prefix| prefix.len() > level).map(move |prefix| prefix.address() >> (32 - level))
}

/// The number of distinct values of `blocks`, in which equal values are adjacent.
pub(crate) fn distinct<T: Copy + PartialEq>(blocks: impl Iterator<Item = T>) -> u64 {
    let mut last = None;
    blocks.filter(|block| last.replace(*block) != Some(*block)).count() as u64
}

/// The capacity for `used` chunks; with a reserve, a quarter more, at least 256. At most `limit`.
pub(crate) fn with_reserve(used: u64, has_reserve: bool, limit: u32) -> u32 {
    with_spare(used, 256, has_reserve, limit)
}

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
        assert_eq!([chunks.allocate(), chunks.allocate()], [1, 2]);
        chunks.free(1);
        assert_eq!((chunks.used(), chunks.available(), chunks.allocate()), (1, 1, 3));
        assert!(chunks.has_limbo() && chunks.is_short());
        assert_eq!((chunks.available(), chunks.available_after_grace()), (0, 1));
        chunks.end_grace();
        assert_eq!((chunks.used(), chunks.available(), chunks.allocate()), (2, 1, 1));
        assert_eq!(entries_of(3), 512..768);
        assert_eq!(distinct([1, 1, 2, 3, 3].into_iter()), 3);
        assert_eq!((with_reserve(0, true, 300), with_reserve(2000, true, 2100)), (256, 2100));
        assert_eq!((with_reserve(7, false, 300), with_reserve(4000, true, 9000)), (7, 5000));
    }
}
