//! The vector operations that the kernels of `sail` are written over, so that each algorithm is written once.

/// Vectors of 32-bit words of one instruction set. A value proves that this CPU supports it: only functions with these target features
/// make one. Kernels are inlined into such a function, and the operations into the kernels.
pub(super) trait Simd: Copy {
    type Vector: Copy;
    type Mask: Copy;
    const LANES: usize;

    fn splat(self, word: u32) -> Self::Vector;
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn and_not(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a | b`.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The low 32 bits of `a * b`.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a << bits`, where `bits` is a constant.
    fn shift_left(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a >> bits`, where `bits` is a constant.
    fn shift_right(self, a: Self::Vector, bits: i32) -> Self::Vector;
    /// `a >> b`, lane by lane.
    fn shift_right_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a` in the lanes of `mask`, `b` in the others.
    fn select(self, mask: Self::Mask, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The first `count` lanes, or all if `count` is larger.
    fn lanes(self, count: usize) -> Self::Mask;
    fn zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    fn non_zeros(self, mask: Self::Mask, words: Self::Vector) -> Self::Mask;
    /// The lanes whose word has bit 31 set.
    fn signs(self, words: Self::Vector) -> Self::Mask;
    /// The lanes in both masks.
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
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
    /// Loads word `at` from `from` in the lanes of `mask`; other lanes keep `other`.
    ///
    /// # Safety
    /// The words of these lanes must be readable, and their indices below 2^31.
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
