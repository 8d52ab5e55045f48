//! How a lookup loads from its table: one load at a time, through [`Loads`].
//!
//! In service the loads are [`Plain`], and the compiler removes the indirection. In tests the checker in `stores` (feature `testing`) stops a
//! lookup between any two loads, so that production code meets every interleaving with a writer's stores.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A memory location that lookups load from and a writer stores to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(usize);

impl Place {
    /// The location of `word`.
    #[inline]
    pub fn from_ref<T: ?Sized>(word: &T) -> Self {
        Self(std::ptr::from_ref(word).addr())
    }

    /// Whether it is one of `words`.
    #[must_use]
    pub fn is_in<T>(self, words: &[T]) -> bool {
        let ends = words.as_ptr_range();
        (ends.start.addr()..ends.end.addr()).contains(&self.0)
    }

    /// A location in a modelled memory, by index.
    #[must_use]
    pub const fn modelled(index: usize) -> Self {
        Self(index)
    }
}

/// The loads of a lookup. The course of a lookup may depend only on its key and on the values it has loaded.
pub trait Loads {
    /// Returned when the lookup was stopped before a load; [`Infallible`] in service.
    type Stop;

    /// Runs `read`, which does a single load from `place`, or stops before it.
    ///
    /// # Errors
    /// [`Self::Stop`] when the lookup must stop here.
    fn load(&mut self, place: Place, read: impl FnOnce() -> u64) -> Result<u64, Self::Stop>;

    /// Loads a word of 32 bits.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the value was widened from 32 bits")]
    fn word(&mut self, word: &AtomicU32) -> Result<u32, Self::Stop> {
        self.load(Place::from_ref(word), || u64::from(word.load(Ordering::Acquire))).map(|value| value as u32)
    }

    /// Loads a word of 64 bits.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline(always)]
    fn wide_word(&mut self, word: &AtomicU64) -> Result<u64, Self::Stop> {
        self.load(Place::from_ref(word), || word.load(Ordering::Acquire))
    }
}

/// Loads that are done immediately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Loads for Plain {
    type Stop = Infallible;

    #[inline(always)]
    fn load(&mut self, _place: Place, read: impl FnOnce() -> u64) -> Result<u64, Infallible> {
        Ok(read())
    }
}
