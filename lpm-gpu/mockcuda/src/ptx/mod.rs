//! Compiles PTX text to the bytecode of [`crate::exec`]: [`scan`] makes tokens, [`parse`] entries with instructions as written,
//! [`compile`] bytecode ([`code`]) from the instructions of the committed kernels ([`opcodes`]). Others are an error when the
//! module is loaded, with their line.

pub(crate) mod code;
pub(crate) mod compile;
mod opcodes;
pub(crate) mod parse;
mod scan;

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PtxError {
    pub(crate) line: u32,
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
