//! Parameters of the engine `miht`.

use fib::{EngineError, EngineOptions};
use lpm_core::memory::Placement;
use std::ops::RangeInclusive;

/// Orders of an index tree: below 3 there is no B+ tree; above 256 a node is longer than the search within it can gain.
const ORDERS: RangeInclusive<usize> = 3..=256;

/// The `(k, m)` of a (k, m)-MIHT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Bits of an index key, 1 to the bits of an address.
    pub k: u8,
    /// The most entries of a node of the index tree, 3 to 256.
    pub m: usize,
}

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Of IPv4; the paper's is (16, 16) (section 5.1).
    pub v4: Order,
    /// Of IPv6; the paper's is (32, 32) (section 6.6).
    pub v6: Order,
    /// Bytes that lookups may read at most. The copy that updates go to is not counted.
    pub table_bytes_max: u64,
    /// Where the tables lie.
    pub placement: Placement,
}

impl Params {
    /// Reads the parameters `k4` (1..32), `m4` (3..256), `k6` (1..128) and `m6` (3..256).
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for one out of range or unknown.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let mut params = Self {
            v4: Order { k: 16, m: 16 },
            v6: Order { k: 32, m: 32 },
            table_bytes_max: options.table_bytes_max,
            placement: Placement { huge_pages: options.huge_pages, numa_node: options.numa_node },
        };
        for (name, value) in &options.parameters {
            params.set(name, value)?;
        }
        Ok(params)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), EngineError> {
        let refuse =
            |parameter, wanted| EngineError::Parameter { parameter, value: value.to_owned(), wanted };
        let bits = |parameter, max: u8, wanted| {
            value.parse().ok().filter(|k| (1..=max).contains(k)).ok_or_else(|| refuse(parameter, wanted))
        };
        let order = |parameter| {
            let m = value.parse().ok().filter(|m| ORDERS.contains(m));
            m.ok_or_else(|| refuse(parameter, "wanted an order of the index tree from 3 to 256"))
        };
        match name {
            "k4" => self.v4.k = bits("k4", 32, "wanted the bits of an IPv4 index key, 1 to 32")?,
            "k6" => self.v6.k = bits("k6", 128, "wanted the bits of an IPv6 index key, 1 to 128")?,
            "m4" => self.v4.m = order("m4")?,
            "m6" => self.v6.m = order("m6")?,
            _ => {
                let value = format!("{name}={value}");
                let wanted = "the parameters of engine miht are k4, m4, k6 and m6";
                return Err(EngineError::Parameter { parameter: "engine parameter", value, wanted });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Params, EngineError> {
        Params::from_options(&EngineOptions::of(pairs))
    }

    #[test]
    fn defaults_are_the_papers() {
        let params = with(&[]).unwrap();
        assert_eq!((params.v4, params.v6), (Order { k: 16, m: 16 }, Order { k: 32, m: 32 }));
        let params = with(&[("k4", "20"), ("m4", "3"), ("k6", "128"), ("m6", "256")]).unwrap();
        assert_eq!((params.v4, params.v6), (Order { k: 20, m: 3 }, Order { k: 128, m: 256 }));
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
        ] {
            let refused = with(&[(name, value)]);
            assert!(matches!(refused, Err(EngineError::Parameter { .. })), "{name}={value}");
        }
    }
}
