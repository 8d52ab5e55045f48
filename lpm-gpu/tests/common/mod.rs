//! Helpers that the engines' tests share: engines over the mock driver, keys, and their right answers from the oracle.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test file uses a part of it; keys are truncated on purpose"
)]

use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, IpPrefix, Keys, NextHopId, Prefix, Registry, Rib,
    Routes, SlotId,
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
    fib::conformance::Options::from_env().full
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
    pub(crate) fn draw(rib: &Rib, count: usize, dice: &mut Seeded) -> Self {
        let mut set = Self::default();
        let delta = Routes::of(rib);
        for at in 0..count {
            let v4 = if at % 2 == 0 && !delta.v4.is_empty() {
                let route = dice.below(delta.v4.len());
                dice.inside(delta.v4[route].prefix)
            } else {
                dice.u32()
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
        let answers = |keys: Keys<'_>| {
            let mut out = vec![NextHopId::NONE; keys.len()];
            oracle.answer(keys, &mut out);
            out
        };
        (answers(self.keys_v4()), answers(self.keys_v6()))
    }

    pub(crate) fn keys_v4(&self) -> Keys<'_> {
        Keys::V4(&self.v4)
    }

    pub(crate) fn keys_v6(&self) -> Keys<'_> {
        Keys::V6 { hi: &self.hi, lo: &self.lo }
    }
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
pub(crate) fn random_rib(routes: usize, dice: &mut Seeded) -> Rib {
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
pub(crate) fn id(dice: &mut Seeded) -> NextHopId {
    NextHopId::new(1 + dice.below(5000) as u32).unwrap()
}
