//! The engine shell over tables that only count: order of budgets, atomicity, one grace period for both families.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::{
    Change, CheckedIsa, Details, EngineError, EngineOptions, EngineWriter as _, Key, Keys, NextHopId, Prefix,
    Prefix4, Prefix6, Rib, RibTable,
};
use lpm_core::engine::{Algorithm, Budget, CpuEngine, FibTable, Routes};
use lpm_core::params::Common;
use std::sync::{Arc, Mutex};

const ROUTE_BYTES: u64 = 100;
const RESERVE: usize = 10;

#[derive(Clone)]
struct ListParams(Common);

impl AsRef<Common> for ListParams {
    fn as_ref(&self) -> &Common {
        &self.0
    }
}

struct List<K: Key> {
    routes: Arc<Mutex<Routes<K>>>,
    room: usize,
    owes_grace: bool,
    graces: u32,
}

impl<K: Key> FibTable<K> for List<K> {
    type Params = ListParams;
    type Shared = Mutex<Routes<K>>;
    type Size = usize;

    fn size(routes: &[(Prefix<K>, NextHopId)], _: &ListParams, budget: Budget) -> Result<usize, EngineError> {
        Ok(routes.len() + if budget.has_reserve() { RESERVE } else { 0 })
    }

    fn size_bytes(room: &usize) -> u64 {
        *room as u64 * ROUTE_BYTES
    }

    fn build(room: usize, routes: Routes<K>, _: &ListParams) -> Result<Self, EngineError> {
        Ok(Self { routes: Arc::new(Mutex::new(routes)), room, owes_grace: false, graces: 0 })
    }

    fn shared(&self) -> &Arc<Mutex<Routes<K>>> {
        &self.routes
    }

    fn bytes(&self) -> u64 {
        Self::size_bytes(&self.room)
    }

    fn writer_bytes(&self) -> u64 {
        0
    }

    fn details(&self) -> Details {
        Details::default()
    }

    fn admits(&self, changes: &[Change<K>], _: &RibTable<K>) -> bool {
        self.routes.lock().unwrap().len() + changes.iter().filter(|change| change.adds()).count() <= self.room
    }

    fn owes_grace(&self) -> bool {
        self.owes_grace
    }

    fn grace_over(&mut self) {
        self.owes_grace = false;
        self.graces += 1;
    }

    fn update(&mut self, changes: &[Change<K>], _: &RibTable<K>, _: &dyn Fn()) {
        let mut routes = self.routes.lock().unwrap();
        for change in changes {
            routes.retain(|(prefix, _)| *prefix != change.prefix);
            if !change.withdraws() {
                routes.push((change.prefix, change.new));
            }
        }
        self.owes_grace = true;
    }
}

struct ListEngine;

fn find<K: Key>(table: &Mutex<Routes<K>>, key: K) -> NextHopId {
    let routes = table.lock().unwrap();
    routes
        .iter()
        .find(|(prefix, _)| prefix.address() == key)
        .map_or(NextHopId::NONE, |(_, next_hop)| *next_hop)
}

impl Algorithm for ListEngine {
    type Params = ListParams;
    type V4 = List<u32>;
    type V6 = List<u128>;
    type Scratch = ();

    fn name(_: &ListParams) -> &'static str {
        "lists"
    }

    fn scratch() {}

    fn lookup_v4(
        _: &ListParams,
        table: &Mutex<Routes<u32>>,
        (): &mut (),
        keys: &[u32],
        out: &mut [NextHopId],
    ) {
        keys.iter().zip(out).for_each(|(key, answer)| *answer = find(table, *key));
    }

    fn lookup_v6(
        _: &ListParams,
        table: &Mutex<Routes<u128>>,
        (): &mut (),
        (hi, lo): (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
            *answer = find(table, u128::from(*hi) << 64 | u128::from(*lo));
        }
    }
}

fn engine(routes_max: u64) -> (CpuEngine<ListEngine>, Rib) {
    let options = EngineOptions { table_bytes_max: routes_max * ROUTE_BYTES, ..EngineOptions::default() };
    (CpuEngine::new(ListParams(Common::new(&options, CheckedIsa::SCALAR))).unwrap(), Rib::plain())
}

fn hop(id: u32) -> NextHopId {
    NextHopId::from_answer(id)
}

fn announce(rib: &mut Rib, first: u32, routes: [u32; 2], id: u32) {
    for at in first..first + routes[0] {
        rib.v4.set(Prefix4::truncating(at, 32), hop(id));
    }
    for at in first..first + routes[1] {
        rib.v6.set(Prefix6::truncating(at.into(), 128), hop(id));
    }
}

#[test]
fn less_to_spare_is_tried_before_a_refusal() {
    let (mut engine, mut rib) = engine(50);
    announce(&mut rib, 0, [14, 11], 1);
    rib.commit_to(&mut engine).unwrap();
    assert_eq!(engine.stats().table_bytes, (24 + 21) * ROUTE_BYTES, "both with a reserve");
    announce(&mut rib, 14, [15, 0], 1);
    rib.commit_to(&mut engine).unwrap();
    assert_eq!(engine.stats().table_bytes, (29 + 21) * ROUTE_BYTES, "IPv4 without a reserve, IPv6 as it was");
}

#[test]
fn what_withdrawn_routes_left_is_given_back_before_a_refusal() {
    let (mut engine, mut rib) = engine(45);
    announce(&mut rib, 0, [0, 25], 1);
    rib.commit_to(&mut engine).unwrap();
    announce(&mut rib, 0, [0, 20], 0);
    rib.commit_to(&mut engine).unwrap();
    announce(&mut rib, 0, [40, 0], 1);
    rib.commit_to(&mut engine).unwrap();
    assert_eq!(engine.stats().table_bytes, 45 * ROUTE_BYTES);
}

#[test]
fn a_refusal_changes_nothing_and_no_withdraw_is_refused() {
    let (mut engine, mut rib) = engine(30);
    announce(&mut rib, 0, [10, 10], 1);
    rib.commit_to(&mut engine).unwrap();
    let mut reader = engine.reader(1, 64).unwrap();
    let before = engine.stats();
    announce(&mut rib, 0, [9, 0], 2);
    announce(&mut rib, 10, [21, 0], 2);
    let refused = rib.commit_to(&mut engine);
    assert!(matches!(refused, Err(EngineError::Full { used: 4100, limit: 3000, .. })), "{refused:?}");
    assert_eq!((engine.stats(), engine.generation().0), (before, 1));
    let mut answers = [NextHopId::NONE; 11];
    let keys: Vec<u32> = (0..11).collect();
    reader.lookup(Keys::V4(&keys), &mut answers).unwrap();
    assert!(answers[..10].iter().all(|answer| *answer == hop(1)) && answers[10].is_none());
    announce(&mut rib, 0, [10, 10], 0);
    rib.commit_to(&mut engine).unwrap();
    reader.lookup(Keys::V4(&keys), &mut answers).unwrap();
    assert!(answers.iter().all(|answer| answer.is_none()));
}

#[test]
fn a_grace_period_comes_before_the_next_delta_of_a_table_that_owes_one() {
    let (mut engine, mut rib) = engine(100);
    let graces = |engine: &CpuEngine<ListEngine>| {
        let (v4, v6) = engine.tables();
        (v4.graces, v6.graces)
    };
    announce(&mut rib, 0, [1, 1], 1);
    rib.commit_to(&mut engine).unwrap();
    assert_eq!(graces(&engine), (0, 0), "built, or in place for the first time");
    announce(&mut rib, 0, [1, 0], 2);
    rib.commit_to(&mut engine).unwrap();
    let first = graces(&engine);
    assert_eq!(first.0, first.1, "one serves both");
    announce(&mut rib, 0, [0, 1], 2);
    rib.commit_to(&mut engine).unwrap();
    announce(&mut rib, 0, [1, 1], 3);
    rib.commit_to(&mut engine).unwrap();
    let last = graces(&engine);
    assert!(last.0 > first.0 && last.0 == last.1, "{first:?} {last:?}");
}

#[test]
fn a_replaced_table_is_the_writers_until_no_reader_has_it() {
    let (mut engine, mut rib) = engine(100);
    announce(&mut rib, 0, [10, 10], 1);
    rib.commit_to(&mut engine).unwrap();
    let (mut busy, mut idle) = (engine.reader(1, 64).unwrap(), engine.reader(1, 64).unwrap());
    assert_eq!(engine.stats().retired_bytes, 0, "nobody reads the empty tables");
    // Exceeds the reserve, so that both tables are rebuilt.
    announce(&mut rib, 10, [20, 20], 1);
    rib.commit_to(&mut engine).unwrap();
    let mut answer = [NextHopId::NONE];
    busy.lookup(Keys::V4(&[5]), &mut answer).unwrap();
    busy.lookup(Keys::V6 { hi: &[0], lo: &[5] }, &mut answer).unwrap();
    engine.free_retired();
    assert_eq!(engine.stats().retired_bytes, 2 * 10 * ROUTE_BYTES, "the idle reader has both");
    idle.lookup(Keys::V4(&[5]), &mut answer).unwrap();
    engine.free_retired();
    assert_eq!(engine.stats().retired_bytes, 10 * ROUTE_BYTES, "it looks up in one family alone");
    idle.refresh();
    engine.free_retired();
    assert_eq!(engine.stats().retired_bytes, 0);
    announce(&mut rib, 30, [20, 0], 1);
    rib.commit_to(&mut engine).unwrap();
    [&mut busy, &mut idle].into_iter().for_each(|reader| reader.refresh());
    announce(&mut rib, 0, [1, 0], 2);
    rib.commit_to(&mut engine).unwrap();
    assert_eq!(engine.stats().retired_bytes, 0);
}
