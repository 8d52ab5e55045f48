//! Parameters of the engine `host`.

use super::v4::codes::Width;
use super::v4::kernel::HostKernel;
use fib::{EngineError, EngineOptions};
use lpm_core::params::{Common, Parameter};

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostParams {
    /// Those that every engine has.
    pub(crate) common: Common,
    /// The kernel of IPv4 lookups.
    pub(crate) kernel: HostKernel,
    /// The least width of next-hop codes.
    pub(crate) width_min: Width,
}

impl AsRef<Common> for HostParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl HostParams {
    /// Reads the parameters `code-bits` (8, 16 or 32: next-hop codes have at least so many bits) and `popcount` (`auto`, or `arithmetic`:
    /// AVX-512 kernels do without VPOPCNTDQ).
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for one out of range or unknown, [`EngineError::Isa`] for an instruction set that this CPU lacks.
    pub(crate) fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let (mut width_min, mut arithmetic) = (Width::Bits8, false);
        for parameter in Parameter::all(options) {
            match (parameter.name, parameter.value) {
                ("code-bits", "8") => width_min = Width::Bits8,
                ("code-bits", "16") => width_min = Width::Bits16,
                ("code-bits", "32") => width_min = Width::Bits32,
                ("code-bits", _) => return Err(parameter.refuse("code-bits", "wanted 8, 16 or 32")),
                ("popcount", "auto") => arithmetic = false,
                ("popcount", "arithmetic") => arithmetic = true,
                ("popcount", _) => return Err(parameter.refuse("popcount", "wanted auto or arithmetic")),
                _ => {
                    let wanted = "the parameters of engine host are code-bits and popcount";
                    return Err(parameter.refuse_name(wanted));
                }
            }
        }
        let common = Common::with_best_isa(options)?;
        Ok(Self { common, kernel: HostKernel::of(common.isa, arithmetic), width_min })
    }
}
