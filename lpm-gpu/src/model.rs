//! A table as the device has it, and the lookups of its kernels in plain Rust: to count accesses, and for tests without a device.

use crate::gamt::{Layout, code};
use crate::host::{HEADER_WORDS, HostTable};
use crate::{gale, sail};
use fib::{Key, RibTable};
use std::convert::Infallible;

/// Which kernel looks up in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupModel {
    /// Algorithm 1.
    Gamt(Layout),
    /// One table for the first 24 bits.
    Gale,
    /// SAIL_L.
    Sail(Layout),
}

impl LookupModel {
    /// The raw answer to a key whose first 64 bits are `high`, with the loads done by `load`, one at a time and in the kernel's order.
    ///
    /// # Errors
    /// What `load` answers.
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

/// A table on a device in plain Rust.
#[derive(Clone, Debug)]
pub struct LoadedTable {
    /// The words.
    pub words: Vec<u32>,
    /// The shape.
    pub header: [u32; HEADER_WORDS],
    /// The kernel of its lookups.
    pub kernel: LookupModel,
}

impl LoadedTable {
    /// The image of `table`, which has `routes`.
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

    /// The loads of a warp, one lane for each of `keys`: for each step, the words that the lanes load in it. A lane whose lookup is over
    /// loads nothing any more.
    ///
    /// `keys` have their first bits in their top bits ([`high_bits`]).
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

/// Memory transactions of `bytes` that loads of `words` by one warp at once take (GAMT, section 2.2.1): the aligned pieces of memory that the
/// words lie in. Tables begin at a multiple of any transaction.
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

    /// Bytes of a transaction in figure 6.
    const BYTES: usize = 32;

    /// Figure 6: the loads of 32 lookups lie in four transactions of GALE's table, and in one of each level of GAMT's, three in all.
    #[test]
    fn figure_6_has_four_transactions_and_one_a_step() {
        assert_eq!(BYTES / size_of::<u32>(), 8, "units of a transaction");
        // Eight addresses of each of the first two bits' values: their units are neighbours.
        let keys: Vec<u64> = (0..32).map(|at| (at / 8) << 62 | (at % 8) << 40).collect();
        let gale = LoadedTable {
            words: vec![leaf(1); DIRECT_UNITS],
            header: [0; HEADER_WORDS],
            kernel: LookupModel::Gale,
        };
        let steps = gale.loads_by_step(keys.iter().copied());
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [32], "one access a lookup");
        assert_eq!(transactions(&steps[0], BYTES), 4);
        // Three levels of a bit each, of two, four and eight units: every lookup ends in the last one.
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
        // The first unit leads to the second level, the second is a leaf.
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
