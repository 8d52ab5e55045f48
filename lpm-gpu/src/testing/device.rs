//! A table as the device has it, and the lookups of its kernels.

use crate::gamt::{Layout, code};
use crate::host::{Answers, HEADER_WORDS, HostTable, KeySlice, RAW_DEEP};
use crate::{gale, sail};
use fib::{Key, NextHopId, RibTable};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Which kernel looks up in a table. The models are those that tests of the kernels hold the PTX against.
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

    /// The next hop of `key`.
    pub fn lookup<K: Key>(&self, answers: &dyn Answers<K>, key: K) -> NextHopId {
        let Ok(raw) =
            self.kernel.search_by::<Infallible>(&self.header, high_bits(key), |at| Ok(self.words[at]));
        resolve(answers, key, raw)
    }

    /// All words that a lookup can reach; of GAMT's tables only.
    #[must_use]
    pub fn reachable(&self) -> BTreeSet<u32> {
        let mut words = BTreeSet::new();
        let mut nodes = vec![(1, 0)];
        while let Some((level, node)) = nodes.pop() {
            let stride_at = code::stride_at(level as usize);
            let base = match self.kernel {
                LookupModel::Gamt(Layout::Paper) => level * self.header[1],
                _ => self.header[stride_at + 1],
            };
            for at in base + node..base + node + (1 << self.header[stride_at]) {
                words.insert(at);
                let unit = self.words[at as usize];
                if !code::is_leaf(unit) {
                    nodes.push((code::jump(unit), code::inf(unit)));
                }
            }
        }
        words
    }
}

/// The next hop that a raw answer to `key` stands for.
pub(super) fn resolve<K: Key>(answers: &dyn Answers<K>, key: K, raw: u32) -> NextHopId {
    let mut out = [NextHopId::MAX];
    if K::BITS == 32 {
        assert_eq!(raw & RAW_DEEP, 0, "no IPv4 prefix is longer than what the device searches");
        answers.resolve(KeySlice::Whole(&[key]), &[raw], &mut out);
    } else {
        let low = key.to_high_bits() as u64;
        answers.resolve(KeySlice::Halves(&[high_bits(key)], &[low]), &[raw], &mut out);
    }
    out[0]
}
