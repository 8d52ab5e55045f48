//! SAIL_L's table on the host, and the words that the device has to write.

use super::BCN_WORDS;
use super::arrays::{SailArrays, WordPlace};
use crate::direct::{
    CHUNK_STEP, CHUNK_UNITS, Chunk, Chunks, Draw, PlainAnswers, Unit, check_words, parent, words_max,
};
use crate::host::{Answers, Due, HEADER_WORDS, HostTable, Image, KernelNames, Step, Write, reverse};
use fib::{Change, Details, EngineError, RibTable};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cell::Cell;
use std::sync::Arc;

/// Chunks of head room at least, of each array.
const CHUNKS_SPARE_MIN: u64 = 256;
/// Words to write, in percent of the table's, beyond which an image is less work: a write is two words on the wire.
const WRITES_MAX_PERCENT: usize = 25;
/// Words below which writes are never too many.
const WRITES_MIN: usize = 1 << 16;

/// How a SAIL_L table is made.
#[derive(Clone, Copy, Debug)]
pub struct SailOptions {
    /// Bytes of device memory that the table may take at most.
    pub table_bytes_max: u64,
    /// Chunks to keep free at a rebuild, in percent of those in use.
    pub headroom_percent: u32,
}

impl Default for SailOptions {
    fn default() -> Self {
        Self { table_bytes_max: 4 << 30, headroom_percent: 25 }
    }
}

/// Work that the device was given.
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
    /// Routes longer than 16 bits, by /16.
    long16: Vec<u32>,
    /// /16s with such routes.
    extended16: u64,
    /// Routes longer than 24 bits, by /24; none is 0.
    long24: FxHashMap<u32, u32>,
    /// Words that changed since the last steps, each at least once.
    dirty: Vec<WordPlace>,
    /// Whether more changed than `dirty` was worth keeping for.
    overflowed: bool,
    /// Chunks that the device's arrays have room for.
    capacity24: u64,
    capacity32: u64,
    /// Whether the device got an image with all that is dirty in it.
    imaged: Cell<bool>,
    /// Whether the changes of the last delta are made, and were not refused.
    made: bool,
    given: SailWork,
}

/// Chunks of both arrays.
#[derive(Clone, Copy)]
struct ChunkRoom {
    bn24: u64,
    n32: u64,
}

impl SailTable {
    /// A table without routes.
    ///
    /// # Errors
    /// [`EngineError::Full`] when not even BCN fits `options.table_bytes_max`.
    pub fn new(options: SailOptions) -> Result<Self, EngineError> {
        let mut table = Self {
            options,
            words_max: words_max(options.table_bytes_max),
            routes: 0,
            arrays: SailArrays::new(),
            long16: vec![0; BCN_WORDS],
            extended16: 0,
            long24: FxHashMap::default(),
            dirty: Vec::new(),
            overflowed: false,
            capacity24: 0,
            capacity32: 0,
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
        let words = BCN_WORDS as u64 + (room.bn24 + room.n32) * CHUNK_UNITS as u64;
        check_words(words, self.words_max)
    }

    /// Head room for both arrays, shared out if memory is short.
    fn make_room(&mut self) {
        let used = self.used();
        let percent = u64::from(self.options.headroom_percent);
        let fit = self.words_max.saturating_sub(BCN_WORDS as u64) / CHUNK_UNITS as u64;
        let left = fit.saturating_sub(used.bn24 + used.n32);
        let spare24 = (used.bn24 * percent / 100).max(CHUNKS_SPARE_MIN).min(BCN_WORDS as u64 - used.bn24);
        let spare32 = (used.n32 * percent / 100).max(CHUNKS_SPARE_MIN);
        let spare24 = if spare24 + spare32 > left { spare24.min(left / 2) } else { spare24 };
        self.capacity24 = used.bn24 + spare24;
        self.capacity32 = used.n32 + spare32.min(left - spare24);
    }

    /// Chunks that the routes need.
    fn needed(&self) -> ChunkRoom {
        ChunkRoom { bn24: self.extended16, n32: self.long24.len() as u64 }
    }

    /// Counts a route that comes or goes.
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

    /// Draws a change, over chunks made for it where it needs them.
    fn draw(&mut self, change: &Change<u32>, routes: &RibTable<u32>) {
        let Change { prefix, new, .. } = *change;
        let (len, address) = (prefix.len(), prefix.address());
        let draw = if new.is_none() {
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
        self.arrays.draw(prefix, draw, &mut self.dirty);
        if self.overflowed || self.dirty.len() > self.dirty_max() {
            self.overflowed = true;
            self.dirty.clear();
        }
    }

    /// Gives back the chunks that no route needs any more, now that those withdrawn by `changes` are drawn over.
    fn fold(&mut self, changes: &[Change<u32>]) {
        let withdrawn = |len| {
            let longer = move |change: &&Change<u32>| change.withdraws() && change.prefix.len() > len;
            changes.iter().filter(longer).map(|change| change.prefix.address())
        };
        // The chunks of N32 first, which those of BN24 lead to.
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

    fn limit(&mut self, most: usize) {
        self.words_max = words_max(self.options.table_bytes_max).min(most as u64);
    }

    /// Packs the chunks, and forgets what is dirty: the device gets an image.
    fn build(&mut self) -> Result<(), EngineError> {
        self.check_room(self.used())?;
        self.arrays.pack();
        self.make_room();
        self.dirty.clear();
        self.overflowed = false;
        self.imaged.set(false);
        self.given.rebuilds += 1;
        Ok(())
    }

    /// Changed words that steps are worth it for.
    fn dirty_max(&self) -> usize {
        let words = self.arrays.bn24.len() + self.arrays.n32.len();
        WRITES_MIN.max(words / 100 * WRITES_MAX_PERCENT)
    }

    /// Forgets what is dirty, if an image told the device of it.
    fn settle(&mut self) {
        if self.imaged.replace(false) {
            self.dirty.clear();
            self.overflowed = false;
            self.arrays.chunks24.adopt();
            self.arrays.chunks32.adopt();
        }
    }

    /// First words of BN24 and N32 on the device.
    fn bases(&self) -> (usize, usize) {
        let bn24 = usize::try_from(self.capacity24).unwrap_or(0).max(self.arrays.chunks24.high_water());
        (BCN_WORDS, BCN_WORDS + bn24 * CHUNK_UNITS)
    }

    fn write(&self, place: WordPlace) -> Write {
        let (bn24, n32) = self.bases();
        let at = match place {
            WordPlace::Bcn(at) => at as usize,
            WordPlace::Bn24(at) => bn24 + at as usize,
            WordPlace::N32(at) => n32 + at as usize,
        };
        Write { at: u32::try_from(at).unwrap_or(u32::MAX), value: self.arrays.word(place) }
    }

    /// Whether the word is one that lookups reach by now, and which leads to a chunk that they do not reach yet.
    fn leads_to_new(&self, place: WordPlace) -> bool {
        let Some(chunk) = Unit(self.arrays.word(place)).to_chunk() else { return false };
        let chunks =
            if matches!(place, WordPlace::Bcn(_)) { &self.arrays.chunks24 } else { &self.arrays.chunks32 };
        chunks.state(chunk) == Chunk::New
    }

    /// Whether lookups reach the chunk that the word lies in by now, and go on doing so.
    fn reached(&self, place: WordPlace) -> bool {
        match place {
            WordPlace::Bcn(_) => true,
            WordPlace::Bn24(_) => self.arrays.chunks24.state(place.chunk()) == Chunk::Live,
            WordPlace::N32(_) => self.arrays.chunks32.state(place.chunk()) == Chunk::Live,
        }
    }
}

impl HostTable<u32> for SailTable {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &RibTable<u32>,
        words_max: usize,
    ) -> Result<Due, EngineError> {
        self.settle();
        self.limit(words_max);
        let before = self.needed();
        changes.iter().for_each(|change| self.count(change));
        let needed = self.needed();
        if needed.bn24 + needed.n32 > before.bn24 + before.n32
            && let Err(error) = self.check_room(needed)
        {
            changes.iter().for_each(|change| self.count(&change.reversed()));
            self.made = false;
            return Err(error);
        }
        self.made = true;
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
        self.build()?;
        Ok(Due::Image)
    }

    fn take_back(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>) -> Result<Due, EngineError> {
        if self.made { reverse(self, changes, routes) } else { Ok(Due::Steps) }
    }

    fn rebuild(&mut self, words_max: usize) -> Result<(), EngineError> {
        self.limit(words_max);
        self.build()
    }

    /// Two steps at most: what no lookup can reach, the new chunks, beside the words that change from next hop to next
    /// hop; then the words that lead to new chunks.
    ///
    /// All words get the value they have after the last change, so the first step and each single write move a key from
    /// its old answer to its new one or not at all. A chunk that was unlinked keeps its words as they were.
    fn take_steps(&mut self, update: u64, _: &RibTable<u32>) -> Vec<Step> {
        self.settle();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        dirty.retain(|place| self.reached(*place));
        let (pointers, plain): (Vec<WordPlace>, Vec<WordPlace>) =
            dirty.iter().copied().partition(|place| self.leads_to_new(*place));
        let mut first: Vec<Write> = plain.into_iter().map(|place| self.write(place)).collect();
        let places = |chunk: u32| chunk * CHUNK_STEP..(chunk + 1) * CHUNK_STEP;
        for chunk in self.arrays.chunks24.publish(update) {
            first.extend(places(chunk).map(|at| self.write(WordPlace::Bn24(at))));
        }
        for chunk in self.arrays.chunks32.publish(update) {
            first.extend(places(chunk).map(|at| self.write(WordPlace::N32(at))));
        }
        let second: Vec<Write> = pointers.into_iter().map(|place| self.write(place)).collect();
        dirty.clear();
        self.dirty = dirty;
        let steps: Vec<Step> =
            [first, second].into_iter().filter(|writes| !writes.is_empty()).map(Step::Writes).collect();
        for step in &steps {
            if let Step::Writes(writes) = step {
                self.given.writes += writes.len() as u64;
            }
        }
        self.given.steps += steps.len() as u64;
        steps
    }

    fn reclaim(&mut self, update: u64) {
        self.arrays.chunks24.reclaim(update);
        self.arrays.chunks32.reclaim(update);
    }

    fn image(&self, _: &RibTable<u32>) -> Image<'_> {
        let (bn24, n32) = self.bases();
        let room32 = usize::try_from(self.capacity32).unwrap_or(0).max(self.arrays.chunks32.high_water());
        let word = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut header = [0; HEADER_WORDS];
        header[0] = word(n32);
        header[1] = word((n32 - bn24) / CHUNK_UNITS);
        header[2] = word(room32);
        let mut runs = Vec::new();
        if self.routes != 0 {
            runs.push((0, &self.arrays.bcn[..]));
            runs.push((word(bn24), &self.arrays.bn24[..]));
            runs.push((word(n32), &self.arrays.n32[..]));
            runs.retain(|(_, words)| !words.is_empty());
        }
        self.imaged.set(true);
        Image { header, runs, words: n32 + room32 * CHUNK_UNITS }
    }

    fn kernels(&self) -> KernelNames {
        KernelNames {
            module: "sail",
            frozen: "sail_lookup_v4_frozen",
            live: "sail_lookup_v4_live",
            ops: None,
        }
    }

    fn answers(&self) -> Arc<dyn Answers<u32>> {
        Arc::new(PlainAnswers)
    }

    fn routes(&self) -> u64 {
        self.routes
    }

    fn host_bytes(&self) -> u64 {
        let counts = 4 * self.long16.capacity() + 9 * self.long24.capacity();
        self.arrays.bytes() + counts as u64
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
