//! What all engines on a CPU have in common, and pairs of engines of which each goes on alone when the other one fails.
//!
//! | module | what lives there |
//! |---|---|
//! | [`engine`] | the engine shell: the transaction over two families, to which an engine brings tables and lookups |
//! | [`params`] | parameters of engines |
//! | [`memory`] | table memory in huge pages, on a chosen NUMA node |
//! | [`caches`] | the data caches of this host |
//! | [`each_fib`] | the FIBs of one engine, each as an engine of its own |
//! | [`epoch`], [`copies`] | grace periods between the writer and the readers; two copies of a table |
//! | [`pair`] | two engines in one, each of which goes on alone when the other one fails; `--fallback` |
//! | [`lend`] | a batch shared by threads where it lies |
//! | [`hops`] | next-hop ids behind indices of 8 or 16 bits |
//! | [`no_table`] | the table of a family that an engine does not have |
//! | [`prefetch`] | loads into the cache that no instruction waits for |
//! | [`publish`] | the stores of writers to what lookups read |
//! | [`retire`] | values that a writer has replaced, which it frees when nobody reads them |
//! | [`drops`] | for tests: which thread frees what lookups read |
//! | [`sync`] | the atomics and threads that all of this is written with |
//!
//! Unsafe code lives in [`memory`], [`lend`] and [`prefetch`] only.

#![deny(unsafe_code)]

pub mod caches;
pub mod copies;
pub mod drops;
pub mod each_fib;
pub mod engine;
pub mod epoch;
pub mod hops;
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
