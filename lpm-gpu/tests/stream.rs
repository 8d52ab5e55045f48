//! Real tables and the real update stream, from the folder in `FWD_DATA`.

#![expect(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

mod common;

use common::{collect, draw_keys, engine, right};
use fib::conformance::skipped;
use fib::oracle::Oracle;
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{
    Change, EngineError, EngineReader, EngineWriter, FibDelta, Generation, Key, KeyBuffer, NextHopId, Prefix,
    Rib, Routes, SlotId,
};
use lpm_gpu::testing::real_routes;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn full_tables_are_answered_as_the_oracle_does() {
    let Some((routes, _)) = real_routes() else { return };
    if skipped(&|| engine("gamt", &[])) {
        return;
    }
    let mut rib = Rib::new();
    rib.announce(&routes);
    rib.take_delta();
    let oracle = OraclePair::from(&rib);
    let keys = draw_keys(&rib, 60_000, &mut Seeded::new(0, 3));
    let right = keys.each_ref().map(|keys| right(keys, &oracle));
    let shape = |layout, next_hops, levels, levels6| {
        ("gamt", vec![("layout", layout), ("next-hops", next_hops), ("levels", levels), ("levels6", levels6)])
    };
    for (name, parameters) in [
        ("gamt", vec![]),
        shape("flat", "apart", "4", "8"),
        shape("paper", "together", "5", "12"),
        shape("paper", "apart", "6", "20"),
        shape("flat", "together", "7", "16"),
        shape("paper", "apart", "10", "24"),
        shape("flat", "apart", "15", "25"),
        shape("paper", "together", "20", "30"),
        ("gale", vec![]),
        ("sail-gpu", vec![]),
    ] {
        let mut writer = engine(name, &parameters).unwrap();
        rib.load(writer.as_mut()).unwrap();
        let stats = writer.stats();
        assert_eq!((stats.routes_v4 + stats.routes_v6) as usize, rib.full_delta().len());
        let mut reader = writer.reader(4, 8192).unwrap();
        for (keys, right) in keys.iter().zip(&right) {
            let mut answers = vec![NextHopId::MAX; keys.len()];
            reader.lookup(keys.keys(), &mut answers).unwrap();
            assert!(answers == *right, "{name} {parameters:?}, {}", keys.family());
        }
        for (slot, start) in (0..4).zip((0..).step_by(8192)) {
            reader.submit(SlotId(slot), keys[0].keys().part(start..start + 8192)).unwrap();
        }
        for (slot, start) in (0..4).zip((0..).step_by(8192)) {
            assert!(
                collect(reader.as_mut(), slot, keys[0].keys().part(start..start + 8192)).unwrap()
                    == right[0][start..start + 8192],
                "{name}, slot {slot}"
            );
        }
    }
}

/// Updates a delta of each family: one millisecond at 100,000 a second.
const UPDATES_A_DELTA: usize = 50;
const KEYS: usize = 512;

struct Timeline<K> {
    keys: KeyBuffer,
    answers: Vec<Vec<(u64, NextHopId)>>,
    family: PhantomData<K>,
}

impl<K: Key> Timeline<K>
where
    KeyBuffer: FromIterator<K>,
{
    /// Keys within the routes of `first`, within prefixes that `deltas` change, and anywhere.
    fn new(first: &[Change<K>], deltas: &[FibDelta], dice: &mut Seeded) -> Self {
        let changed: Vec<Prefix<K>> = deltas.iter().flat_map(K::part).map(|change| change.prefix).collect();
        let mut key = |at| {
            let prefix = match at % 4 {
                0 => Prefix::DEFAULT,
                1 => first[dice.below(first.len())].prefix,
                _ => changed[dice.below(changed.len())],
            };
            dice.inside(prefix)
        };
        let keys: Vec<K> = (0..KEYS).map(&mut key).collect();
        let mut oracle: Oracle<K> = first.iter().map(|change| (change.prefix, change.new)).collect();
        let mut answers: Vec<_> = keys.iter().map(|key| vec![(0, oracle.lookup(*key))]).collect();
        for (generation, delta) in (1..).zip(deltas) {
            let changes = K::part(delta);
            changes.iter().for_each(|change| oracle.set(change.prefix, change.new));
            for (key, answers) in keys.iter().zip(&mut answers) {
                let answer = || oracle.lookup(*key);
                if changes.iter().any(|change| change.prefix.contains(*key))
                    && answers.last().is_none_or(|(_, last)| *last != answer())
                {
                    answers.push((generation, answer()));
                }
            }
        }
        Self { keys: keys.into_iter().collect(), answers, family: PhantomData }
    }
}

struct StreamPlan {
    first: FibDelta,
    deltas: Vec<FibDelta>,
    v4: Timeline<u32>,
    v6: Timeline<u128>,
}

fn is_right(answers: &[(u64, NextHopId)], answer: NextHopId, low: u64, high: u64) -> bool {
    answers.iter().enumerate().any(|(at, (from, right))| {
        let until = answers.get(at + 1).map_or(u64::MAX, |(next, _)| next - 1);
        *right == answer && *from <= high && until >= low
    })
}

/// The updates of a RIPE collector during lookups: every answer belongs to a generation between submit and collect.
#[test]
fn the_real_stream_is_followed_while_lookups_run() {
    let Some((routes, updates)) = real_routes() else { return };
    if skipped(&|| engine("gamt", &[])) {
        return;
    }
    let mut rib = Rib::plain();
    let mut delta = |v4: &[_], v6: &[_]| {
        rib.announce(&Routes { v4: v4.to_vec(), v6: v6.to_vec() });
        rib.take_delta()
    };
    let first = delta(&routes.v4, &routes.v6);
    let (mut v4, mut v6) = (updates.v4.chunks(UPDATES_A_DELTA), updates.v6.chunks(UPDATES_A_DELTA));
    let next = || match (v4.next(), v6.next()) {
        (None, None) => None,
        (v4, v6) => Some(delta(v4.unwrap_or_default(), v6.unwrap_or_default())),
    };
    let (deltas, mut dice): (Vec<_>, _) = (std::iter::from_fn(next).collect(), Seeded::new(0, 5));
    let (v4, v6) =
        (Timeline::new(&first.v4, &deltas, &mut dice), Timeline::new(&first.v6, &deltas, &mut dice));
    let plan = StreamPlan { first, deltas, v4, v6 };
    for (name, parameters) in [
        ("gamt", &[][..]),
        ("gamt", &[("layout", "paper"), ("next-hops", "apart"), ("mode", "persistent")][..]),
        ("gale", &[][..]),
        ("sail-gpu", &[("mode", "mapped")][..]),
    ] {
        let mut writer = engine(name, parameters).unwrap();
        let mut rib = Rib::plain();
        commit(&mut rib, &plan.first, writer.as_mut()).unwrap();
        follow(name, writer.as_mut(), rib, &plan);
    }
}

fn commit(rib: &mut Rib, delta: &FibDelta, writer: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
    delta.v4.iter().for_each(|change| _ = rib.v4.set(change.prefix, change.new));
    delta.v6.iter().for_each(|change| _ = rib.v6.set(change.prefix, change.new));
    rib.commit_to(writer)
}

fn follow(name: &str, writer: &mut dyn EngineWriter, mut rib: Rib, plan: &StreamPlan) {
    let _switches = lpm_gpu::cu::testing::exclusive();
    if let Some(mock) = lpm_gpu::cu::testing::driver().and_then(lpm_gpu::cu::testing::TestDriver::mock) {
        mock.set_delay_us(300);
    }
    let mut reader = writer.reader(6, KEYS).unwrap();
    let (started, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| look_up(name, reader.as_mut(), plan, (&started, &done), &stop));
        let start = Instant::now();
        for (at, delta) in (0_u64..).zip(&plan.deltas) {
            let due = Duration::from_millis(at);
            if let Some(early) = due.checked_sub(start.elapsed()) {
                std::thread::sleep(early);
            }
            started.store(at + 1, Ordering::SeqCst);
            if let Err(error) = commit(&mut rib, delta, writer) {
                stop.store(true, Ordering::SeqCst);
                panic!("{name}, delta {at}: {error}");
            }
            done.store(at + 1, Ordering::SeqCst);
            if looking.is_finished() {
                break; // its panic has the reason
            }
        }
        stop.store(true, Ordering::SeqCst);
        let batches = looking.join().unwrap();
        eprintln!("{name}: {} deltas during {batches} batches, {:?}", plan.deltas.len(), start.elapsed());
        assert!(batches > 0);
    });
}

fn look_up(
    name: &str,
    reader: &mut dyn EngineReader,
    plan: &StreamPlan,
    (started, done): (&AtomicU64, &AtomicU64),
    stop: &AtomicBool,
) -> u64 {
    let slots = reader.slots();
    let mut low = vec![None; slots.into()];
    let mut batches = 0;
    for turn in 0_usize.. {
        let slot = (turn % usize::from(slots)) as u16;
        let keys = if slot.is_multiple_of(2) { plan.v4.keys.keys() } else { plan.v6.keys.keys() };
        if let Some(low) = low[usize::from(slot)].take() {
            let answers = collect(reader, slot, keys).unwrap();
            let high = started.load(Ordering::SeqCst);
            let known = if slot.is_multiple_of(2) { &plan.v4.answers } else { &plan.v6.answers };
            for (at, answer) in answers.iter().enumerate() {
                assert!(
                    is_right(&known[at], *answer, low, high),
                    "{name}: key {at} of slot {slot} answered {answer} between generations {low} and {high}: {:?}",
                    known[at]
                );
            }
            batches += 1;
        }
        if stop.load(Ordering::SeqCst) {
            if low.iter().all(Option::is_none) {
                return batches;
            }
            continue;
        }
        low[usize::from(slot)] = Some(done.load(Ordering::SeqCst));
        reader.submit(SlotId(slot), keys).unwrap();
    }
    batches
}

#[test]
fn a_wrong_answer_would_be_found() {
    let (one, two) = (NextHopId::new(1).unwrap(), NextHopId::new(2).unwrap());
    let answers = [(0, one), (5, two), (7, one)];
    assert!(is_right(&answers, one, 0, 0) && is_right(&answers, one, 4, 5) && is_right(&answers, two, 4, 5));
    assert!(
        !is_right(&answers, two, 0, 4) && !is_right(&answers, one, 5, 6) && !is_right(&answers, two, 7, 99)
    );
    assert!(is_right(&answers, one, 7, 99));
}
