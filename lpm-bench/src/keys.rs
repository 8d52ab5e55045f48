//! The keys of a measurement: one family, one traffic, made before any measurement. An array is larger than the L2 cache by default.
//! Invariant: every form (for engines, for peers) holds the same addresses in the same order.

use crate::fault::Fault;
use crate::tables::RouteSet;
use fib::random::Seeded;
use fib::traffic::Traffic;
use fib::{Family, FibId, Fibs, KeyBuffer, Keys, NextHopId};
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct KeySet {
    pub(crate) traffic: String,
    keys: KeyBuffer,
    /// IPv6 in wire order, for DPDK's functions; empty without peers.
    bytes: Vec<[u8; 16]>,
    /// The FIB of each key; empty without engines of several FIBs.
    fibs: Vec<FibId>,
}

impl KeySet {
    /// [`Fault::Traffic`] for an unreadable capture or a table without routes.
    pub(crate) fn make(
        traffic: &Traffic,
        family: Family,
        tables: &RouteSet,
        count: usize,
        seed: u64,
        with_bytes: bool,
    ) -> Result<Self, Fault> {
        let keys: KeyBuffer = match family {
            Family::V4 => traffic.keys(&tables.v4, count, seed)?.into(),
            Family::V6 => traffic.keys(&tables.v6, count, seed)?.into_iter().collect(),
        };
        let mut set = Self::from_keys(traffic.to_string(), keys);
        if with_bytes && family == Family::V6 {
            set.bytes = (0..count).map(|at| set.high_bits(at).to_be_bytes()).collect();
        }
        Ok(set)
    }

    pub(crate) fn from_keys(traffic: String, keys: KeyBuffer) -> Self {
        Self { traffic, keys, bytes: Vec::new(), fibs: Vec::new() }
    }

    pub(crate) fn assign_fibs(&mut self, fibs: u32, seed: u64) {
        let mut rng = Seeded::new(seed, 0x6669_6273);
        self.fibs = (0..self.len()).map(|_| FibId(rng.u32() % fibs)).collect();
    }

    pub(crate) fn fibs(&self, range: Range<usize>) -> Option<Fibs<'_>> {
        (!self.fibs.is_empty()).then(|| Fibs::Each(&self.fibs[range]))
    }

    pub(crate) fn family(&self) -> Family {
        self.keys.family()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn keys(&self, range: Range<usize>) -> Keys<'_> {
        self.keys.keys().part(range)
    }

    /// All IPv4 keys, host order; empty for IPv6.
    pub(crate) fn v4(&self) -> &[u32] {
        match self.keys.keys() {
            Keys::V4(keys) => keys,
            Keys::V6 { .. } => &[],
        }
    }

    /// All IPv6 keys in wire order; empty if made without them.
    #[cfg(feature = "dpdk")]
    pub(crate) fn bytes(&self) -> &[[u8; 16]] {
        &self.bytes
    }

    /// The key at `at`, aligned to the most significant of 128 bits.
    pub(crate) fn high_bits(&self, at: usize) -> u128 {
        self.keys.keys().high_bits(at)
    }

    pub(crate) fn longest_match(&self, tables: &RouteSet, at: usize) -> Option<(u8, NextHopId)> {
        match self.family() {
            Family::V4 => tables.oracle.v4.longest_match(self.v4()[at]),
            Family::V6 => tables.oracle.v6.longest_match(self.high_bits(at)),
        }
    }

    pub(crate) fn pick(&self, positions: &[usize]) -> Self {
        let keys = match self.family() {
            Family::V4 => positions.iter().map(|at| self.v4()[*at]).collect(),
            Family::V6 => positions.iter().map(|at| self.high_bits(*at)).collect(),
        };
        let mut set = Self::from_keys(self.traffic.clone(), keys);
        if !self.fibs.is_empty() {
            set.fibs = positions.iter().map(|at| self.fibs[*at]).collect();
        }
        if !self.bytes.is_empty() {
            set.bytes = positions.iter().map(|at| self.bytes[*at]).collect();
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_holds_the_same_addresses() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "2001:db8::/32 2"]);
        let v4 = KeySet::make(&Traffic::Table, Family::V4, &tables, 100, 7, true).unwrap();
        assert!(v4.len() == 100 && v4.v4().iter().all(|key| key >> 24 == 10));
        let v6 = KeySet::make(&Traffic::Table, Family::V6, &tables, 100, 7, true).unwrap();
        for at in 0..v6.len() {
            assert_eq!(v6.high_bits(at) >> 96, 0x2001_0db8);
            assert_eq!(v6.bytes[at], v6.high_bits(at).to_be_bytes());
        }
        let mut dealt = v4.pick(&[0, 1, 2, 3]);
        assert!(dealt.fibs(0..4).is_none());
        dealt.assign_fibs(50, 7);
        let (all, picked) = (dealt.fibs.clone(), dealt.pick(&[3, 1]));
        assert_eq!(picked.fibs, [all[3], all[1]]);
        assert!(all.iter().any(|fib| *fib != all[0]) && all.iter().all(|fib| fib.0 < 50));
        let picked = v6.pick(&[99, 3]);
        assert_eq!((picked.len(), picked.high_bits(0), picked.bytes[1]), (2, v6.high_bits(99), v6.bytes[3]));
    }
}
