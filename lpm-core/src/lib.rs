//! Common parts of all CPU engines, and pairs of engines in which one takes over when the other fails.
//!
//! Unsafe code lives in [`lanes`], [`lend`], [`memory`] and [`prefetch`] only.

#![deny(unsafe_code)]

pub mod caches;
pub mod copies;
pub mod drops;
pub mod each_fib;
pub mod engine;
pub mod epoch;
pub mod hops;
#[expect(unsafe_code, reason = "vector instructions, and loads at pointers")]
pub mod lanes;
#[expect(unsafe_code, reason = "threads that look up where keys and answers lie")]
pub mod lend;
#[expect(unsafe_code, reason = "memory mappings")]
pub mod memory;
pub mod no_table;
pub mod pair;
pub mod params;
#[expect(unsafe_code, reason = "prefetches are intrinsics")]
pub mod prefetch;
pub mod publish;
pub mod retire;
pub mod sync;

use fib::reader;
