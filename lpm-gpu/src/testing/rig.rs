//! Drives a host table as the engine does, on a device in host memory. After every single store each lookup must find the
//! old or the new answer of its key. Lookups in flight advance load by load, some fast, some outliving many updates; each
//! must end with the answer of a generation current since it began.

use super::device::resolve;
use crate::gale::model::{self, OpMemory};
use crate::host::{Answers, Due, HostTable, UpdateStep, reverse};
use crate::model::{LoadedTable, LookupModel, high_bits};
use fib::conformance::Options;
use fib::oracle::Oracle;
use fib::random::Seeded;
use fib::{Change, EngineError, Key, NextHopId, Rib, Route};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stores of an update after which all edge probes are looked up; later, one store in 256.
const STORES_PROBED: u64 = 1500;

/// Most changes of a delta whose edges are probes.
const CHANGES_PROBED: usize = 12;

const PROBES_DRAWN: usize = 64;

struct InFlight<K> {
    key: K,
    table: usize,
    loaded: Vec<u32>,
    raw: Option<u32>,
    /// Updates finished when it began.
    born: u64,
    allowed: Vec<NextHopId>,
    /// Inverse probability of the next load; drawn again for each load.
    pace: usize,
}

impl<K: Key> InFlight<K> {
    fn step(&mut self, table: &LoadedTable) {
        if self.raw.is_some() {
            return;
        }
        let loaded = &mut self.loaded;
        let (mut at, end) = (0, loaded.len() + 1);
        let found = table.kernel.search_by(&table.header, high_bits(self.key), |word| {
            if at == end {
                return Err(());
            }
            if at == loaded.len() {
                loaded.push(table.words[word]);
            }
            at += 1;
            Ok(loaded[at - 1])
        });
        self.raw = found.ok();
    }
}

struct Probe<K> {
    key: K,
    old: NextHopId,
    new: NextHopId,
}

/// A host table, its routes, and the device.
pub struct HostRig<K: Key, T: HostTable<K> + ?Sized> {
    /// The host table.
    pub table: Box<T>,
    /// The table's routes.
    pub rib: Rib,
    /// The oracle with the same routes.
    pub oracle: Oracle<K>,
    /// All tables put in service; the last is current.
    pub device: Vec<LoadedTable>,
    /// Random choices of the rig and of tests.
    pub random: Seeded,
    /// Limit of lookups in flight; 0 disables lookups between stores.
    pub in_flight_max: usize,
    /// Whether deltas are sometimes split, or follow others that are taken back.
    pub detours: bool,
    /// Delay of grace periods, updates.
    pub grace_lag: u64,
    /// Updates by an image.
    pub rebuilds: u64,
    /// Words stored.
    pub stores: u64,
    /// Lookups in flight that ended.
    pub collected: u64,
    answers: Arc<dyn Answers<K>>,
    in_flight: Vec<InFlight<K>>,
    update: u64,
    stores_before: u64,
    /// The table was rebuilt, and the device has no image of it yet.
    stale: bool,
    /// Words unlinked by each update, which must not be written until it is reclaimed.
    unlinked: Option<Vec<(u64, BTreeSet<u32>)>>,
}

impl<K: Key, T: HostTable<K> + ?Sized> HostRig<K, T> {
    /// A rig for an empty `table`.
    pub fn new(table: Box<T>, seed: u64) -> Self {
        let rib = Rib::plain();
        let device = vec![LoadedTable::new(&*table, K::part(&rib))];
        Self {
            answers: table.answers(),
            table,
            rib,
            oracle: Oracle::new(),
            device,
            random: Seeded::new(seed, 0),
            in_flight_max: 64,
            detours: true,
            grace_lag: 0,
            rebuilds: 0,
            stores: 0,
            collected: 0,
            in_flight: Vec::new(),
            update: 0,
            stores_before: 0,
            stale: false,
            unlinked: None,
        }
    }

    /// From now on, checks that no unlinked word is written before its reclaim. Slow; for GAMT's tables.
    pub fn watch_unlinked(&mut self) {
        self.unlinked = Some(Vec::new());
    }

    /// A random next hop of few or many bits, or one of a few where the table's number is limited.
    pub fn next_hop(&mut self) -> NextHopId {
        let few = usize::try_from(self.table.next_hops_max() / 2).unwrap_or(usize::MAX);
        if few < 1 << 16 {
            return NextHopId::from_answer(1 + self.random.below(few) as u32);
        }
        let bits = 1 + self.random.below(24);
        NextHopId::from_answer((self.random.u32() >> (32 - bits)).max(1))
    }

    /// The table's answer to `key`.
    pub fn lookup(&self, key: K) -> NextHopId {
        self.device[self.device.len() - 1].lookup(&*self.answers, key)
    }

    /// Applies routes to the host table alone.
    pub fn apply_to_host(&mut self, routes: &[Route<K>]) -> Due {
        let changes = self.changes(routes);
        self.put(changes.iter().map(|change| (change.prefix, change.new)));
        changes.iter().for_each(|change| self.oracle.set(change.prefix, change.new));
        self.table.apply(&changes, K::part(&self.rib)).unwrap()
    }

    /// Takes the pending steps without running them.
    pub fn steps(&mut self) -> Vec<UpdateStep> {
        self.update += 1;
        self.table.take_steps(self.update, K::part(&self.rib))
    }

    /// Puts the table's image in service.
    pub fn load(&mut self) {
        self.device.push(LoadedTable::new(&*self.table, K::part(&self.rib)));
    }

    /// Applies a delta as the engine does, and checks all answers after each store.
    ///
    /// # Errors
    /// [`EngineError::Full`]; nothing has changed then.
    pub fn apply(&mut self, routes: &[Route<K>]) -> Result<(), EngineError> {
        let changes = self.changes(routes);
        let mut probes = self.probes(&changes);
        let made = if self.detours { self.make_with_detours(&changes) } else { self.make(&changes) };
        match &made {
            Ok(()) => changes.iter().for_each(|change| self.oracle.set(change.prefix, change.new)),
            Err(EngineError::Prefix { .. }) => {}
            Err(EngineError::Full { used, limit, .. }) => assert!(used > limit, "full at {used} of {limit}"),
            Err(error) => panic!("{error}"),
        }
        for probe in &mut probes {
            probe.new = self.oracle.lookup(probe.key);
        }
        self.deliver(&probes);
        made
    }

    /// Applies a delta and takes it back before the device changes: nothing may change.
    pub fn apply_and_take_back(&mut self, routes: &[Route<K>]) {
        let changes = self.changes(routes);
        let probes = self.probes(&changes);
        if self.make(&changes).is_ok() {
            self.take_back(&changes);
        }
        self.deliver(&probes);
    }

    /// Applies a table, which must arrive as an image, then updates, `a_delta` at a time. Checks every 16th prefix, all in a full run.
    pub fn follow(&mut self, routes: &[Route<K>], updates: &[Route<K>], a_delta: usize) {
        let step = if Options::from_env().full { 1 } else { 16 };
        self.apply(routes).unwrap();
        assert_eq!(self.rebuilds, 1, "a full table is built at once");
        self.check_every(step);
        for delta in updates.chunks(a_delta) {
            self.apply(delta).unwrap();
            for key in delta.iter().flat_map(|route| edges(route.prefix)) {
                assert_eq!(self.lookup(key), self.oracle.lookup(key), "{:?}", key.to_ip());
            }
        }
        self.check_every(step);
    }

    /// Withdraws all routes.
    pub fn withdraw_all(&mut self) {
        self.apply(&K::part(&self.rib).withdrawn()).unwrap();
        for _ in 0..1000 {
            let key = K::from_high_bits(self.random.u128());
            assert_eq!(self.lookup(key), NextHopId::NONE, "{:?}", key.to_ip());
        }
    }

    /// Looks up `keys` keys in and around the prefixes of some routes.
    pub fn check(&mut self, routes: &[Route<K>], keys: usize) {
        for _ in 0..keys {
            let key = self.key_near(routes.len(), |at| routes[at].prefix);
            assert_eq!(self.lookup(key), self.oracle.lookup(key), "{:?}", key.to_ip());
        }
    }

    /// Looks up the edges of every prefix, the keys next to them, and random keys.
    pub fn check_all(&mut self) {
        self.check_every(1);
    }

    fn check_every(&mut self, step: usize) {
        for prefix in K::part(&self.rib).prefixes().step_by(step) {
            for key in edges(prefix).into_iter().chain([K::from_high_bits(self.random.u128())]) {
                assert_eq!(self.lookup(key), self.oracle.lookup(key), "{:?}", key.to_ip());
            }
        }
    }

    fn changes(&mut self, routes: &[Route<K>]) -> Vec<Change<K>> {
        routes.iter().for_each(|route| _ = self.rib.set(K::wrap(route.prefix), route.next_hop));
        let changes = K::part(&self.rib.take_delta()).to_vec();
        self.put(changes.iter().map(|change| (change.prefix, change.old)));
        changes
    }

    fn put(&mut self, routes: impl Iterator<Item = (fib::Prefix<K>, NextHopId)>) {
        for (prefix, next_hop) in routes {
            self.rib.set(K::wrap(prefix), next_hop);
        }
        self.rib.take_delta();
    }

    /// Makes `changes`, sometimes in two parts, sometimes after others that are taken back. Only the final state counts.
    fn make_with_detours(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        match self.random.below(4) {
            0 => {
                let mut others = changes.to_vec();
                others.iter_mut().for_each(|change| change.new = self.next_hop());
                others.retain(|change| change.old != change.new);
                if self.make(&others).is_ok() {
                    self.take_back(&others);
                }
            }
            1 => {
                let (first, rest) = changes.split_at(self.random.below(changes.len() + 1));
                if self.make(first).is_ok() {
                    return self.make(rest).inspect_err(|_| {
                        self.put(first.iter().map(|change| (change.prefix, change.old)));
                        let due = reverse(&mut *self.table, first, K::part(&self.rib)).unwrap();
                        self.stale |= due == Due::Image;
                    });
                }
            }
            _ => {}
        }
        self.make(changes)
    }

    fn make(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        self.put(changes.iter().map(|change| (change.prefix, change.new)));
        let made = self.table.apply(changes, K::part(&self.rib));
        made.map(|due| self.stale |= due == Due::Image).inspect_err(|_| self.take_back(changes))
    }

    fn take_back(&mut self, changes: &[Change<K>]) {
        self.put(changes.iter().map(|change| (change.prefix, change.old)));
        self.stale |= self.table.take_back(changes, K::part(&self.rib)).unwrap() == Due::Image;
    }

    fn key_near(&mut self, count: usize, prefix: impl Fn(usize) -> fib::Prefix<K>) -> K {
        if count == 0 {
            return K::from_high_bits(self.random.u128());
        }
        let prefix = prefix(self.random.below(count));
        match self.random.below(8) {
            0 => K::from_high_bits(self.random.u128()),
            1 => prefix.address(),
            2 => prefix.last_address(),
            3 | 4 => {
                let noise = self.random.u128() >> self.random.below(K::BITS.into());
                K::from_high_bits(prefix.address().to_high_bits() ^ noise)
            }
            _ => self.random.inside(prefix),
        }
    }

    /// Keys with their answers, first at the edges of some changed prefixes, then at random around all.
    fn probes(&mut self, changes: &[Change<K>]) -> Vec<Probe<K>> {
        let step = 1 + changes.len() / CHANGES_PROBED;
        let at_edges: BTreeSet<K> =
            changes.iter().step_by(step).flat_map(|change| edges(change.prefix)).collect();
        let drawn = (0..PROBES_DRAWN).map(|_| self.key_near(changes.len(), |at| changes[at].prefix));
        let keys: Vec<K> = at_edges.into_iter().chain(drawn).collect();
        let probe = |key| {
            let answer = self.oracle.lookup(key);
            Probe { key, old: answer, new: answer }
        };
        keys.into_iter().map(probe).collect()
    }

    fn deliver(&mut self, probes: &[Probe<K>]) {
        for lookup in &mut self.in_flight {
            lookup.allowed.push(self.oracle.lookup(lookup.key));
        }
        if std::mem::take(&mut self.stale) {
            self.rebuilds += 1;
            // The engine may do either first; an image includes the steps.
            if self.random.below(2) == 0 {
                self.load();
                let steps = self.steps();
                let is_gamt = matches!(self.device[0].kernel, LookupModel::Gamt(_));
                assert!(is_gamt || steps.is_empty(), "the image has it all");
            } else {
                self.steps();
                self.load();
            }
            self.unlinked.iter_mut().for_each(Vec::clear);
        } else {
            let steps = self.steps();
            let before = self.unlinked.as_ref().map(|_| self.device[self.device.len() - 1].reachable());
            self.stores_before = self.stores;
            self.run(&steps, probes);
            if let (Some(before), Some(unlinked)) = (before, &mut self.unlinked) {
                let now = self.device[self.device.len() - 1].reachable();
                let gone =
                    (0..).zip(before.into_iter().zip(now)).filter(|(_, (before, now))| *before && !now);
                unlinked.push((self.update, gone.map(|(at, _)| at).collect()));
            }
        }
        for probe in probes {
            assert_eq!(self.lookup(probe.key), probe.new, "{:?} after the update", probe.key.to_ip());
        }
        assert_eq!(self.table.routes(), K::part(&self.rib).len() as u64);
        self.collect();
    }

    fn run(&mut self, steps: &[UpdateStep], probes: &[Probe<K>]) {
        let mut written = BTreeSet::new();
        for step in steps {
            match step {
                UpdateStep::Writes(writes) => {
                    let mut writes = writes.clone();
                    for end in (1..writes.len()).rev() {
                        writes.swap(end, self.random.below(end + 1));
                    }
                    for write in writes {
                        assert!(written.insert(write.at), "word {} is written twice", write.at);
                        self.store(write.at, write.value, probes);
                    }
                }
                UpdateStep::Ops(ops) => model::run(ops, &mut StoresBeside { rig: self, probes }),
            }
        }
    }

    fn store(&mut self, at: u32, value: u32, probes: &[Probe<K>]) {
        for (_, words) in self.unlinked.iter().flatten() {
            assert!(!words.contains(&at), "word {at} is written while lookups may read it");
        }
        let table = self.device.len() - 1;
        self.device[table].words[at as usize] = value;
        self.stores += 1;
        if self.in_flight_max == 0 {
            return;
        }
        let number = self.stores - self.stores_before;
        if number > STORES_PROBED && !number.is_multiple_of(256) {
            let drawn = self.random.below(probes.len());
            return self.look_up(&probes[drawn]);
        }
        probes[..probes.len() - PROBES_DRAWN].iter().for_each(|probe| self.look_up(probe));
        for _ in 0..2 {
            let drawn = self.random.below(probes.len());
            self.look_up(&probes[drawn]);
        }
        if self.in_flight.len() < self.in_flight_max && self.random.below(4) == 0 {
            let Probe { key, old, new } = probes[self.random.below(probes.len())];
            let (allowed, pace) = (vec![old, new], 1 << self.random.below(10));
            let (loaded, born) = (Vec::new(), self.update - 1);
            self.in_flight.push(InFlight { key, table, loaded, raw: None, born, allowed, pace });
        }
        for _ in 0..self.in_flight.len() / 8 {
            let drawn = self.random.below(self.in_flight.len());
            let lookup = &mut self.in_flight[drawn];
            if self.random.below(lookup.pace) == 0 {
                lookup.step(&self.device[lookup.table]);
                lookup.pace = 1 << self.random.below(10);
            }
        }
    }

    fn look_up(&self, probe: &Probe<K>) {
        let Probe { key, old, new } = *probe;
        let found = self.lookup(key);
        assert!(found == old || found == new, "{:?}: {found}, was {old}, will be {new}", key.to_ip());
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.in_flight.len() {
            if self.random.below(12) != 0 {
                at += 1;
                continue;
            }
            let mut lookup = self.in_flight.swap_remove(at);
            let raw = loop {
                lookup.step(&self.device[lookup.table]);
                if let Some(raw) = lookup.raw {
                    break raw;
                }
            };
            let (key, found) = (lookup.key, resolve(&*self.answers, lookup.key, raw));
            assert!(
                lookup.allowed.contains(&found),
                "{:?} got {found} after updates {}..={}, allowed are {:?}",
                key.to_ip(),
                lookup.born,
                self.update,
                lookup.allowed
            );
            self.collected += 1;
        }
        let last = self.device.len() - 1;
        let table = self.in_flight.iter().map(|lookup| lookup.table).min().unwrap_or(last);
        self.device[..table].iter_mut().for_each(|table| table.words = Vec::new());
        if self.in_flight_max > 0 && self.random.below(3) == 0 {
            return;
        }
        let born = self.in_flight.iter().map(|lookup| lookup.born).min().unwrap_or(self.update);
        let over = born.saturating_sub(self.grace_lag);
        self.table.reclaim(over);
        self.unlinked.iter_mut().for_each(|unlinked| unlinked.retain(|(update, _)| *update > over));
    }
}

/// The current table's words, for operations.
struct StoresBeside<'a, K: Key, T: HostTable<K> + ?Sized> {
    rig: &'a mut HostRig<K, T>,
    probes: &'a [Probe<K>],
}

impl<K: Key, T: HostTable<K> + ?Sized> OpMemory for StoresBeside<'_, K, T> {
    fn load(&mut self, at: usize) -> u32 {
        self.rig.device[self.rig.device.len() - 1].words[at]
    }

    fn store(&mut self, at: usize, word: u32) {
        self.rig.store(u32::try_from(at).unwrap(), word, self.probes);
    }
}

/// First and last key of a prefix, and the keys next to them.
fn edges<K: Key>(prefix: fib::Prefix<K>) -> [K; 4] {
    let (first, last) = (prefix.address().to_high_bits(), prefix.last_address().to_high_bits());
    let one = 1_u128 << (128 - u32::from(K::BITS));
    [first, last, first.wrapping_sub(one), last.wrapping_add(one)].map(K::from_high_bits)
}
