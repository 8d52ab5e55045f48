//! An array that begins at a cache line, so that no vector load or store of a kernel at a multiple of its size crosses one.

use std::ops::{Deref, DerefMut};

/// Entries of an [`Array`]'s unit: a whole number of cache lines, whatever the size of an entry.
const UNIT: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Unit<T>([T; UNIT]);

/// A boxed slice that begins at a cache line.
#[derive(Debug)]
pub struct Array<T> {
    units: Box<[Unit<T>]>,
    len: usize,
}

impl<T: Copy> Array<T> {
    /// `len` times `value`.
    #[must_use]
    pub fn new(value: T, len: usize) -> Self {
        Self { units: vec![Unit([value; UNIT]); len.div_ceil(UNIT)].into_boxed_slice(), len }
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: units are arrays without padding between them, for an entry's size times 64 is a multiple of their alignment;
        // they have `len` entries at least.
        unsafe { std::slice::from_raw_parts(self.units.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.units.as_mut_ptr().cast(), self.len) }
    }
}
