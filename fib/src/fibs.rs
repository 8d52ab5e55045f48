//! The FIBs of the keys of a batch, for engines that hold several, such as one per VRF. Engines check a batch's ids once.

use crate::{EngineError, FibId};
use std::ops::Range;

/// The FIBs of the keys of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Fibs<'a> {
    /// One for all keys.
    One(FibId),
    /// One for each key.
    Each(&'a [FibId]),
}

impl<'a> Fibs<'a> {
    /// The FIB of key `at`.
    ///
    /// # Panics
    /// When there are fewer ids.
    #[inline]
    #[must_use]
    pub fn fib(self, at: usize) -> FibId {
        match self {
            Self::One(fib) => fib,
            Self::Each(fibs) => fibs[at],
        }
    }

    /// The FIBs of the keys of `range`.
    ///
    /// # Panics
    /// When `range` ends behind the last id.
    #[inline]
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Fibs<'a> {
        match self {
            Self::One(_) => self,
            Self::Each(fibs) => Fibs::Each(&fibs[range]),
        }
    }

    /// Checks that there is a FIB for each of `keys` keys, and that an engine with `fibs` FIBs has all of these.
    ///
    /// # Errors
    /// [`EngineError::Batch`] when the numbers of ids and keys differ, [`EngineError::NoFib`] for a FIB that does not exist.
    #[inline]
    pub fn check(self, keys: usize, fibs: u32) -> Result<(), EngineError> {
        let largest = match self {
            Self::One(fib) => fib,
            Self::Each(ids) if ids.len() != keys => {
                return Err(EngineError::Batch { keys, limit: ids.len() });
            }
            // Without a branch, so that the compiler vectorises the maximum.
            Self::Each(ids) => FibId(ids.iter().fold(0, |largest, fib| largest.max(fib.0))),
        };
        if largest.0 < fibs { Ok(()) } else { Err(EngineError::NoFib { fib: largest, fibs }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_against_keys_and_fibs() {
        let ids = [FibId(0), FibId(2), FibId(1)];
        let each = Fibs::Each(&ids);
        assert_eq!((each.check(3, 3), each.part(0..1).check(1, 1)), (Ok(()), Ok(())));
        assert_eq!(each.check(3, 2), Err(EngineError::NoFib { fib: FibId(2), fibs: 2 }));
        assert_eq!(each.check(4, 3), Err(EngineError::Batch { keys: 4, limit: 3 }));
        assert_eq!(Fibs::Each(&[]).check(0, 1), Ok(()));
        let one = Fibs::One(FibId(1));
        assert_eq!((one.check(9, 2), one.part(3..9).fib(7), each.fib(1)), (Ok(()), FibId(1), FibId(2)));
        let refused = one.check(0, 1).unwrap_err();
        assert_eq!(refused.to_string(), "no FIB 1: the engine holds 1, numbered from 0");
    }
}
