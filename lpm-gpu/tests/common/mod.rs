//! Helpers that the engines' tests share: engines over the mock driver, keys, and their right answers from the oracle.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test file uses a part of it; keys are truncated on purpose"
)]

use fib::oracle::OraclePair;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, IpPrefix, Key, Keys, NextHopId, Prefix, Registry,
    Rib, Routes, SlotId,
};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Parameters, as on the command line.
pub(crate) type Parameters<'a> = &'a [(&'a str, &'a str)];

/// The engine `name` over the driver of the tests.
pub(crate) fn engine(name: &str, parameters: Parameters<'_>) -> Result<Box<dyn EngineWriter>, EngineError> {
    engine_within(name, parameters, EngineOptions::default().table_bytes_max)
}

/// As [`engine`], with at most `table_bytes_max` of tables.
pub(crate) fn engine_within(
    name: &str,
    parameters: Parameters<'_>,
    table_bytes_max: u64,
) -> Result<Box<dyn EngineWriter>, EngineError> {
    let _mock = lpm_gpu::cu::testing::driver(); // without one, making the engine tells why
    let options = EngineOptions { table_bytes_max, ..EngineOptions::of(parameters) };
    Registry::new(&[lpm_gpu::ENGINES]).make(name, &options)
}

/// Whether to run every combination: `FWD_CONFORMANCE=full`.
pub(crate) fn is_full() -> bool {
    std::env::var_os("FWD_CONFORMANCE").is_some_and(|value| value == "full")
}

/// Numbers that repeat with their seed (Vigna's xorshift64*).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn u128(&mut self) -> u128 {
        u128::from(self.u64()) << 64 | u128::from(self.u64())
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.u64() >> 16) as usize % end
    }

    /// A key within `prefix`.
    pub(crate) fn inside<K: Key>(&mut self, prefix: Prefix<K>) -> K {
        let host = !K::mask(prefix.len()).to_high_bits();
        K::from_high_bits(prefix.address().to_high_bits() | self.u128() & host)
    }
}

/// Keys of both families; IPv6 keys as separate halves.
#[derive(Clone, Default)]
pub(crate) struct KeySet {
    pub(crate) v4: Vec<u32>,
    pub(crate) hi: Vec<u64>,
    pub(crate) lo: Vec<u64>,
}

impl KeySet {
    /// `count` keys of each family: half within the routes of `rib`, half anywhere.
    pub(crate) fn draw(rib: &Rib, count: usize, dice: &mut Dice) -> Self {
        let mut set = Self::default();
        let delta = Routes::of(rib);
        for at in 0..count {
            let v4 = if at % 2 == 0 && !delta.v4.is_empty() {
                let route = dice.below(delta.v4.len());
                dice.inside(delta.v4[route].prefix)
            } else {
                dice.u64() as u32
            };
            let v6 = if at % 2 == 0 && !delta.v6.is_empty() {
                let route = dice.below(delta.v6.len());
                dice.inside(delta.v6[route].prefix)
            } else {
                dice.u128()
            };
            set.v4.push(v4);
            set.push_v6(v6);
        }
        set
    }

    pub(crate) fn push_v6(&mut self, key: u128) {
        self.hi.push((key >> 64) as u64);
        self.lo.push(key as u64);
    }

    pub(crate) fn v6(&self, at: usize) -> u128 {
        u128::from(self.hi[at]) << 64 | u128::from(self.lo[at])
    }

    /// The right answers, from `oracle`.
    pub(crate) fn right(&self, oracle: &OraclePair) -> (Vec<NextHopId>, Vec<NextHopId>) {
        let v4 = self.v4.iter().map(|key| oracle.v4.lookup(*key)).collect();
        let v6 = (0..self.hi.len()).map(|at| oracle.v6.lookup(self.v6(at))).collect();
        (v4, v6)
    }

    pub(crate) fn keys_v4(&self) -> Keys<'_> {
        Keys::V4(&self.v4)
    }

    pub(crate) fn keys_v6(&self) -> Keys<'_> {
        Keys::V6 { hi: &self.hi, lo: &self.lo }
    }
}

/// An oracle with the routes of `rib`.
pub(crate) fn oracle_of(rib: &Rib) -> OraclePair {
    OraclePair::of(rib)
}

/// Waits for `slot` and returns its answers.
pub(crate) fn collect(reader: &mut dyn EngineReader, slot: u16) -> Result<Vec<NextHopId>, EngineError> {
    let start = Instant::now();
    loop {
        if let Poll::Ready(answers) = reader.collect(SlotId(slot)) {
            return answers.map(<[_]>::to_vec);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "slot {slot}: no answers within a minute");
        std::thread::yield_now();
    }
}

/// A RIB of random nested routes of both families.
pub(crate) fn random_rib(routes: usize, dice: &mut Dice) -> Rib {
    let mut rib = Rib::new();
    let bases: Vec<u128> = (0..routes / 20 + 1).map(|_| dice.u128()).collect();
    for _ in 0..routes {
        let base = bases[dice.below(bases.len())];
        let len4 = 8 + dice.below(25) as u8;
        let noise = dice.u128() >> (8 + dice.below(20));
        rib.set(IpPrefix::V4(Prefix::truncating(((base ^ noise) >> 96) as u32, len4)), id(dice));
        let len6 = 16 + dice.below(113) as u8;
        let noise = dice.u128() >> (16 + dice.below(80));
        rib.set(IpPrefix::V6(Prefix::truncating(base ^ noise, len6)), id(dice));
    }
    rib
}

/// A next hop.
pub(crate) fn id(dice: &mut Dice) -> NextHopId {
    NextHopId::new(1 + dice.below(5000) as u32).unwrap()
}
