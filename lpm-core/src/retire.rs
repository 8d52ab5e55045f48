//! [`Retired`]: values that a writer has replaced and that readers may still hold.
//!
//! Readers load a value through an [`ArcSwap`] and may keep the reference from batch to batch. If the last of them freed a replaced value,
//! an lcore would unmap a table. So the writer keeps a reference, and frees the value on its own thread once that is the last one.
//!
//! **No reader drops the last reference, and the writer frees nothing that is read.** The steps are:
//!
//! ```text
//! writer  W1 swaps in the new value and takes out the old one, with the reference that the `ArcSwap` held
//!         W2 keeps that reference
//!         W3 later: takes the reference count from 1 to 0, if it is 1, and frees the value
//! reader  R1 loads the value, which increments the count
//!         R2 decrements the count, when it notices a newer value or ends
//! ```
//! After W1 no R1 returns the old value: `swap` returns once each reader that found it is in the count. Only the holder of a reference
//! could clone it, and readers do not. So after W1 the count only falls with each R2, and the reference of W2 keeps it above 0 until W3.
//! W3 is one read-modify-write, so it never acts on a stale count of 1; a stale higher count only delays the free. R2 releases and W3
//! acquires, as each last drop of an [`Arc`] does, so all reads of the value end before it is freed.
//!
//! An idle reader holds at most one old value, until [`fib::EngineReader::refresh`]. Without a writer, the last reader frees the value.

use crate::publish::report;
use crate::sync::counted::{Arc, ArcSwap};

/// Replaced values that may still be read. Owned by the writer; a drop releases them.
#[derive(Debug)]
pub struct Retired<T> {
    /// Each value with its bytes.
    kept: Vec<(Arc<T>, u64)>,
}

impl<T> Default for Retired<T> {
    fn default() -> Self {
        Self { kept: Vec::new() }
    }
}

impl<T> Retired<T> {
    /// Publishes `value` in `place` in one store, ordered after all earlier stores of the writer. Keeps the previous value, of which
    /// `bytes` are not shared with `value`, and frees retired values as in [`Self::free`].
    pub fn replace(&mut self, place: &ArcSwap<T>, value: Arc<T>, bytes: u64) {
        let before = place.swap(value);
        report(place);
        self.kept.push((before, bytes));
        self.free();
    }

    /// Frees the values that no reader holds any more.
    #[inline]
    pub fn free(&mut self) {
        if !self.kept.is_empty() {
            self.free_kept();
        }
    }

    fn free_kept(&mut self) {
        for (value, bytes) in std::mem::take(&mut self.kept) {
            if let Err(value) = Arc::try_unwrap(value) {
                self.kept.push((value, bytes));
            }
        }
    }

    /// The bytes of the values that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|(_, bytes)| bytes).sum()
    }
}
