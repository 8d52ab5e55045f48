//! Lookups in the device's table, and the words that they can reach.

use crate::cu::as_next_hops;
use crate::gamt::{Layout, code};
use crate::host::{Answers, RAW_DEEP};
use crate::model::{LoadedTable, LookupModel, high_bits};
use fib::{Key, NextHopId};
use std::convert::Infallible;

impl LoadedTable {
    /// The next hop of `key`.
    pub fn lookup<K: Key>(&self, answers: &dyn Answers<K>, key: K) -> NextHopId {
        let Ok(raw) =
            self.kernel.search_by::<Infallible>(&self.header, high_bits(key), |at| Ok(self.words[at]));
        resolve(answers, key, raw)
    }

    /// Marks the words that lookups can reach; for GAMT's tables only.
    #[must_use]
    pub fn reachable(&self) -> Vec<bool> {
        let mut words = vec![false; self.words.len()];
        let mut nodes = vec![(1, 0)];
        while let Some((level, node)) = nodes.pop() {
            let stride_at = code::stride_at(level as usize);
            let base = match self.kernel {
                LookupModel::Gamt(Layout::Paper) => level * self.header[1],
                _ => self.header[stride_at + 1],
            };
            for at in base + node..base + node + (1 << self.header[stride_at]) {
                words[at as usize] = true;
                let unit = self.words[at as usize];
                if !code::is_leaf(unit) {
                    nodes.push((code::jump(unit), code::inf(unit)));
                }
            }
        }
        words
    }
}

pub(super) fn resolve<K: Key>(answers: &dyn Answers<K>, key: K, raw: u32) -> NextHopId {
    if K::BITS == 32 {
        assert_eq!(raw & RAW_DEEP, 0, "no IPv4 prefix is longer than what the device searches");
    }
    let (mut resolved, low) = ([raw], [key.to_high_bits() as u64]);
    answers.resolve(if K::BITS == 32 { &[] } else { &low }, &mut resolved);
    as_next_hops(&resolved)[0]
}
