//! A macro for operations that are one expression over instructions.

macro_rules! operations {
    ($($(#[$doc:meta])* $visibility:vis $name:ident($($argument:ident: $type:ty),+) -> $result:ty = $operation:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        $visibility fn $name(self, $($argument: $type),+) -> $result {
            // SAFETY: the CPU has the instructions, as `self` proves.
            unsafe { $operation }
        }
    )*};
}
