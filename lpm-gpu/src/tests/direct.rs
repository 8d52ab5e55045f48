//! A host table against the oracle, without a device: its steps run on a model of its kernels, store by store, while lookups
//! are under way load by load.

use crate::host::{Due, HostTable, Image, Step};
use fib::oracle::Oracle4;
use fib::{Change, EngineError, Key, NextHopId, Prefix4, Rib, Route};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// The kernels of a table, in plain Rust.
pub(crate) trait Model {
    /// A lookup between two loads.
    type Lookup;
    /// The table as uploaded.
    fn new(image: &Image<'_>) -> Self;
    /// Runs a step; `stored` sees the words after each store. Writes come in the order that `shuffle` gives them.
    fn run(&mut self, step: &Step, shuffle: u64, stored: &mut dyn FnMut(&[u32]));
    /// The words.
    fn words(&self) -> &[u32];
    /// How lookups of this table go; stays while the table is not rebuilt.
    fn lookups(&self) -> Box<dyn Fn(u32) -> Self::Lookup>;
    /// One load; the answer if it was the last.
    fn load(lookup: &mut Self::Lookup, words: &[u32]) -> Option<NextHopId>;
}

/// A lookup under way and what it may answer.
struct InFlight<L> {
    key: u32,
    lookup: L,
    allowed: Vec<NextHopId>,
    /// The last update that was finished when it began.
    seen: u64,
}

/// Stores of an update after which the probes are looked up; beyond, now and then.
const STORES_PROBED: u64 = 1500;

pub(crate) struct Rig<T, M: Model> {
    pub(crate) table: T,
    pub(crate) model: M,
    pub(crate) oracle: Oracle4,
    rib: Rib,
    pub(crate) rng: ChaCha8Rng,
    in_flight: Vec<InFlight<M::Lookup>>,
    update: u64,
    /// The table was built anew, and the model has not got it.
    stale: bool,
    /// Updates that came as an image.
    pub(crate) rebuilds: u64,
    /// Stores seen.
    pub(crate) stores: u64,
    /// Changes refused.
    pub(crate) refused: u64,
}

impl<T: HostTable<u32>, M: Model> Rig<T, M> {
    pub(crate) fn new(table: T, seed: u64) -> Self {
        let rib = Rib::plain();
        let model = M::new(&table.image(&rib.v4));
        Self {
            table,
            model,
            oracle: Oracle4::new(),
            rib,
            rng: ChaCha8Rng::seed_from_u64(seed),
            in_flight: Vec::new(),
            update: 0,
            stale: false,
            rebuilds: 0,
            stores: 0,
            refused: 0,
        }
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        ((u64::from(self.rng.next_u32()) * u64::from(limit)) >> 32) as u32
    }

    pub(crate) fn id(&mut self) -> NextHopId {
        let bits = 1 + self.below(24);
        NextHopId::from_answer((self.rng.next_u32() >> (32 - bits)).max(1))
    }

    /// Applies a delta as the engine does, and checks every answer on the way.
    pub(crate) fn apply(&mut self, told: &[Route<u32>]) {
        let changes = self.changes(told);
        let mut probes = self.probes(&changes);
        for probe in &mut probes {
            probe.1 = self.oracle.lookup(probe.0);
        }
        match self.table.apply(&changes, &self.rib.v4, usize::MAX) {
            Ok(due) => {
                self.stale |= due == Due::Image;
                for change in &changes {
                    self.oracle.set(change.prefix, change.new);
                }
            }
            Err(EngineError::Full { used, limit, .. }) => {
                assert!(used > limit);
                self.refused += 1;
                self.take_back(&changes);
            }
            Err(error) => panic!("{error}"),
        }
        for probe in &mut probes {
            probe.2 = self.oracle.lookup(probe.0);
        }
        self.deliver(&probes);
        assert_eq!(self.table.routes(), self.rib.v4.len() as u64);
    }

    /// Applies a delta and takes it back before the device hears of it: nothing may change.
    pub(crate) fn apply_and_take_back(&mut self, told: &[Route<u32>]) {
        let changes = self.changes(told);
        let mut probes = self.probes(&changes);
        for probe in &mut probes {
            let answer = self.oracle.lookup(probe.0);
            (probe.1, probe.2) = (answer, answer);
        }
        match self.table.apply(&changes, &self.rib.v4, usize::MAX) {
            Ok(due) => self.stale |= due == Due::Image,
            Err(_) => self.refused += 1,
        }
        self.take_back(&changes);
        self.deliver(&probes);
    }

    fn take_back(&mut self, changes: &[Change<u32>]) {
        for change in changes {
            self.rib.v4.set(change.prefix, change.old);
        }
        self.rib.take_delta();
        self.stale |= self.table.take_back(changes, &self.rib.v4).unwrap() == Due::Image;
    }

    /// What changes by what is told.
    fn changes(&mut self, told: &[Route<u32>]) -> Vec<Change<u32>> {
        for route in told {
            self.rib.v4.set(route.prefix, route.next_hop);
        }
        self.rib.take_delta().v4
    }

    /// Keys in and around the prefixes, with room for their old and new answers.
    fn probes(&mut self, changes: &[Change<u32>]) -> Vec<(u32, NextHopId, NextHopId)> {
        let mut keys: BTreeSet<u32> = (0..4).map(|_| self.rng.next_u32()).collect();
        let some = 1 + changes.len() / 12;
        for change in changes.iter().step_by(some) {
            let (first, last) = (change.prefix.address(), change.prefix.last_address());
            let inside = first + ((u64::from(self.rng.next_u32()) * u64::from(last - first)) >> 32) as u32;
            keys.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1), inside]);
        }
        keys.into_iter().map(|key| (key, NextHopId::NONE, NextHopId::NONE)).collect()
    }

    /// The update goes to the model, by image or by steps.
    fn deliver(&mut self, probes: &[(u32, NextHopId, NextHopId)]) {
        self.update += 1;
        for lookup in &mut self.in_flight {
            lookup.allowed.push(self.oracle.lookup(lookup.key));
        }
        if std::mem::take(&mut self.stale) {
            self.rebuilds += 1;
            self.finish_all();
            self.model = M::new(&self.table.image(&self.rib.v4));
            assert!(self.table.take_steps(self.update, &self.rib.v4).is_empty(), "the image has it all");
        } else {
            for step in self.table.take_steps(self.update, &self.rib.v4) {
                self.run(&step, probes);
            }
        }
        for (key, _, new) in probes {
            assert_eq!(self.lookup(*key), *new, "{:?} after the update", key.to_ip());
        }
        if self.below(3) == 0 {
            let seen = self.in_flight.iter().map(|lookup| lookup.seen).min();
            self.table.reclaim(seen.unwrap_or(self.update));
        }
    }

    fn run(&mut self, step: &Step, probes: &[(u32, NextHopId, NextHopId)]) {
        let begin = self.model.lookups();
        let (rng, in_flight, update) = (&mut self.rng, &mut self.in_flight, self.update);
        let mut stores = 0;
        let shuffle = rng.next_u64();
        self.model.run(step, shuffle, &mut |words| {
            stores += 1;
            if stores > STORES_PROBED && stores % 256 != 0 {
                return;
            }
            for (key, old, new) in probes {
                let answer = complete::<M>(begin(*key), words);
                assert!(
                    answer == *old || answer == *new,
                    "{:?}: {answer} after store {stores}, old {old}, new {new}",
                    key.to_ip()
                );
            }
            // Slow lookups: most outlive several updates, so that a chunk used again too early meets one that is in it.
            let dice = rng.next_u32();
            let (key, old, new) = probes[(dice >> 16) as usize % probes.len()];
            if dice % 4 == 0 && in_flight.len() < 64 {
                let allowed = vec![old, new];
                in_flight.push(InFlight { key, lookup: begin(key), allowed, seen: update - 1 });
            }
            let at = (dice >> 8) as usize;
            if dice % 64 == 1 && !in_flight.is_empty() {
                let at = at % in_flight.len();
                if let Some(answer) = M::load(&mut in_flight[at].lookup, words) {
                    in_flight.swap_remove(at).check(answer);
                }
            }
        });
        self.stores += stores;
    }

    fn finish_all(&mut self) {
        for mut lookup in std::mem::take(&mut self.in_flight) {
            let answer = loop {
                if let Some(answer) = M::load(&mut lookup.lookup, self.model.words()) {
                    break answer;
                }
            };
            lookup.check(answer);
        }
    }

    pub(crate) fn lookup(&self, key: u32) -> NextHopId {
        complete::<M>(self.model.lookups()(key), self.model.words())
    }

    /// Every prefix's edges and neighbours, and random keys.
    pub(crate) fn check_all(&mut self) {
        let prefixes: Vec<_> = self.rib.v4.prefixes().collect();
        let begin = self.model.lookups();
        for prefix in prefixes {
            let (first, last) = (prefix.address(), prefix.last_address());
            for key in [first, last, first.wrapping_sub(1), last.wrapping_add(1), self.rng.next_u32()] {
                let answer = complete::<M>(begin(key), self.model.words());
                assert_eq!(answer, self.oracle.lookup(key), "{:?}", key.to_ip());
            }
        }
    }

    pub(crate) fn withdraw_all(&mut self) {
        self.apply(&self.rib.v4.withdrawn());
        for _ in 0..1000 {
            let key = self.rng.next_u32();
            assert_eq!(self.lookup(key), NextHopId::NONE);
        }
    }

    /// A delta of random changes to prefixes nested around few addresses: each prefix once.
    pub(crate) fn draw(&mut self, changes: usize, len_min: u8) -> Vec<Route<u32>> {
        let mut drawn = BTreeMap::new();
        while drawn.len() < changes {
            let near =
                0x0a01_0000 | self.below(4) << 14 | [0x0, 0x100, 0x200, 0x3f00][self.below(4) as usize];
            let len = len_min + u8::try_from(self.below(33 - u32::from(len_min))).unwrap();
            let prefix = Prefix4::truncating(near | self.below(256), len);
            let withdraw = self.below(100) < 45;
            let id = self.id();
            drawn.insert(prefix, if withdraw { NextHopId::NONE } else { id });
        }
        drawn.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect()
    }

    /// Chunks that come and go: one long route more or less at a time, all over the address space.
    fn flicker(&mut self, deltas: u32) {
        for n in 0..deltas {
            let slot = self.below(24);
            let prefix = Prefix4::truncating(0x0a00_0000 + slot * 0x0081_0100 + self.below(4) * 64, 26);
            let there = !self.rib.v4.get(prefix).is_none();
            let next_hop = if there { NextHopId::NONE } else { self.id() };
            self.apply(&[Route { prefix, next_hop }]);
            if n % 256 == 255 {
                self.check_all();
            }
        }
    }

    /// Chunks that come and go, none of which a lookup meets in its second use; then none is left.
    pub(crate) fn flicker_without_rebuilds(mut self) {
        self.flicker(3000);
        assert_eq!(self.rebuilds, 0);
        self.withdraw_all();
    }

    /// A full table, which comes as an image, and the real stream on top of it.
    pub(crate) fn real_table_and_stream(mut self) {
        let Some(routes) = real_table("v4-202401.txt.xz") else { return };
        self.apply(&routes);
        assert_eq!(self.rebuilds, 1, "a full table is painted");
        self.check_all();
        let Some(updates) = real_updates("updates-ris-20190101.txt.xz") else { return };
        for update in updates.chunks(7).take(4000) {
            // Of several updates of a prefix within a delta the last counts.
            let delta: BTreeMap<_, _> = update.iter().map(|route| (route.prefix, *route)).collect();
            self.apply(&delta.into_values().collect::<Vec<_>>());
        }
        self.check_all();
        self.withdraw_all();
    }

    /// Random deltas, some taken back, some large, all checked.
    pub(crate) fn churn(&mut self, deltas: u32, len_min: u8) {
        for n in 0..deltas {
            let changes = [1, 1, 1, 2, 3, 5, 9, 40][self.below(8) as usize];
            let delta = self.draw(changes, len_min);
            if self.below(6) == 0 {
                self.apply_and_take_back(&delta);
            } else {
                self.apply(&delta);
            }
            if n % 64 == 63 {
                self.check_all();
            }
        }
        self.check_all();
    }
}

impl<L> InFlight<L> {
    fn check(&self, answer: NextHopId) {
        assert!(
            self.allowed.contains(&answer),
            "{:?}: {answer} is none of {:?}",
            self.key.to_ip(),
            self.allowed
        );
    }
}

fn complete<M: Model>(mut lookup: M::Lookup, words: &[u32]) -> NextHopId {
    loop {
        if let Some(answer) = M::load(&mut lookup, words) {
            return answer;
        }
    }
}

/// What is told of a prefix; 0 is no route.
pub(crate) fn told(address: u32, len: u8, next_hop: u32) -> Route<u32> {
    Route { prefix: Prefix4::truncating(address, len), next_hop: NextHopId::from_answer(next_hop) }
}

/// From one next hop to another; 0 is no route.
pub(crate) fn made(address: u32, len: u8, old: u32, new: u32) -> Change<u32> {
    let [old, new] = [old, new].map(NextHopId::from_answer);
    Change { prefix: Prefix4::truncating(address, len), old, new }
}

/// The routes of a file in the folder that `FWD_DATA` names; `None`, said aloud, without it.
fn real_table(name: &str) -> Option<Vec<Route<u32>>> {
    let files = fib::testing::data([name])?;
    Some(fib::Routes::of(&fib::testing::load(&files)).v4)
}

/// The IPv4 updates of a file there.
fn real_updates(name: &str) -> Option<Vec<Route<u32>>> {
    let [path] = fib::testing::data([name])?;
    let mut hops = fib::NextHopTable::new();
    let updates = fib::feed::updates(&path, None).unwrap();
    let change = |update: fib::feed::Update| match update.prefix {
        fib::IpPrefix::V4(prefix) => Some(Route { prefix, next_hop: update.next_hop(&mut hops).unwrap() }),
        fib::IpPrefix::V6(_) => None,
    };
    Some(updates.map(Result::unwrap).filter_map(change).collect())
}
