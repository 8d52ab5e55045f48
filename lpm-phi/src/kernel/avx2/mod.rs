//! The AVX2 kernels, for CPUs without AVX-512: the stages of `avx512f`, key by key.
//!
//! An AVX2 gather is no faster than eight loads, and AVX2 has no instruction that compresses the lanes of a mask. Keys are
//! therefore loaded and listed one by one, without a branch on the value loaded. The compiler vectorises the loops that hash a
//! whole list; the slots of a line are compared with vector instructions.
//!
//! These kernels are many times faster than `scalar` because the loads of a stage do not wait for each other.

mod v4;
mod v6;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;
