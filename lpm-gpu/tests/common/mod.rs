//! Helpers for the engines' tests: engines over the test driver, keys, and right answers from the oracle.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test file uses a part of it; keys are truncated on purpose"
)]

use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{
    EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, Generation,
    IpPrefix, Key, KeyBuffer, KeyMemory, Keys, NextHopId, Prefix, Registry, Rib, SlotId,
};
use lpm_core::memory::{KeyArena, KeyArray, Placement};
use std::sync::Arc;
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

/// Keys in memory that a reader has adopted.
pub(crate) struct KeysInPlace {
    pub(crate) v4: KeyArray<u32>,
    pub(crate) hi: KeyArray<u64>,
    pub(crate) lo: KeyArray<u64>,
}

impl KeysInPlace {
    /// Arrays of `len` zeros, in memory of `arrays` such arrays of each kind.
    pub(crate) fn new(len: usize, arrays: usize) -> (Vec<Self>, Arc<dyn KeyMemory>) {
        let bytes = KeyArena::bytes_of::<u32>(len) + 2 * KeyArena::bytes_of::<u64>(len);
        let mut arena = KeyArena::new(bytes * arrays, Placement::default()).unwrap();
        let arrays = (0..arrays).map(|_| Self {
            v4: arena.take(len).unwrap(),
            hi: arena.take(len).unwrap(),
            lo: arena.take(len).unwrap(),
        });
        (arrays.collect(), arena.memory())
    }

    pub(crate) fn put(&mut self, keys: Keys<'_>) -> Keys<'_> {
        match keys {
            Keys::V4(keys) => {
                self.v4[..keys.len()].copy_from_slice(keys);
                Keys::V4(&self.v4[..keys.len()])
            }
            Keys::V6 { hi, lo } => {
                self.hi[..hi.len()].copy_from_slice(hi);
                self.lo[..hi.len()].copy_from_slice(lo);
                Keys::V6 { hi: &self.hi[..hi.len()], lo: &self.lo[..hi.len()] }
            }
        }
    }
}

/// An engine whose readers have all keys in adopted memory.
pub(crate) struct InPlaceEngine(pub(crate) Box<dyn EngineWriter>);

struct InPlaceReader {
    reader: Box<dyn EngineReader>,
    /// One for each slot, then one for lookups.
    keys: Vec<KeysInPlace>,
}

/// Room for the longest lookup of the suite.
const LOOKUP_MAX: usize = 3 * 4096;

impl EngineWriter for InPlaceEngine {
    fn info(&self) -> EngineInfo {
        self.0.info()
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.0.apply(delta, rib)
    }

    fn free_retired(&mut self) {
        self.0.free_retired();
    }

    fn generation(&self) -> Generation {
        self.0.generation()
    }

    fn stats(&self) -> EngineStats {
        self.0.stats()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let mut reader = self.0.reader(slots, batch_max)?;
        let (keys, memory) = KeysInPlace::new(LOOKUP_MAX.max(batch_max), usize::from(slots) + 1);
        reader.adopt(&memory)?;
        Ok(Box::new(InPlaceReader { reader, keys }))
    }
}

impl EngineReader for InPlaceReader {
    fn slots(&self) -> u16 {
        self.reader.slots()
    }

    fn batch_max(&self) -> usize {
        self.reader.batch_max()
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.reader.batch_max())?;
        self.reader.submit(slot, self.keys[usize::from(slot.0)].put(keys))
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        self.reader.collect(slot, keys)
    }

    fn discard(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        self.reader.discard(slot)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        let place = self.keys.last_mut().unwrap();
        self.reader.lookup(place.put(keys), out)
    }
}
