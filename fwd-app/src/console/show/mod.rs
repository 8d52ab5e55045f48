//! Answers of `show` and related commands: each file extends `Steering` and defines its answer types.

mod addresses;
pub(super) mod config;
pub(super) mod counts;
mod lcores;
mod neighbours;
mod next_hops;
mod ports;
pub(super) mod rates;
mod route;
mod routes;
pub(super) mod tables;
