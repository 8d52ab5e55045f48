//! SAIL_L's table on the host, and the words to write on the device.

use super::BCN_UNITS;
use super::arrays::{SailArrays, WordPlace};
use super::codes::CODE_MAX;
use super::layout::{ChunkRoom, PaperParts, WordMap, chunks_max, words};
use crate::direct::{
    CHUNK_STEP, ChunkState, Chunks, Draw, PlainAnswers, Unit, check_words, parent, words_max,
};
use crate::gamt::Layout;
use crate::host::{Answers, Due, HEADER_WORDS, HostTable, Image, KernelNames, UpdateStep, Write};
use fib::{Change, Details, EngineError, NextHopId, RibTable};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// Least head room of each array, chunks.
const CHUNKS_SPARE_MIN: u64 = 256;
/// Pending words, percent of the table, beyond which an image is cheaper: a write is two words on the wire.
const WRITES_MAX_PERCENT: usize = 25;
/// Pending words that never require an image.
const WRITES_MIN: usize = 1 << 16;

/// Options of a SAIL_L table.
#[derive(Clone, Copy, Debug)]
pub struct SailOptions {
    /// Limit of the table's device memory, bytes.
    pub table_bytes_max: u64,
    /// Chunks kept free at a rebuild, percent of those in use.
    pub headroom_percent: u32,
    /// Layout of the arrays in the device's words.
    pub layout: Layout,
}

impl Default for SailOptions {
    fn default() -> Self {
        Self { table_bytes_max: 4 << 30, headroom_percent: 25, layout: Layout::Flat }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct SailWork {
    writes: u64,
    steps: u64,
    rebuilds: u64,
}

/// SAIL_L over IPv4.
#[derive(Debug)]
pub struct SailTable {
    options: SailOptions,
    words_max: u64,
    routes: u64,
    arrays: SailArrays,
    /// Routes longer than /16, by /16.
    long16: Vec<u32>,
    extended16: u64,
    /// Routes longer than /24, by /24; only nonzero counts.
    long24: FxHashMap<u32, u32>,
    /// Words changed since the last steps, perhaps repeatedly.
    dirty: Vec<WordPlace>,
    /// Too many words changed for steps: `dirty` is incomplete.
    overflowed: bool,
    /// Chunks that the device's arrays have room for.
    capacity24: u64,
    capacity32: u64,
    paper: Option<PaperParts>,
    packed: OnceCell<Vec<u32>>,
    /// Whether the device got an image that includes all dirty words.
    imaged: Cell<bool>,
    /// Whether the last delta was made, not refused.
    made: bool,
    given: SailWork,
}

fn entries(chunk: u32) -> impl Iterator<Item = WordPlace> {
    (chunk * CHUNK_STEP..(chunk + 1) * CHUNK_STEP).map(WordPlace::Bn24)
}

impl SailTable {
    /// A table without routes.
    ///
    /// # Errors
    /// [`EngineError::Full`] if BCN exceeds `options.table_bytes_max`.
    pub fn new(options: SailOptions) -> Result<Self, EngineError> {
        let mut table = Self {
            options,
            words_max: words_max(options.table_bytes_max),
            routes: 0,
            arrays: SailArrays::new(),
            long16: vec![0; BCN_UNITS],
            extended16: 0,
            long24: FxHashMap::default(),
            dirty: Vec::new(),
            overflowed: false,
            capacity24: 0,
            capacity32: 0,
            paper: (options.layout == Layout::Paper).then(PaperParts::new),
            packed: OnceCell::new(),
            imaged: Cell::new(false),
            made: false,
            given: SailWork::default(),
        };
        table.check_room(table.used())?;
        table.make_room();
        Ok(table)
    }

    /// Chunks of BN24 and of N32 in use.
    #[must_use]
    pub const fn chunks_in_use(&self) -> (u32, u32) {
        (self.arrays.chunks24.used(), self.arrays.chunks32.used())
    }

    fn used(&self) -> ChunkRoom {
        ChunkRoom {
            bn24: u64::from(self.arrays.chunks24.used()),
            n32: u64::from(self.arrays.chunks32.used()),
        }
    }

    fn check_room(&self, room: ChunkRoom) -> Result<(), EngineError> {
        room.check(self.options.layout)?;
        check_words(room.words(self.options.layout), self.words_max)
    }

    /// Reserves head room for both arrays, which share the memory if it is short.
    fn make_room(&mut self) {
        let used = self.used();
        let percent = u64::from(self.options.headroom_percent);
        let [_, chunk24, chunk32] = words(self.options.layout).map(|words| words as u64);
        let left = self.words_max.saturating_sub(used.words(self.options.layout));
        let max = chunks_max(self.options.layout);
        let spare = |used: u64, max: u64| (used * percent / 100).max(CHUNKS_SPARE_MIN).min(max - used);
        let (spare24, spare32) = (spare(used.bn24, max.bn24), spare(used.n32, max.n32));
        let is_short = spare24 * chunk24 + spare32 * chunk32 > left;
        let spare24 = if is_short { spare24.min(left / 2 / chunk24) } else { spare24 };
        self.capacity24 = used.bn24 + spare24;
        self.capacity32 = used.n32 + spare32.min((left - spare24 * chunk24) / chunk32);
    }

    fn needed(&self) -> ChunkRoom {
        ChunkRoom { bn24: self.extended16, n32: self.long24.len() as u64 }
    }

    fn count(&mut self, change: &Change<u32>) {
        let (prefix, adds) = (change.prefix, change.adds());
        if !adds && !change.withdraws() {
            return;
        }
        let step = |count: u32| if adds { count + 1 } else { count - 1 };
        self.routes = if adds { self.routes + 1 } else { self.routes - 1 };
        if prefix.len() > 16 {
            let count = &mut self.long16[(prefix.address() >> 16) as usize];
            let before = std::mem::replace(count, step(*count));
            self.extended16 += u64::from(before == 0);
            self.extended16 -= u64::from(*count == 0);
        }
        if prefix.len() > 24 {
            let slot = prefix.address() >> 8;
            let count = self.long24.entry(slot).or_default();
            *count = step(*count);
            if *count == 0 {
                self.long24.remove(&slot);
            }
        }
    }

    fn draw(&mut self, change: &Change<u32>, routes: &RibTable<u32>) {
        let Change { prefix, new, .. } = *change;
        let (len, address) = (prefix.len(), prefix.address());
        let mut draw = if new.is_none() {
            Draw::delete(len, parent(routes, prefix))
        } else if change.adds() {
            if len > 16 {
                self.arrays.extend(WordPlace::Bcn(address >> 16), &mut self.dirty);
            }
            if len > 24
                && let Some(place) = self.arrays.place24(address)
            {
                self.arrays.extend(place, &mut self.dirty);
            }
            Draw::insert(len, new)
        } else {
            Draw::modify(len, new)
        };
        if let Some(paper) = &self.paper {
            let code = paper.codes.code(NextHopId::from_answer(draw.unit.value()));
            draw.unit = Unit(code << 8 | draw.unit.depth());
        }
        self.arrays.draw(prefix, draw, &mut self.dirty);
        if self.overflowed || self.dirty.len() > self.dirty_max() {
            self.overflowed = true;
            self.dirty.clear();
        }
    }

    /// Frees chunks that no route needs after `changes` were drawn.
    fn fold(&mut self, changes: &[Change<u32>]) {
        let withdrawn = |len| {
            let longer = move |change: &&Change<u32>| change.withdraws() && change.prefix.len() > len;
            changes.iter().filter(longer).map(|change| change.prefix.address())
        };
        // N32 first: chunks of BN24 point to its chunks.
        for address in withdrawn(24) {
            if !self.long24.contains_key(&(address >> 8))
                && let Some(place) = self.arrays.place24(address)
            {
                self.arrays.fold(place, &mut self.dirty);
            }
        }
        for address in withdrawn(16) {
            if self.long16[(address >> 16) as usize] == 0 {
                self.arrays.fold(WordPlace::Bcn(address >> 16), &mut self.dirty);
            }
        }
    }

    fn dirty_max(&self) -> usize {
        let words = self.arrays.bn24.len() + self.arrays.n32.len();
        WRITES_MIN.max(words / 100 * WRITES_MAX_PERCENT)
    }

    fn settle(&mut self) {
        if self.imaged.replace(false) {
            let new = self.arrays.chunks24.adopt();
            if let Some(paper) = &mut self.paper {
                let new = new.into_iter().flat_map(entries);
                for place in self.dirty.drain(..).chain(new) {
                    paper.follow(place, &self.arrays);
                }
            }
            self.dirty.clear();
            self.overflowed = false;
            self.arrays.chunks32.adopt();
        }
    }

    fn map(&self) -> WordMap {
        let room =
            |capacity, chunks: &Chunks| usize::try_from(capacity).unwrap_or(0).max(chunks.high_water());
        let SailArrays { chunks24, chunks32, .. } = &self.arrays;
        WordMap::new(self.options.layout, room(self.capacity24, chunks24), room(self.capacity32, chunks32))
    }

    #[cfg(test)]
    pub(crate) fn codes(&self) -> Option<Arc<super::codes::CodeAnswers>> {
        self.paper.as_ref().map(|paper| paper.codes.shared())
    }

    fn c24(&self) -> &[u16] {
        self.paper.as_ref().map_or(&[], |paper| paper.c24())
    }

    /// Whether lookups reach the chunk that contains the word, and will go on doing so.
    fn reached(&self, place: WordPlace) -> bool {
        match place {
            WordPlace::Bcn(_) => true,
            WordPlace::Bn24(_) => self.arrays.chunks24.state(place.chunk()) == ChunkState::Live,
            WordPlace::N32(_) => self.arrays.chunks32.state(place.chunk()) == ChunkState::Live,
        }
    }
}

impl HostTable<u32> for SailTable {
    fn limit(&mut self, most: usize) {
        self.words_max = words_max(self.options.table_bytes_max).min(most as u64);
    }

    fn apply(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>) -> Result<Due, EngineError> {
        self.settle();
        let before = self.needed();
        changes.iter().for_each(|change| self.count(change));
        let needed = self.needed();
        let grows = needed.bn24 > before.bn24 || needed.n32 > before.n32;
        let mut fits = if grows { self.check_room(needed) } else { Ok(()) };
        if let Some(paper) = &mut self.paper {
            fits = fits.and_then(|()| paper.codes.count(changes));
        }
        self.made = fits.is_ok();
        if fits.is_err() {
            changes.iter().for_each(|change| self.count(&change.reversed()));
            return fits.map(|()| Due::Steps);
        }
        self.packed = OnceCell::new();
        changes.iter().for_each(|change| self.draw(change, routes));
        self.fold(changes);
        let fits = |chunks: &Chunks, capacity| chunks.high_water() as u64 <= capacity;
        let arrays = &self.arrays;
        if fits(&arrays.chunks24, self.capacity24)
            && fits(&arrays.chunks32, self.capacity32)
            && !self.overflowed
        {
            return Ok(Due::Steps);
        }
        self.rebuild().map(|()| Due::Image)
    }

    fn may_have_changed(&self) -> bool {
        self.made
    }

    /// Packs the chunks and drops dirty words: the device gets an image.
    fn rebuild(&mut self) -> Result<(), EngineError> {
        self.check_room(self.used())?;
        self.arrays.pack();
        self.make_room();
        self.packed = OnceCell::new();
        if let Some(paper) = &mut self.paper {
            paper.restart(&self.arrays);
        }
        self.dirty.clear();
        self.overflowed = false;
        self.imaged.set(false);
        self.given.rebuilds += 1;
        Ok(())
    }

    /// At most three steps: new chunks, which no lookup reaches, with entries that do not lead on; C24 of the paper's
    /// layout; then entries that lead lookups on. All words get their final value, so each single write moves a key from its
    /// old answer to its new one or not at all. An unlinked chunk keeps its words, and C24 keeps the entry that led there: a
    /// lookup that read the earlier 0 in BN24 finds the old chunk through it, or a newer answer.
    fn take_steps(&mut self, update: u64, _: &RibTable<u32>) -> Vec<UpdateStep> {
        self.settle();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        dirty.retain(|place| self.reached(*place));
        let map = self.map();
        let [mut first, mut c24, mut last] = [const { Vec::new() }; 3];
        for place in dirty.drain(..) {
            let leads_on = map.leads_on(place, Unit(self.arrays.word(place)));
            if leads_on { &mut last } else { &mut first }.push(map.word_of(place));
            let paper = self.paper.as_mut();
            c24.extend(
                paper.and_then(|paper| paper.follow(place, &self.arrays)).map(|at| map.word_of_c24(at)),
            );
        }
        self.dirty = dirty;
        for chunk in self.arrays.chunks24.publish(update) {
            if let Some(paper) = &mut self.paper {
                entries(chunk).for_each(|place| _ = paper.follow(place, &self.arrays));
            }
            first.extend(map.chunk_words(WordPlace::Bn24(chunk * CHUNK_STEP)));
        }
        for chunk in self.arrays.chunks32.publish(update) {
            first.extend(map.chunk_words(WordPlace::N32(chunk * CHUNK_STEP)));
        }
        if let Some(paper) = &mut self.paper {
            paper.codes.publish(update);
        }
        // Entries that share a word change together, in the last of their steps.
        [&mut first, &mut c24, &mut last].into_iter().for_each(|words| {
            words.sort_unstable();
            words.dedup();
        });
        first.retain(|at| last.binary_search(at).is_err());
        let write = |at: usize| {
            let value = map.value(at, &self.arrays, self.c24());
            Write { at: u32::try_from(at).unwrap_or(u32::MAX), value }
        };
        let steps = [first, c24, last].map(|words| words.into_iter().map(write).collect::<Vec<_>>());
        let steps: Vec<_> = steps.into_iter().filter(|writes| !writes.is_empty()).collect();
        self.given.writes += steps.iter().map(|writes| writes.len() as u64).sum::<u64>();
        self.given.steps += steps.len() as u64;
        steps.into_iter().map(UpdateStep::Writes).collect()
    }

    fn reclaim(&mut self, update: u64) {
        self.arrays.chunks24.reclaim(update);
        self.arrays.chunks32.reclaim(update);
        if let Some(paper) = &mut self.paper {
            paper.codes.reclaim(update);
        }
    }

    fn image(&self, _: &RibTable<u32>) -> Image<'_> {
        let map = self.map();
        let word = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut header = [0; HEADER_WORDS];
        [header[0], header[1]] = [map.n32, map.c24].map(word);
        let mut runs = match self.options.layout {
            _ if self.routes == 0 => Vec::new(),
            Layout::Flat => {
                let arrays = &self.arrays;
                vec![(0, &arrays.bcn[..]), (word(map.bn24), &arrays.bn24), (word(map.n32), &arrays.n32)]
            }
            Layout::Paper => {
                vec![(0, &self.packed.get_or_init(|| map.pack(&self.arrays, self.c24()))[..])]
            }
        };
        runs.retain(|(_, words)| !words.is_empty());
        self.imaged.set(true);
        Image { header, runs, words: map.words }
    }

    fn kernels(&self) -> KernelNames {
        let (frozen, live) = match self.options.layout {
            Layout::Flat => ("sail_lookup_v4_frozen", "sail_lookup_v4_live"),
            Layout::Paper => ("sail_lookup_v4_paper_frozen", "sail_lookup_v4_paper_live"),
        };
        KernelNames { module: "sail", frozen, live, ops: None }
    }

    fn answers(&self) -> Arc<dyn Answers<u32>> {
        match &self.paper {
            None => Arc::new(PlainAnswers),
            Some(paper) => paper.codes.shared(),
        }
    }

    fn next_hops_max(&self) -> u64 {
        if self.paper.is_some() { CODE_MAX as u64 } else { NextHopId::MAX.get().into() }
    }

    fn routes(&self) -> u64 {
        self.routes
    }

    fn host_bytes(&self) -> u64 {
        let counts = 4 * self.long16.capacity() + 9 * self.long24.capacity();
        let packed = 4 * self.packed.get().map_or(0, Vec::capacity) + 2 * self.c24().len();
        let codes = self.paper.as_ref().map_or(0, |paper| paper.codes.bytes());
        self.arrays.bytes() + (counts + packed) as u64 + codes
    }

    fn details(&self) -> Details {
        #[derive(Serialize)]
        struct SailFigures {
            chunks24: u32,
            chunks24_max: u64,
            chunks32: u32,
            chunks32_max: u64,
            chunks_waiting: usize,
            #[serde(flatten)]
            work: SailWork,
        }
        let (chunks24, chunks32) = (&self.arrays.chunks24, &self.arrays.chunks32);
        let figures = SailFigures {
            chunks24: chunks24.used(),
            chunks24_max: self.capacity24,
            chunks32: chunks32.used(),
            chunks32_max: self.capacity32,
            chunks_waiting: chunks24.waiting() + chunks32.waiting(),
            work: self.given,
        };
        Details::named(&figures, |name| format!("sail_{name}"))
    }
}
