//! Two copies of a table: readers use one while the writer changes the other.
//!
//! The writer stores to the spare copy and flips: new batches read it, and the copy that was live becomes the spare one. The next delta
//! begins with a grace period, mostly over by then. The writer then repeats the previous delta on the spare copy
//! ([`crate::engine::FibTable::grace_over`]) and applies the new one (`update`). So no copy is written between the flip that makes it
//! spare and the end of a grace period that began after that flip.
//!
//! The crate `left-right` has an epoch for each pair of copies. Here one epoch of a reader covers the tables of both families.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Two copies, and which of them is live.
#[derive(Debug)]
pub struct Copies<T> {
    copies: [T; 2],
    live: AtomicUsize,
}

impl<T> Copies<T> {
    /// The first of `copies` is live.
    pub fn new(copies: [T; 2]) -> Self {
        Self { copies, live: AtomicUsize::new(0) }
    }

    /// The copy that lookups read. Call it once per batch, within the reader's epoch.
    #[inline]
    pub fn live(&self) -> &T {
        // Acquire: a reader that sees the new number sees the words that were written before the flip.
        &self.copies[self.live.load(Ordering::Acquire) & 1]
    }

    /// The index of the live copy, for the writer.
    #[inline]
    pub fn live_number(&self) -> usize {
        self.live.load(Ordering::Relaxed) & 1
    }

    /// The index of the spare copy, for the writer.
    #[inline]
    pub fn spare_number(&self) -> usize {
        self.live_number() ^ 1
    }

    /// The spare copy, for the writer. No lookup reads it once a grace period has passed since the last flip.
    #[inline]
    pub fn spare(&self) -> &T {
        &self.copies[self.spare_number()]
    }

    /// Both copies, for the writer.
    pub fn both(&self) -> &[T; 2] {
        &self.copies
    }

    /// Makes the spare copy live for new batches. A grace period that begins now waits for batches that still read the other copy.
    pub fn flip(&self) {
        self.live.store(self.spare_number(), Ordering::Release);
    }
}
