//! GAMT, the GPU-accelerated multi-bit trie, on the host (Li, Zhang, Liu, Zheng: "GAMT: A Fast and Scalable IP Lookup Engine for
//! GPU-based Software Routers", ANCS 2013).
//!
//! ```text
//! routes -> strides (Algorithm 3) -> build -> GamtTrie -> Image ------------------------> device
//! routes -> EarlyBuild: on a thread, the next GamtTrie, before this one is full
//! changes -> GamtTable -> GamtTrie, Deep, Hops -> bubbles (Algorithm 2) -> UpdateStep::Writes --> device
//! raw answers -> GamtAnswers -> next hops
//! ```

pub(crate) mod answers;
pub mod bubbles;
mod build;
pub mod code;
mod deep;
mod details;
mod early;
mod hops;
mod level;
mod merge;
pub mod options;
mod planner;
pub mod shape;
#[cfg(test)]
mod stores_test;
pub mod strides;
pub mod table;
mod trie;

pub use details::GamtWork;
pub use options::{GamtOptions, Layout, NextHops};
pub use table::GamtTable;
