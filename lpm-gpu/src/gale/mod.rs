//! GALE: one table for all first 24 bits, updated by the device itself.
//!
//! The poster ("GR", a lookup engine that renders routes) keeps a texture of 2^24 units and draws routes on it with the
//! depth buffer as the length of the route that a unit came from; the GAMT paper measures itself against it as GALE
//! ([`crate::direct::Draw`] has the rules). What differs here:
//!
//! - Prefixes longer than /24, which the poster leaves out, lie in a second stage: chunks of 256 units, one for each /24
//!   that has such prefixes. With `stages=1` there is none, as in the poster: a lookup is one load, and nothing is tested.
//! - Units lie in order of address, not along a quadtree curve: that was for squares of a texture, and a kernel draws runs.
//! - Depth and next hop share a word, so that a lookup sees both or neither.
//! - Operations of one update run in an order in which no lookup sees anything but the old or the new answer
//!   ([`GaleTable::take_steps`](crate::host::HostTable::take_steps)); the poster does not say what a lookup sees.
//!
//! Operations must run one after the other, as the paper says: breaking their order breaks the table. So an update is one
//! launch of one block, of `update-threads`, with a barrier behind each operation.
//!
//! ```text
//! change -> table -> Step::Ops -> the update kernel (`model` in Rust) -> words on the device
//! many routes -> paint -> Image -> device
//! ```
//!
//! | file | what lives there |
//! |---|---|
//! | [`table`] | [`GaleTable`]: the routes told, and the operations that follow from changes |
//! | `paint` | the image of a table with many routes, which operations would take too long for |
//! | [`model`] | what the kernels do, in plain Rust: for tests, and to count loads and writes |

pub mod model;
mod paint;
pub mod table;
#[cfg(test)]
mod tests;

pub use table::{GaleOptions, GaleTable};

/// Units of the direct table.
pub const DIRECT_UNITS: usize = 1 << 24;
