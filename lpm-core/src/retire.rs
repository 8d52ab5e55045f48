//! [`Retired`]: values that a writer has replaced under its readers, until nobody reads them any more.
//!
//! Readers find a value through a place, an [`ArcSwap`], and may keep a reference to it from batch to batch. A writer that let go of a
//! value when it replaces it would leave the last reference to the last reader that notices: an lcore would unmap a table. So the
//! writer keeps a reference of its own, and frees the value, on its own thread, once that reference is the last one.
//!
//! **No reader drops the last reference, and the writer frees nothing that is read.** The steps are:
//!
//! ```text
//! writer  W1 puts the new value in the place and takes the old one out (`swap`), with the reference that the place had
//!         W2 keeps that reference
//!         W3 later: takes the count of references from 1 to 0, if it is 1, and frees the value
//! reader  R1 takes a reference through the place, and with it counts one more
//!         R2 counts one less, when it notices a newer value or ends
//! ```
//! From W1 on no R1 gets the old value: `swap` returns when each reader that found it has it in the count. So from W1 on the count falls
//! with each R2, and nothing raises it, since only who has a reference could clone it, and readers do not. It does not reach 0 with an
//! R2, since the reference of W2 is in the count until W3. W3 is one read-modify-write, so a count of 1 is what it is now and not what it
//! was; a count above 1 that is no longer true only delays. R2 releases and W3 acquires, as each last drop of an [`Arc`] does, so all
//! reads of the value are over before it is freed. The orderings are those of `Arc` and `ArcSwap`; there is none here.
//!
//! A reader that never comes back keeps one value, the one that it read last, and no other: so readers without traffic look for newer
//! values now and then ([`fib::EngineReader::refresh`]). A reader that is itself dropped may have a reference to the current value alone
//! and the writer may be gone: then its thread frees it. No lcore drops a reader before its stage ends, and nothing forwards then.

use crate::publish::report;
use crate::sync::counted::{Arc, ArcSwap};

/// Values that were replaced and may still be read. It belongs to the writer; dropping it lets go of them.
#[derive(Debug)]
pub struct Retired<T> {
    /// Each with its bytes.
    kept: Vec<(Arc<T>, u64)>,
}

impl<T> Default for Retired<T> {
    fn default() -> Self {
        Self { kept: Vec::new() }
    }
}

impl<T> Retired<T> {
    /// Puts `value` in `place` in one store, ordered after all earlier stores of the writer. Keeps the value from before, of which
    /// `bytes` are not memory of `value` too, and frees those that nobody reads any more.
    pub fn replace(&mut self, place: &ArcSwap<T>, value: Arc<T>, bytes: u64) {
        let before = place.swap(value);
        report(place);
        self.kept.push((before, bytes));
        self.free();
    }

    /// Frees the values that nobody reads any more.
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

    /// Memory of the values that are kept, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|(_, bytes)| bytes).sum()
    }
}
