//! SAIL_L: routes pushed to levels 16, 24 and 32, so that a lookup reads at most three words. The paper's arrays are BCN
//! (B16, C16 and N16 in one), BN24 (B24 and N24 in one), C24 and N32 (section 4.2). Their entries fit its FIBs: 16 bits in
//! BCN, of which B16 takes one and leaves 15 for a chunk number, and 8 bits for a next hop. A 0 in BN24 means "look in N32",
//! so every prefix there needs a next hop. `layout=paper` has these arrays, with 0 in C24 or N32 for "no route". The default
//! layout differs:
//!
//! - Words have 32 bits: next hops of 24 bits, and no practical limit on chunks.
//! - BN24 includes C24, as BCN includes C16: a word is next hop or chunk. That saves a lookup one array, and one store
//!   switches a unit between the two.
//! - The flag says "chunk", not "next hop": an empty table is all zero, and "no route" is an ordinary next hop.
//! - The low bits of a word hold the length of its route, which lookups ignore; they replace the paper's pushed trie on the host.
//!
//! ```text
//! change -> table -> arrays -> UpdateStep::Writes (new chunks, then pointers to them) or Image -> device
//! ```

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
