//! Parameters of the engine `host`.

use super::v4::codes::Width;
use fib::{CheckedIsa, Details, EngineError, EngineOptions};
use lpm_core::params::{Common, Parameter};

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostParams {
    pub(crate) common: Common,
    pub(crate) kernel: HostKernel,
    pub(crate) width_min: Width,
}

#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is one kernel"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostKernel {
    pub(crate) isa: CheckedIsa,
    pub(crate) gathers: Gathers,
    pub(crate) has_vpopcntdq: bool,
    pub(crate) has_popcnt: bool,
}

/// Which families' vector kernels gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gathers {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Gathers {
    pub(crate) const BOTH: Self = Self { v4: true, v6: true };
    pub(crate) const NONE: Self = Self { v4: false, v6: false };

    pub(crate) fn details(self) -> Details {
        Details::from([("v4_gathers", u8::from(self.v4).into()), ("v6_gathers", u8::from(self.v6).into())])
    }
}

impl AsRef<Common> for HostParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl HostParams {
    /// Reads `code-bits` (8, 16 or 32: minimum width of next-hop codes), `popcount` (`auto`, or `arithmetic`: no instructions that count
    /// bits) and `gather` (`yes`, `no`, or `auto`: as `measured` finds).
    pub(crate) fn from_options(
        options: &EngineOptions,
        measured: impl FnOnce(Self) -> Gathers,
    ) -> Result<Self, EngineError> {
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
