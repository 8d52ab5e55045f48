//! GAMT, the GPU-accelerated multi-bit trie, on the host (Li, Zhang, Liu, Zheng: "GAMT: A Fast and Scalable IP Lookup Engine for
//! GPU-based Software Routers", ANCS 2013).
//!
//! ```text
//! routes -> strides (Algorithm 3) -> build -> GamtTrie -> Image ------------------------> device
//! changes -> GamtTable -> GamtTrie, Deep, Hops -> bubbles (Algorithm 2) -> Step::Writes --> device
//! raw answers -> GamtAnswers -> next hops
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`code`] | the 32-bit code of a unit; Algorithm 1 in plain Rust |
//! | [`strides`] | Algorithm 3, and how many levels to have |
//! | [`shape`] | where the levels lie on the device, head room |
//! | `merge` | sorted changes merged into sorted routes |
//! | `level`, `trie`, `build` | the leaf-pushed trie, which is the FIB at once; updates; building it whole |
//! | [`bubbles`] | the write bubble table, Algorithm 2 |
//! | `hops` | what leaves mean: next hops (GAMT_T) or entries of a table on the host (GAMT_S) |
//! | `deep` | prefixes longer than the 64 bits searched |
//! | `answers` | what readers need |
//! | [`table`] | [`GamtTable`], all of it as a [`crate::host::HostTable`] |
//! | `details` | its figures, for statistics |
//! | [`options`] | parameters |

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

pub use options::{GamtOptions, Layout, NextHops};
pub use table::{GamtTable, GamtWork};
