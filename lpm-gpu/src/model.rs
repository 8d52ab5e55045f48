//! The device's copy of a table, and its lookup kernels in plain Rust: for tests without a device, and to count accesses.

use crate::gamt::{Layout, code};
use crate::host::{HEADER_WORDS, HostTable};
use crate::{gale, sail};
use fib::{Key, RibTable};
use std::convert::Infallible;

/// The lookup kernel of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupModel {
    /// GAMT's Algorithm 1.
    Gamt(Layout),
    /// GALE.
    Gale,
    /// SAIL_L.
    Sail(Layout),
}

impl LookupModel {
    /// The raw answer to a key with the first 64 bits `high`. `load` does the loads one at a time, in the kernel's order.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn search_by<E>(
        self,
        header: &[u32; HEADER_WORDS],
        high: u64,
        load: impl FnMut(usize) -> Result<u32, E>,
    ) -> Result<u32, E> {
        let first = (high >> 32) as u32;
        match self {
            Self::Gamt(layout) => code::search_by(header, layout, high, load),
            Self::Gale => gale::model::search_by(first, load),
            Self::Sail(layout) => sail::model::search_by(header, layout, first, load),
        }
    }
}

/// The first 64 bits of a key, left-aligned.
pub fn high_bits<K: Key>(key: K) -> u64 {
    (key.to_high_bits() >> 64) as u64
}

/// A device's table in host memory.
#[derive(Clone, Debug)]
pub struct LoadedTable {
    /// The words.
    pub words: Vec<u32>,
    /// The shape.
    pub header: [u32; HEADER_WORDS],
    /// The lookup kernel.
    pub kernel: LookupModel,
}

impl LoadedTable {
    /// Loads the image of `table`, which has `routes`.
    pub fn new<K: Key>(table: &(impl HostTable<K> + ?Sized), routes: &RibTable<K>) -> Self {
        let (image, names) = (table.image(routes), table.kernels());
        let layout = if names.frozen.contains("paper") { Layout::Paper } else { Layout::Flat };
        let kernel = match names.module {
            "gale" => LookupModel::Gale,
            "sail" => LookupModel::Sail(layout),
            _ => LookupModel::Gamt(layout),
        };
        Self { words: image.to_words(), header: image.header, kernel }
    }

    /// The words that a warp loads in each step, one lane a left-aligned key. Lanes that have their answer load nothing.
    #[must_use]
    pub fn loads_by_step(&self, keys: impl IntoIterator<Item = u64>) -> Vec<Vec<usize>> {
        let mut steps: Vec<Vec<usize>> = Vec::new();
        for key in keys {
            let mut step = 0;
            let Ok(_) = self.kernel.search_by::<Infallible>(&self.header, key, |at| {
                if step == steps.len() {
                    steps.push(Vec::new());
                }
                steps[step].push(at);
                step += 1;
                Ok(self.words[at])
            });
        }
        steps
    }
}

/// Memory transactions of `bytes` for one warp's loads of `words` (GAMT, section 2.2.1): the distinct aligned blocks that
/// contain them. Tables start at a multiple of any transaction size.
#[must_use]
pub fn transactions(words: &[usize], bytes: usize) -> usize {
    let mut pieces: Vec<usize> = words.iter().map(|at| at * size_of::<u32>() / bytes).collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gale::DIRECT_UNITS;
    use crate::gamt::code::{child, leaf, stride_at};

    const BYTES: usize = 32;

    /// Figure 6: 32 lookups load from four transactions of GALE's table, and from one of each of GAMT's three levels.
    #[test]
    fn figure_6_has_four_transactions_and_one_a_step() {
        assert_eq!(BYTES / size_of::<u32>(), 8, "units of a transaction");
        // Eight adjacent units for each value of the first two bits.
        let keys: Vec<u64> = (0..32).map(|at| (at / 8) << 62 | (at % 8) << 40).collect();
        let gale = LoadedTable {
            words: vec![leaf(1); DIRECT_UNITS],
            header: [0; HEADER_WORDS],
            kernel: LookupModel::Gale,
        };
        let steps = gale.loads_by_step(keys.iter().copied());
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [32], "one access a lookup");
        assert_eq!(transactions(&steps[0], BYTES), 4);
        // Three levels of one bit, with two, four and eight units; every lookup ends in the last.
        let mut words = vec![0; 3 * 8];
        words[..2].copy_from_slice(&[0, 2].map(|node| child(node, 2)));
        words[8..12].copy_from_slice(&[0, 2, 4, 6].map(|node| child(node, 3)));
        words[16..].fill(leaf(1));
        let mut header = [0; HEADER_WORDS];
        header[0] = 3;
        for (level, base) in [(1, 0), (2, 8), (3, 16)] {
            (header[stride_at(level)], header[stride_at(level) + 1]) = (1, base);
        }
        let gamt = LoadedTable { words, header, kernel: LookupModel::Gamt(Layout::Flat) };
        let steps = gamt.loads_by_step(keys);
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [32; 3], "three jumps a lookup");
        assert_eq!(steps.iter().map(|words| transactions(words, BYTES)).collect::<Vec<_>>(), [1; 3]);
    }

    #[test]
    fn a_lane_that_is_done_loads_nothing_and_one_piece_is_one_transaction() {
        let mut header = [0; HEADER_WORDS];
        header[0] = 2;
        for (level, base) in [(1, 0), (2, 32)] {
            (header[stride_at(level)], header[stride_at(level) + 1]) = (1, base);
        }
        let mut words = vec![leaf(1); 34];
        words[0] = child(0, 2);
        let table = LoadedTable { words, header, kernel: LookupModel::Gamt(Layout::Flat) };
        assert_eq!(table.loads_by_step([0, 1 << 63, 1 << 62]), [vec![0, 1, 0], vec![32, 33]]);
        assert_eq!(transactions(&[0, 1, 0], 32), 1);
        assert_eq!(transactions(&[0, 7, 8, 31, 32], 32), 4);
        assert_eq!(transactions(&[0, 7, 8, 31, 32], 128), 2);
        assert_eq!(transactions(&[], 32), 0);
    }
}
