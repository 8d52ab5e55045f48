//! Parameters of the engine `bloom`.

use super::equations::{FPR_RANGE, FilterSize};
use super::hash::Hash32;
use fib::{EngineError, EngineOptions};
use lpm_core::caches::Caches;
use lpm_core::params::{Common, Parameter};

/// Valid values of `dense`: from one /24 to one more than a block has.
const DENSE_RANGE: std::ops::RangeInclusive<u16> = 1..=17;
/// The best value of `dense` if table lines come from memory instead of a cache.
const DENSE_BEYOND_CACHES: u16 = 5;

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub struct BloomParams {
    /// Parameters common to CPU engines.
    pub common: Common,
    /// The target false-positive rate of each filter, `0.01..=0.9`; `None` chooses, see [`BloomParams::fpr_for`].
    pub fpr: Option<f64>,
    /// Skip G1's filter for blocks with at least this many of their 16 /24s in G1: 1 never uses the filter, 17 always. `None` chooses.
    pub dense: Option<u16>,
    /// The hash of keys.
    pub hash: Hash32,
}

impl AsRef<Common> for BloomParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl BloomParams {
    /// Reads the parameters `fpr` (0.01..0.9 or `auto`), `dense` (1..17 or `auto`) and `hash` (`h2`, `murmur`).
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for an unknown parameter or value, [`EngineError::Isa`] for an instruction set that this CPU lacks.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let common = Common::with_best_isa(options)?;
        let mut params = Self { common, fpr: None, dense: None, hash: Hash32::default() };
        for parameter in Parameter::all(options) {
            match parameter.name {
                "fpr" => {
                    let wanted = "wanted auto, or a false-positive rate between 0.01 and 0.9";
                    params.fpr = parameter.auto_or_within("fpr", &FPR_RANGE, wanted)?;
                }
                "dense" => {
                    let wanted = "wanted auto, or a number from 1 to 17";
                    params.dense = parameter.auto_or_within("dense", &DENSE_RANGE, wanted)?;
                }
                "hash" => {
                    let hash = parameter.value.parse();
                    params.hash = hash.map_err(|()| parameter.refuse("hash", "wanted h2 or murmur"))?;
                }
                _ => {
                    return Err(
                        parameter.refuse_name("the parameters of engine bloom are fpr, dense and hash")
                    );
                }
            }
        }
        Ok(params)
    }

    /// The requested rate; else the lowest of 10 and 20 % whose filters take at most a sixteenth of a CPU's L2 cache; else 30 %, the
    /// paper's choice (section 6.2). Direct entries and lines need the cache too.
    #[must_use]
    pub fn fpr_for(&self, entries: u64) -> f64 {
        let room_bits = Caches::detect().l2_bytes / 16 * 8;
        let fits = |rate: &f64| FilterSize::blocked(entries, *rate).bits <= room_bits;
        self.fpr.unwrap_or_else(|| [0.1, 0.2].into_iter().find(fits).unwrap_or(0.3))
    }

    /// The number of /24s that makes a block dense: the requested one; else 1 if the CPU's share of the last-level cache holds the table,
    /// and 5 otherwise. A filter saves the wait for the line of an absent key, and costs every present key; a cached line is cheaper.
    #[must_use]
    pub fn dense_for(&self, table_bytes: u64) -> u16 {
        let fits = table_bytes <= Caches::detect().l3_bytes;
        self.dense.unwrap_or(if fits { 1 } else { DENSE_BEYOND_CACHES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Isa;

    #[test]
    fn parameters_are_checked() {
        let with = |name: &str, value: &str| {
            BloomParams::from_options(&EngineOptions {
                isa: Some(Isa::Scalar),
                ..EngineOptions::with_parameters(&[(name, value)])
            })
        };
        assert!(with("fpr", "0.1").is_ok() && with("hash", "murmur").is_ok());
        assert_eq!(with("fpr", "0.45").unwrap().fpr_for(1 << 30), 0.45);
        let auto = with("fpr", "auto").unwrap();
        assert_eq!((auto.fpr_for(100), auto.fpr_for(1 << 30)), (0.1, 0.3));
        assert_eq!(with("dense", "17").unwrap().dense_for(1 << 40), 17);
        let auto = with("dense", "auto").unwrap();
        assert_eq!((auto.dense_for(1), auto.dense_for(1 << 40)), (1, 5));
        for (name, value) in [
            ("dense", "0"),
            ("dense", "18"),
            ("fpr", "0"),
            ("fpr", "x"),
            ("fpr", "NaN"),
            ("hash", "md5"),
            ("size", "1"),
        ] {
            assert!(matches!(with(name, value), Err(EngineError::Parameter { .. })), "{name}={value}");
        }
    }
}
