//! Common parts of all CPU engines, and pairs of engines in which one takes over when the other fails.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | the engine shell: the transaction over two families, to which an engine supplies tables and lookups |
//! | [`params`] | parameters of engines |
//! | [`memory`] | table memory in huge pages, on a chosen NUMA node |
//! | [`caches`] | the data caches of this host |
//! | [`each_fib`] | the FIBs of one engine, each as a separate engine |
//! | [`epoch`], [`copies`] | grace periods between the writer and the readers; two copies of a table |
//! | [`pair`] | two engines in one, with failover; `--fallback` |
//! | [`lanes`] | vectors of 32-bit words, for kernels written once |
//! | [`lend`] | a batch shared by threads in place |
//! | [`hops`] | next-hop ids behind indices of 8 or 16 bits |
//! | [`no_table`] | the table of a family that an engine does not support |
//! | [`prefetch`] | loads into the cache that no instruction waits for |
//! | [`publish`] | the writer's stores to memory that lookups read |
//! | [`retire`] | replaced values, freed by the writer when no reader holds them |
//! | [`drops`] | for tests: which thread frees memory that lookups read |
//! | [`sync`] | the atomics and threads of all protocols above |
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
