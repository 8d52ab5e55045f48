//! Bloomfwd: longest-prefix match by Bloom filters and hash tables, vectorized for AVX-512F hosts (Xeon Phi / Knights Landing and every
//! AVX-512 server).
//!
//! The algorithm and its parameters follow the paper "IP lookup on the Intel Xeon Phi by Bloom filters" (Bloomfwd); each module names the
//! section it implements.
//!
//! | module | contents |
//! |---|---|
//! | [`bloom`] | the engine `bloom`: tables, hashes, filters, updates in place |
//! | [`variants`] | the engines `bloom-naive` and `bloom-baseline`, the paper's steps towards it |
//! | [`miht`] | the engine `miht`: the Multi-Index Hybrid Trie, which the paper compares itself with |
//! | [`coop`] | the engine `coop`: each batch shared by two engines, or by two groups of threads over one table |
//! | [`cpe`] | controlled prefix expansion, and DPCPE |
//! | `kernel` | the lookup kernels, one file an instruction set, all with the signature of the scalar one |
//!
//! Unsafe code lives only in `kernel`.

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
