//! Longest-prefix match on an NVIDIA GPU: GAMT, with GALE and SAIL_L beside it.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "the CUDA driver is a C library; nothing else in this crate needs it")]
pub mod cu;
pub mod direct;
pub mod engine;
pub mod gale;
pub mod gamt;
#[doc = include_str!("../HARDWARE.md")]
pub mod hardware {}
pub mod host;
pub mod sail;
#[cfg(test)]
mod stores_test;
mod sync;
