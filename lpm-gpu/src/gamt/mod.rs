//! GAMT, the GPU-accelerated multi-bit trie, on the host (Li, Zhang, Liu, Zheng: "GAMT: A Fast and Scalable IP Lookup Engine for
//! GPU-based Software Routers", ANCS 2013).
//!
//! ```text
//! routes -> strides (Algorithm 3) -> build -> GamtTrie -> Image ------------------------> device
//! changes -> GamtTable -> GamtTrie, Deep, Hops -> bubbles (Algorithm 2) -> UpdateStep::Writes --> device
//! raw answers -> GamtAnswers -> next hops
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`code`] | the 32-bit code of a unit; Algorithm 1 in plain Rust |
//! | [`strides`] | Algorithm 3, and the number of levels |
//! | [`shape`] | levels and head room in the device's array |
//! | `level`, `trie`, `build` | the leaf-pushed trie, which is also the FIB; updates; bulk build |
//! | [`bubbles`] | the write bubble table, Algorithm 2 |
//! | `hops` | contents of leaves: next hops (GAMT_T) or entries of a table on the host (GAMT_S) |
//! | `deep` | prefixes longer than the 64 bits searched |
//! | [`table`] | [`GamtTable`], the [`crate::host::HostTable`] |

pub(crate) mod answers;
pub mod bubbles;
mod build;
pub mod code;
mod deep;
mod details;
mod hops;
mod level;
mod merge;
pub mod options;
pub mod shape;
#[cfg(test)]
mod stores_test;
pub mod strides;
pub mod table;
mod trie;

pub use details::GamtWork;
pub use options::{GamtOptions, Layout, NextHops};
pub use table::GamtTable;
