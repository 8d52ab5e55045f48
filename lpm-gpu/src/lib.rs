//! Longest-prefix match on an NVIDIA GPU: GAMT, with GALE and SAIL_L beside it.
//!
//! ```text
//! delta -> engine -> HostTable (gamt, gale, sail) -> steps or an image -> engine -> cu -> device
//! keys  -> engine's reader -> cu -> kernel (kernels/*.ptx) -> raw answers -> Answers of the table -> next hops
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`host`] | the contract between a table and what drives it |
//! | [`gamt`], [`gale`], [`sail`] | the tables on the host; they know nothing of CUDA |
//! | [`direct`] | what GALE and SAIL_L have in common |
//! | [`engine`] | the engines: writer, readers, grace periods, tables on the device |
//! | [`cu`] | the CUDA driver behind a safe face |
//! | [`hardware`] | what is relied on of a GPU and not promised |
//! | `sync` | atomics and locks, exchanged for models of them by the crate `models` |
//! | `tests` | what the tests of several tables share |

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
mod sync;
#[cfg(test)]
mod tests;

use engine::{GALE, GAMT, GpuEngine, SAIL};
use fib::Engine;

/// The engines of this crate.
pub const ENGINES: &[Engine] = &[
    Engine::device(GAMT, |options, _| Ok(Box::new(GpuEngine::new(GAMT, options)?))),
    Engine::device(GALE, |options, _| Ok(Box::new(GpuEngine::new(GALE, options)?))),
    Engine::device(SAIL, |options, _| Ok(Box::new(GpuEngine::new(SAIL, options)?))),
];
