//! Parameters of the engine `mamt`.

use crate::gamt::GamtOptions;
use crate::gamt::options::{LEVELS_V4, LEVELS_V6};
use fib::{EngineError, EngineOptions, Family};
use lpm_core::params::{Common, Parameter};

const THREADS_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct MamtParams {
    pub(super) common: Common,
    /// Levels of the IPv4 and of the IPv6 trie; `None` chooses from the table.
    levels: [Option<u8>; 2],
    headroom_percent: u32,
    /// Threads that look up a batch, including the caller.
    pub(super) threads: usize,
}

impl AsRef<Common> for MamtParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl MamtParams {
    /// Fails with [`EngineError::Parameter`] for an unknown or out of range one, [`EngineError::Isa`] for a missing instruction set.
    pub(super) fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let common = Common::with_best_isa(options)?;
        let mut params = Self { common, levels: [None; 2], headroom_percent: 25, threads: 1 };
        for parameter in Parameter::all(options) {
            match parameter.name {
                "levels" => {
                    let wanted = "wanted auto or 4 to 20 levels";
                    params.levels[0] = parameter.auto_or_within("levels", &LEVELS_V4, wanted)?;
                }
                "levels6" => {
                    let wanted = "wanted auto or 8 to 30 levels";
                    params.levels[1] = parameter.auto_or_within("levels6", &LEVELS_V6, wanted)?;
                }
                "headroom" => {
                    let wanted = "wanted 0 to 1000 percent";
                    params.headroom_percent = parameter.within("headroom", &(0..=1000), wanted)?;
                }
                "threads" => {
                    let wanted = "wanted 1 to 256 threads";
                    params.threads = parameter.within("threads", &(1..=THREADS_MAX), wanted)?;
                }
                _ => {
                    let wanted = "the parameters of engine mamt are levels, levels6, headroom and threads";
                    return Err(parameter.refuse_name(wanted));
                }
            }
        }
        Ok(params)
    }

    pub(super) fn gamt(&self, family: Family, has_reserve: bool) -> GamtOptions {
        GamtOptions {
            levels: self.levels[usize::from(family == Family::V6)],
            transaction_bytes: 64, // a line of the cache
            headroom_percent: if has_reserve { self.headroom_percent } else { 0 },
            in_place: true,
            table_bytes_max: self.common.table_bytes_max,
            ..GamtOptions::default()
        }
    }
}
