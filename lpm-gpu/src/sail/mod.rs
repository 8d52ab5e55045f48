//! SAIL_L: routes pushed to three levels, 16, 24 and 32, so that a lookup reads three words at most.
//!
//! The paper's arrays for CPU and GPU are BCN (B16, C16 and N16 in one), BN24 (B24 and N24 in one), C24 and N32 (section
//! 4.2). They are as wide there as its FIBs need: 16 bits an entry of BCN, one of them B16, which leaves 15 for a chunk's
//! number and 8 for a next hop; a next hop of 0 in BN24 says "look in N32", so no prefix may be without a next hop there.
//! `layout=paper` has them so (file `layout`); there, a 0 in C24 or N32 is "no route". What differs in the default layout:
//!
//! - Words have 32 bits: next hops of 24 bits, and every table fits, 2^16 chunks of BN24 and more of N32 than there is memory.
//! - BN24 holds C24 as well, as BCN holds C16: one word is next hop or chunk. So a lookup reads one array less, and a
//!   single store switches a unit from one to the other; with C24 apart that takes two.
//! - The bit says "chunk", not "next hop": a table without routes is all zero, and "no route" is a next hop like others.
//! - The low bits of a word hold the length of the route that it came from. Lookups skip them; on the host they replace
//!   the pushed trie that the paper keeps on its control plane.
//!
//! The host works on a copy of the arrays, and the device gets the words that changed: first what no lookup can reach yet,
//! the new chunks, then the words that lead there.
//!
//! ```text
//! change -> table -> arrays -> Step::Writes (new chunks, then what leads to them) or Image -> device
//! ```
//!
//! | file | what lives there |
//! |---|---|
//! | `model` | what the kernels do, in plain Rust |
//! | `codes` | what stands for a next hop in the paper's layout |
//! | `layout` | how the arrays lie in the device's words |
//! | [`arrays`] | BCN, BN24 and N32, and routes drawn over them |
//! | [`table`] | [`SailTable`]: the routes told, the words to write, head room, rebuild |

pub mod arrays;
mod codes;
mod layout;
pub mod model;
pub mod table;
#[cfg(test)]
mod tests;

pub use table::{SailOptions, SailTable};

/// Entries of BCN.
pub const BCN_UNITS: usize = 1 << 16;
