//! Options of a GAMT table.

use fib::{EngineError, Family};
use std::ops::RangeInclusive;

/// Layout of a table in the device's array of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Levels one behind another, each with its own width.
    #[default]
    Flat,
    /// The paper's rectangle: every level as wide as the widest (Algorithm 1).
    Paper,
}

/// Where next hops are kept (section 5.3's two variants).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHops {
    /// In the leaves: GAMT_T. The default: GAMT_S loads from a table of the FIB's size for every key.
    #[default]
    Together,
    /// In a table on the host, to whose entries leaves point: GAMT_S. A route's new next hop does not write the device.
    Apart,
}

/// Levels of an IPv4 trie: the paper's range (figure 11).
pub const LEVELS_V4: RangeInclusive<u8> = 4..=20;

/// Levels of an IPv6 trie: the paper's range (figure 15).
pub const LEVELS_V6: RangeInclusive<u8> = 8..=30;

/// Parameters of one family's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GamtOptions {
    /// Layout of the levels.
    pub layout: Layout,
    /// Location of next hops.
    pub next_hops: NextHops,
    /// Levels of the trie; chosen from the table when `None`.
    pub levels: Option<u8>,
    /// Bytes of a memory transaction, for Algorithm 3; 128 on the paper's GPU.
    pub transaction_bytes: u32,
    /// Head room of each level, percent of its units.
    pub headroom_percent: u32,
    /// Never rebuild because most units changed: for words in host memory, where a store is cheaper than a bubble.
    pub in_place: bool,
    /// Build the next trie on a thread while this one still has room.
    pub builds_early: bool,
    /// Limit of the device's array, bytes.
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
            builds_early: false,
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
            Family::V4 => ("levels", LEVELS_V4, "wanted auto or 4 to 20 levels"),
            Family::V6 => ("levels6", LEVELS_V6, "wanted auto or 8 to 30 levels"),
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
    /// [`EngineError::Parameter`] unless a transaction is a power of two, 4..=4096 bytes.
    pub fn transaction_units(&self) -> Result<u64, EngineError> {
        let bytes = self.transaction_bytes;
        if bytes.is_power_of_two() && (4..=4096).contains(&bytes) {
            return Ok(u64::from(bytes / 4));
        }
        Err(EngineError::Parameter {
            parameter: "transaction-bytes",
            value: bytes.to_string(),
            wanted: "wanted a power of two from 4 to 4096",
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
        assert!(refused.contains("levels = 21") && refused.contains("4 to 20"), "{refused}");
        assert_eq!(options.levels_of(Family::V6).unwrap(), 21..=21);
        assert_eq!(GamtOptions::default().levels_of(Family::V6).unwrap(), LEVELS_V6);
        let options = GamtOptions { transaction_bytes: 48, ..GamtOptions::default() };
        assert!(options.transaction_units().is_err());
        assert_eq!(GamtOptions::default().transaction_units(), Ok(32));
    }
}
