//! Longest-prefix match on an NVIDIA GPU: GAMT, with GALE and SAIL_L as baselines; and MAMT, GAMT's trie on the CPU.
//!
//! ```text
//! delta -> engine -> HostTable (gamt, gale, sail) -> write steps or an image -> engine -> cu -> device
//! keys  -> engine's reader -> cu -> kernel (kernels/*.ptx) -> raw answers -> Answers of the table -> next hops
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`host`] | the contract between a host table and the engine that drives it |
//! | [`gamt`], [`gale`], [`sail`] | the host tables, independent of CUDA |
//! | [`direct`] | code that GALE and SAIL_L share |
//! | [`model`] | the lookup kernels in plain Rust; memory transactions of a warp |
//! | [`engine`] | the engines: writer, readers, grace periods, device tables |
//! | [`mamt`] | GAMT's trie as a CPU engine |
//! | [`cu`] | a safe wrapper around the CUDA driver |
//! | [`hardware`] | properties of GPUs that the crate assumes and no specification guarantees |

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "the CUDA driver is a C library")]
pub mod cu;
pub mod direct;
pub mod engine;
pub mod gale;
pub mod gamt;
#[doc = include_str!("../HARDWARE.md")]
pub mod hardware {}
pub mod host;
pub mod mamt;
pub mod model;
mod phase;
pub mod sail;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

use engine::{GALE, GAMT, GpuEngine, SAIL};
use fib::{Engine, Isa};

/// The crate's engines.
pub const ENGINES: &[Engine] = &[
    Engine::device(GAMT, |options, _| Ok(Box::new(GpuEngine::new(GAMT, options)?))),
    Engine::device(GALE, |options, _| Ok(Box::new(GpuEngine::new(GALE, options)?))),
    Engine::device(SAIL, |options, _| Ok(Box::new(GpuEngine::new(SAIL, options)?))),
    Engine::cpu(mamt::NAME, &[Isa::Scalar, Isa::Avx512f], |options, _| mamt::make(options)),
];
