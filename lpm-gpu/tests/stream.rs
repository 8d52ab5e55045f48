//! Real tables and the real update stream, from the folder that `FWD_DATA` names.

#![expect(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

mod common;

use common::{KeySet, collect, engine};
use fib::conformance::skipped;
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::testing::{data, load};
use fib::{
    EngineError, EngineReader, EngineWriter, FibDelta, Generation, IpPrefix, Key, Keys, NextHopId, Prefix,
    Rib, SlotId,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Every engine returns the oracle's answers on full tables, through `lookup` and through slots in flight.
#[test]
fn full_tables_are_answered_as_the_oracle_does() {
    let Some([v4, v6]) = data(["v4-202401.txt.xz", "v6-202401.txt.xz"]) else { return };
    if skipped(&|| engine("gamt", &[])) {
        return;
    }
    let mut rib = load(&[v4, v6]);
    rib.take_delta();
    let oracle = OraclePair::of(&rib);
    let keys = KeySet::draw(&rib, 60_000, &mut Seeded::new(0, 3));
    let right = keys.right(&oracle);
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
        let mut answers = vec![NextHopId::MAX; keys.v4.len()];
        reader.lookup(keys.keys_v4(), &mut answers).unwrap();
        assert!(answers == right.0, "{name} {parameters:?}, IPv4");
        reader.lookup(keys.keys_v6(), &mut answers).unwrap();
        assert!(answers == right.1, "{name} {parameters:?}, IPv6");
        for (slot, start) in (0..4).zip((0..).step_by(8192)) {
            reader.submit(SlotId(slot), Keys::V4(&keys.v4[start..start + 8192])).unwrap();
        }
        for (slot, start) in (0..4).zip((0..).step_by(8192)) {
            assert!(
                collect(reader.as_mut(), slot).unwrap() == right.0[start..start + 8192],
                "{name}, slot {slot}"
            );
        }
    }
}

/// Updates per delta: a millisecond's worth at 100,000 a second.
const UPDATES_A_DELTA: usize = 100;
/// Keys of each family that are looked up.
const KEYS: usize = 512;

/// The deltas of a stream, and for each key its answers, each with the first generation that has it.
struct Plan {
    deltas: Vec<FibDelta>,
    keys: KeySet,
    answers_v4: Vec<Vec<(u32, NextHopId)>>,
    answers_v6: Vec<Vec<(u32, NextHopId)>>,
}

impl Plan {
    fn new(rib: &mut Rib, deltas: Vec<FibDelta>, dice: &mut Seeded) -> Self {
        // Keys within changed prefixes, and anywhere.
        let mut keys = KeySet::draw(rib, KEYS / 4, dice);
        while keys.v4.len() < KEYS {
            let delta = &deltas[dice.below(deltas.len())];
            if !delta.v4.is_empty() {
                let prefix = delta.v4[dice.below(delta.v4.len())].prefix;
                keys.v4.push(dice.inside(prefix));
            }
        }
        while keys.hi.len() < KEYS {
            let delta = &deltas[dice.below(deltas.len())];
            if !delta.v6.is_empty() {
                let prefix = delta.v6[dice.below(delta.v6.len())].prefix;
                keys.push_v6(dice.inside(prefix));
            } else if deltas.iter().all(|delta| delta.v6.is_empty()) {
                keys.push_v6(dice.u128());
            }
        }
        // With the routes that an engine has, as the deltas go on from there: they tell nothing of the others.
        let mut oracle = OraclePair::default();
        oracle.apply(&rib.full_delta());
        let (right_v4, right_v6) = keys.right(&oracle);
        let mut answers_v4: Vec<_> = right_v4.into_iter().map(|answer| vec![(0, answer)]).collect();
        let mut answers_v6: Vec<_> = right_v6.into_iter().map(|answer| vec![(0, answer)]).collect();
        for (generation, delta) in (1..).zip(&deltas) {
            oracle.apply(delta);
            let touched_v4: Vec<Prefix<u32>> = delta.v4.iter().map(|change| change.prefix).collect();
            let touched_v6: Vec<Prefix<u128>> = delta.v6.iter().map(|change| change.prefix).collect();
            note(&keys.v4, &touched_v4, &mut answers_v4, generation, |key| oracle.v4.lookup(key));
            let keys_v6: Vec<u128> = (0..KEYS).map(|at| keys.v6(at)).collect();
            note(&keys_v6, &touched_v6, &mut answers_v6, generation, |key| oracle.v6.lookup(key));
        }
        Self { deltas, keys, answers_v4, answers_v6 }
    }
}

/// Records the new answers of the keys within `touched`.
fn note<K: Key>(
    keys: &[K],
    touched: &[Prefix<K>],
    answers: &mut [Vec<(u32, NextHopId)>],
    generation: u32,
    right: impl Fn(K) -> NextHopId,
) {
    for (key, answers) in keys.iter().zip(answers) {
        if touched.iter().any(|prefix| *key & K::mask(prefix.len()) == prefix.address()) {
            let answer = right(*key);
            if answers.last().unwrap().1 != answer {
                answers.push((generation, answer));
            }
        }
    }
}

/// Whether `answer` was right in any of the generations `low..=high`.
fn is_right(answers: &[(u32, NextHopId)], answer: NextHopId, low: u64, high: u64) -> bool {
    answers.iter().enumerate().any(|(at, (from, right))| {
        let until = answers.get(at + 1).map_or(u64::MAX, |(next, _)| u64::from(*next) - 1);
        *right == answer && u64::from(*from) <= high && until >= low
    })
}

/// The update stream of a RIPE collector, in deltas of a millisecond each at 100,000 updates a second, while a reader
/// keeps slots in flight and the mock delays its operations: every answer belongs to a generation between submit and
/// collect.
#[test]
fn the_real_stream_is_followed_while_lookups_run() {
    let files = ["v4-202401.txt.xz", "v6-202401.txt.xz", "updates-ris-20190101.txt.xz"];
    let Some([v4, v6, updates]) = data(files) else { return };
    if skipped(&|| engine("gamt", &[])) {
        return;
    }
    let mut rib = load(&[v4, v6]);
    let first = rib.take_delta();
    let mut hops = fib::NextHopTable::default();
    let stream: Vec<_> = fib::feed::updates(&updates, None).unwrap().map(Result::unwrap).collect();
    let mut deltas = Vec::new();
    let mut before = rib.clone();
    for part in stream.chunks(UPDATES_A_DELTA) {
        for update in part {
            update.apply(&mut rib, &mut hops).unwrap();
        }
        deltas.push(rib.take_delta());
    }
    let plan = Plan::new(&mut before, deltas, &mut Seeded::new(0, 5));
    for (name, parameters) in [
        ("gamt", &[][..]),
        ("gamt", &[("layout", "paper"), ("next-hops", "apart"), ("mode", "graph")][..]),
        ("gale", &[][..]),
        ("sail-gpu", &[("mode", "mapped")][..]),
    ] {
        let mut writer = engine(name, parameters).unwrap();
        let mut rib = Rib::plain();
        commit(&mut rib, &first, writer.as_mut()).unwrap();
        follow(name, writer.as_mut(), rib, &plan);
    }
}

/// Has `rib`, which has all routes that `writer` has, and `writer` take `delta`.
fn commit(rib: &mut Rib, delta: &FibDelta, writer: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
    delta.v4.iter().for_each(|change| _ = rib.v4.set(change.prefix, change.new));
    delta.v6.iter().for_each(|change| _ = rib.v6.set(change.prefix, change.new));
    rib.commit_to(writer)
}

/// Applies the plan's deltas while a thread looks up.
fn follow(name: &str, writer: &mut dyn EngineWriter, mut rib: Rib, plan: &Plan) {
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
        eprintln!("{name}: {} deltas beside {batches} batches, {:?}", plan.deltas.len(), start.elapsed());
        assert!(batches > 0);
    });
}

/// Looks up until told to stop, with every slot in flight; returns the number of batches.
fn look_up(
    name: &str,
    reader: &mut dyn EngineReader,
    plan: &Plan,
    (started, done): (&AtomicU64, &AtomicU64),
    stop: &AtomicBool,
) -> u64 {
    let slots = reader.slots();
    let mut low = vec![None; slots.into()];
    let mut batches = 0;
    for turn in 0_usize.. {
        let slot = (turn % usize::from(slots)) as u16;
        if let Some(low) = low[usize::from(slot)].take() {
            let answers = collect(reader, slot).unwrap();
            let high = started.load(Ordering::SeqCst);
            let known = if slot.is_multiple_of(2) { &plan.answers_v4 } else { &plan.answers_v6 };
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
        let keys = if slot.is_multiple_of(2) { plan.keys.keys_v4() } else { plan.keys.keys_v6() };
        reader.submit(SlotId(slot), keys).unwrap();
    }
    batches
}

/// [`is_right`] accepts an answer only in the generations that had it.
#[test]
fn a_wrong_answer_would_be_found() {
    let (one, two) = (NextHopId::new(1).unwrap(), NextHopId::new(2).unwrap());
    let answers = [(0, one), (5, two), (7, one)];
    assert!(is_right(&answers, one, 0, 0) && is_right(&answers, one, 4, 5) && is_right(&answers, two, 4, 5));
    assert!(
        !is_right(&answers, two, 0, 4) && !is_right(&answers, one, 5, 6) && !is_right(&answers, two, 7, 99)
    );
    assert!(is_right(&answers, one, 7, 99));
    let _: IpPrefix = IpPrefix::V4(Prefix::truncating(0, 0));
}
