//! GALE: a direct table of all first 24 bits, which the device updates. The poster ("GR") keeps a texture of 2^24 units and
//! renders routes on it; the depth buffer holds the length of each unit's route ([`crate::direct::Draw`]). The GAMT paper
//! compares itself with it under the name GALE. Differences here:
//!
//! - Prefixes longer than /24, which the poster omits, are in a second stage: a chunk of 256 units for each /24 that has
//!   such prefixes. `stages=1` is the poster's table: no chunks, and a lookup is one load without a test.
//! - Units are in address order; the poster's quadtree order serves to draw squares, and a kernel draws runs.
//! - Depth and next hop share a word, and operations have an order, so that lookups see only the old or the new answer
//!   ([`GaleTable::take_steps`](crate::host::HostTable::take_steps)); the poster leaves that open.
//!
//! Operations depend on their order (GAMT, section 2.3), so an update is one launch of one block of `update-threads`, with a
//! barrier after each operation.
//!
//! ```text
//! change -> table -> UpdateStep::Ops -> the update kernel (`model` in Rust) -> words on the device
//! many routes -> paint -> Image -> device
//! ```

pub mod model;
mod paint;
pub mod table;
#[cfg(test)]
mod tests;

pub use table::{GaleOptions, GaleTable};

/// Units of the direct table.
pub const DIRECT_UNITS: usize = 1 << 24;
