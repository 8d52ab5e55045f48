//! Longest-prefix match on plain servers: the engine `host`, our fastest, and SAIL for IPv4.
//!
//! SAIL follows the paper "Guarantee IP Lookup Performance with FIB Explosion". It splits a lookup twice: the length of the longest match
//! (bit maps on chip) from its next hop (arrays off chip), and lengths up to 24 from longer ones. Each module names the section it
//! implements. Our copy of the paper begins within section 4.1; earlier parts are marked "as published". SAIL refuses IPv6 routes.
//!
//! Unsafe code lives only in `kernel`, `host::v4::kernel` and `host::v6::kernel`.

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
