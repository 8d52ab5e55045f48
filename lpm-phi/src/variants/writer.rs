//! The writer of one family's tables of `bloom-naive` and `bloom-baseline`.
//!
//! It changes the spare copy, logs each store, and publishes that copy; before the next delta, when a grace period has ended, it repeats
//! the logged stores on the other copy. [`update::apply`](crate::bloom::update) expands entries and chooses their owners.

use super::counters::FilterCounters;
use super::hash::LevelKey;
use super::params::VariantParams;
use super::shape::{TableKey, VariantPlan};
use super::table::{
    ENTRY_WORDS, HOP_MASK, OWNER_SHIFT, VariantLevel, VariantShape, VariantTable, VariantWords,
};
use crate::bloom::deep::Deep;
use crate::bloom::update::{self, Grace, Store};
use crate::cpe::expand::expansion;
use fib::{Change, Details, EngineError, Family, NextHopId, Prefix, Prefix6, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use lpm_core::memory::Array;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct VariantWriter<K: TableKey> {
    table: Arc<VariantTable>,
    groups: Vec<RangeInclusive<u8>>,
    direct_owner: Vec<u8>,
    /// The counters of each level's filter, then of the filter of routes past /64.
    counters: Vec<FilterCounters>,
    /// Entries of each level, then the routes past /64; and the room for them.
    used: Vec<u64>,
    rooms: Vec<u64>,
    /// Freed entries, and the first entry that was never used.
    free: Vec<u32>,
    fresh: u32,
    /// Stores that the spare copy lacks.
    notes: Notes,
    /// A table being built has no readers: its second copy is copied as a whole.
    is_building: bool,
    family: std::marker::PhantomData<K>,
}

#[derive(Debug, Default)]
struct Notes {
    words: Vec<(usize, u32)>,
    deep: Vec<(Prefix6, NextHopId)>,
}

impl Notes {
    fn bytes(&self) -> u64 {
        let words = self.words.capacity() * size_of::<(usize, u32)>();
        (words + self.deep.capacity() * size_of::<(Prefix6, NextHopId)>()) as u64
    }
}

impl<K: TableKey> VariantWriter<K> {
    fn sized(plan: VariantPlan, params: &VariantParams) -> Result<Self, EngineError> {
        let VariantPlan { shape, groups, rooms } = plan;
        let deep = rooms.get(shape.levels.len()).copied().unwrap_or(0);
        let copy = || -> Result<VariantWords, EngineError> {
            Ok(VariantWords {
                words: Array::zeroed(shape.words, params.common.placement)?,
                deep: Deep::new(deep),
            })
        };
        let copies = [copy()?, copy()?];
        let filters = shape.levels.iter().map(|level| level.filter).chain(shape.deep);
        Ok(Self {
            groups,
            direct_owner: vec![0; 1 << shape.direct_bits],
            counters: filters.map(|filter| FilterCounters::new(filter.bits.n)).collect(),
            used: vec![0; rooms.len()],
            rooms,
            free: Vec::new(),
            fresh: 1,
            notes: Notes::default(),
            is_building: true,
            family: std::marker::PhantomData,
            table: Arc::new(VariantTable::new(shape, copies)),
        })
    }

    fn shape(&self) -> &VariantShape {
        &self.table.shape
    }

    fn spare(&self) -> &VariantWords {
        self.table.copies.spare()
    }

    fn group_of(&self, len: u8) -> usize {
        self.groups.iter().position(|lengths| lengths.contains(&len)).unwrap_or(self.groups.len() - 1)
    }

    fn store(&mut self, at: usize, word: u32) {
        self.spare().words[at].store(word, Ordering::Relaxed);
        if !self.is_building {
            self.notes.words.push((at, word));
        }
    }

    fn flip_bit(&mut self, start: usize, bit: u32) {
        let at = start + (bit / 32) as usize;
        self.store(at, self.spare().get(at) ^ 1 << (bit % 32));
    }

    /// Counts one more or one less key in the filter with the index `filter`: levels first, then routes past /64.
    fn count(&mut self, filter: usize, key: K::Word, more: bool) {
        let shape = self.shape();
        let place = shape.levels.get(filter).map(|level| level.filter).or(shape.deep);
        let Some(place) = place else { return };
        let name = shape.filter_hash;
        let places = place.places(name, key.hash(name));
        let mut flipped = Vec::new();
        if more {
            self.used[filter] += 1;
            self.counters[filter].insert(places, |bit| flipped.push(bit));
        } else {
            self.used[filter] -= 1;
            self.counters[filter].remove(places, |bit| flipped.push(bit));
        }
        for bit in flipped {
            self.flip_bit(place.start, bit);
        }
    }

    fn count_deep(&mut self, prefix: Prefix<K>, more: bool) {
        self.count(self.shape().levels.len(), prefix.address().word(), more);
    }

    /// The bucket of a key of `group`, and its entry there, or 0.
    fn place(&self, group: usize, key: K::Word) -> (usize, u32) {
        let shape = self.shape();
        let bucket = shape.bucket(&shape.levels[group - 1], key, key.hash(shape.filter_hash));
        (bucket, self.spare().find(shape, self.spare().get(bucket), key.words()))
    }

    fn direct_range(&self, prefix: Prefix<K>) -> std::ops::Range<usize> {
        let bits = u32::from(self.shape().direct_bits);
        let index = |address: K| address.to_high_bits().checked_shr(128 - bits).unwrap_or(0);
        let bound = |index: u128| usize::try_from(index).unwrap_or(usize::MAX);
        bound(index(prefix.address()))..bound(index(prefix.last_address())) + 1
    }
}

impl<K: TableKey> FibTable<K> for VariantWriter<K> {
    type Params = VariantParams;
    type Shared = VariantTable;
    type Size = VariantPlan;

    fn size(
        routes: &[(Prefix<K>, NextHopId)],
        params: &VariantParams,
        budget: Budget,
    ) -> Result<VariantPlan, EngineError> {
        VariantPlan::for_routes(routes, params, budget)
    }

    fn size_bytes(plan: &VariantPlan) -> u64 {
        (plan.shape.words * size_of::<u32>()) as u64
            + plan.rooms.get(plan.shape.levels.len()).map_or(0, |room| Deep::bytes_of(*room))
    }

    fn build(plan: VariantPlan, mut routes: Routes<K>, params: &VariantParams) -> Result<Self, EngineError> {
        let mut writer = Self::sized(plan, params)?;
        // Longest first: each entry is written once, by its owner.
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let deep = routes.partition_point(|(prefix, _)| prefix.len() > K::Word::BITS);
        let past: Vec<_> =
            routes[..deep].iter().filter_map(|(prefix, hop)| Some((K::as_deep(*prefix)?, *hop))).collect();
        writer.table.copies.both().iter().for_each(|copy| copy.deep.load(&past));
        for (prefix, _) in &routes[..deep] {
            writer.count_deep(*prefix, true);
        }
        for (prefix, next_hop) in &routes[deep..] {
            writer.announce(writer.group_of(prefix.len()), *prefix, *next_hop);
        }
        writer.is_building = false;
        for (from, to) in writer.spare().words.iter().zip(writer.table.live().words.iter()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(writer)
    }

    fn shared(&self) -> &Arc<VariantTable> {
        &self.table
    }

    /// One copy, with the maximum number of routes past /64.
    fn bytes(&self) -> u64 {
        let deep = self.rooms.get(self.shape().levels.len());
        self.table.live().words.bytes() + deep.map_or(0, |room| Deep::bytes_of(*room))
    }

    /// The second copy, counters, owners and logged stores.
    fn writer_bytes(&self) -> u64 {
        let counters = self.counters.iter().map(FilterCounters::bytes).sum::<u64>();
        let lists = self.free.capacity() * size_of::<u32>() + self.direct_owner.capacity();
        self.bytes() + counters + lists as u64 + self.notes.bytes()
    }

    fn retired_bytes(&self) -> u64 {
        self.table.copies.both().iter().map(|copy| copy.deep.retired_bytes()).sum()
    }

    fn free_retired(&mut self) {
        self.table.copies.both().iter().for_each(|copy| copy.deep.free_retired());
    }

    fn details(&self) -> Details {
        let levels = self.shape().levels.len();
        let buckets = || self.shape().levels.iter().flat_map(VariantLevel::bucket_words);
        let bits: u64 = self.shape().levels.iter().map(|level| u64::from(level.filter.bits.n)).sum();
        let deep_bits = self.shape().deep.map_or(0, |filter| u64::from(filter.bits.n));
        let mut details = Details::from([
            ("direct_entries", self.direct_owner.len().into()),
            ("levels", levels.into()),
            ("entries", self.used[..levels].iter().sum::<u64>().into()),
            ("buckets", buckets().count().into()),
            ("buckets_used", buckets().filter(|at| self.spare().get(*at) != 0).count().into()),
            ("filter_bits", (bits + deep_bits).into()),
            ("filter_occupied", self.counters.iter().map(FilterCounters::occupied).sum::<u64>().into()),
            ("filter_saturated", self.counters.iter().map(FilterCounters::saturated).sum::<u64>().into()),
        ]);
        if K::FAMILY == Family::V6 {
            let deep = self.used[levels..].iter().sum::<u64>();
            details.extend(Details::from([("deep_routes", deep.into())]));
        }
        details.of_family(K::FAMILY)
    }

    fn admits(&self, changes: &[Change<K>], _: &RibTable<K>) -> bool {
        let mut new = vec![0_u64; self.rooms.len()];
        for change in changes.iter().filter(|change| change.adds()) {
            let group = self.group_of(change.prefix.len());
            if group > 0 {
                let lengths = &self.groups[group];
                let entries = if self.is_deep(group) { 1 } else { expansion(change.prefix, lengths) };
                new[group - 1] = new[group - 1].saturating_add(entries);
            }
        }
        self.used
            .iter()
            .zip(&self.rooms)
            .zip(new)
            .all(|((used, room), new)| used.saturating_add(new) <= *room)
    }

    fn owes_grace(&self) -> bool {
        !self.notes.words.is_empty() || !self.notes.deep.is_empty()
    }

    fn grace_over(&mut self) {
        let spare = self.table.copies.spare();
        for (at, word) in self.notes.words.drain(..) {
            spare.words[at].store(word, Ordering::Relaxed);
        }
        for (prefix, next_hop) in self.notes.deep.drain(..) {
            spare.deep.set(prefix, next_hop);
        }
    }

    fn update(&mut self, changes: &[Change<K>], routes: &RibTable<K>, _: &dyn Fn()) {
        update::apply(self, routes, changes, &mut Grace::default(), &|| {});
        if self.owes_grace() {
            self.table.copies.flip();
        }
    }
}

impl<K: TableKey> Store<K> for VariantWriter<K> {
    type Place = (usize, u32);

    fn groups(&self) -> &[RangeInclusive<u8>] {
        &self.groups
    }

    fn set_direct(&mut self, prefix: Prefix<K>, from: RangeInclusive<u8>, (len, next_hop): (u8, NextHopId)) {
        for at in self.direct_range(prefix) {
            if from.contains(&self.direct_owner[at]) {
                self.direct_owner[at] = len;
                self.store(at, next_hop.get());
            }
        }
    }

    fn find(&self, group: usize, entry: Prefix<K>) -> ((usize, u32), Option<u8>) {
        let place = self.place(group, entry.address().word());
        let word = self.spare().get(self.shape().entry(place.1) + 2);
        // An owner's length is at most 64.
        (place, (place.1 != 0).then_some((word >> OWNER_SHIFT) as u8))
    }

    fn set(
        &mut self,
        group: usize,
        entry: Prefix<K>,
        (bucket, number): (usize, u32),
        (len, next_hop): (u8, NextHopId),
    ) -> bool {
        let word = u32::from(len) << OWNER_SHIFT | next_hop.get() & HOP_MASK;
        if number != 0 {
            self.store(self.shape().entry(number) + 2, word);
            return false;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        let (at, head) = (self.shape().entry(number), self.spare().get(bucket));
        let key = entry.address().word();
        let [low, high] = key.words();
        for (offset, word) in [low, high, word, head].into_iter().enumerate().take(ENTRY_WORDS) {
            self.store(at + offset, word);
        }
        self.store(bucket, number);
        self.count(group - 1, key, true);
        true
    }

    fn remove(&mut self, group: usize, entry: Prefix<K>) {
        let key = entry.address().word();
        let (bucket, number) = self.place(group, key);
        if number == 0 {
            return;
        }
        let next = self.spare().get(self.shape().entry(number) + 3);
        let mut link = bucket;
        while self.spare().get(link) != number {
            link = self.shape().entry(self.spare().get(link)) + 3;
        }
        self.store(link, next);
        self.free.push(number);
        self.count(group - 1, key, false);
    }

    fn is_deep(&self, group: usize) -> bool {
        group > self.shape().levels.len()
    }

    fn set_deep(&mut self, prefix: Prefix<K>, next_hop: NextHopId) -> bool {
        let Some(deep) = K::as_deep(prefix) else { return false };
        self.notes.deep.push((deep, next_hop));
        let has_changed = self.spare().deep.set(deep, next_hop);
        if has_changed {
            self.count_deep(prefix, !next_hop.is_none());
        }
        has_changed
    }
}
