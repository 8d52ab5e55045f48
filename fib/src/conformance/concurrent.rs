//! Lookups while deltas are applied.
//!
//! The deltas, and the correct answers of every generation, are computed beforehand. The writer sets `started` before it applies a delta, and
//! `done` afterwards. A reader loads `done`, submits, collects, then loads `started`: each answer must be correct in some generation between
//! the two. Next hops differ from generation to generation, so a state between two of them gives an answer that is wrong in both.

use super::draw::TestKey;
use super::options::{MakeEngine, Options};
use super::rig::{BATCH_MAX, SLOTS, TestRig, collect, fail, reader_of};
use crate::oracle::OraclePair;
use crate::{EngineReader, IpPrefix, KeyBuffer, NextHopId, Prefix, Routes, SlotId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NESTS: usize = 48;
/// With two, one that ends its batch must not end the grace period of the other. Each takes a CPU while the writer works.
const READERS_MAX: usize = 2;
/// The writer waits after this many until each reader has looked up another batch; on a busy host a wait lasts until the scheduler runs them.
const DELTAS_A_WAIT: usize = 4;

/// How deltas change a nest: a short prefix, a middle one within it, and a long one within the middle one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cycle {
    /// Longer prefixes are withdrawn while shorter ones are announced or changed, and vice versa.
    Swaps,
    /// One prefix per delta: the long one, the short one, the middle one, the short one again. Then all three are withdrawn.
    Announces,
    /// All three are announced, the inner two withdrawn in one delta and announced again, then all are withdrawn.
    Withdraws,
}

impl Cycle {
    const fn len(self) -> usize {
        match self {
            Self::Swaps => 6,
            Self::Announces => 5,
            Self::Withdraws => 4,
        }
    }
}

/// Two readers look up both families while 60 deltas or more swap longer and shorter prefixes. Then the final table is checked.
pub fn concurrent(make: MakeEngine<'_>, options: Options) {
    drive(make, options, Cycle::Swaps, READERS_MAX, [120, 4000]);
}

/// As [`concurrent`], with one reader unless the run is full, and deltas that announce one prefix of each nest. Nothing is withdrawn until a
/// nest is complete.
pub fn announces(make: MakeEngine<'_>, options: Options) {
    drive(make, options, Cycle::Announces, 1, [60, 2000]);
}

/// As [`announces`], with deltas that withdraw several prefixes of a nest without a replacement.
pub fn withdraws(make: MakeEngine<'_>, options: Options) {
    drive(make, options, Cycle::Withdraws, 1, [60, 2000]);
}

/// `readers` and the first of `deltas` in a quick run, two readers and the second in a full one.
fn drive(make: MakeEngine<'_>, options: Options, cycle: Cycle, readers: usize, deltas: [usize; 2]) {
    // At least half of the deltas: kernels may differ in their lookups during updates.
    let few = deltas[0].div_ceil(options.one_delta_in.min(2));
    let (readers, deltas) = if options.full { (READERS_MAX, deltas[1]) } else { (readers, few) };
    let mut rig = TestRig::new(make, "concurrent", options);
    let plan = ConcurrentPlan::new(&mut rig, cycle, deltas);
    let shared = ConcurrentState::new(&rig);
    let mut readers: Vec<_> =
        (0..readers).map(|_| reader_of(rig.writer.as_ref(), SLOTS, BATCH_MAX)).collect();
    let (name, count) = (rig.name(), readers.len());
    let during =
        run_with_readers(&name, &plan, &shared, &mut readers, || write(&mut rig, &plan, &shared, count));
    // Possible on a host with one CPU, or with an engine that applies a delta in microseconds.
    if during == 0 {
        eprintln!("{}: no batch met a delta that was being applied", rig.name());
    }
    rig.case(format_args!("after concurrent churn"));
    for _ in 0..2 {
        rig.check(&plan.v4.keys);
        rig.check(&plan.v6.keys);
        rig.check_stats();
        rig.withdraw_all();
    }
}

/// Runs `write` on this thread and a lookup thread for each reader. Returns the number of batches that overlapped a delta.
fn run_with_readers(
    name: &str,
    plan: &ConcurrentPlan,
    shared: &ConcurrentState,
    readers: &mut [Box<dyn EngineReader>],
    write: impl FnOnce(),
) -> u64 {
    std::thread::scope(|scope| {
        let look_up = |(at, reader): (usize, &'_ mut Box<dyn EngineReader>)| {
            let _stop = StopOnDrop(&shared.stop);
            look_up(name, plan, shared, at, reader.as_mut())
        };
        let handles: Vec<_> =
            readers.iter_mut().enumerate().map(|reader| scope.spawn(move || look_up(reader))).collect();
        {
            let _stop = StopOnDrop(&shared.stop);
            write();
        }
        let joined = handles.into_iter().map(|handle| handle.join());
        joined.map(|batches| batches.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct ConcurrentState {
    started: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    batches: [AtomicU64; READERS_MAX],
}

impl ConcurrentState {
    fn new(rig: &TestRig) -> Self {
        let first = rig.writer.generation().0;
        Self {
            started: AtomicU64::new(first),
            done: AtomicU64::new(first),
            stop: AtomicBool::new(false),
            batches: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

struct Expected<K> {
    keys: Vec<K>,
    batch: KeyBuffer,
    /// `right[generation][key]`; generation 0 is the empty table.
    right: Vec<Vec<NextHopId>>,
}

impl<K: TestKey> Expected<K> {
    fn new(nests: &[Nest<K>]) -> Self {
        let keys: Vec<_> = nests.iter().flat_map(|nest| nest.keys).collect();
        Self { batch: keys.iter().copied().collect(), keys, right: Vec::new() }
    }

    fn push(&mut self, oracle: &OraclePair) {
        self.right.push(self.keys.iter().map(|key| K::oracle(oracle).lookup(*key)).collect());
    }

    /// Looks up a batch, whose size, position and method follow from `turn`. Returns whether a delta overlapped.
    fn look_up_batch(
        &self,
        name: &str,
        shared: &ConcurrentState,
        turn: usize,
        reader: &mut dyn EngineReader,
    ) -> bool {
        let count = self.keys.len();
        let size = [BATCH_MAX, 32, 7, 1][turn / 2 % 4].min(count);
        let start = turn.wrapping_mul(31) % (count - size + 1);
        let keys = self.batch.keys().part(start..start + size);
        let mut answers = [NextHopId::NONE; BATCH_MAX];
        let answers = &mut answers[..size];
        let generation = |of: &AtomicU64| usize::try_from(of.load(Ordering::SeqCst)).unwrap_or(0);
        let low = generation(&shared.done);
        let result = if turn.is_multiple_of(3) {
            reader.lookup(keys, answers)
        } else {
            let slot = SlotId(u16::try_from(turn % usize::from(SLOTS)).unwrap_or(0));
            reader.submit(slot, keys).and_then(|()| collect(reader, slot, keys, answers))
        };
        if let Err(error) = result {
            fail(format_args!("{name}: a reader during churn: {error}"));
        }
        let high = generation(&shared.started);
        for (at, answer) in (start..).zip(answers) {
            if (low..=high).any(|generation| self.right[generation][at] == *answer) {
                continue;
            }
            let known = (0..self.right.len()).filter(|generation| self.right[*generation][at] == *answer);
            fail(format_args!(
                "{name}: {} answered {answer} between generations {low} and {high}, where {} and {} are right; {answer} is right in generations {:?}",
                self.keys[at].to_ip(),
                self.right[low][at],
                self.right[high][at],
                known.take(8).collect::<Vec<_>>(),
            ));
        }
        high > low
    }
}

struct ConcurrentPlan {
    deltas: Vec<Routes>,
    v4: Expected<u32>,
    v6: Expected<u128>,
}

impl ConcurrentPlan {
    fn new(rig: &mut TestRig, cycle: Cycle, deltas: usize) -> Self {
        let nests4: Vec<_> = (0..NESTS).map(|at| Nest::<u32>::new(rig, at)).collect();
        let nests6: Vec<_> = (0..NESTS).map(|at| Nest::<u128>::new(rig, at)).collect();
        let mut oracle = rig.oracle.clone();
        let (v4, v6) = (Expected::new(&nests4), Expected::new(&nests6));
        let mut plan = Self { deltas: Vec::with_capacity(deltas), v4, v6 };
        plan.expect(&oracle);
        for at in 0..deltas {
            // Most deltas touch every nest, which takes long enough for readers to see it happen. The others touch a single nest.
            let turn = at / cycle.len();
            let only = match cycle {
                Cycle::Swaps => (at % 3 == 2).then(|| rig.rng.below(NESTS)),
                // Every second cycle changes a single nest, so that its deltas follow each other as fast as possible.
                Cycle::Announces | Cycle::Withdraws => (turn % 2 == 1).then_some(turn / 2 % NESTS),
            };
            let mut changes: BTreeMap<IpPrefix, NextHopId> = BTreeMap::new();
            for nest in (0..NESTS).filter(|nest| only.is_none_or(|only| only == *nest)) {
                changes.extend(nests4[nest].step(rig, cycle, at));
                changes.extend(nests6[nest].step(rig, cycle, at));
            }
            let mut delta = Routes::new();
            for (prefix, next_hop) in changes {
                delta.push(prefix, next_hop);
            }
            oracle.announce(&rig.offered(&delta));
            plan.expect(&oracle);
            plan.deltas.push(delta);
        }
        plan
    }

    fn expect(&mut self, oracle: &OraclePair) {
        self.v4.push(oracle);
        self.v6.push(oracle);
    }
}

struct Nest<K: TestKey> {
    short: Prefix<K>,
    middle: Prefix<K>,
    long: Prefix<K>,
    keys: [K; 4],
    salt: usize,
}

impl<K: TestKey> Nest<K> {
    fn new(rig: &mut TestRig, at: usize) -> Self {
        // The first six bits keep nests apart. The lengths vary from there on, so that routes cross the levels of every engine.
        let tag = u128::try_from(at).unwrap_or(0) << 122;
        let address = K::from_high_bits(K::random(&mut rig.rng).to_high_bits() >> 6 | tag);
        let short = rig.rng.between(6, K::BITS - 2);
        let long = rig.rng.between(short + 2, K::BITS);
        let middle = rig.rng.between(short + 1, long - 1);
        let prefix = |len| Prefix::truncating(address, len);
        Self {
            short: prefix(short),
            middle: prefix(middle),
            long: prefix(long),
            keys: [
                address,
                prefix(long).last_address(),
                address.flipped(long - 1),
                address.flipped(middle - 1),
            ],
            salt: at * 5,
        }
    }

    fn step(&self, rig: &TestRig, cycle: Cycle, at: usize) -> Vec<(IpPrefix, NextHopId)> {
        let id = |kind: usize| Some(rig.id_at(at * 7 + self.salt + kind));
        let none = Some(NextHopId::NONE);
        let (short, middle, long) = match (cycle, at % cycle.len(), (at + self.salt) % cycle.len()) {
            (Cycle::Swaps, _, 0) => (id(0), none, id(1)),
            (Cycle::Swaps, _, 1) => (id(0), none, none), // withdraws the long one, changes the short one
            (Cycle::Swaps, _, 2) => (none, none, id(1)), // withdraws the short one, announces the long one
            (Cycle::Swaps, _, 3) => (id(0), id(2), none), // replaces the long one with the middle one
            (Cycle::Swaps, _, 4) => (id(0), none, id(1)), // replaces the middle one with the long one
            (Cycle::Swaps, ..) => (none, id(2), none),
            (Cycle::Announces, 0, _) => (None, None, id(1)),
            (Cycle::Announces, 1 | 3, _) => (id(0), None, None),
            (Cycle::Announces, 2, _) => (None, id(2), None),
            (Cycle::Withdraws, 0, _) => (id(0), id(2), id(1)),
            (Cycle::Withdraws, 1, _) => (None, none, none),
            (Cycle::Withdraws, 2, _) => (None, id(2), id(1)),
            (Cycle::Announces | Cycle::Withdraws, ..) => (none, none, none),
        };
        let nest = [(self.short, short), (self.middle, middle), (self.long, long)];
        nest.into_iter().filter_map(|(prefix, next_hop)| Some((K::wrap(prefix), next_hop?))).collect()
    }
}

fn write(rig: &mut TestRig, plan: &ConcurrentPlan, shared: &ConcurrentState, readers: usize) {
    let mut seen = vec![0; readers];
    for (at, delta) in plan.deltas.iter().enumerate() {
        rig.case(format_args!("concurrent, delta {at}"));
        if at % DELTAS_A_WAIT == 0 {
            for (batches, seen) in shared.batches.iter().zip(&mut seen) {
                while batches.load(Ordering::Acquire) == *seen && !shared.is_stopped() {
                    std::thread::yield_now();
                }
                *seen = batches.load(Ordering::Acquire);
            }
        }
        if shared.is_stopped() {
            return; // a reader has failed; joining it raises its panic
        }
        let next = rig.writer.generation().next().0;
        shared.started.store(next, Ordering::SeqCst);
        rig.apply(delta);
        shared.done.store(next, Ordering::SeqCst);
    }
}

fn look_up(
    name: &str,
    plan: &ConcurrentPlan,
    shared: &ConcurrentState,
    at: usize,
    reader: &mut dyn EngineReader,
) -> u64 {
    let (mut during, mut turn) = (0, at);
    while !shared.is_stopped() {
        turn += 1;
        during += u64::from(if turn % 2 == 0 {
            plan.v4.look_up_batch(name, shared, turn, reader)
        } else {
            plan.v6.look_up_batch(name, shared, turn, reader)
        });
        shared.batches[at].fetch_add(1, Ordering::Release);
    }
    during
}
