//! Controlled prefix expansion and DPCPE: which lengths to expand to (sections 3.2 and 4.2 of the paper).
//!
//! Expansion replaces a prefix by all prefixes of a greater length that it covers, so that a table has few distinct lengths and a lookup
//! tests few filters. Fewer levels make more prefixes: DPCPE finds the levels that make the fewest.

pub mod dpcpe;
pub mod expand;
pub mod histogram;
pub mod model;

/// Why an expansion is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpeError {
    /// The number of levels is out of range.
    #[error("{asked} levels of expansion are not possible, wanted 1 to {most}")]
    Levels {
        /// The requested number.
        asked: usize,
        /// The largest possible number: one for each length.
        most: usize,
    },
    /// The expanded prefixes do not fit: the paper's "not possible because of the high memory requirements".
    #[error("{levels} levels of expansion make {prefixes} prefixes; at most {limit} fit")]
    TooLarge {
        /// The number of levels.
        levels: usize,
        /// Prefixes after expansion.
        prefixes: u64,
        /// Prefixes that fit.
        limit: u64,
    },
}
