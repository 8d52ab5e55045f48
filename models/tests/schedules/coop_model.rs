//! `coop` while a half fails: each answer is from a generation between submit and collect, one half stays in service, and threads end.

use crate::check::{InjectedFault, check, check_fails};
use crate::coop::params::CoopParams;
use crate::coop::{CoopEngine, Drive, First, Half};
use crate::coop_engines::{Engine, EngineState, Trouble, answer};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, thread};
use fib::{EngineOptions, EngineReader, EngineWriter, FibDelta, Keys, NextHopId, Rib, SlotId};
use shuttle::rand::{Rng, thread_rng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Poll;

/// Keys of a batch: enough to be cut in two, too few for a profile.
const KEYS: usize = 48;
const READERS: usize = 2;
const DELTAS: u64 = 2;
const ROUNDS: usize = 2;

#[derive(Default)]
struct Deltas {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Deltas {
    fn check(&self, keys: &[u32], answers: &[NextHopId], oldest: u64) {
        let newest = self.begun.load(Ordering::SeqCst);
        assert_eq!(keys.len(), answers.len());
        for (key, got) in keys.iter().zip(answers) {
            let right = (oldest..=newest).any(|generation| answer(*key, generation) == *got);
            assert!(right, "key {key}: {got:?} is of no generation from {oldest} to {newest}");
        }
    }
}

fn read(reader: &mut dyn EngineReader, deltas: &Deltas, first_key: u32) {
    let keys: Vec<u32> = (first_key..).take(KEYS).collect();
    for round in 0..ROUNDS {
        let oldest = deltas.done.load(Ordering::SeqCst);
        if round % 2 == 0 {
            let mut out = vec![NextHopId::NONE; KEYS];
            reader.lookup(Keys::V4(&keys), &mut out).expect("one half is in service");
            deltas.check(&keys, &out, oldest);
            continue;
        }
        let more: Vec<u32> = keys.iter().map(|key| key + 1000).collect();
        for (slot, keys) in [&keys, &more].into_iter().enumerate() {
            reader
                .submit(SlotId(u16::try_from(slot).unwrap()), Keys::V4(keys))
                .expect("one half is in service");
        }
        for (slot, keys) in [&keys, &more].into_iter().enumerate() {
            loop {
                match reader.collect(SlotId(u16::try_from(slot).unwrap()), Keys::V4(keys)) {
                    Poll::Ready(answers) => {
                        break deltas.check(keys, answers.expect("one half is in service"), oldest);
                    }
                    Poll::Pending => thread::yield_now(),
                }
            }
        }
    }
}

/// `coop` over a first half of kind `drive` (`None`: a group) and a CPU engine, which fail as `troubles` says.
fn model(drive: Option<Drive>, troubles: [Trouble; 2], stall_us: &str) {
    let calls = thread_rng().gen_range(0..6);
    let parameters = [("stall-us", stall_us), ("threads", "1"), ("split", "0.5")];
    let params = CoopParams::from_options(&EngineOptions::with_parameters(&parameters)).unwrap();
    let states =
        [EngineState::new("first", troubles[0], calls), EngineState::new("second", troubles[1], calls)];
    let half = |at: usize, drive| Half { engine: Box::new(Engine(Arc::clone(&states[at]))), drive };
    let first = drive.map_or(First::Group, |drive| First::Engine(half(0, drive)));
    let mut engine = CoopEngine::new(first, half(1, Drive::Cpu), params);
    let deltas = Arc::new(Deltas::default());
    let threads: Vec<_> = (0..READERS)
        .map(|at| {
            let (mut reader, deltas) = (engine.reader(2, KEYS).unwrap(), Arc::clone(&deltas));
            thread::spawn(move || read(reader.as_mut(), &deltas, 100 * u32::try_from(at).unwrap()))
        })
        .collect();
    for delta in 1..=DELTAS {
        deltas.begun.store(delta, Ordering::SeqCst);
        engine.apply(&FibDelta::new(), &Rib::new()).expect("one half is in service");
        deltas.done.store(delta, Ordering::SeqCst);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let why = engine.service().why().map(|why| why.is_some());
    assert_ne!(why, [true; 2], "both halves are out of service");
    ENDS.with_borrow_mut(|ends| *ends.entry(why).or_default() += 1);
    states.iter().for_each(|state| state.is_over.store(true, Ordering::SeqCst));
}

thread_local! {
    /// The number of schedules by the halves that were out of service at their end.
    static ENDS: RefCell<BTreeMap<[bool; 2], usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Checks `model`, and that some of its schedules end with `half` out of service and some with both halves in service.
fn check_both_ends(model: fn(), half: usize) {
    ENDS.take();
    check(model, 1000);
    let ends = ENDS.take();
    let mut out = [false; 2];
    assert!(ends.contains_key(&out), "a half always fails: {ends:?}");
    out[half] = true;
    assert!(ends.contains_key(&out), "no half ever fails: {ends:?}");
}

/// A stall limit that no thread exceeds.
const PATIENT: &str = "60000000";
/// A stall limit that late threads exceed.
const HASTY: &str = "100";

fn one_of(troubles: &[Trouble]) -> Trouble {
    troubles[thread_rng().gen_range(0..troubles.len())]
}

fn device() {
    use Trouble::{Apply, Fails, Hangs, Refuses, Short};
    model(Some(Drive::Device), [one_of(&[Refuses, Fails, Short, Hangs, Apply]), Trouble::Never], HASTY);
}

fn helpers() {
    use Trouble::{Apply, Hangs, Never, Panics, Refuses};
    model(Some(Drive::Cpu), [one_of(&[Never, Refuses, Panics, Hangs, Apply]), Never], HASTY);
}

fn patient_helpers() {
    model(
        Some(Drive::Cpu),
        [one_of(&[Trouble::Never, Trouble::Refuses, Trouble::Panics]), Trouble::Never],
        PATIENT,
    );
}

fn group() {
    model(None, [Trouble::Never; 2], HASTY);
}

fn second() {
    model(Some(Drive::Cpu), [Trouble::Never, one_of(&[Trouble::Refuses, Trouble::Apply])], PATIENT);
}

/// If both halves refuse at the same time, the half that fails last stays in service, and the caller gets its errors.
fn both() {
    let states = [0, 1].map(|_| EngineState::new("either", Trouble::Refuses, thread_rng().gen_range(0..3)));
    let params = CoopParams::from_options(&EngineOptions::default()).unwrap();
    let half = |at: usize| Half { engine: Box::new(Engine(Arc::clone(&states[at]))), drive: Drive::Device };
    let engine = CoopEngine::new(First::Engine(half(0)), half(1), params);
    let threads: Vec<_> = (0..READERS)
        .map(|_| {
            let mut reader = engine.reader(2, KEYS).unwrap();
            thread::spawn(move || {
                for _ in 0..2 {
                    let _either = reader.submit(SlotId(0), Keys::V4(&[7; KEYS]));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let why = engine.service().why().map(|why| why.is_some());
    assert_ne!(why, [true; 2], "both halves are out of service");
}

#[test]
fn a_device_that_fails_costs_no_answer() {
    check_both_ends(device, 0);
}

#[test]
fn helper_threads_that_fail_or_are_late_cost_no_answer() {
    check_both_ends(helpers, 0);
}

#[test]
fn sleeping_threads_are_woken_for_all_that_is_theirs() {
    check(patient_helpers, 1000);
    check_fails(patient_helpers, InjectedFault::NobodyWakes, 100, &["deadlock", "exceeded"]);
}

#[test]
fn a_group_that_is_late_costs_no_answer() {
    check_both_ends(group, 0);
}

#[test]
fn the_second_half_may_fail_too() {
    check_both_ends(second, 1);
}

#[test]
fn one_half_stays_when_both_fail_at_once() {
    check(both, 1000);
    check_fails(both, InjectedFault::ExchangeInTwoSteps, 3000, &["both halves are out of service"]);
}

#[test]
fn an_answer_of_an_old_table_is_noticed() {
    check_fails(device, InjectedFault::LateTable, 1000, &["is of no generation"]);
}
