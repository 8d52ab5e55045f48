//! How a GAMT table is to be made.

use fib::{EngineError, Family};
use std::ops::RangeInclusive;

/// How a table lies in the device's array of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Levels behind each other, each as wide as it has to be.
    #[default]
    Flat,
    /// The paper's rectangle: every level as wide as the widest (Algorithm 1).
    Paper,
}

/// Where next hops are kept (section 5.3's two variants).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHops {
    /// In the leaves: GAMT_T. The default: an answer is the next hop's id, so that the host looks nothing up for a key, where
    /// GAMT_S asks a table of the size of the FIB.
    #[default]
    Together,
    /// In a table on the host that leaves point to: GAMT_S. A route's new next hop writes nothing to the device.
    Apart,
}

/// Levels that an IPv4 trie may have: what the paper tried (figure 11).
pub const LEVELS_V4: RangeInclusive<u8> = 4..=20;

/// Levels that an IPv6 trie may have: what the paper tried (figure 15).
pub const LEVELS_V6: RangeInclusive<u8> = 8..=30;

/// Parameters of one family's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GamtOptions {
    /// How the levels lie in the device's array.
    pub layout: Layout,
    /// Where next hops are kept.
    pub next_hops: NextHops,
    /// Levels of the trie; chosen from the table when `None`.
    pub levels: Option<u8>,
    /// Bytes of a memory transaction, for Algorithm 3; the paper's GPU has 128.
    pub transaction_bytes: u32,
    /// Room that each level is given beyond what it needs, percent of it.
    pub headroom_percent: u32,
    /// Whether a table is kept up by steps even if most of it is written: a store to memory of this host costs less than a bubble.
    pub in_place: bool,
    /// Bytes of the device's array at most.
    pub table_bytes_max: u64,
}

impl Default for GamtOptions {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            next_hops: NextHops::default(),
            levels: None,
            transaction_bytes: 128,
            headroom_percent: 25,
            in_place: false,
            table_bytes_max: fib::EngineOptions::default().table_bytes_max,
        }
    }
}

impl GamtOptions {
    /// The levels that a table of `family` may have under these options.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for a level count that the family does not have.
    pub fn levels_of(&self, family: Family) -> Result<RangeInclusive<u8>, EngineError> {
        let (parameter, range, wanted) = match family {
            Family::V4 => ("levels", LEVELS_V4, "auto, or 4..=20 levels"),
            Family::V6 => ("levels6", LEVELS_V6, "auto, or 8..=30 levels"),
        };
        match self.levels {
            None => Ok(range),
            Some(levels) if range.contains(&levels) => Ok(levels..=levels),
            Some(levels) => Err(EngineError::Parameter { parameter, value: levels.to_string(), wanted }),
        }
    }

    /// Units of a memory transaction.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] when a transaction is no power of two, or is not 4..=4096 bytes.
    pub fn transaction_units(&self) -> Result<u64, EngineError> {
        let bytes = self.transaction_bytes;
        if bytes.is_power_of_two() && (4..=4096).contains(&bytes) {
            return Ok(u64::from(bytes / 4));
        }
        Err(EngineError::Parameter {
            parameter: "transaction-bytes",
            value: bytes.to_string(),
            wanted: "a power of two, 4..=4096",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let options = GamtOptions { levels: Some(21), ..GamtOptions::default() };
        let refused = options.levels_of(Family::V4).unwrap_err().to_string();
        assert!(refused.contains("levels = 21") && refused.contains("4..=20"), "{refused}");
        assert_eq!(options.levels_of(Family::V6).unwrap(), 21..=21);
        assert_eq!(GamtOptions::default().levels_of(Family::V6).unwrap(), LEVELS_V6);
        let options = GamtOptions { transaction_bytes: 48, ..GamtOptions::default() };
        assert!(options.transaction_units().is_err());
        assert_eq!(GamtOptions::default().transaction_units(), Ok(32));
    }
}
