//! Parameters of the engines `bloom-naive` and `bloom-baseline`.

use super::hash::HashName;
use crate::bloom::equations::FPR_RANGE;
use crate::cpe::dpcpe::LevelSearch;
use fib::{CheckedIsa, EngineError, EngineOptions, Isa};
use lpm_core::params::{Common, Parameter};

/// The name of the engine of section 3.1 on the command line.
pub const NAIVE: &str = "bloom-naive";
/// The name of the engine of section 3.2 on the command line.
pub const BASELINE: &str = "bloom-baseline";

/// The paper's forms of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One filter and hash table for each length (section 3.1).
    Naive,
    /// A direct lookup array and two groups for IPv4, DPCPE's levels for IPv6 (sections 3.2 and 4.2).
    Baseline,
}

impl Variant {
    /// The engine's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => NAIVE,
            Self::Baseline => BASELINE,
        }
    }
}

/// The number of levels that IPv6 is expanded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelChoice {
    /// The number with the shortest modelled lookup.
    Auto,
    /// This number, refused if it does not fit.
    Fixed(usize),
}

/// How a filter is sized for its keys and its target false-positive rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSizing {
    /// The filter has the target rate.
    Exact,
    /// By equations 1 and 3, as in table 5: k is rounded up, which changes the rate (99 % instead of 90 %).
    Paper,
}

/// The number of buckets of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketCount {
    /// An odd number: a hash that preserves divisibility (Knuth's) reaches every bucket.
    Odd,
    /// Four times an odd number: Knuth's hash reaches half of the buckets for keys divisible by 2, a quarter for 4 (section 6.2).
    Even,
}

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub struct VariantParams {
    /// The form of the tables.
    pub variant: Variant,
    /// Parameters common to CPU engines.
    pub common: Common,
    /// The target false-positive rate of each filter, `0.01..=0.9`; the paper's choice is 0.3 (section 6.2).
    pub fpr: f64,
    /// The hash of the filters.
    pub filter_hash: HashName,
    /// The hash of the hash tables.
    pub table_hash: HashName,
    /// The sizes of filters.
    pub filters: FilterSizing,
    /// The numbers of buckets.
    pub buckets: BucketCount,
    /// The levels of IPv6; `bloom-baseline` only.
    pub levels: LevelChoice,
    /// The search for these levels; `bloom-baseline` only.
    pub dpcpe: LevelSearch,
}

impl AsRef<Common> for VariantParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl VariantParams {
    /// Reads `fpr` (0.01..0.9), `filter-hash`, `table-hash` or both as `hash` (`murmur`, `knuth`, `h2`, `rand`), `filters` (`exact`,
    /// `paper`), `buckets` (`odd`, `even`) and, for `bloom-baseline`, `levels` (`auto`, 1..64) and `dpcpe` (`optimum`, `greedy`). By
    /// default `bloom-naive` hashes by H2 and runs on the best instruction set; `bloom-baseline` hashes by `rand` and is scalar.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for an unknown parameter or value, and for `rand` with a vector instruction set; [`EngineError::Isa`]
    /// for an instruction set that this CPU lacks.
    pub fn from_options(variant: Variant, options: &EngineOptions) -> Result<Self, EngineError> {
        let hash = match variant {
            Variant::Naive => HashName::H2,
            Variant::Baseline => HashName::Rand,
        };
        let mut params = Self {
            variant,
            common: Common::new(options, CheckedIsa::SCALAR),
            fpr: 0.3,
            filter_hash: hash,
            table_hash: hash,
            filters: FilterSizing::Exact,
            buckets: BucketCount::Odd,
            levels: LevelChoice::Auto,
            dpcpe: LevelSearch::Optimum,
        };
        for parameter in Parameter::all(options) {
            params.set(parameter)?;
        }
        params.common.isa = params.isa_of(options.isa)?;
        Ok(params)
    }

    fn set(&mut self, parameter: Parameter<'_>) -> Result<(), EngineError> {
        let hash = |name| {
            let hash = parameter.value.parse();
            hash.map_err(|()| parameter.refuse(name, "wanted murmur, knuth, h2 or rand"))
        };
        match (parameter.name, self.variant) {
            ("fpr", _) => {
                let wanted = "wanted a false-positive rate between 0.01 and 0.9";
                self.fpr = parameter.within("fpr", &FPR_RANGE, wanted)?;
            }
            ("hash", _) => {
                self.filter_hash = hash("hash")?;
                self.table_hash = self.filter_hash;
            }
            ("filter-hash", _) => self.filter_hash = hash("filter-hash")?,
            ("table-hash", _) => self.table_hash = hash("table-hash")?,
            ("filters", _) => {
                self.filters = match parameter.value {
                    "exact" => FilterSizing::Exact,
                    "paper" => FilterSizing::Paper,
                    _ => return Err(parameter.refuse("filters", "wanted exact or paper")),
                }
            }
            ("buckets", _) => {
                self.buckets = match parameter.value {
                    "odd" => BucketCount::Odd,
                    "even" => BucketCount::Even,
                    _ => return Err(parameter.refuse("buckets", "wanted odd or even")),
                }
            }
            ("dpcpe", Variant::Baseline) => {
                self.dpcpe = match parameter.value {
                    "optimum" => LevelSearch::Optimum,
                    "greedy" => LevelSearch::Greedy,
                    _ => return Err(parameter.refuse("dpcpe", "wanted optimum or greedy")),
                }
            }
            ("levels", Variant::Baseline) => {
                let wanted = "wanted auto or a number from 1 to 64";
                let fixed = parameter.auto_or_within("levels", &(1..=64), wanted)?;
                self.levels = fixed.map_or(LevelChoice::Auto, LevelChoice::Fixed);
            }
            _ => {
                let wanted = match self.variant {
                    Variant::Naive => {
                        "the parameters of engine bloom-naive are fpr, hash, filter-hash, table-hash, filters and buckets"
                    }
                    Variant::Baseline => {
                        "the parameters of engine bloom-baseline are fpr, hash, filter-hash, table-hash, filters, buckets, levels and dpcpe"
                    }
                };
                return Err(parameter.refuse_name(wanted));
            }
        }
        Ok(())
    }

    fn isa_of(&self, asked: Option<Isa>) -> Result<CheckedIsa, EngineError> {
        let vectorised = self.filter_hash.is_vectorised() && self.table_hash.is_vectorised();
        let isa = asked.map(Isa::checked).transpose()?;
        match isa.map(CheckedIsa::get) {
            Some(isa) if isa != Isa::Scalar && !vectorised => Err(EngineError::Parameter {
                parameter: "hash",
                value: HashName::Rand.to_string(),
                wanted: "rand has no vector form; a vector instruction set needs murmur, knuth or h2",
            }),
            Some(Isa::Avx2) => Err(EngineError::Parameter {
                parameter: "isa",
                value: Isa::Avx2.to_string(),
                wanted: "the paper's variants have kernels for scalar and avx512f",
            }),
            None if self.variant == Variant::Naive && vectorised => {
                Ok(Isa::Avx512f.checked().unwrap_or(CheckedIsa::SCALAR))
            }
            _ => Ok(isa.unwrap_or(CheckedIsa::SCALAR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        variant: Variant,
        isa: Option<Isa>,
        pairs: &[(&str, &str)],
    ) -> Result<VariantParams, EngineError> {
        VariantParams::from_options(variant, &EngineOptions { isa, ..EngineOptions::with_parameters(pairs) })
    }

    #[test]
    fn defaults_and_the_paper_s_form() {
        let baseline = with(Variant::Baseline, None, &[]).unwrap();
        assert_eq!(
            (baseline.common.isa.get(), baseline.filter_hash, baseline.table_hash),
            (Isa::Scalar, HashName::Rand, HashName::Rand)
        );
        let vectorised = if Isa::Avx512f.checked().is_ok() { Isa::Avx512f } else { Isa::Scalar };
        let naive = with(Variant::Naive, None, &[("table-hash", "knuth")]).unwrap();
        assert_eq!(
            (naive.common.isa.get(), naive.filter_hash, naive.table_hash),
            (vectorised, HashName::H2, HashName::Knuth)
        );
        assert_eq!(with(Variant::Naive, None, &[("hash", "rand")]).unwrap().common.isa, CheckedIsa::SCALAR);
        assert_eq!(with(Variant::Baseline, None, &[("levels", "5")]).unwrap().levels, LevelChoice::Fixed(5));
        let ours = (baseline.filters, baseline.buckets, baseline.dpcpe);
        assert_eq!(ours, (FilterSizing::Exact, BucketCount::Odd, LevelSearch::Optimum));
        let paper = [("filters", "paper"), ("buckets", "even"), ("dpcpe", "greedy")];
        let paper = with(Variant::Baseline, None, &paper).unwrap();
        let paper = (paper.filters, paper.buckets, paper.dpcpe);
        assert_eq!(paper, (FilterSizing::Paper, BucketCount::Even, LevelSearch::Greedy));
    }

    #[test]
    fn wrong_ones_are_refused() {
        for (name, value) in [
            ("fpr", "0"),
            ("fpr", "0.91"),
            ("fpr", "NaN"),
            ("hash", "md5"),
            ("levels", "0"),
            ("levels", "65"),
            ("filters", "table5"),
            ("buckets", "4"),
            ("dpcpe", "best"),
            ("size", "1"),
        ] {
            let refused = with(Variant::Baseline, None, &[(name, value)]);
            assert!(matches!(refused, Err(EngineError::Parameter { .. })), "{name}={value}");
        }
        for (name, value) in [("levels", "5"), ("dpcpe", "greedy")] {
            assert!(with(Variant::Naive, None, &[(name, value)]).is_err(), "{name}");
        }
        if Isa::Avx512f.is_available() {
            assert!(with(Variant::Baseline, Some(Isa::Avx512f), &[]).is_err());
            assert!(with(Variant::Baseline, Some(Isa::Avx512f), &[("hash", "h2")]).is_ok());
        }
    }
}
