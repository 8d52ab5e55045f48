//! Bloomfwd: longest-prefix match by Bloom filters and hash tables, vectorized for AVX-512F hosts, after the paper "IP lookup on the Intel
//! Xeon Phi by Bloom filters"; each module names the section it implements. Unsafe code lives only in `kernel`.

#![deny(unsafe_code)]

pub mod bloom;
pub mod coop;
pub mod cpe;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vector loads and gathers take raw pointers")
)]
mod kernel;
pub mod miht;
pub mod variants;

use fib::{Engine, Isa};
use variants::params::Variant;

/// The engines of this crate.
pub const ENGINES: &[Engine] = &[
    Engine::cpu(bloom::NAME, &Isa::ALL, |options, _| bloom::make(options)),
    Engine::cpu(variants::BASELINE, &[Isa::Scalar], |options, _| variants::make(Variant::Baseline, options)),
    Engine::cpu(variants::NAIVE, &[Isa::Scalar, Isa::Avx512f], |options, _| {
        variants::make(Variant::Naive, options)
    }),
    Engine::cpu(miht::NAME, &[Isa::Scalar], |options, _| miht::make(options)),
    Engine::cpu(coop::CoopEngine::NAME, &Isa::ALL, |options, engines| {
        Ok(Box::new(coop::CoopEngine::make(options, engines)?))
    }),
];

// The names that the crate `models` uses, which compiles `coop` over a model checker.
use lpm_core::{lend, pair, sync};
