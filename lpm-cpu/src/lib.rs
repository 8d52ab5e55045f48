//! Longest-prefix match on plain servers: the engine `host`, our fastest, and SAIL for IPv4.
//!
//! The algorithms of SAIL are those of the paper "Guarantee IP Lookup Performance with FIB Explosion" (SAIL). It splits a lookup twice:
//! finding the length of the longest match (bit maps, small enough for memory on chip) from finding its next hop (arrays off chip), and
//! lengths up to 24 from longer ones. Each module names the section it builds. Our copy of the paper begins within section 4.1; what
//! comes from before that is marked "as published".
//!
//! | module | what lives there |
//! |---|---|
//! | [`host`] | the engine `host`, which follows no paper |
//! | [`sail_b`], [`sail_u`] | the engines of one bit map a level: every level, and every sixth |
//! | `bit_maps` | what these two share: the table, and updates in place |
//! | [`sail_l`] | the engine of three levels, 16, 24 and 32, in two layouts |
//! | [`sail_m`] | the engine of many FIBs in one overlay trie |
//! | [`linear`] | the smallest engine, to begin another one with |
//! | `kernel` | the lookup kernels of SAIL, one file an instruction set; the loads one by one of `host`'s |
//! | `packed`, `chunks`, `codes` | arrays of small entries; chunks of 256 of them; what stands for a next hop in them |
//! | [`accesses`] | the accesses of lookups, on chip and off, counted |
//! | `pushing`, `writes` | what a change of a route does to the entries it is pushed to; what updates store |
//!
//! The SAIL engines have a table of IPv4 alone and refuse IPv6 routes ([`lpm_core::no_table`]).
//!
//! Unsafe code lives in `kernel`, `host::v4::kernel` and `host::v6::kernel` only.

#![deny(unsafe_code)]

pub mod accesses;
mod bit_maps;
mod chunks;
mod codes;
pub mod host;
#[expect(
    unsafe_code,
    reason = "gathers take raw pointers, and so do loads of entries that are parts of words"
)]
mod kernel;
pub mod linear;
mod packed;
mod params;
mod pushing;
pub mod sail_b;
pub mod sail_l;
pub mod sail_m;
pub mod sail_u;
#[cfg(test)]
mod stores_test;
mod writes;

use fib::{Engine, Isa};

/// The engines of this crate.
pub const ENGINES: &[Engine] = &[
    Engine::cpu(host::NAME, &Isa::ALL, |options, _| host::make(options)),
    Engine::cpu(sail_b::NAME, &[Isa::Scalar], |options, _| sail_b::make(options)).ipv4_only(),
    Engine::cpu(sail_u::NAME, &[Isa::Scalar], |options, _| sail_u::make(options)).ipv4_only(),
    Engine::cpu(sail_l::NAME, &Isa::ALL, |options, _| sail_l::make(options)).ipv4_only(),
    Engine::cpu(sail_m::NAME, &Isa::ALL, |options, _| sail_m::make(options)).ipv4_only().with_fibs(),
    Engine::cpu(linear::NAME, &[Isa::Scalar], |options, _| linear::make(options)),
];
