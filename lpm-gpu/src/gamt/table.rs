//! [`GamtTable`]: the host table of one family.

use super::answers::GamtAnswers;
use super::bubbles::Bubble;
use super::build::build;
use super::deep::{Deep, Effect};
use super::details::{GamtFigures, GamtTimes, GamtWork};
use super::early::{self, EarlyBuild};
use super::hops::{Changed, Hops};
use super::merge;
use super::options::{GamtOptions, Layout};
use super::planner::ShapePlanner;
use super::shape::TrieShape;
use super::trie::{GamtTrie, TrieEntry, TriePlace};
use crate::host::{Answers, Due, HostTable, Image, KernelNames, UpdateStep, Write};
use fib::{Change, Details, EngineError, Family, Key, NextHopId, RibTable};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// A delta larger than the routes divided by this rebuilds the table: updating a route costs little less than building it.
const BULK_SHARE: u64 = 2;

/// Smaller deltas are applied change by change.
const BULK_MIN: usize = 1024;

/// Empty nodes are unlinked when less than `1 / COLLAPSE_SHARE` of a level's head room is left.
const COLLAPSE_SHARE: u32 = 4;

/// A rebuild is due when more units than this, and half of the table, are pending: a bubble is two words on the wire.
const REWRITE_UNITS_MIN: u64 = 64 << 10;

/// GAMT's table of one family: the trie, prefixes longer than it searches, and the contents of leaves.
#[derive(Debug)]
pub struct GamtTable<K: Key> {
    options: GamtOptions,
    planner: ShapePlanner,
    trie: GamtTrie,
    early: EarlyBuild,
    /// Not to adopt an early trie without need.
    puts_off: bool,
    hops: Hops,
    deep: Deep,
    /// Routes of at most [`Self::BITS`] bits.
    routes: u64,
    /// The trie was rebuilt: the device needs an image.
    is_new: bool,
    /// The update in progress, or the next one: nodes unlinked now belong to it.
    update: u64,
    /// All lookups from before the end of this update were collected.
    reclaimed: u64,
    answers: Arc<GamtAnswers>,
    figures: GamtWork,
    times: GamtTimes,
    family: PhantomData<K>,
}

impl<K: Key> GamtTable<K> {
    /// Key bits that the device searches.
    pub const BITS: u8 = if K::BITS < 64 { K::BITS } else { 64 };

    /// A table without routes.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for options out of range, [`EngineError::Full`] when the empty table does not fit,
    /// [`EngineError::Memory`].
    pub fn new(options: GamtOptions) -> Result<Self, EngineError> {
        let planner = ShapePlanner::new(&options, K::FAMILY, Self::BITS)?;
        let trie = build(planner.plan(&[], None)?, &[])?;
        let (hops, deep) = (Hops::new(options.next_hops), Deep::default());
        let entries = if let Hops::Apart(entries) = &hops { Some(entries.shared()) } else { None };
        let answers = Arc::new(GamtAnswers { entries, deep: deep.shared() });
        Ok(Self {
            options,
            planner,
            trie,
            early: EarlyBuild::new(),
            puts_off: false,
            hops,
            deep,
            routes: 0,
            is_new: false,
            update: 1,
            reclaimed: 0,
            answers,
            figures: GamtWork::default(),
            times: GamtTimes::default(),
            family: PhantomData,
        })
    }

    pub(crate) fn shared_answers(&self) -> Arc<GamtAnswers> {
        Arc::clone(&self.answers)
    }

    /// Whether `changes` cannot be refused, and need steps only, once all unlinked nodes are reclaimed.
    pub(crate) fn admits(&self, changes: &[Change<K>]) -> bool {
        let added = changes.iter().filter(|change| change.adds());
        let deep = added.clone().filter(|change| change.prefix.len() > Self::BITS).count();
        let mut nodes = [0; 64];
        for Change { prefix, .. } in added {
            let (high, _) = split(prefix.address().to_high_bits());
            self.trie.count_missing(high, prefix.len().min(Self::BITS), &mut nodes);
        }
        !self.is_bulk(changes) && self.trie.has_room(&nodes) && self.deep.has_room(deep)
    }

    /// For tests: how many routes a delta collects at least, and whether a delta finds the early trie ready (`None`: if it is).
    #[cfg(any(test, feature = "testing"))]
    pub fn set_early_pace(&mut self, routes_min: usize, ready: Option<bool>) {
        self.early.set_pace(routes_min, ready);
    }

    /// Whether a thread builds the next trie, or has built it.
    #[must_use]
    pub fn is_building_early(&self) -> bool {
        self.early.is_following()
    }

    pub(crate) fn has_unlinked(&self) -> bool {
        self.trie.has_unlinked() || self.deep.has_unlinked()
    }

    /// The shape of the image.
    #[must_use]
    pub fn shape(&self) -> &TrieShape {
        self.trie.shape()
    }

    /// Counters since the table was created.
    #[must_use]
    pub fn figures(&self) -> GamtWork {
        GamtWork { collapsed_nodes: self.trie.collapsed() + self.figures.collapsed_nodes, ..self.figures }
    }

    /// Units in use in each level.
    #[must_use]
    pub fn units_used(&self) -> Vec<u32> {
        self.trie.levels.iter().map(super::level::TrieLevel::used).collect()
    }

    /// Bytes a prefix by the paper's formula (section 5.2.3): levels x array width x 4 / prefixes, without head room.
    #[must_use]
    pub fn paper_bytes_per_prefix(&self) -> f64 {
        let used = self.units_used();
        let width = f64::from(used.iter().copied().max().unwrap_or(0));
        let levels = f64::from(u32::try_from(used.len()).unwrap_or(0));
        4.0 * levels * width / float(self.routes().max(1))
    }

    /// Bytes a prefix of the units in use: the size of the flat layout.
    #[must_use]
    pub fn flat_bytes_per_prefix(&self) -> f64 {
        4.0 * self.units_used().into_iter().map(f64::from).sum::<f64>() / float(self.routes().max(1))
    }

    /// All routes of at most [`Self::BITS`] bits.
    fn entries(&mut self) -> Vec<TrieEntry> {
        let count = self.route_count();
        self.times.collect.time(|| self.trie.entries(count))
    }

    fn plan_all(&mut self, entries: Vec<TrieEntry>) -> Result<(TrieShape, Vec<TrieEntry>), EngineError> {
        self.times.plan.time(|| {
            let entries = merge::entries(entries, paths::<K>(&self.deep));
            let shape = self.planner.plan(&entries, Some(self.trie.shape()))?;
            Ok((shape, entries))
        })
    }

    fn build(&mut self, shape: TrieShape, entries: &[TrieEntry]) -> Result<(), EngineError> {
        let start = Instant::now();
        let trie = build(shape, entries)?;
        self.install(trie)?;
        self.times.build.record(start.elapsed());
        Ok(())
    }

    /// Replaces the trie by one with the same routes.
    fn install(&mut self, mut trie: GamtTrie) -> Result<(), EngineError> {
        for (high, number) in self.deep.groups() {
            let place = trie.find_or_make(high, Self::BITS).ok_or_else(early::no_offset)?;
            let cover = trie.mark_deep(high, place, number);
            self.deep.set_cover(number, cover);
        }
        trie.forget_bubbles();
        self.figures.builds += 1;
        self.figures.collapsed_nodes += self.trie.collapsed();
        self.trie = trie;
        self.early.restart();
        self.is_new = true;
        Ok(())
    }

    /// Installs a trie that was built in the background, unless it no longer fits.
    fn adopt(&mut self, trie: Option<GamtTrie>) {
        let Some(trie) = trie.filter(|trie| trie.shape().words <= self.planner.words_max) else { return };
        let start = Instant::now();
        self.figures.early_builds += u64::from(self.install(trie).is_ok());
        self.times.adopt.record(start.elapsed());
    }

    /// Sets the code of a route; 0 removes it.
    fn put(&mut self, (place, key, len): (TriePlace, u64, u8), code: u32) {
        if code == 0 {
            self.trie.remove(place);
        } else {
            self.trie.put(place, code);
        }
        self.early.note(TrieEntry { key, len, code });
    }

    fn set(&mut self, change: &Change<K>) -> Result<bool, EngineError> {
        let bits = change.prefix.address().to_high_bits();
        let (high, low) = split(bits);
        let (len, next_hop) = (change.prefix.len(), change.new);
        if len > Self::BITS {
            return self.set_deep((high, low), len, next_hop);
        }
        let place =
            if next_hop.is_none() { self.trie.find(high, len) } else { self.find_or_make(high, len)? };
        let Some(place) = place else { return Ok(false) };
        let (code, route) = (self.trie.code(place), (place, high, len));
        if self.hops.next_hop(code) == next_hop {
            return Ok(false);
        }
        if next_hop.is_none() {
            self.hops.retire(code, self.update);
            self.put(route, 0);
            self.routes -= 1;
        } else if code == 0 {
            let code = self.hops.code(next_hop)?;
            let cover = self.trie.cover(place);
            self.hops.lose(cover, self.update);
            self.put(route, code);
            self.routes += 1;
        } else if let Hops::Apart(entries) = &mut self.hops {
            entries.change(Changed { key: high, len, entry: super::code::inf(code) }, next_hop)?;
        } else {
            self.put(route, super::code::leaf(next_hop.get()));
        }
        self.update_covers();
        Ok(true)
    }

    /// The place of a route. Rebuilds the table when a level has no offsets left.
    fn find_or_make(&mut self, high: u64, len: u8) -> Result<Option<TriePlace>, EngineError> {
        if let Some(place) = self.trie.find_or_make(high, len) {
            return Ok(Some(place));
        }
        let path = [TrieEntry { key: high, len, code: 0 }];
        let entries = self.entries();
        self.hops.lose_all(self.update);
        let (shape, entries) = self.plan_all(merge::entries(entries, path))?;
        self.build(shape, &entries)?;
        Ok(self.trie.find_or_make(high, len))
    }

    fn set_deep(
        &mut self,
        (high, low): (u64, u64),
        len: u8,
        next_hop: NextHopId,
    ) -> Result<bool, EngineError> {
        if self.deep.get(high, low, len) == next_hop {
            return Ok(false);
        }
        // Before the group exists: a rebuild inside marks the /64s of all groups.
        let place = if next_hop.is_none() {
            self.trie.find(high, Self::BITS)
        } else {
            self.find_or_make(high, Self::BITS)?
        };
        let Some(place) = place else { return Ok(false) };
        match self.deep.set((high, low), len, next_hop)? {
            Effect::None => {}
            Effect::Kept { cover } => self.hops.lose(cover, self.update),
            Effect::Made(number) => {
                let cover = self.trie.mark_deep(high, place, number);
                self.hops.lose(cover, self.update);
                self.deep.set_cover(number, cover);
            }
            Effect::Gone { cover } => self.trie.unmark_deep(high, place, cover),
        }
        Ok(true)
    }

    fn update_covers(&mut self) {
        if !self.trie.fallbacks.is_empty() {
            for (number, cover) in std::mem::take(&mut self.trie.fallbacks) {
                self.deep.set_cover(number, cover);
            }
        }
    }

    /// Makes a large delta by rebuilding the table: all changes or none.
    fn apply_bulk(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        let (mut wide, mut deep): (Vec<Change<K>>, Vec<Change<K>>) =
            changes.iter().copied().partition(|change| change.prefix.len() <= Self::BITS);
        for part in [&mut wide, &mut deep] {
            if !part.is_sorted_by_key(|change| change.prefix) {
                part.sort_by_key(|change| change.prefix);
            }
        }
        let before = self.entries();
        let wanted = wide.iter().map(|change| TrieEntry {
            key: split(change.prefix.address().to_high_bits()).0,
            len: change.prefix.len(),
            code: change.new.get(),
        });
        let merged = merge::changes(&before, wanted, |code| self.hops.next_hop(code));
        self.hops.room_for(merged.set)?;
        let (routes, made) = (merged.entries.len() as u64, merged.made);
        // The shape needs room for the nodes above longer routes, or those would overflow it and cause another build.
        let mut paths: Vec<_> = deep
            .iter()
            .filter(|change| !change.new.is_none())
            .map(|change| split(change.prefix.address().to_high_bits()).0)
            .map(|key| TrieEntry { key, len: Self::BITS, code: 0 })
            .collect();
        paths.dedup();
        let (shape, mut entries) = self.plan_all(merge::entries(merged.entries, paths))?;
        // Only memory can run out from here on. A merge may take keys from any route.
        self.hops.lose_all(self.update);
        for entry in &merged.gone {
            self.hops.retire(entry.code, self.update);
        }
        for entry in &mut entries {
            if let Some(next_hop) = merge::next_hop_to_set(entry.code) {
                entry.code = self.hops.code(next_hop)?;
            }
        }
        self.figures.updates += made;
        self.build(shape, &entries)?;
        self.routes = routes;
        // Routes longer than the bits searched are few, and each needs its own mark.
        self.apply_each(&deep)
    }

    fn is_bulk(&self, changes: &[Change<K>]) -> bool {
        changes.len() >= BULK_MIN && changes.len() as u64 > self.routes / BULK_SHARE
    }

    fn apply_each(&mut self, changes: &[Change<K>]) -> Result<(), EngineError> {
        for change in changes {
            self.figures.updates += u64::from(self.set(change)?);
        }
        Ok(())
    }

    /// Whether steps cannot keep up the image on the device, or cost more than a new one.
    fn rebuild_due(&self) -> bool {
        let used = || self.trie.levels.iter().map(|level| u64::from(level.used())).sum::<u64>();
        let pending = self.trie.pending();
        let is_rewritten = pending > REWRITE_UNITS_MIN && pending > used() / 2;
        self.is_new || self.trie.overflows() || (is_rewritten && !self.options.in_place)
    }

    fn settle(&mut self) {
        let Hops::Apart(entries) = &mut self.hops else { return };
        for (changed, code) in entries.settle(self.reclaimed, self.update) {
            if let Some(place) = self.trie.find(changed.key, changed.len) {
                self.put((place, changed.key, changed.len), code);
            }
        }
        self.update_covers();
    }

    fn route_count(&self) -> usize {
        usize::try_from(self.routes).unwrap_or(usize::MAX)
    }

    fn writes(&mut self, bubbles: Vec<Bubble>, steps: &mut Vec<UpdateStep>) {
        if bubbles.is_empty() {
            return;
        }
        self.figures.bubbles += bubbles.len() as u64;
        let bases = &self.trie.shape().bases;
        let write = |bubble: Bubble| Write {
            at: bases[bubble.stage as usize - 1] + bubble.location,
            value: bubble.value,
        };
        steps.push(UpdateStep::Writes(bubbles.into_iter().map(write).collect()));
    }
}

/// The path to each /64 that has longer routes.
fn paths<K: Key>(deep: &Deep) -> impl Iterator<Item = TrieEntry> + use<K> {
    let path = |(key, _)| TrieEntry { key, len: GamtTable::<K>::BITS, code: 0 };
    deep.groups().into_iter().map(path)
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn split(bits: u128) -> (u64, u64) {
    ((bits >> 64) as u64, bits as u64)
}

impl<K: Key> HostTable<K> for GamtTable<K> {
    fn limit(&mut self, words_max: usize) {
        self.planner.words_max = (words_max as u64).min(self.options.table_bytes_max / 4);
    }

    fn early_words(&self) -> Option<u64> {
        self.early.ready_words()
    }

    fn put_off_rebuilds(&mut self, is_put_off: bool) {
        self.puts_off = is_put_off;
    }

    fn apply(&mut self, changes: &[Change<K>], _: &RibTable<K>) -> Result<Due, EngineError> {
        let is_bulk = self.is_bulk(changes);
        if !is_bulk && !self.puts_off {
            let ready = self.early.take_ready();
            self.adopt(ready);
        }
        let before = self.figures.updates;
        let made = if is_bulk { self.apply_bulk(changes) } else { self.apply_each(changes) };
        if self.figures.updates != before {
            self.settle();
            // First nodes are reclaimed, then a build begins in the background.
            let share = if self.options.builds_early { early::HEADROOM_SHARE } else { COLLAPSE_SHARE };
            self.trie.collapse(self.update, share);
        }
        self.early.send();
        made?;
        if !self.rebuild_due() {
            if self.options.builds_early {
                let trie = (&self.trie, self.route_count());
                self.early.advance(trie, changes.len(), &self.planner, || paths::<K>(&self.deep).collect());
            }
            return Ok(Due::Steps);
        }
        self.rebuild().map(|()| Due::Image)
    }

    fn retired_bytes(&self) -> u64 {
        self.deep.retired_bytes()
    }

    fn free_retired(&mut self) {
        self.deep.free_retired();
    }

    fn reads_routes(&self) -> bool {
        false
    }

    /// Prepares an image, with a rebuild unless the trie is new. Waits for a trie that is being built in the background.
    fn rebuild(&mut self) -> Result<(), EngineError> {
        if (!self.is_new || self.trie.overflows()) && !self.early.exceeds(self.planner.words_max) {
            self.figures.early_waits += u64::from(self.early.is_following());
            let early = self.early.finish();
            self.adopt(early);
        }
        if !self.is_new || self.trie.overflows() {
            let entries = self.entries();
            let (shape, entries) = self.plan_all(entries)?;
            self.build(shape, &entries)?;
        }
        self.trie.forget_bubbles();
        self.is_new = false;
        self.figures.rebuilds += 1;
        Ok(())
    }

    fn take_steps(&mut self, update: u64, _: &RibTable<K>) -> Vec<UpdateStep> {
        if let Hops::Apart(entries) = &mut self.hops {
            self.figures.next_hop_updates += entries.publish();
        }
        self.deep.publish(self.update, |high| self.trie.leaf(high));
        let mut steps = Vec::new();
        if self.trie.pending() > 0 {
            let (fresh, rest) = self.trie.take_bubbles();
            self.writes(fresh, &mut steps);
            self.writes(rest, &mut steps);
        }
        self.update = update + 1;
        steps
    }

    fn reclaim(&mut self, update: u64) {
        self.reclaimed = update;
        self.trie.reclaim(update);
        self.hops.reclaim(update);
        self.deep.reclaim(update);
    }

    fn image(&self, _: &RibTable<K>) -> Image<'_> {
        let shape = self.trie.shape();
        let levels = self.trie.levels.iter().zip(&shape.bases).zip(&shape.rooms);
        let runs = levels
            .map(|((level, base), room)| (*base, &level.units[..level.units.len().min(*room as usize)]));
        Image {
            header: shape.header(),
            runs: runs.collect(),
            words: usize::try_from(shape.words).unwrap_or(usize::MAX),
        }
    }

    fn kernels(&self) -> KernelNames {
        let (frozen, live) = match (K::FAMILY, self.options.layout) {
            (Family::V4, Layout::Flat) => ("gamt_lookup_v4_flat_frozen", "gamt_lookup_v4_flat_live"),
            (Family::V4, Layout::Paper) => ("gamt_lookup_v4_paper_frozen", "gamt_lookup_v4_paper_live"),
            (Family::V6, Layout::Flat) => ("gamt_lookup_v6_flat_frozen", "gamt_lookup_v6_flat_live"),
            (Family::V6, Layout::Paper) => ("gamt_lookup_v6_paper_frozen", "gamt_lookup_v6_paper_live"),
        };
        KernelNames { module: "gamt", frozen, live, ops: None }
    }

    fn answers(&self) -> Arc<dyn Answers<K>> {
        Arc::clone(&self.answers) as Arc<dyn Answers<K>>
    }

    fn routes(&self) -> u64 {
        self.routes + self.deep.routes()
    }

    fn host_bytes(&self) -> u64 {
        self.trie.bytes() + self.early.bytes() + self.hops.bytes() + self.deep.bytes()
    }

    fn details(&self) -> Details {
        let shape = self.shape();
        let strides = (1..).zip(&shape.strides);
        let figures = GamtFigures {
            levels: shape.strides.len(),
            array_width: shape.width,
            units: shape.words,
            units_used: self.units_used().into_iter().map(u64::from).sum(),
            building: self.is_building_early().into(),
            bytes_per_prefix_paper: self.paper_bytes_per_prefix(),
            bytes_per_prefix_flat: self.flat_bytes_per_prefix(),
            work: self.figures(),
            strides: strides.map(|(level, stride): (u8, _)| (format!("stride_{level}"), *stride)).collect(),
        };
        let family = if K::FAMILY == Family::V4 { "v4" } else { "v6" };
        let name = |name: &str| format!("gamt_{name}_{family}");
        Details::named(&figures, name).and(Details::named(&self.times.details(), name))
    }
}
