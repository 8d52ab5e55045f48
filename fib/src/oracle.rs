//! The oracle: longest-prefix match by its definition, and the engine `oracle` over it.
//!
//! For each length from the longest to the shortest, a hash map is searched for the key's prefix of that length. The oracle
//! shares no lookup code with any engine and is kept simple: where the two disagree, the engine is wrong.

use crate::reader::{Answer, SlotReader};
use crate::{
    EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, Generation,
    IpPrefix, Isa, Key, Keys, NextHopId, Prefix, Rib, Routes,
};
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Longest-prefix match over one family.
#[derive(Clone, Debug)]
pub struct Oracle<K: Key> {
    by_len: Vec<FxHashMap<K, NextHopId>>,
}

/// Longest-prefix match over IPv4.
pub type Oracle4 = Oracle<u32>;
/// Longest-prefix match over IPv6.
pub type Oracle6 = Oracle<u128>;

impl<K: Key> Default for Oracle<K> {
    fn default() -> Self {
        Self { by_len: vec![FxHashMap::default(); usize::from(K::BITS) + 1] }
    }
}

impl<K: Key> Oracle<K> {
    /// An oracle without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it.
    pub fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId) {
        let routes = &mut self.by_len[usize::from(prefix.len())];
        if next_hop.is_none() {
            routes.remove(&prefix.address());
        } else {
            routes.insert(prefix.address(), next_hop);
        }
    }

    /// The next hop of the longest prefix that contains `key`, and that prefix's length; `None` without a route.
    #[must_use]
    pub fn longest_match(&self, key: K) -> Option<(u8, NextHopId)> {
        (0..=K::BITS).rev().find_map(|len| {
            let routes = &self.by_len[usize::from(len)];
            if routes.is_empty() {
                return None;
            }
            routes.get(&(key & K::mask(len))).map(|next_hop| (len, *next_hop))
        })
    }

    /// The next hop of the longest prefix that contains `key`; [`NextHopId::NONE`] without a route.
    #[must_use]
    pub fn lookup(&self, key: K) -> NextHopId {
        self.longest_match(key).map_or(NextHopId::NONE, |(_, next_hop)| next_hop)
    }

    /// The number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_len.iter().map(FxHashMap::len).sum()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bytes(&self) -> u64 {
        let entry = size_of::<(K, NextHopId)>() + 1; // one control byte an entry
        self.by_len.iter().map(|routes| (routes.capacity() * entry) as u64).sum()
    }
}

impl<K: Key> FromIterator<(Prefix<K>, NextHopId)> for Oracle<K> {
    fn from_iter<I: IntoIterator<Item = (Prefix<K>, NextHopId)>>(routes: I) -> Self {
        let mut oracle = Self::new();
        for (prefix, next_hop) in routes {
            oracle.set(prefix, next_hop);
        }
        oracle
    }
}

/// Both families of the oracle.
#[derive(Clone, Debug, Default)]
pub struct OraclePair {
    /// IPv4.
    pub v4: Oracle4,
    /// IPv6.
    pub v6: Oracle6,
}

impl From<&Rib> for OraclePair {
    /// Longest-prefix match over all routes of `rib`.
    fn from(rib: &Rib) -> Self {
        Self { v4: rib.v4.iter().collect(), v6: rib.v6.iter().collect() }
    }
}

impl OraclePair {
    /// Sets the next hop of `prefix`, as [`Oracle::set`].
    pub fn set(&mut self, prefix: IpPrefix, next_hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.set(prefix, next_hop),
            IpPrefix::V6(prefix) => self.v6.set(prefix, next_hop),
        }
    }

    /// As [`Oracle::lookup`] for IPv4. It is compiled in this crate, and so optimised in test builds, too.
    #[must_use]
    pub fn lookup_v4(&self, key: u32) -> NextHopId {
        self.v4.lookup(key)
    }

    /// The next hop of an IPv6 key, as [`Self::lookup_v4`].
    #[must_use]
    pub fn lookup_v6(&self, key: u128) -> NextHopId {
        self.v6.lookup(key)
    }

    /// Applies all of `routes`.
    pub fn announce(&mut self, routes: &Routes) {
        for route in &routes.v4 {
            self.v4.set(route.prefix, route.next_hop);
        }
        for route in &routes.v6 {
            self.v6.set(route.prefix, route.next_hop);
        }
    }

    /// Writes the next hop of each of `keys` to its place in `out`.
    pub fn answer(&self, keys: Keys<'_>, out: &mut [NextHopId]) {
        match keys {
            Keys::V4(keys) => {
                for (key, answer) in keys.iter().zip(out) {
                    *answer = self.v4.lookup(*key);
                }
            }
            Keys::V6 { hi, lo } => {
                for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
                    *answer = self.v6.lookup(u128::from(*hi) << 64 | u128::from(*lo));
                }
            }
        }
    }

    /// Applies every change of `delta`.
    pub fn apply(&mut self, delta: &FibDelta) {
        for change in &delta.v4 {
            self.v4.set(change.prefix, change.new);
        }
        for change in &delta.v6 {
            self.v6.set(change.prefix, change.new);
        }
    }
}

/// The engine `oracle`. It takes a lock for each batch; it is for checking, not for speed.
#[derive(Debug)]
pub struct OracleEngine {
    tables: Arc<RwLock<OraclePair>>,
    generation: Generation,
}

impl OracleEngine {
    /// The engine's name on the command line.
    pub const NAME: &'static str = "oracle";

    /// An empty engine.
    #[must_use]
    pub fn new(_options: &EngineOptions) -> Self {
        Self { tables: Arc::default(), generation: Generation::default() }
    }
}

impl EngineWriter for OracleEngine {
    fn info(&self) -> EngineInfo {
        EngineInfo::new(Self::NAME, Isa::Scalar)
    }

    fn apply(&mut self, delta: &FibDelta, _rib: &Rib) -> Result<Generation, EngineError> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner).apply(delta);
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        EngineStats {
            retired_bytes: 0,
            routes_v4: tables.v4.len() as u64,
            routes_v6: tables.v6.len() as u64,
            table_bytes: tables.v4.bytes() + tables.v6.bytes(),
            ..EngineStats::default()
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        Ok(Box::new(SlotReader::new(Arc::clone(&self.tables), slots, batch_max)))
    }
}

impl Answer for Arc<RwLock<OraclePair>> {
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        self.read().unwrap_or_else(PoisonError::into_inner).answer(keys, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpPrefix, SlotId};

    #[test]
    fn longest_wins_and_withdraw_uncovers() {
        let mut oracle = Oracle4::new();
        for (text, id) in [("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.1.0.0/16", 3), ("10.1.2.3/32", 4)] {
            let Ok(IpPrefix::V4(prefix)) = text.parse() else { panic!("{text}") };
            oracle.set(prefix, NextHopId::new(id).unwrap());
        }
        let at = |oracle: &Oracle4, a: [u8; 4]| oracle.lookup(u32::from_be_bytes(a)).get();
        assert_eq!(
            [at(&oracle, [9, 0, 0, 0]), at(&oracle, [10, 9, 9, 9]), at(&oracle, [10, 1, 2, 4])],
            [1, 2, 3]
        );
        assert_eq!(at(&oracle, [10, 1, 2, 3]), 4);
        oracle.set(Prefix::truncating(0x0a01_0000, 16), NextHopId::NONE);
        assert_eq!([at(&oracle, [10, 1, 2, 4]), at(&oracle, [10, 1, 2, 3])], [2, 4]);
    }

    #[test]
    fn the_engine_refuses_a_batch_that_does_not_fit() {
        let engine = OracleEngine::new(&EngineOptions::default());
        let mut reader = engine.reader(1, 2).unwrap();
        let refused = reader.submit(SlotId(0), Keys::V4(&[0; 3]));
        assert_eq!(refused, Err(EngineError::Batch { keys: 3, limit: 2 }));
    }
}
