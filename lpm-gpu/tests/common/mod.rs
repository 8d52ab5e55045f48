//! Helpers for the engines' tests: engines over the test driver, keys, and right answers from the oracle.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test file uses a part of it; keys are truncated on purpose"
)]

use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, IpPrefix, Key, KeyBuffer, Keys, NextHopId,
    Prefix, Registry, Rib, SlotId,
};
use std::task::Poll;
use std::time::{Duration, Instant};

pub(crate) type Parameters<'a> = &'a [(&'a str, &'a str)];

/// Engine `name`, with `mode=copy` if `parameters` name none: the choice of `auto` depends on time.
pub(crate) fn engine(name: &str, parameters: Parameters<'_>) -> Result<Box<dyn EngineWriter>, EngineError> {
    engine_within(name, parameters, EngineOptions::default().table_bytes_max)
}

pub(crate) fn engine_within(
    name: &str,
    parameters: Parameters<'_>,
    table_bytes_max: u64,
) -> Result<Box<dyn EngineWriter>, EngineError> {
    let _mock = lpm_gpu::cu::testing::driver(); // without one, making the engine tells why
    let default =
        [("mode", "copy")].into_iter().filter(|_| parameters.iter().all(|(name, _)| *name != "mode"));
    let parameters: Vec<_> = default.chain(parameters.iter().copied()).collect();
    let options = EngineOptions { table_bytes_max, ..EngineOptions::with_parameters(&parameters) };
    Registry::new(&[lpm_gpu::ENGINES]).make(name, &options)
}

/// `FWD_CONFORMANCE=full`: run every combination.
pub(crate) fn is_full() -> bool {
    fib::conformance::Options::from_env().full
}

/// `count` keys of each family: half within routes of `rib`, half anywhere.
pub(crate) fn draw_keys(rib: &Rib, count: usize, dice: &mut Seeded) -> [KeyBuffer; 2] {
    fn draw<K: Key>(rib: &Rib, count: usize, dice: &mut Seeded) -> KeyBuffer {
        let routes = K::part(rib).sorted();
        let key = |at| {
            let route = if at % 2 == 0 { dice.pick(&routes) } else { None };
            dice.inside(route.map_or(Prefix::<K>::DEFAULT, |(prefix, _)| *prefix))
        };
        (0..count).map(key).collect()
    }
    [draw::<u32>(rib, count, dice), draw::<u128>(rib, count, dice)]
}

pub(crate) fn right(keys: &KeyBuffer, oracle: &OraclePair) -> Vec<NextHopId> {
    let mut out = vec![NextHopId::NONE; keys.len()];
    oracle.answer(keys.keys(), &mut out);
    out
}

pub(crate) fn collect(
    reader: &mut dyn EngineReader,
    slot: u16,
    keys: Keys<'_>,
) -> Result<Vec<NextHopId>, EngineError> {
    let start = Instant::now();
    loop {
        if let Poll::Ready(answers) = reader.collect(SlotId(slot), keys) {
            return answers.map(<[_]>::to_vec);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "slot {slot}: no answers within a minute");
        std::thread::yield_now();
    }
}

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

pub(crate) fn id(dice: &mut Seeded) -> NextHopId {
    NextHopId::new(1 + dice.below(5000) as u32).unwrap()
}
