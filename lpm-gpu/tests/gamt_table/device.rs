//! A device in plain Rust: the table's words, and lookups that see every single write.

use crate::random::Random;
use fib::oracle::Oracle;
use fib::{Change, EngineError, Key, NextHopId, Rib, RibTable, Route};
use lpm_gpu::gamt::{GamtTable, Layout, code};
use lpm_gpu::host::{Answers, Due, HEADER_WORDS, HostTable, Image, KeySlice, RAW_DEEP, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A table on the device.
pub(crate) struct Words {
    pub(crate) words: Vec<u32>,
    pub(crate) header: [u32; HEADER_WORDS],
    pub(crate) layout: Layout,
}

impl Words {
    pub(crate) fn load(image: &Image<'_>, layout: Layout) -> Self {
        let mut words = vec![0; image.words];
        for (start, run) in &image.runs {
            words[*start as usize..*start as usize + run.len()].copy_from_slice(run);
        }
        Self { words, header: image.header, layout }
    }

    /// Algorithm 1.
    pub(crate) fn search(&self, key: u64) -> u32 {
        code::search(&self.words, &self.header, self.layout, key)
    }

    fn base(&self, level: u32) -> u32 {
        match self.layout {
            Layout::Flat => self.header[code::stride_at(level as usize) + 1],
            Layout::Paper => level * self.header[1],
        }
    }

    /// All words that a lookup can reach.
    pub(crate) fn reachable(&self) -> BTreeSet<u32> {
        let mut words = BTreeSet::new();
        let mut nodes = vec![(1, 0)];
        while let Some((level, node)) = nodes.pop() {
            let first = self.base(level) + node;
            for at in first..first + (1 << self.header[code::stride_at(level as usize)]) {
                words.insert(at);
                let unit = self.words[at as usize];
                if !code::is_leaf(unit) {
                    nodes.push((code::jump(unit), code::inf(unit)));
                }
            }
        }
        words
    }
}

/// GAMT reads no routes.
pub(crate) fn no_routes<K: Key>() -> RibTable<K> {
    K::table(&Rib::new()).clone()
}

/// The first 64 bits, left-aligned, which the device searches.
pub(crate) fn high<K: Key>(key: K) -> u64 {
    u64::try_from(key.to_high_bits() >> 64).unwrap()
}

pub(crate) fn resolve<K: Key>(answers: &dyn Answers<K>, key: K, raw: u32) -> NextHopId {
    let mut out = [NextHopId::NONE];
    if K::BITS == 32 {
        assert_eq!(raw & RAW_DEEP, 0);
        answers.resolve(KeySlice::Whole(&[key]), &[raw], &mut out);
    } else {
        let low = u64::try_from(key.to_high_bits() & u128::from(u64::MAX)).unwrap();
        answers.resolve(KeySlice::Halves(&[high(key)], &[low]), &[raw], &mut out);
    }
    out[0]
}

/// A lookup in flight: it advances from time to time, and is collected much later.
struct Walker<K> {
    key: K,
    table: usize,
    left: u64,
    level: u32,
    inf: u32,
    raw: Option<u32>,
    /// Updates that were finished when it was submitted.
    born: u64,
    /// The answers of all generations since.
    allowed: BTreeSet<u32>,
}

/// The engine's use of a table, in plain Rust.
pub(crate) struct Rig<K: Key> {
    pub(crate) table: GamtTable<K>,
    pub(crate) oracle: Oracle<K>,
    rib: Rib,
    /// The table was built anew, and is not on the device.
    stale: bool,
    pub(crate) device: Vec<Words>,
    pub(crate) layout: Layout,
    pub(crate) random: Random,
    answers: Arc<dyn Answers<K>>,
    walkers: Vec<Walker<K>>,
    walkers_max: usize,
    finished: u64,
    /// Words that an update unlinked, with the update's number; they must not be written before it is reclaimed.
    unlinked: Option<Vec<(u64, BTreeSet<u32>)>>,
    pub(crate) swaps: u64,
    pub(crate) writes: u64,
    pub(crate) collected: u64,
}

impl<K: Key> Rig<K> {
    pub(crate) fn new(table: GamtTable<K>, layout: Layout, seed: u64, walkers_max: usize) -> Self {
        let device = vec![Words::load(&table.image(&no_routes()), layout)];
        let answers = table.answers();
        Self {
            table,
            oracle: Oracle::new(),
            rib: Rib::plain(),
            stale: false,
            device,
            layout,
            random: Random::new(seed),
            answers,
            walkers: Vec::new(),
            walkers_max,
            finished: 0,
            unlinked: None,
            swaps: 0,
            writes: 0,
            collected: 0,
        }
    }

    /// Checks from now on that no word is written between its unlinking and the reclaim. Slow.
    pub(crate) fn watch_unlinked(&mut self) {
        self.unlinked = Some(Vec::new());
    }

    pub(crate) fn lookup(&self, key: K) -> NextHopId {
        let raw = self.device.last().unwrap().search(high(key));
        resolve(&*self.answers, key, raw)
    }

    /// Applies one delta as the engine does; lookups may see every single write.
    pub(crate) fn update(&mut self, changes: &[Route<K>]) -> Result<(), EngineError> {
        for change in changes {
            self.rib.set(K::wrap(change.prefix), change.next_hop);
        }
        let mut rib = std::mem::take(&mut self.rib);
        let applied = rib.commit(|delta, _| self.apply(K::changes(delta)));
        self.rib = rib;
        applied?;
        let mut after = self.oracle.clone();
        for change in changes {
            after.set(change.prefix, change.next_hop);
        }
        for walker in &mut self.walkers {
            walker.allowed.insert(after.lookup(walker.key).get());
        }
        let number = self.finished + 1;
        let mut steps = self.table.take_steps(number, &no_routes());
        if std::mem::take(&mut self.stale) {
            steps.clear(); // the image has them
            self.device.push(Words::load(&self.table.image(&no_routes()), self.layout));
            self.swaps += 1;
            if let Some(unlinked) = &mut self.unlinked {
                unlinked.clear();
            }
        }
        let reachable = self.unlinked.as_ref().map(|_| self.device.last().unwrap().reachable());
        self.run(&steps, changes, &after);
        if let (Some(before), Some(unlinked)) = (reachable, &mut self.unlinked) {
            let now = self.device.last().unwrap().reachable();
            unlinked.push((number, before.difference(&now).copied().collect()));
        }
        self.oracle = after;
        self.finished = number;
        self.collect();
        Ok(())
    }

    /// Sometimes applies the changes in two parts, or first applies the reverse and takes it back: only the final state counts.
    fn apply(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        let way = self.random.below(4);
        if way == 0 {
            let other: Vec<Change<K>> =
                changes.iter().map(|change| Change { new: self.random.next_hop(), ..*change }).collect();
            self.apply_or_take_back(&other)?;
            self.take_back(&other);
        }
        let first = if way == 1 { self.random.below(changes.len() + 1) } else { 0 };
        self.apply_or_take_back(&changes[..first])?;
        self.apply_or_take_back(&changes[first..]).inspect_err(|_| self.take_back(&changes[..first]))
    }

    fn apply_or_take_back(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        let due =
            self.table.apply(changes, &no_routes(), usize::MAX).inspect_err(|_| self.take_back(changes))?;
        self.stale |= due == Due::Image;
        Ok(())
    }

    fn take_back(&mut self, changes: &[Change<K>]) {
        self.stale |= self.table.take_back(changes, &no_routes()).unwrap() == Due::Image;
    }

    fn run(&mut self, steps: &[Step], changes: &[Route<K>], after: &Oracle<K>) {
        let mut written = BTreeSet::new();
        for step in steps {
            let Step::Writes(writes) = step else { panic!("GAMT has writes only") };
            let mut writes = writes.clone();
            self.random.shuffle(&mut writes);
            for write in writes {
                assert!(written.insert(write.at), "word {} is written twice", write.at);
                for (_, words) in self.unlinked.iter().flatten() {
                    assert!(
                        !words.contains(&write.at),
                        "word {} is written while lookups may read it",
                        write.at
                    );
                }
                self.device.last_mut().unwrap().words[write.at as usize] = write.value;
                self.writes += 1;
                for _ in 0..2 {
                    let key = self.key(changes);
                    let (old, new) = (self.oracle.lookup(key), after.lookup(key));
                    let found = self.lookup(key);
                    assert!(found == old || found == new, "{key:?}: {found}, was {old}, will be {new}");
                }
                self.submit(changes, after);
                self.walk();
            }
        }
    }

    /// A key that the changes may affect.
    pub(crate) fn key(&mut self, changes: &[Route<K>]) -> K {
        if changes.is_empty() || self.random.below(4) == 0 {
            return self.random.address();
        }
        let prefix = changes[self.random.below(changes.len())].prefix;
        let noise = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
        let inside = noise & (prefix.address().to_high_bits() ^ prefix.last_address().to_high_bits());
        match self.random.below(4) {
            0 => prefix.address(),
            1 => prefix.last_address(),
            _ => K::from_high_bits(prefix.address().to_high_bits() | inside),
        }
    }

    fn submit(&mut self, changes: &[Route<K>], after: &Oracle<K>) {
        if self.walkers.len() >= self.walkers_max {
            return;
        }
        let key = self.key(changes);
        let allowed = [self.oracle.lookup(key).get(), after.lookup(key).get()].into();
        self.walkers.push(Walker {
            key,
            table: self.device.len() - 1,
            left: high(key),
            level: 1,
            inf: 0,
            raw: None,
            born: self.finished,
            allowed,
        });
    }

    /// Some lookups read one more unit.
    fn walk(&mut self) {
        for _ in 0..self.walkers.len() / 8 {
            let at = self.random.below(self.walkers.len());
            self.walk_one(at);
        }
    }

    fn walk_one(&mut self, at: usize) {
        let walker = &mut self.walkers[at];
        if walker.raw.is_some() {
            return;
        }
        let table = &self.device[walker.table];
        let stride = table.header[code::stride_at(walker.level as usize)];
        let unit =
            table.base(walker.level) + walker.inf + u32::try_from(walker.left >> (64 - stride)).unwrap();
        let unit = table.words[unit as usize];
        walker.left <<= stride;
        (walker.level, walker.inf) = (code::jump(unit), code::inf(unit));
        if code::is_leaf(unit) {
            walker.raw = Some(walker.inf | if unit & code::DEEP == 0 { 0 } else { RAW_DEEP });
        }
    }

    /// Collects some lookups, checks them, and lets the table reclaim what the others cannot reach.
    fn collect(&mut self) {
        let mut at = 0;
        while at < self.walkers.len() {
            if self.random.below(12) != 0 {
                at += 1;
                continue;
            }
            while self.walkers[at].raw.is_none() {
                self.walk_one(at);
            }
            let walker = self.walkers.swap_remove(at);
            let found = resolve(&*self.answers, walker.key, walker.raw.unwrap());
            assert!(
                walker.allowed.contains(&found.get()),
                "{:?} got {found} after updates {}..={}, allowed are {:?}",
                walker.key,
                walker.born,
                self.finished,
                walker.allowed
            );
            self.collected += 1;
        }
        let oldest = self.walkers.iter().map(|walker| walker.born).min().unwrap_or(self.finished);
        self.table.reclaim(oldest);
        if let Some(unlinked) = &mut self.unlinked {
            unlinked.retain(|(update, _)| *update > oldest);
        }
    }

    /// Checks the whole table against the oracle, at keys around the changed prefixes.
    pub(crate) fn check(&mut self, changes: &[Route<K>], keys: usize) {
        for _ in 0..keys {
            let key = self.key(changes);
            assert_eq!(self.lookup(key), self.oracle.lookup(key), "{key:?}");
        }
        assert_eq!(self.table.routes(), self.oracle.len() as u64);
    }
}
