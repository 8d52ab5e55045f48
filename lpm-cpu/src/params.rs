//! Parameters of the engines.

use fib::{CheckedIsa, EngineError, EngineOptions};
use lpm_core::no_table::OneFamily;
use lpm_core::params::{Common, Parameter};

/// Parameters, as an engine's tables get them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SailParams {
    /// Those that every engine has.
    pub(crate) common: Common,
    /// What a refusal of IPv6 routes says.
    pub(crate) no_ipv6: &'static str,
}

impl AsRef<Common> for SailParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl OneFamily for SailParams {
    fn refusal(&self) -> &'static str {
        self.no_ipv6
    }
}

impl SailParams {
    /// Those of an engine that has no parameters of its own and plain kernels only.
    pub(crate) fn plain(
        options: &EngineOptions,
        no_ipv6: &'static str,
        no_parameters: &'static str,
    ) -> Result<Self, EngineError> {
        match Parameter::all(options).next() {
            Some(parameter) => Err(parameter.refuse_name(no_parameters)),
            None => Ok(Self { common: Common::new(options, CheckedIsa::SCALAR), no_ipv6 }),
        }
    }
}
