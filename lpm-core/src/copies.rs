//! Two copies of a table: readers use one while the writer changes the other.
//!
//! ```text
//! write:  the spare copy, which no batch reads
//! flip:   batches that begin from now on read it, and the copy that was live becomes the spare one
//! grace:  Epochs::synchronize, after which no batch reads the new spare copy: it may be written from here on
//! ```
//! The next delta begins with the grace period, which has mostly passed by then. The writer then applies the previous delta to the
//! spare copy ([`crate::engine::FibTable::grace_over`]), and after it the new one (`update`). So each copy gets every delta, and no
//! copy is written between the flip that makes it the spare one and the end of a grace period that began after that flip.
//!
//! The crate `left-right` is based on the same idea, with an epoch for each pair of copies. Here a reader has one epoch for the tables
//! of both families, whatever the engine, and the engine builds the tables, which lie in huge pages.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Two copies, and which of them is live.
#[derive(Debug)]
pub struct Copies<T> {
    copies: [T; 2],
    live: AtomicUsize,
}

impl<T> Copies<T> {
    /// Takes both copies; the first is live.
    pub fn new(copies: [T; 2]) -> Self {
        Self { copies, live: AtomicUsize::new(0) }
    }

    /// The copy that lookups read. Must be called within a batch of the reader's epoch, once per batch.
    #[inline]
    pub fn live(&self) -> &T {
        // Acquire: a reader that sees the new number sees the words that were written before the flip.
        &self.copies[self.live.load(Ordering::Acquire) & 1]
    }

    /// The number of the copy that lookups read. For the writer.
    #[inline]
    pub fn live_number(&self) -> usize {
        self.live.load(Ordering::Relaxed) & 1
    }

    /// The number of the other copy. For the writer.
    #[inline]
    pub fn spare_number(&self) -> usize {
        self.live_number() ^ 1
    }

    /// The copy that no lookup reads, once a grace period has passed since the last flip. For the writer.
    #[inline]
    pub fn spare(&self) -> &T {
        &self.copies[self.spare_number()]
    }

    /// Both copies. For the writer.
    pub fn both(&self) -> &[T; 2] {
        &self.copies
    }

    /// Makes the spare copy live: batches that begin from now on read it. A batch that still reads the other copy has entered its
    /// epoch before, so a grace period that begins now waits for it.
    pub fn flip(&self) {
        self.live.store(self.spare_number(), Ordering::Release);
    }
}
