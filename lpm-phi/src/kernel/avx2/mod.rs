//! The AVX2 kernels, for CPUs without AVX-512: the stages of `avx512f`, key by key.
//!
//! A gather of AVX2 is no quicker than eight loads, and it has no instruction that packs the lanes of a mask; so keys are loaded
//! and listed one by one, without a branch on what was loaded. Hashes of a whole list are left to the compiler, which makes
//! vectors of them; the slots of a line are compared all at once.
//!
//! What makes it many times quicker than `scalar` is that the loads of a stage do not wait for each other.

mod v4;
mod v6;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;
