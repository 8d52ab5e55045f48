//! An array aligned to a cache line, so that no vector load or store at a multiple of its size crosses a line.

use std::ops::{Deref, DerefMut};

/// Entries of an [`Array`]'s unit: a whole number of cache lines for entries of any size.
const UNIT: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Unit<T>([T; UNIT]);

/// A boxed slice aligned to a cache line.
#[derive(Debug)]
pub struct Array<T> {
    units: Box<[Unit<T>]>,
    len: usize,
}

impl<T: Copy> Array<T> {
    /// `len` copies of `value`.
    #[must_use]
    pub fn new(value: T, len: usize) -> Self {
        Self { units: vec![Unit([value; UNIT]); len.div_ceil(UNIT)].into_boxed_slice(), len }
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: units are arrays without padding between them, since an entry's size times 64 is a multiple of their alignment; they
        // have at least `len` entries.
        unsafe { std::slice::from_raw_parts(self.units.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the same argument; `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.units.as_mut_ptr().cast(), self.len) }
    }
}
