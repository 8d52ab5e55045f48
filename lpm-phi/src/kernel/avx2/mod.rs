//! The AVX2 kernels, for CPUs without AVX-512: the stages of `avx512f`, key by key.
//!
//! An AVX2 gather is no faster than eight loads, and AVX2 cannot compress the lanes of a mask. So keys are loaded and listed one at a
//! time, without a branch on the value loaded. The compiler vectorizes the loops that hash a whole list; the slots of a line are compared
//! with vector instructions. The gain over `scalar` comes from independent loads within a stage.

mod v4;
mod v6;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;
