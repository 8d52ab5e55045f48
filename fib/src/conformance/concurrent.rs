//! Lookups while deltas are applied.
//!
//! The deltas, and the right answers of every generation for a fixed set of keys, are computed beforehand. The writer
//! announces each generation before it applies the delta (`started`) and after (`done`). A reader notes `done`, submits,
//! collects, notes `started`: each answer must be right in some generation from the first figure to the second.
//!
//! A delta changes nests of routes: the longer prefix is withdrawn while the shorter one gets a new next hop, and the other
//! way round. Next hops differ from generation to generation, so a state between two generations (the longer prefix gone, the
//! shorter still with its old next hop) gives an answer that neither generation has.

use super::draw::{KeyArrays, TestKey};
use super::rig::{BATCH_MAX, Rig, SLOTS, collect, fail, reader_of};
use super::{Make, Options};
use crate::{EngineReader, FibDelta, Generation, IpPrefix, Key, NextHopId, Prefix, SlotId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nests of routes a family.
const NESTS: usize = 48;
/// Threads that look up.
const READERS: usize = 2;
/// After this many deltas the writer waits until each reader has looked up another batch: on a busy host a wait lasts as
/// long as the scheduler lets the readers wait.
const DELTAS_A_WAIT: usize = 4;

/// Two readers look up both families without pause while the writer applies hundreds of deltas that swap longer and
/// shorter prefixes; every answer is that of a generation between submit and collect. Then the final table is checked.
///
/// # Panics
/// When the engine breaks the contract; the message says how.
pub fn concurrent(make: Make<'_>, options: Options) {
    let mut rig = Rig::new(make, "concurrent", options);
    let plan = Plan::new(&mut rig, options.rounds(400));
    let first = rig.writer.generation().0;
    let shared = Shared {
        started: AtomicU64::new(first),
        done: AtomicU64::new(first),
        stop: AtomicBool::new(false),
        batches: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let readers: Vec<_> = (0..READERS).map(|_| reader_of(rig.writer.as_ref(), SLOTS, BATCH_MAX)).collect();
    std::thread::scope(|scope| {
        let handles: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(at, reader)| {
                let (plan, shared) = (&plan, &shared);
                let name = rig.name();
                scope.spawn(move || {
                    let _stop = StopOnDrop(&shared.stop);
                    look_up(&name, plan, shared, at, reader)
                })
            })
            .collect();
        {
            let _stop = StopOnDrop(&shared.stop);
            write(&mut rig, &plan, &shared);
        }
        let mut during = 0;
        for handle in handles {
            match handle.join() {
                Ok(batches) => during += batches,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // A host with one CPU and an engine that applies in microseconds may come to this.
        if during == 0 {
            eprintln!("{}: no batch met a delta that was being applied", rig.name());
        }
    });
    rig.case(format_args!("after concurrent churn"));
    rig.check(&plan.keys4);
    rig.check(&plan.keys6);
    rig.check_stats();
    rig.withdraw_all();
    rig.check(&plan.keys4);
    rig.check(&plan.keys6);
}

/// Tells the other threads to end, also when this one panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct Shared {
    /// The newest generation whose delta was handed to the engine.
    started: AtomicU64,
    /// The newest generation that `apply` has returned.
    done: AtomicU64,
    stop: AtomicBool,
    /// Batches that each reader has looked up.
    batches: [AtomicU64; READERS],
}

/// The deltas, and what is right in every generation.
struct Plan {
    deltas: Vec<FibDelta>,
    keys4: Vec<u32>,
    keys6: Vec<u128>,
    /// `right4[generation][key]`, generation 0 the empty table.
    right4: Vec<Vec<NextHopId>>,
    right6: Vec<Vec<NextHopId>>,
}

impl Plan {
    fn new(rig: &mut Rig, deltas: usize) -> Self {
        let nests4: Vec<_> = (0..NESTS).map(|at| Nest::<u32>::new(rig, at)).collect();
        let nests6: Vec<_> = (0..NESTS).map(|at| Nest::<u128>::new(rig, at)).collect();
        let keys4: Vec<_> = nests4.iter().flat_map(|nest| nest.keys).collect();
        let keys6: Vec<_> = nests6.iter().flat_map(|nest| nest.keys).collect();
        let mut oracle = rig.oracle.clone();
        let mut plan = Self {
            deltas: Vec::with_capacity(deltas),
            right4: vec![keys4.iter().map(|key| oracle.v4.lookup(*key)).collect()],
            right6: vec![keys6.iter().map(|key| oracle.v6.lookup(*key)).collect()],
            keys4,
            keys6,
        };
        for at in 0..deltas {
            // Two in three touch every nest, which takes long enough to be looked at on the way; one touches a single nest.
            let only = (at % 3 == 2).then(|| rig.rng.below(NESTS));
            let mut changes: BTreeMap<IpPrefix, NextHopId> = BTreeMap::new();
            for nest in (0..NESTS).filter(|nest| only.is_none_or(|only| only == *nest)) {
                changes.extend(nests4[nest].step(rig, at));
                changes.extend(nests6[nest].step(rig, at));
            }
            let mut delta = FibDelta::new();
            for (prefix, next_hop) in changes {
                delta.push(prefix, next_hop);
            }
            // An engine may not count on an order of the changes.
            if at % 2 == 1 {
                shuffle(&mut delta.v4, rig);
                shuffle(&mut delta.v6, rig);
            }
            oracle.apply(&delta);
            plan.right4.push(plan.keys4.iter().map(|key| oracle.v4.lookup(*key)).collect());
            plan.right6.push(plan.keys6.iter().map(|key| oracle.v6.lookup(*key)).collect());
            plan.deltas.push(delta);
        }
        plan
    }
}

fn shuffle<T>(items: &mut [T], rig: &mut Rig) {
    for end in (1..items.len()).rev() {
        items.swap(end, rig.rng.below(end + 1));
    }
}

/// A shorter prefix, a longer one within it, one between them, and keys that tell them apart.
struct Nest<K: TestKey> {
    short: Prefix<K>,
    middle: Prefix<K>,
    long: Prefix<K>,
    keys: [K; 4],
    salt: usize,
}

impl<K: TestKey> Nest<K> {
    fn new(rig: &mut Rig, at: usize) -> Self {
        // The first six bits keep nests apart; lengths from there on, so that levels of all engines are crossed.
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

    /// The changes of delta `at`: which of the three are there changes from delta to delta, and so does every next hop.
    fn step(&self, rig: &Rig, at: usize) -> Vec<(IpPrefix, NextHopId)> {
        let id = |kind: usize| rig.id_at(at * 7 + self.salt + kind);
        let none = NextHopId::NONE;
        let (short, middle, long) = match (at + self.salt) % 6 {
            0 => (id(0), none, id(1)),
            1 => (id(0), none, none),  // the longer goes, the shorter changes
            2 => (none, none, id(1)),  // the shorter goes, the longer comes
            3 => (id(0), id(2), none), // the longer goes, a middle one takes its place
            4 => (id(0), none, id(1)), // and back
            _ => (none, id(2), none),
        };
        vec![(K::wrap(self.short), short), (K::wrap(self.middle), middle), (K::wrap(self.long), long)]
    }
}

/// Applies every delta, and keeps the readers from falling far behind.
fn write(rig: &mut Rig, plan: &Plan, shared: &Shared) {
    let mut seen = [0; READERS];
    for (at, delta) in plan.deltas.iter().enumerate() {
        rig.case(format_args!("concurrent, delta {at}"));
        if at % DELTAS_A_WAIT == 0 {
            for (batches, seen) in shared.batches.iter().zip(&mut seen) {
                while batches.load(Ordering::Acquire) == *seen && !shared.stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                *seen = batches.load(Ordering::Acquire);
            }
        }
        if shared.stop.load(Ordering::Acquire) {
            return; // a reader has failed; joining it tells why
        }
        let Generation(next) = rig.writer.generation().next();
        shared.started.store(next, Ordering::SeqCst);
        rig.apply(delta);
        shared.done.store(next, Ordering::SeqCst);
    }
}

/// Looks up until told to stop; returns in how many batches a delta was under way.
fn look_up(name: &str, plan: &Plan, shared: &Shared, at: usize, mut reader: Box<dyn EngineReader>) -> u64 {
    let (keys4, keys6) = (u32::arrays(&plan.keys4), u128::arrays(&plan.keys6));
    let mut answers = vec![NextHopId::NONE; BATCH_MAX];
    let (mut during, mut turn) = (0, at);
    while !shared.stop.load(Ordering::Acquire) {
        turn += 1;
        let (arrays, right, count) = if turn % 2 == 0 {
            (&keys4, &plan.right4, plan.keys4.len())
        } else {
            (&keys6, &plan.right6, plan.keys6.len())
        };
        let size = [BATCH_MAX, 32, 7, 1][turn / 2 % 4].min(count);
        let start = turn.wrapping_mul(31) % (count - size + 1);
        let answers = &mut answers[..size];
        let low = shared.done.load(Ordering::SeqCst);
        ask(name, reader.as_mut(), arrays, start, turn, answers);
        let high = shared.started.load(Ordering::SeqCst);
        during += u64::from(high > low);
        judge(name, plan, right, (low, high), start, turn % 2 == 0, answers);
        shared.batches[at].fetch_add(1, Ordering::Release);
    }
    during
}

fn ask(
    name: &str,
    reader: &mut dyn EngineReader,
    arrays: &KeyArrays,
    start: usize,
    turn: usize,
    answers: &mut [NextHopId],
) {
    let keys = arrays.part(start, start + answers.len());
    let asked = if turn.is_multiple_of(3) {
        reader.lookup(keys, answers)
    } else {
        let slot = SlotId(u16::try_from(turn % usize::from(SLOTS)).unwrap_or(0));
        reader.submit(slot, keys).and_then(|()| collect(reader, slot, answers))
    };
    if let Err(error) = asked {
        fail(format_args!("{name}: a reader during churn: {error}"));
    }
}

/// Each answer is right in one of the generations `span.0..=span.1`.
fn judge(
    name: &str,
    plan: &Plan,
    right: &[Vec<NextHopId>],
    span: (u64, u64),
    start: usize,
    v4: bool,
    answers: &[NextHopId],
) {
    let index = |generation: u64| usize::try_from(generation).unwrap_or(usize::MAX);
    for (at, answer) in (start..).zip(answers) {
        let ok = (index(span.0)..=index(span.1)).any(|generation| right[generation][at] == *answer);
        if !ok {
            let key = if v4 { plan.keys4[at].to_ip() } else { plan.keys6[at].to_ip() };
            let known: Vec<_> =
                (0..right.len()).filter(|generation| right[*generation][at] == *answer).collect();
            fail(format_args!(
                "{name}: {key} answered {answer} between generations {} and {}, where {} and {} are right; {answer} is right in generations {:?}",
                span.0,
                span.1,
                right[index(span.0)][at],
                right[index(span.1)][at],
                known.iter().take(8).collect::<Vec<_>>(),
            ));
        }
    }
}
