//! What every engine that looks up on a CPU stands on, and what two engines stand on that stand in for each other.
//!
//! | module | what lives there |
//! |---|---|
//! | [`engine`] | the engine shell: the transaction over two families, to which an engine brings tables and lookups |
//! | [`params`] | parameters of engines |
//! | [`memory`] | table memory in huge pages, on a chosen NUMA node |
//! | [`caches`] | the data caches of this host |
//! | [`each_fib`] | the FIBs of one engine, each as an engine of its own |
//! | [`epoch`], [`copies`] | grace periods between the writer and the readers; two copies of a table |
//! | [`failover`] | which of two engines are in service, and why one is not |
//! | [`lend`] | a batch shared by threads where it lies |
//! | [`hops`] | next-hop ids behind indices of 8 or 16 bits |
//! | [`no_table`] | the table of a family that an engine does not have |
//! | [`publish`] | the stores of writers to what lookups read |
//! | [`retire`] | values that a writer has replaced, which it frees when nobody reads them |
//! | [`drops`] | for tests: which thread frees what lookups read |
//! | [`sync`] | the atomics and threads that all of this is written with |
//!
//! Unsafe code lives in [`memory`] and [`lend`] only.

#![deny(unsafe_code)]

pub mod caches;
pub mod copies;
pub mod drops;
pub mod each_fib;
pub mod engine;
pub mod epoch;
pub mod failover;
pub mod hops;
#[expect(unsafe_code, reason = "threads that look up where keys and answers lie")]
pub mod lend;
#[expect(unsafe_code, reason = "memory mappings")]
pub mod memory;
pub mod no_table;
pub mod params;
pub mod publish;
pub mod retire;
pub mod sync;

use fib::reader;
