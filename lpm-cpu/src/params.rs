//! Parameters of the SAIL engines.

use fib::{CheckedIsa, EngineError, EngineOptions};
use lpm_core::no_table::OneFamily;
use lpm_core::params::{Common, Parameter};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SailParams {
    pub(crate) common: Common,
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
    /// Parameters of an engine that has no options and only plain kernels.
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
