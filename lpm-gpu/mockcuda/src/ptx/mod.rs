//! From PTX text to the code that [`crate::exec`] runs: [`parse`] reads the text into statements, [`compile`] turns the
//! statements of one entry into bytecode ([`code`]) over numbered registers.
//!
//! What is understood is what clang makes of integer kernels, and the inline assembly of ours. Anything else is an error
//! that names the instruction and its line when the module is loaded, never when it runs.

pub(crate) mod code;
pub(crate) mod compile;
mod integer;
mod memory;
pub(crate) mod parse;
mod scan;

use std::fmt;

/// Why a module cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PtxError {
    /// Line of the text, counted from 1.
    pub(crate) line: u32,
    /// What is wrong there.
    pub(crate) what: String,
}

impl PtxError {
    pub(crate) fn new(line: u32, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl fmt::Display for PtxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.what)
    }
}
