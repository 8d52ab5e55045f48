//! Parameters of the engine `miht`.

use fib::{CheckedIsa, EngineError, EngineOptions};
use lpm_core::params::{Common, Parameter};
use std::ops::RangeInclusive;

/// Valid orders of an index tree: there is no B+ tree below 3; above 256 a node is too long for the search within it.
const ORDERS: RangeInclusive<usize> = 3..=256;

/// The `(k, m)` of a (k, m)-MIHT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Bits of an index key, 1 to the bits of an address.
    pub k: u8,
    /// The most entries of a node of the index tree, 3 to 256.
    pub m: usize,
}

/// How the keys of a call are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// 64 at a time, level by level, so that their loads overlap.
    Together,
    /// One at a time without prefetches, as the paper describes a lookup (section 5.1).
    Single,
}

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub struct MihtParams {
    /// Parameters common to CPU engines; lookups are scalar. `table_bytes_max` does not count the spare copy.
    pub common: Common,
    /// IPv4; the paper's choice is (16, 16) (section 5.1).
    pub v4: Order,
    /// IPv6; the paper's choice is (32, 32) (section 6.6).
    pub v6: Order,
    /// How keys descend.
    pub descent: Descent,
}

impl AsRef<Common> for MihtParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl MihtParams {
    /// Reads the parameters `k4` (1..32), `m4` (3..256), `k6` (1..128), `m6` (3..256) and `descent` (together, single).
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for an unknown parameter or value.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let mut params = Self {
            common: Common::new(options, CheckedIsa::SCALAR),
            v4: Order { k: 16, m: 16 },
            v6: Order { k: 32, m: 32 },
            descent: Descent::Together,
        };
        for parameter in Parameter::all(options) {
            params.set(parameter)?;
        }
        Ok(params)
    }

    fn set(&mut self, parameter: Parameter<'_>) -> Result<(), EngineError> {
        let order = |name| parameter.within(name, &ORDERS, "wanted an order of the index tree from 3 to 256");
        match parameter.name {
            "k4" => {
                let wanted = "wanted the bits of an IPv4 index key, 1 to 32";
                self.v4.k = parameter.within("k4", &(1..=32), wanted)?;
            }
            "k6" => {
                let wanted = "wanted the bits of an IPv6 index key, 1 to 128";
                self.v6.k = parameter.within("k6", &(1..=128), wanted)?;
            }
            "m4" => self.v4.m = order("m4")?,
            "m6" => self.v6.m = order("m6")?,
            "descent" => {
                self.descent = match parameter.value {
                    "together" => Descent::Together,
                    "single" => Descent::Single,
                    _ => return Err(parameter.refuse("descent", "wanted together or single")),
                }
            }
            _ => {
                let wanted = "the parameters of engine miht are k4, m4, k6, m6 and descent";
                return Err(parameter.refuse_name(wanted));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<MihtParams, EngineError> {
        MihtParams::from_options(&EngineOptions::with_parameters(pairs))
    }

    #[test]
    fn defaults_are_the_papers() {
        let params = with(&[]).unwrap();
        assert_eq!((params.v4, params.v6), (Order { k: 16, m: 16 }, Order { k: 32, m: 32 }));
        let params = with(&[("k4", "20"), ("m4", "3"), ("k6", "128"), ("m6", "256")]).unwrap();
        assert_eq!((params.v4, params.v6), (Order { k: 20, m: 3 }, Order { k: 128, m: 256 }));
        let descent = |value| with(&[("descent", value)]).map(|params| params.descent);
        assert_eq!(
            ["together", "single"].map(|value| descent(value).unwrap()),
            [Descent::Together, Descent::Single]
        );
    }

    #[test]
    fn wrong_ones_are_refused() {
        for (name, value) in [
            ("k4", "0"),
            ("k4", "33"),
            ("k6", "129"),
            ("m4", "2"),
            ("m6", "257"),
            ("k6", "-1"),
            ("m6", ""),
            ("k", "16"),
            ("descent", "one"),
        ] {
            let refused = with(&[(name, value)]);
            assert!(matches!(refused, Err(EngineError::Parameter { .. })), "{name}={value}");
        }
    }
}
