//! Vectors of 32-bit words, so that the algorithm of a kernel is written once for all instruction sets.
//!
//! A kernel is an `#[inline(always)]` function over [`Words`], [`HashWords`] or [`Lanes`]. For each instruction set, a function with its
//! target features makes the value that proves them and inlines the kernel: [`Scalar`] (one word, arithmetic alone), `Avx2` (eight words,
//! vector masks) or `Avx512f` (sixteen words, mask registers; F alone, as on Knights Landing).

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod operations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512f::Avx512f;
pub use scalar::Scalar;

/// Arithmetic of 32-bit words, modulo 2^32 in each lane. A value proves that this CPU has the instructions.
pub trait Words: Copy {
    /// A register.
    type Vector: Copy;

    /// `word` in every lane.
    fn splat(self, word: u32) -> Self::Vector;
    /// `a & b`.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a | b`.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a + b`.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a - b`.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The low 32 bits of `a * b`.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a << bits`, where `bits` is below 32.
    fn shift_left(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a >> bits`, where `bits` is below 32.
    fn shift_right(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a << b`, lane by lane, where `b` is below 32.
    fn shift_left_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a >> b`, lane by lane, where `b` is below 32.
    fn shift_right_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// [`Words`] with the other operations of hash functions, which no kernel for AVX2 computes on vectors.
pub trait HashWords: Words {
    /// `a ^ b`.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The high 32 bits of `a * word`.
    fn mul_high_by(self, a: Self::Vector, word: u32) -> Self::Vector;
    /// `a` rotated left, where `bits` is a constant.
    fn rotate_left(self, a: Self::Vector, bits: i32) -> Self::Vector;
}

/// Vectors with masks, loads and stores.
pub trait Lanes: Words {
    /// A selection of lanes.
    type Mask: Copy;
    /// The number of lanes.
    const COUNT: usize;

    /// The first `count` lanes, or all if `count` is larger.
    fn first(self, count: usize) -> Self::Mask;
    /// `!a & b`.
    fn and_not(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a` in the lanes of `mask`, `b` in the others.
    fn select(self, mask: Self::Mask, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The lanes of `mask` in which `a` and `b` are equal.
    fn equal(self, mask: Self::Mask, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    /// The lanes of `mask` whose word is 0.
    fn zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    /// The lanes of `mask` whose word is not 0.
    fn non_zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    /// The lanes whose word has bit 31 set.
    fn signs(self, words: Self::Vector) -> Self::Mask;
    /// The lanes whose word is `least` or more; `least` is not 0, and both are below 2^31.
    fn at_least(self, words: Self::Vector, least: u32) -> Self::Mask;
    /// The lanes in both masks.
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// The lanes in either mask.
    fn either(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Whether `mask` has a lane.
    fn any(self, mask: Self::Mask) -> bool;

    /// Loads the words from `from` on in the lanes of `mask`; other lanes are 0.
    ///
    /// # Safety
    /// The words of these lanes must be readable.
    unsafe fn load(self, from: *const u32, mask: Self::Mask) -> Self::Vector;
    /// Stores the lanes of `mask` to the words from `to` on.
    ///
    /// # Safety
    /// The words of these lanes must be writable.
    unsafe fn store(self, to: *mut u32, mask: Self::Mask, words: Self::Vector);
    /// Loads the words from `from` on.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load_all(self, from: *const u32) -> Self::Vector;
    /// Stores `words` to the words from `to` on.
    ///
    /// # Safety
    /// They must be writable.
    unsafe fn store_all(self, to: *mut u32, words: Self::Vector);
    /// Loads the word `at * SCALE` bytes from `from` in the lanes of `mask`; other lanes keep `other`.
    ///
    /// # Safety
    /// The words of these lanes must be readable, and their indices below 2^31.
    unsafe fn gather<const SCALE: i32>(
        self,
        from: *const u8,
        at: Self::Vector,
        mask: Self::Mask,
        other: Self::Vector,
    ) -> Self::Vector;
    /// Loads word `at` from `from` in every lane.
    ///
    /// # Safety
    /// The words must be readable, and their indices below 2^31.
    unsafe fn gather_all(self, from: *const u32, at: Self::Vector) -> Self::Vector;
    /// Loads the word of 64 bits `at` from `from` in every lane, each by one load; returns the low halves and the high halves.
    ///
    /// # Safety
    /// The words must be readable, and their indices below 2^31.
    unsafe fn gather_wide(self, from: *const u64, at: Self::Vector) -> (Self::Vector, Self::Vector);
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
