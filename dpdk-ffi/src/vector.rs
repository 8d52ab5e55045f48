//! Conditions of vector kernels: aligned arrays, their padding, and the instruction sets of this CPU.

use std::ops::{Deref, DerefMut};

pub(crate) const LANES: usize = 16;
/// Padding: the number of entries of an array beyond its packets.
pub const PAD: usize = 32;
/// Entries of an [`AlignedArray`]'s unit: a whole number of cache lines for entries of any size.
const UNIT: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Unit<T>([T; UNIT]);

/// A boxed slice aligned to a cache line, so that no vector load or store at a multiple of its size crosses a line.
#[derive(Debug)]
pub struct AlignedArray<T> {
    units: Box<[Unit<T>]>,
    len: usize,
}

impl<T: Copy> AlignedArray<T> {
    /// `len` copies of `value`.
    #[must_use]
    pub fn new(value: T, len: usize) -> Self {
        Self { units: vec![Unit([value; UNIT]); len.div_ceil(UNIT)].into_boxed_slice(), len }
    }
}

impl<T> Deref for AlignedArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: units are arrays without padding between them, since an entry's size times 64 is a multiple of their alignment; they
        // have at least `len` entries.
        unsafe { std::slice::from_raw_parts(self.units.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for AlignedArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the same argument; `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.units.as_mut_ptr().cast(), self.len) }
    }
}

/// The instruction sets with kernels for the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust.
    Scalar,
    /// AVX2 with POPCNT; passes without such a kernel run plain Rust.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with POPCNT and BMI: every server CPU with AVX-512 except Knights Landing.
    Avx512,
}

impl Level {
    /// All levels, the plainest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The best level that this CPU supports, up to this one.
    #[must_use]
    pub fn available(self) -> Self {
        self.checked().0
    }

    pub(crate) fn checked(self) -> CheckedLevel {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("popcnt");
            if self == Self::Avx512 && has_avx512 {
                return CheckedLevel(Self::Avx512);
            }
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt");
            if self >= Self::Avx2 && has_avx2 {
                return CheckedLevel(Self::Avx2);
            }
        }
        CheckedLevel(Self::Scalar)
    }
}

/// A level that this CPU supports; only [`Level::checked`] makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedLevel(Level);

impl CheckedLevel {
    #[inline(always)]
    pub(crate) fn get(self) -> Level {
        self.0
    }
}
