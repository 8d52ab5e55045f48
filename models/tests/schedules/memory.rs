//! `lpm_core::memory` in ordinary memory: the models need only arrays of keys.

use crate::simd::AlignedArray;
use fib::EngineError;

pub(crate) struct KeyArena;

pub(crate) type KeyArray<T> = AlignedArray<T>;

impl KeyArena {
    pub(crate) const fn bytes_of<T>(len: usize) -> usize {
        len * size_of::<T>()
    }

    #[expect(clippy::unused_self, reason = "the signature of the real one")]
    pub(crate) fn take<T: Copy + Default>(&mut self, len: usize) -> Result<KeyArray<T>, EngineError> {
        Ok(AlignedArray::new(T::default(), len))
    }
}
