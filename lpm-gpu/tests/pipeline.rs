//! The pipeline: batch sizes, streams, modes, slots, and readers in any order.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

mod common;

use common::{collect, draw_keys, engine, id, is_full, random_rib, right};
use fib::conformance::skipped;
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{EngineError, EngineWriter, IpPrefix, Key, KeyBuffer, Keys, NextHopId, Prefix, Rib, SlotId};

const MODES: [&str; 3] = ["copy", "mapped", "persistent"];

struct Pipeline {
    writer: Box<dyn EngineWriter>,
    rib: Rib,
    keys: [KeyBuffer; 2],
    right: [Vec<NextHopId>; 2],
}

impl Pipeline {
    fn new(name: &str, parameters: &[(&str, &str)]) -> Option<Self> {
        if skipped(&|| engine(name, parameters)) {
            return None;
        }
        let mut dice = Seeded::new(0, 7);
        let mut writer = engine(name, parameters).unwrap();
        let mut rib = random_rib(2000, &mut dice);
        rib.commit_to(writer.as_mut()).unwrap();
        let keys = draw_keys(&rib, 4096, &mut dice);
        let oracle = OraclePair::from(&rib);
        let right = keys.each_ref().map(|keys| right(keys, &oracle));
        Some(Self { writer, rib, keys, right })
    }

    /// `size` keys from number `start` on, wrapping around, with their answers.
    fn batch<K: Key>(&self, start: usize, size: usize) -> (KeyBuffer, Vec<NextHopId>) {
        let (keys, right) = (&self.keys[K::FAMILY as usize], &self.right[K::FAMILY as usize]);
        let at = |index: usize| (start + index) % keys.len();
        let key = |index| K::from_high_bits(keys.keys().high_bits(at(index)));
        ((0..size).map(key).collect(), (0..size).map(|index| right[at(index)]).collect())
    }

    /// Runs batches of `sizes`, both families in turn, through all `slots` of a reader, each with one in flight.
    fn sizes(&self, slots: u16, batch_max: usize, sizes: &[usize], what: &str) {
        let mut reader = self.writer.reader(slots, batch_max).unwrap();
        let mut flights: Vec<Option<(KeyBuffer, Vec<NextHopId>, String)>> = vec![None; slots.into()];
        let turns = sizes.len().max(usize::from(slots)) * 2;
        for turn in 0..turns {
            let slot = turn % usize::from(slots);
            let number = u16::try_from(slot).unwrap();
            if let Some((keys, right, case)) = flights[slot].take() {
                assert!(collect(reader.as_mut(), number, keys.keys()).unwrap() == right, "{case}");
            }
            let size = sizes[turn / 2 % sizes.len()];
            let (keys, right) = if turn.is_multiple_of(2) {
                self.batch::<u32>(turn * 31, size)
            } else {
                self.batch::<u128>(turn * 31, size)
            };
            reader.submit(SlotId(number), keys.keys()).unwrap();
            flights[slot] = Some((keys, right, format!("{what}: {size} keys, turn {turn}, slot {slot}")));
        }
        for (slot, flight) in (0..).zip(flights) {
            if let Some((keys, right, case)) = flight {
                let keys = keys.keys();
                assert!(collect(reader.as_mut(), slot, keys).unwrap() == right, "{case}");
                // Answers stay until the slot's next batch.
                assert!(collect(reader.as_mut(), slot, keys).unwrap() == right, "{case}, again");
            }
        }
    }
}

/// Sizes around warps, vectors and blocks.
const SIZES: [usize; 8] = [0, 1, 3, 31, 32, 33, 255, 4096];

#[test]
fn every_size_in_every_mode_on_1_2_8_and_24_streams() {
    for name in lpm_gpu::ENGINES.iter().filter(|engine| engine.is_device).map(|engine| engine.name) {
        for mode in MODES {
            for streams in ["1", "2", "8", "24"] {
                if name != "gamt" && streams != "8" && !is_full() {
                    continue;
                }
                let Some(bench) = Pipeline::new(name, &[("mode", mode), ("streams", streams)]) else {
                    return;
                };
                let slots = streams.parse::<u16>().unwrap().max(2);
                bench.sizes(slots, 4096, &SIZES, &format!("{name}, {mode}, {streams} streams"));
            }
        }
    }
}

#[test]
fn a_million_keys_at_once() {
    for (name, mode) in
        [("gamt", "copy"), ("gamt", "mapped"), ("gamt", "persistent"), ("gale", "copy"), ("sail-gpu", "copy")]
    {
        let Some(bench) = Pipeline::new(name, &[("mode", mode), ("streams", "2")]) else { return };
        bench.sizes(2, 1 << 20, &[1 << 20], &format!("{name}, {mode}"));
    }
}

#[test]
fn any_blocks_and_threads() {
    for (blocks, threads) in [("1", "32"), ("3", "96"), ("1000", "1024")] {
        for mode in MODES {
            let parameters = [("blocks", blocks), ("threads", threads), ("mode", mode)];
            let Some(bench) = Pipeline::new("gamt", &parameters) else { return };
            bench.sizes(2, 1000, &[1, 33, 999, 1000], &format!("{blocks} blocks of {threads}, {mode}"));
        }
    }
}

#[test]
fn a_lookup_goes_round_the_slots_that_hold_nothing_and_keeps_the_order() {
    for mode in MODES {
        let Some(bench) = Pipeline::new("gamt", &[("mode", mode)]) else { return };
        let mut reader = bench.writer.reader(5, 500).unwrap();
        let (kept, right_kept) = bench.batch::<u32>(100, 400);
        reader.submit(SlotId(2), kept.keys()).unwrap();
        for (many, right) in [bench.batch::<u32>(0, 10_007), bench.batch::<u128>(0, 10_007)] {
            let mut answers = vec![NextHopId::MAX; 10_007];
            reader.lookup(many.keys(), &mut answers).unwrap();
            assert!(answers == right, "{mode}");
        }
        reader.lookup(Keys::V4(&[]), &mut []).unwrap();
        assert!(
            collect(reader.as_mut(), 2, kept.keys()).unwrap() == right_kept,
            "{mode}: what was in flight"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_and_the_slot_goes_on() {
    let Some(bench) = Pipeline::new("gamt", &[]) else { return };
    let mut reader = bench.writer.reader(1, 100).unwrap();
    let (keys, right) = bench.batch::<u32>(0, 101);
    let refused = |result: Result<(), EngineError>| assert!(matches!(result, Err(EngineError::Batch { .. })));
    refused(reader.submit(SlotId(0), keys.keys()));
    refused(reader.submit(SlotId(0), Keys::V6 { hi: &[1, 2, 3], lo: &[1, 2] }));
    refused(reader.lookup(keys.keys(), &mut [NextHopId::NONE; 3]));
    let part = keys.keys().part(0..100);
    reader.submit(SlotId(0), part).unwrap();
    assert_eq!(collect(reader.as_mut(), 0, part).unwrap(), right[..100]);
}

/// Adds 3 random routes of each family (500 in every 20th turn), and withdraws 3 IPv4 routes. Returns an oracle of the result.
fn churn(bench: &mut Pipeline, dice: &mut Seeded, turn: usize) -> OraclePair {
    let routes: Vec<IpPrefix> = bench.rib.v4.prefixes().map(IpPrefix::V4).collect();
    for _ in 0..if turn.is_multiple_of(20) { 500 } else { 3 } {
        let base = dice.u128();
        let len = 9 + dice.below(24) as u8;
        let fresh = IpPrefix::V4(Prefix::truncating((base >> 96) as u32, len));
        let next_hop = id(dice);
        bench.rib.set(fresh, next_hop);
        bench.rib.set(IpPrefix::V6(Prefix::truncating(base, 20 + dice.below(100) as u8)), id(dice));
        bench.rib.set(routes[dice.below(routes.len())], NextHopId::NONE);
    }
    bench.rib.commit_to(bench.writer.as_mut()).unwrap();
    OraclePair::from(&bench.rib)
}

/// An uncollected batch delays neither deltas nor other readers; its late answers belong to a table that was in service.
#[test]
fn a_reader_that_never_collects_holds_nothing_up() {
    for (name, parameters) in [
        ("gamt", &[("headroom", "0"), ("next-hops", "apart")][..]),
        ("gamt", &[("frozen", "1")][..]),
        ("gamt", &[("mode", "persistent"), ("headroom", "0")][..]),
        ("sail-gpu", &[("headroom", "0")][..]),
    ] {
        let Some(mut bench) = Pipeline::new(name, parameters) else { return };
        let mut oracle = OraclePair::default();
        let mut dice = Seeded::new(0, 11);
        let mut idle = bench.writer.reader(2, 4096).unwrap();
        let (keys, was) = bench.batch::<u32>(0, 4096);
        idle.submit(SlotId(0), keys.keys()).unwrap();
        let mut reader = bench.writer.reader(2, 4096).unwrap();
        for turn in 0..60 {
            oracle = churn(&mut bench, &mut dice, turn);
            for keys in draw_keys(&bench.rib, 300, &mut dice) {
                let mut answers = vec![NextHopId::MAX; 300];
                reader.lookup(keys.keys(), &mut answers).unwrap();
                assert!(answers == right(&keys, &oracle), "{name} {parameters:?}, turn {turn}");
            }
        }
        // The batch ended before the table changed, or saw some of the changes: at least keys whose answers never changed must be right.
        let late = collect(idle.as_mut(), 0, keys.keys()).unwrap();
        let now = right(&keys, &oracle);
        for (at, answer) in late.iter().enumerate() {
            assert!(was[at] != now[at] || *answer == now[at], "{name} {parameters:?}, key {at}");
        }
    }
}

#[test]
fn a_reader_outlives_its_engine() {
    for mode in MODES {
        let Some(bench) = Pipeline::new("gamt", &[("mode", mode)]) else { return };
        let mut first = bench.writer.reader(3, 256).unwrap();
        let mut second = bench.writer.reader(3, 256).unwrap();
        let (keys, right) = bench.batch::<u32>(5, 256);
        first.submit(SlotId(1), keys.keys()).unwrap();
        drop(bench);
        second.submit(SlotId(2), keys.keys()).unwrap();
        drop(first); // with a batch in flight
        assert!(collect(second.as_mut(), 2, keys.keys()).unwrap() == right, "{mode}");
    }
}

#[test]
fn figures_say_how_the_engine_runs() {
    let parameters = [("mode", "mapped"), ("streams", "7"), ("blocks", "5"), ("threads", "64")];
    let Some(mut bench) = Pipeline::new("gamt", &parameters) else { return };
    let figure = |bench: &Pipeline, name: &str| {
        let details = bench.writer.stats().details;
        details.get(name).unwrap_or_else(|| panic!("no figure {name} in {details:?}"))
    };
    assert_eq!(figure(&bench, "mode"), 1.0);
    assert_eq!(figure(&bench, "streams"), 7.0);
    assert_eq!(figure(&bench, "blocks"), 5.0);
    assert_eq!(figure(&bench, "threads"), 64.0);
    let before = figure(&bench, "device_writes");
    bench.rib.set(IpPrefix::V4(Prefix::truncating(0x0a01_0000, 16)), NextHopId::new(77).unwrap());
    bench.rib.commit_to(bench.writer.as_mut()).unwrap();
    let after = figure(&bench, "device_writes");
    assert!(after > before || figure(&bench, "rebuilds") > 0.0, "{before} words written, then {after}");
    assert!(bench.writer.stats().table_bytes > 0);
}

#[test]
fn auto_measures_the_modes_for_each_size_of_readers_and_says_the_best() {
    let Some(bench) = Pipeline::new("gamt", &[("mode", "auto")]) else { return };
    let figure = |name: &str| bench.writer.stats().details.get(name);
    assert_eq!(
        (figure("mode"), figure("mode_3_slots_of_4096")),
        (Some(3.0), None),
        "nothing is measured yet"
    );
    bench.sizes(3, 4096, &SIZES, "auto");
    bench.sizes(1, 100, &[100, 7], "auto");
    for name in ["mode_3_slots_of_4096", "mode_1_slots_of_100"] {
        assert!(figure(name).is_some_and(|mode| mode < 3.0), "{name}: {:?}", figure(name));
    }
}

#[test]
fn a_latency_is_kept_to_by_choosing_batch_and_streams() {
    for mode in ["copy", "auto"] {
        let parameters = [("latency-target-us", "3000"), ("mode", mode)];
        let Some(bench) = Pipeline::new("gamt", &parameters) else { return };
        let details = bench.writer.stats().details;
        let figure = |name: &str| details.get(name).unwrap();
        for name in ["batch", "batch_v6"] {
            let batch = figure(name);
            assert!(
                (256.0..=1_048_576.0).contains(&batch) && (batch as u32).is_power_of_two(),
                "{name} = {batch}"
            );
        }
        assert!((1.0..=24.0).contains(&figure("streams")));
        assert!(
            if mode == "copy" { figure("mode") == 0.0 } else { figure("mode") < 3.0 },
            "a mode is chosen"
        );
        bench.sizes(3, 4096, &SIZES, "calibrated");
    }
    let fixed = Pipeline::new("gamt", &[("latency-target-us", "3000"), ("streams", "2")]).unwrap();
    let details = fixed.writer.stats().details;
    assert_eq!(details.get("streams"), Some(2.0), "what was given is not chosen: {details:?}");
}
