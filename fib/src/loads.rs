//! How a lookup reads its table: one load at a time, through [`Loads`].
//!
//! In service the loads are [`Plain`], and nothing of the indirection is left in the machine code. The checker of module `stores`
//! (feature `testing`) stops a lookup between any two of its loads instead, so that every interleaving with the stores of a writer
//! can be tried on the code that runs in service.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A place in memory that lookups load from and a writer stores to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(usize);

impl Place {
    /// The place of `word`.
    #[inline]
    pub fn of<T: ?Sized>(word: &T) -> Self {
        Self(std::ptr::from_ref(word).addr())
    }

    /// A place of a modelled memory, by its index there.
    #[must_use]
    pub const fn modelled(index: usize) -> Self {
        Self(index)
    }
}

/// The loads of a lookup. What a lookup does next may depend on nothing but its key and the values it has loaded.
pub trait Loads {
    /// Says that the lookup was stopped before a load; [`Infallible`] in service.
    type Stop;

    /// Does `read`, which loads once from `place`.
    ///
    /// # Errors
    /// [`Self::Stop`] when the lookup goes no further.
    fn load(&mut self, place: Place, read: impl FnOnce() -> u64) -> Result<u64, Self::Stop>;

    /// Loads a word of 32 bits.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the value was widened from 32 bits")]
    fn word(&mut self, word: &AtomicU32) -> Result<u32, Self::Stop> {
        self.load(Place::of(word), || u64::from(word.load(Ordering::Acquire))).map(|value| value as u32)
    }

    /// Loads a word of 64 bits.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline(always)]
    fn wide_word(&mut self, word: &AtomicU64) -> Result<u64, Self::Stop> {
        self.load(Place::of(word), || word.load(Ordering::Acquire))
    }
}

/// Loads that are done at once, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Loads for Plain {
    type Stop = Infallible;

    #[inline(always)]
    fn load(&mut self, _place: Place, read: impl FnOnce() -> u64) -> Result<u64, Infallible> {
        Ok(read())
    }
}
