//! The keys of a measurement: one family, one traffic, in every form that an engine or a peer reads.
//!
//! Stands between [`fib::traffic`] and [`crate::table::Looker`]. Keys are made once, before any clock runs, and are
//! streamed: an array is larger than the L2 cache unless `--keys` says otherwise. Invariant: every form that is present
//! holds the same addresses in the same order.

use crate::fault::Fault;
use crate::tables::RouteSet;
use fib::random::Seeded;
use fib::traffic::Traffic;
use fib::{Family, FibId, Fibs, KeyBuffer, Keys};
use std::ops::Range;

/// The keys of one family and one traffic.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// The traffic, as on the command line.
    pub(crate) traffic: String,
    keys: KeyBuffer,
    /// IPv6 in wire order, what DPDK's functions read; empty unless a peer is in the run.
    bytes: Vec<[u8; 16]>,
    /// The FIB of each key, for engines that hold several; empty unless one is in the run.
    fibs: Vec<FibId>,
}

impl KeySet {
    /// `count` keys of `traffic` over the routes of `tables`.
    ///
    /// # Errors
    /// [`Fault::Traffic`] when the traffic cannot be made (an unreadable capture, a table without routes).
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
        let mut set = Self::of(traffic.to_string(), keys);
        if with_bytes && family == Family::V6 {
            set.bytes = (0..count).map(|at| set.high_bits(at).to_be_bytes()).collect();
        }
        Ok(set)
    }

    /// Keys that were drawn elsewhere; `traffic` says how.
    pub(crate) fn of(traffic: String, keys: KeyBuffer) -> Self {
        Self { traffic, keys, bytes: Vec::new(), fibs: Vec::new() }
    }

    /// Deals the keys to `fibs` FIBs at random.
    pub(crate) fn deal(&mut self, fibs: u32, seed: u64) {
        let mut rng = Seeded::new(seed, 0x6669_6273);
        self.fibs = (0..self.len()).map(|_| FibId(rng.u32() % fibs)).collect();
    }

    /// The FIBs of the keys of `range`; `None` when the keys were dealt to none.
    pub(crate) fn fibs(&self, range: Range<usize>) -> Option<Fibs<'_>> {
        (!self.fibs.is_empty()).then(|| Fibs::Each(&self.fibs[range]))
    }

    /// The family of all keys.
    pub(crate) fn family(&self) -> Family {
        self.keys.family()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys of `range` as engines read them.
    pub(crate) fn keys(&self, range: Range<usize>) -> Keys<'_> {
        self.keys.keys().part(range)
    }

    /// All IPv4 keys, host order; empty in an IPv6 set.
    pub(crate) fn v4(&self) -> &[u32] {
        match self.keys.keys() {
            Keys::V4(keys) => keys,
            Keys::V6 { .. } => &[],
        }
    }

    /// All IPv6 keys in wire order; empty when the set was made without them.
    #[cfg(feature = "dpdk")]
    pub(crate) fn bytes(&self) -> &[[u8; 16]] {
        &self.bytes
    }

    /// The key at `at`, aligned to the most significant of 128 bits.
    pub(crate) fn high_bits(&self, at: usize) -> u128 {
        self.keys.keys().high_bits(at)
    }

    /// A set of the keys at `positions`, in that order.
    pub(crate) fn pick(&self, positions: &[usize]) -> Self {
        let keys = match self.family() {
            Family::V4 => positions.iter().map(|at| self.v4()[*at]).collect(),
            Family::V6 => positions.iter().map(|at| self.high_bits(*at)).collect(),
        };
        let mut set = Self::of(self.traffic.clone(), keys);
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
        dealt.deal(50, 7);
        let (all, picked) = (dealt.fibs.clone(), dealt.pick(&[3, 1]));
        assert_eq!(picked.fibs, [all[3], all[1]]);
        assert!(all.iter().any(|fib| *fib != all[0]) && all.iter().all(|fib| fib.0 < 50));
        let picked = v6.pick(&[99, 3]);
        assert_eq!((picked.len(), picked.high_bits(0), picked.bytes[1]), (2, v6.high_bits(99), v6.bytes[3]));
    }
}
