//! PTX text to bytecode without a driver's context, for fuzz targets.

use crate::ptx::parse::Variable;
use crate::ptx::{PtxError, compile, parse};

/// Compiles all entries of a module as loading it does, its variables at made-up addresses. The number of entries.
///
/// # Errors
/// The line, from 1, and what is wrong there.
pub fn compile(text: &str) -> Result<usize, (u32, String)> {
    compiled(text).map_err(|error| (error.line, error.what))
}

fn compiled(text: &str) -> Result<usize, PtxError> {
    let module = parse::parse(text)?;
    let (shared, others): (Vec<Variable>, Vec<Variable>) =
        module.variables.into_iter().partition(|variable| variable.space == "shared");
    let addresses = (1..).map(|at| at << 20);
    let addresses = others.into_iter().zip(addresses).map(|(variable, at)| (variable.name, at)).collect();
    for entry in &module.entries {
        compile::compile(entry, &addresses, &shared)?;
    }
    Ok(module.entries.len())
}
