//! Parameters of the engine `host`.

use super::gathers::{Gathers, measured};
use super::v4::codes::Width;
use fib::{CheckedIsa, EngineError, EngineOptions};
use lpm_core::params::{Common, Parameter};

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostParams {
    /// Those that every engine has.
    pub(crate) common: Common,
    /// The kernels of lookups.
    pub(crate) kernel: HostKernel,
    /// The least width of next-hop codes.
    pub(crate) width_min: Width,
}

/// Which kernels look up: those that this CPU can run.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is one kernel"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostKernel {
    pub(crate) isa: CheckedIsa,
    /// Whether they gather; else their loads are single ones.
    pub(crate) gathers: Gathers,
    /// This CPU counts the bits of vectors by VPOPCNTDQ.
    pub(crate) has_vpopcntdq: bool,
    /// This CPU counts the bits of a word by POPCNT.
    pub(crate) has_popcnt: bool,
}

impl AsRef<Common> for HostParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl HostParams {
    /// Reads the parameters `code-bits` (8, 16 or 32: next-hop codes have at least so many bits), `popcount` (`auto`, or `arithmetic`:
    /// kernels do without instructions that count bits) and `gather` (`yes`, `no`, or `auto`: what is faster here, which is measured once).
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for one out of range or unknown, [`EngineError::Isa`] for an instruction set that this CPU lacks.
    pub(crate) fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let (mut width_min, mut arithmetic, mut gathers) = (Width::Bits8, false, None);
        for parameter in Parameter::all(options) {
            match (parameter.name, parameter.value) {
                ("code-bits", "8") => width_min = Width::Bits8,
                ("code-bits", "16") => width_min = Width::Bits16,
                ("code-bits", "32") => width_min = Width::Bits32,
                ("code-bits", _) => return Err(parameter.refuse("code-bits", "wanted 8, 16 or 32")),
                ("popcount", "auto") => arithmetic = false,
                ("popcount", "arithmetic") => arithmetic = true,
                ("popcount", _) => return Err(parameter.refuse("popcount", "wanted auto or arithmetic")),
                ("gather", "auto") => gathers = None,
                ("gather", "yes") => gathers = Some(Gathers::BOTH),
                ("gather", "no") => gathers = Some(Gathers::NONE),
                ("gather", _) => return Err(parameter.refuse("gather", "wanted yes, no or auto")),
                _ => {
                    let wanted = "the parameters of engine host are code-bits, popcount and gather";
                    return Err(parameter.refuse_name(wanted));
                }
            }
        }
        let common = Common::with_best_isa(options)?;
        #[cfg(target_arch = "x86_64")]
        let (has_vpopcntdq, has_popcnt) =
            (is_x86_feature_detected!("avx512vpopcntdq"), is_x86_feature_detected!("popcnt"));
        // Elsewhere the compiler has an instruction for it, or the CPU has none.
        #[cfg(not(target_arch = "x86_64"))]
        let (has_vpopcntdq, has_popcnt) = (false, false);
        let kernel = HostKernel {
            isa: common.isa,
            gathers: gathers.unwrap_or(Gathers::BOTH),
            has_vpopcntdq: !arithmetic && has_vpopcntdq,
            has_popcnt: !arithmetic && has_popcnt,
        };
        let mut params = Self { common, kernel, width_min };
        if gathers.is_none() && common.isa != CheckedIsa::SCALAR {
            params.kernel.gathers = measured(params);
        }
        Ok(params)
    }
}
