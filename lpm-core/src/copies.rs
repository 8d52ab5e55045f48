//! Two copies of a table: readers use one while the writer changes the other.
//!
//! ```text
//! write:  the spare copy, which no batch reads
//! flip:   batches that begin from now on read it, and the copy that was live becomes the spare one
//! grace:  Epochs::synchronize, after which no batch reads the new spare copy: it may be written from here on
//! ```
//! The next delta begins with the grace period, which is mostly over by then: what was done to one copy is done to the other, and
//! then the delta goes there too ([`crate::engine::FibTable::grace_over`] and `update`). So both are the same in the end, and no copy
//! is written between the flip that makes it the spare one and the end of a grace period that began after that flip.
//!
//! The crate `left-right` has the same idea, with an epoch of its own for each pair of copies. A reader here has one for both families'
//! tables, whatever engine they are of, and tables that lie in huge pages are built outside.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Two copies, and which of them is live.
#[derive(Debug)]
pub struct Copies<T> {
    copies: [T; 2],
    live: AtomicUsize,
}

impl<T> Copies<T> {
    /// Both copies; the first is live.
    pub fn new(copies: [T; 2]) -> Self {
        Self { copies, live: AtomicUsize::new(0) }
    }

    /// The copy that lookups read. To be called within a batch of the reader's epoch, once a batch.
    #[inline]
    pub fn live(&self) -> &T {
        // Acquire: who reads the new number reads the words behind it.
        &self.copies[self.live.load(Ordering::Acquire) & 1]
    }

    /// The number of the copy that lookups read, for the one writer.
    #[inline]
    pub fn live_number(&self) -> usize {
        self.live.load(Ordering::Relaxed) & 1
    }

    /// The number of the other one, for the writer.
    #[inline]
    pub fn spare_number(&self) -> usize {
        self.live_number() ^ 1
    }

    /// The copy that no lookup reads, once a grace period has passed since the last flip. For the writer.
    #[inline]
    pub fn spare(&self) -> &T {
        &self.copies[self.spare_number()]
    }

    /// Both copies, for the writer.
    pub fn both(&self) -> &[T; 2] {
        &self.copies
    }

    /// Has batches that begin from now on read the spare copy. A batch that still reads the other one has entered its epoch
    /// before, so a grace period that begins now waits for it.
    pub fn flip(&self) {
        self.live.store(self.spare_number(), Ordering::Release);
    }
}
