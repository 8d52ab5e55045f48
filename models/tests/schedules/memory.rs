//! Memory for the keys of batches, without mappings.

use crate::simd::AlignedArray;
use fib::EngineError;

pub(crate) type KeyArray<T> = AlignedArray<T>;

pub(crate) struct KeyArena;

impl KeyArena {
    pub(crate) const fn bytes_of<T>(len: usize) -> usize {
        len * size_of::<T>()
    }
    pub(crate) fn take<T: Copy + Default>(&mut self, len: usize) -> Result<KeyArray<T>, EngineError> {
        Ok(AlignedArray::new(T::default(), len))
    }
}
