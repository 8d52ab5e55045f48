//! The vector operations that the kernels of `sail` are written over, so that each algorithm is written once.

/// Vectors of 32-bit words, with the instructions of one instruction set. A value is the proof that this CPU has them: only functions with
/// these target features make one. Kernels are inlined into such a function, and the operations into the kernels.
pub(super) trait Simd: Copy {
    /// A vector of words.
    type Vector: Copy;
    /// A choice of lanes.
    type Mask: Copy;
    /// The words of a vector.
    const LANES: usize;

    /// `word` in all lanes.
    fn splat(self, word: u32) -> Self::Vector;
    /// `a & b`.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `!a & b`.
    fn and_not(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a | b`.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a + b`.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a - b`.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The low 32 bits of `a * b`.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a << bits`, where `bits` is a constant.
    fn shift_left(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a >> bits`, where `bits` is a constant.
    fn shift_right(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a >> b`, each lane by its own number.
    fn shift_right_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a` in the lanes of `mask`, `b` in the others.
    fn select(self, mask: Self::Mask, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The first `count` lanes, all of them if there are fewer.
    fn lanes(self, count: usize) -> Self::Mask;
    /// The lanes of `mask` whose word is 0.
    fn zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    /// The lanes of `mask` whose word is not 0.
    fn non_zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    /// The lanes whose word has bit 31 set.
    fn signs(self, words: Self::Vector) -> Self::Mask;
    /// The lanes that both have.
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Whether there is a lane.
    fn any(self, mask: Self::Mask) -> bool;

    /// The words from `from` on in the lanes of `mask`, 0 in the others.
    ///
    /// # Safety
    /// The words of these lanes can be read.
    unsafe fn load(self, from: *const u32, mask: Self::Mask) -> Self::Vector;
    /// Writes the lanes of `mask` to the words from `to` on.
    ///
    /// # Safety
    /// The words of these lanes can be written.
    unsafe fn store(self, to: *mut u32, mask: Self::Mask, words: Self::Vector);
    /// Word `at` from `from` on, in the lanes of `mask`; that of `other` in the others.
    ///
    /// # Safety
    /// The words of these lanes can be read, and their numbers are below 2^31.
    unsafe fn gather(
        self,
        from: *const u32,
        at: Self::Vector,
        mask: Self::Mask,
        other: Self::Vector,
    ) -> Self::Vector;
}

/// Operations of [`Simd`] as expressions over instructions.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),+) -> $result:ty = $operation:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),+) -> $result {
            // SAFETY: the CPU has the instructions, as `self` proves.
            unsafe { $operation }
        }
    )*};
}

/// The kernels of a module, over its `$simd` with the target features `$features`.
macro_rules! kernels {
    ($simd:ident, $features:literal) => {
        #[derive(Clone, Copy)]
        pub(super) struct $simd(());

        /// The vectors of a piece.
        const VECTORS: usize = PIECE / <$simd as Simd>::LANES;

        #[target_feature(enable = $features)]
        pub(super) fn wide(table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
            sail::wide::<_, VECTORS>($simd(()), table, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn paper(table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
            sail::paper::<_, VECTORS>($simd(()), table, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn many(table: &OverlayTable, fibs: Fibs<'_>, keys: &[u32], out: &mut [NextHopId]) {
            sail::many::<_, VECTORS>($simd(()), table, fibs, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn or_default(default: NextHopId, out: &mut [NextHopId]) {
            scalar::or_default(default, out);
        }
    };
}
