//! Tests of the conformance suite: each fault, alone in an engine, is found by the right group.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use fib::conformance::{self, MakeEngine, Options};
use fib::oracle::OraclePair;
use fib::{
    Capacity, EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family, FibDelta, Generation,
    Isa, Keys, NextHopId, Rib, SlotId,
};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, RwLock};
use std::task::Poll;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineFault {
    /// No fault: shows that the suite finds the faults, not the engine around them.
    None,
    /// One key in 256 gets another next hop.
    WrongAnswer,
    /// The last key of a batch whose size is not a multiple of eight gets the answer of the key before.
    Tail,
    /// Prefixes longer than /64 are never matched.
    Shallow,
    NoHostRoutes,
    /// Ids are truncated to 16 bits.
    NarrowIds,
    /// Lookups see a delta only after the next one.
    OneLate,
    /// Readers see a half-applied delta: the withdraws first.
    Intermediate,
    /// A route is gone for a moment before it gets its new next hop.
    Gap,
    /// Withdraws of a delta are seen one by one, longer prefixes first.
    LongestFirst,
    /// A changed next hop of an IPv4 route is counted as a withdraw.
    Miscounts,
    /// A withdrawn IPv4 route stays in service when a shorter one covers it.
    KeepsCovered,
    /// A delta makes two generations.
    TwoGenerations,
    OneSlot,
    CutsBatches,
    /// IPv6 halves of different lengths are accepted.
    AnyHalves,
    /// `collect` takes any keys.
    AnyKeys,
    /// A delta with an id above the limit is refused after its withdraws were applied.
    HalfRefused,
    /// Room for ids is never reused.
    LeaksIds,
    /// A table over the limit is refused after it was applied.
    RefusesLate,
    Unlimited,
}

const HALF_REFUSED_ID_MAX: u32 = 60_000;
const LEAKY_IDS_MAX: usize = 30_000;
const ROUTE_BYTES: usize = 16;

struct Faulty {
    fault: EngineFault,
    tables: Arc<RwLock<OraclePair>>,
    late: FibDelta,
    miscounted: u64,
    ids_seen: HashSet<NextHopId>,
    generation: Generation,
    table_bytes_max: u64,
}

fn faulty(fault: EngineFault, table_bytes_max: u64) -> Faulty {
    Faulty {
        fault,
        tables: Arc::default(),
        late: FibDelta::new(),
        miscounted: 0,
        ids_seen: HashSet::new(),
        generation: Generation::default(),
        table_bytes_max,
    }
}

impl Faulty {
    fn next_hop(&self, id: NextHopId) -> NextHopId {
        match self.fault {
            EngineFault::NarrowIds => NextHopId::from_answer(id.get() & 0xffff),
            _ => id,
        }
    }

    fn put(&self, delta: &FibDelta, which: impl Fn(NextHopId) -> bool) {
        let mut tables = self.tables.write().unwrap();
        for change in delta.v4.iter().filter(|change| which(change.new)) {
            let before = tables.v4.longest_match(change.prefix.address());
            tables.v4.set(change.prefix, self.next_hop(change.new));
            let covered = tables.v4.longest_match(change.prefix.address()).is_some();
            if let (EngineFault::KeepsCovered, true, true, Some((len, old))) =
                (self.fault, change.new.is_none(), covered, before)
                && len == change.prefix.len()
            {
                tables.v4.set(change.prefix, old);
            }
        }
        for change in delta.v6.iter().filter(|change| which(change.new)) {
            tables.v6.set(change.prefix, self.next_hop(change.new));
        }
    }

    fn withdraw(&self, delta: &FibDelta, is_meant: impl Fn(u8) -> bool) {
        let gone = self.fault == EngineFault::Gap;
        let mut tables = self.tables.write().unwrap();
        let v4 = delta.v4.iter().filter(|c| (gone || c.new.is_none()) && is_meant(c.prefix.len()));
        v4.for_each(|change| tables.v4.set(change.prefix, NextHopId::NONE));
        let v6 = delta.v6.iter().filter(|c| (gone || c.new.is_none()) && is_meant(c.prefix.len()));
        v6.for_each(|change| tables.v6.set(change.prefix, NextHopId::NONE));
        drop(tables);
        std::thread::sleep(Duration::from_micros(200));
    }

    fn bytes(tables: &OraclePair) -> u64 {
        ((tables.v4.len() + tables.v6.len()) * ROUTE_BYTES) as u64
    }
}

impl EngineWriter for Faulty {
    fn info(&self) -> EngineInfo {
        let next_hop_id_max = match self.fault {
            EngineFault::HalfRefused => HALF_REFUSED_ID_MAX,
            _ => NextHopId::MAX.get(),
        };
        let next_hops_max = match self.fault {
            EngineFault::LeaksIds => LEAKY_IDS_MAX as u64,
            _ => u64::from(next_hop_id_max),
        };
        let capacity = Capacity { next_hop_id_max, next_hops_max, table_bytes_max: self.table_bytes_max };
        EngineInfo { capacity, ..EngineInfo::new("faulty", Isa::Scalar) }
    }

    fn apply(&mut self, delta: &FibDelta, _rib: &Rib) -> Result<Generation, EngineError> {
        let ids = delta.v4.iter().map(|c| c.new).chain(delta.v6.iter().map(|c| c.new));
        if self.fault == EngineFault::LeaksIds {
            self.ids_seen.extend(ids);
            if self.ids_seen.len() > LEAKY_IDS_MAX {
                return Err(EngineError::Full {
                    what: "next hops",
                    used: self.ids_seen.len() as u64,
                    limit: LEAKY_IDS_MAX as u64,
                });
            }
        } else if self.fault == EngineFault::HalfRefused
            && ids.clone().any(|id| id.get() > HALF_REFUSED_ID_MAX)
        {
            self.put(delta, NextHopId::is_none);
            let used = ids.map(NextHopId::get).max().unwrap_or(0);
            return Err(EngineError::Full {
                what: "next-hop ids",
                used: u64::from(used),
                limit: u64::from(HALF_REFUSED_ID_MAX),
            });
        }
        if self.table_bytes_max < u64::MAX && self.fault != EngineFault::Unlimited {
            let mut after = self.tables.read().unwrap().clone();
            after.apply(delta);
            let used = Self::bytes(&after);
            if used > self.table_bytes_max {
                if self.fault == EngineFault::RefusesLate {
                    self.put(delta, |_| true);
                }
                return Err(EngineError::Full { what: "table bytes", used, limit: self.table_bytes_max });
            }
        }
        match self.fault {
            EngineFault::Intermediate => {
                self.put(delta, NextHopId::is_none);
                std::thread::sleep(Duration::from_micros(200));
                self.put(delta, |id| !id.is_none());
            }
            EngineFault::Gap => {
                self.withdraw(delta, |len| len <= 128);
                self.put(delta, |_| true);
            }
            EngineFault::LongestFirst => {
                for shortest in [64, 24, 16, 0] {
                    self.withdraw(delta, |len| len >= shortest);
                }
                self.put(delta, |_| true);
            }
            EngineFault::OneLate => {
                let late = std::mem::replace(&mut self.late, delta.clone());
                self.put(&late, |_| true);
            }
            _ => self.put(delta, |_| true), // under one lock, so that no reader sees a part of it
        }
        if self.fault == EngineFault::Miscounts
            && delta.v4.iter().any(|change| !change.adds() && !change.withdraws())
        {
            self.miscounted += 1;
        }
        let Generation(number) = self.generation;
        self.generation = Generation(number + if self.fault == EngineFault::TwoGenerations { 2 } else { 1 });
        Ok(self.generation)
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        let tables = self.tables.read().unwrap();
        EngineStats {
            retired_bytes: 0,
            routes_v4: (tables.v4.len() as u64).wrapping_sub(self.miscounted),
            routes_v6: tables.v6.len() as u64,
            table_bytes: Self::bytes(&tables),
            ..EngineStats::default()
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let slots = vec![(Family::V4, Vec::new()); usize::from(slots)];
        Ok(Box::new(FaultyReader { fault: self.fault, tables: Arc::clone(&self.tables), slots, batch_max }))
    }
}

struct FaultyReader {
    fault: EngineFault,
    tables: Arc<RwLock<OraclePair>>,
    slots: Vec<(Family, Vec<NextHopId>)>,
    batch_max: usize,
}

impl FaultyReader {
    fn one_v4(&self, tables: &OraclePair, key: u32) -> NextHopId {
        let wrong = self.fault == EngineFault::WrongAnswer && key % 256 == 77;
        match tables.v4.longest_match(key) {
            _ if wrong => NextHopId::MAX,
            Some((32, _)) if self.fault == EngineFault::NoHostRoutes => NextHopId::NONE,
            Some((_, id)) => id,
            None => NextHopId::NONE,
        }
    }

    fn one_v6(&self, tables: &OraclePair, key: u128) -> NextHopId {
        match tables.v6.longest_match(key) {
            Some((65.., _)) if self.fault == EngineFault::Shallow => NextHopId::NONE,
            Some((_, id)) => id,
            None => NextHopId::NONE,
        }
    }
}

impl EngineReader for FaultyReader {
    fn slots(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap()
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        let limit = self.batch_max;
        if keys.len() > limit && self.fault != EngineFault::CutsBatches {
            return Err(EngineError::Batch { keys: keys.len(), limit });
        }
        let tables = self.tables.read().unwrap();
        let mut answers: Vec<_> = match keys {
            Keys::V4(keys) => keys.iter().take(limit).map(|key| self.one_v4(&tables, *key)).collect(),
            Keys::V6 { hi, lo } if hi.len() != lo.len() && self.fault != EngineFault::AnyHalves => {
                return Err(EngineError::Batch { keys: hi.len(), limit: lo.len() });
            }
            Keys::V6 { hi, lo } => {
                let keys = hi.iter().zip(lo).map(|(hi, lo)| u128::from(*hi) << 64 | u128::from(*lo));
                keys.take(limit).map(|key| self.one_v6(&tables, key)).collect()
            }
        };
        if self.fault == EngineFault::Tail && answers.len() > 1 && answers.len() % 8 != 0 {
            let last = answers.len() - 1;
            answers[last] = answers[last - 1];
        }
        drop(tables);
        self.slots[usize::from(slot.0)] = (keys.family(), answers);
        Ok(())
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        let slot = if self.fault == EngineFault::OneSlot { 0 } else { usize::from(slot.0) };
        let (family, answers) = &self.slots[slot];
        let is_exempt =
            [EngineFault::AnyKeys, EngineFault::OneSlot, EngineFault::CutsBatches].contains(&self.fault);
        let checked = if is_exempt { Ok(()) } else { keys.check_again(*family, answers.len()) };
        Poll::Ready(checked.map(|()| answers.as_slice()))
    }
}

/// Runs `group` on an engine with `fault`. Returns its failure message, if it fails.
fn outcome(fault: EngineFault, group: fn(MakeEngine<'_>, Options)) -> Result<(), String> {
    let make = || -> Result<Box<dyn EngineWriter>, EngineError> { Ok(Box::new(faulty(fault, u64::MAX))) };
    message(|| group(&make, Options::default()))
}

fn message(test: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(test)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map_or_else(|_| String::from("?"), |text| (*text).to_owned()),
    })
}

fn finds(fault: EngineFault, group: fn(MakeEngine<'_>, Options), fragment: &str) {
    match outcome(fault, group) {
        Ok(()) => panic!("{fault:?} was not found"),
        Err(text) => assert!(text.contains(fragment), "{fault:?} was found as '{text}', wanted '{fragment}'"),
    }
}

#[test]
fn without_a_fault_the_suite_passes() {
    assert_eq!(outcome(EngineFault::None, conformance::run), Ok(()));
}

#[test]
fn wrong_answers_are_found() {
    finds(EngineFault::WrongAnswer, conformance::boundaries, "right is");
    finds(EngineFault::WrongAnswer, conformance::random_tables, "right is");
    finds(EngineFault::WrongAnswer, conformance::internet_tables, "right is");
    finds(EngineFault::WrongAnswer, conformance::batches, "right is");
    finds(EngineFault::Tail, conformance::batches, "right is");
    finds(EngineFault::Shallow, conformance::shapes, "right is");
    finds(EngineFault::NoHostRoutes, conformance::shapes, "/32");
}

#[test]
fn ids_that_do_not_fit_are_found() {
    finds(EngineFault::NarrowIds, conformance::next_hops, "right is");
    finds(EngineFault::LeaksIds, conformance::next_hops, "was refused");
}

#[test]
fn stale_tables_are_found() {
    finds(EngineFault::OneLate, conformance::churn, "right is");
    finds(EngineFault::OneLate, conformance::replay, "right is");
    finds(EngineFault::KeepsCovered, conformance::churn, "right is");
    finds(EngineFault::KeepsCovered, conformance::withdraw, "right is");
    finds(EngineFault::Miscounts, conformance::withdraw, "stats() routes");
    finds(EngineFault::TwoGenerations, conformance::shapes, "one generation");
}

#[test]
fn a_state_between_generations_is_found() {
    finds(EngineFault::Intermediate, conformance::concurrent, "between generations");
    finds(EngineFault::OneLate, conformance::concurrent, "between generations");
    for fault in [EngineFault::OneLate, EngineFault::Gap] {
        finds(fault, conformance::announces, "between generations");
    }
    for fault in [EngineFault::OneLate, EngineFault::LongestFirst] {
        finds(fault, conformance::withdraws, "between generations");
    }
}

#[test]
fn broken_readers_are_found() {
    finds(EngineFault::OneSlot, conformance::batches, "slot");
    finds(EngineFault::CutsBatches, conformance::refusals, "EngineError::Batch");
    finds(EngineFault::AnyHalves, conformance::refusals, "EngineError::Batch");
    finds(EngineFault::AnyKeys, conformance::refusals, "keys that are too few");
}

#[test]
fn half_done_refusals_are_found() {
    finds(EngineFault::HalfRefused, conformance::next_hops, "right is");
}

#[test]
fn limits_that_do_not_hold_are_found() {
    let limited = |fault: EngineFault| {
        message(|| {
            let make = |limit: u64| -> Result<Box<dyn EngineWriter>, EngineError> {
                Ok(Box::new(faulty(fault, limit)))
            };
            conformance::limited(&make, Options::default());
        })
    };
    assert_eq!(limited(EngineFault::None), Ok(()));
    assert!(limited(EngineFault::RefusesLate).unwrap_err().contains("right is"));
    assert!(limited(EngineFault::Unlimited).unwrap_err().contains("table bytes in service"));
}
