//! Compiles PTX text to the bytecode that [`crate::exec`] runs.
//!
//! - [`scan`]: splits text into tokens.
//! - [`parse`]: turns tokens into the entries of a module, each a list of labels and instructions as written.
//! - [`opcodes`]: the supported instructions, each with its operation and operands.
//! - [`compile`]: compiles the instructions of one entry to bytecode over numbered registers.
//! - [`code`]: the bytecode.
//!
//! Only what the committed kernels use is supported. Anything else is an error when the module is loaded, with its
//! line.

pub(crate) mod code;
pub(crate) mod compile;
mod opcodes;
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
