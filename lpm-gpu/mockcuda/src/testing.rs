//! Compiles PTX text to bytecode without a driver's context, for fuzz targets.

use crate::ptx::{compile, parse};

/// Compiles all entries of a module, as loading it does. Returns the number of entries.
///
/// # Errors
/// The line, from 1, and a message.
pub fn compile(text: &str) -> Result<usize, (u32, String)> {
    let compile = |text| {
        let module = parse::parse(text)?;
        for entry in &module.entries {
            compile::compile(entry, &module.shared)?;
        }
        Ok(module.entries.len())
    };
    compile(text).map_err(|error: crate::ptx::PtxError| (error.line, error.what))
}
