//! Ids of an engine's FIBs and of a reader's slots.

use std::fmt;

/// A FIB of an engine, `0..fibs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FibId(pub u32);

impl FibId {
    /// The FIB that every engine has.
    pub const MAIN: Self = Self(0);
}

impl fmt::Display for FibId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A slot of a reader, `0..slots()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);
