//! The IPv6 table of Bloomfwd (section 4.2): expansion levels, each a counting Bloom filter with its hash table, below a
//! direct part; prefixes past /64 in a table of their own ([`super::deep`]).
//!
//! The direct part has two steps, 16 bits and then 4 to 16 more (as many as its memory allows), and each of its entries
//! carries a mask of the levels that hold anything below it. A lookup asks only those, deepest first, each key at its own
//! level; uniform random addresses never leave the direct part.
//!
//! ```text
//! top entry      31 a chunk follows | 0..24 its number;   or   0..24 next-hop id
//! chunk entry    24..32 levels below: bit i = level i, bit 7 = past /64 | 0..24 next-hop id
//! line           6 keys of 64 bits | 6 next-hop indices of 16 bits (0: empty) | number of an overflow line or 0
//! ```

use super::deep::Deep;
use super::filter::CountingFilter;
use super::hash::{murmur64, scale};
use super::hops::{HOPS_MAX, HopIndex};
use super::params::{FilterSize, Params};
use super::update::{Routes, Store, expanded_entries, expansion};
use crate::memory::Array;
use fib::{Change, EngineError, NextHopId, Prefix, Prefix6};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Hashed levels; bit [`DEEP_BIT`] of a chunk entry's mask stands for prefixes past /64.
pub(crate) const LEVELS: usize = 7;
/// The mask bit of prefixes past /64.
pub(crate) const DEEP_BIT: u32 = 1 << 7;
/// Top entry: a chunk follows.
pub(crate) const CHUNK: u32 = 1 << 31;
/// The next-hop id, or a chunk's number.
pub(crate) const HOP_MASK: u32 = (1 << 24) - 1;
/// The first bit of a chunk entry's level mask.
pub(crate) const MASK_SHIFT: u32 = 24;

/// 64-bit words of a line, and its slots.
pub(crate) const LINE_WORDS: usize = 8;
pub(crate) const LINE_SLOTS: usize = 6;
/// Entries a line is sized for: 3.6 of 6.
const LINE_FILL_TENTHS: u64 = 36;
/// Bytes that chunks may take before the direct part is made narrower.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Chunks to spare, so that a new first-16-bits block does not rebuild the table.
const CHUNKS_SPARE: u64 = 8;

/// For each width of the direct part: its bits, and the longest length of each level below it.
const SHAPES: [(u8, [u8; LEVELS]); 4] = [
    (32, [36, 40, 44, 48, 52, 56, 64]),
    (28, [32, 36, 40, 44, 48, 56, 64]),
    (24, [28, 32, 36, 40, 48, 56, 64]),
    (20, [24, 28, 32, 40, 48, 56, 64]),
];

/// What lookups of IPv6 read.
#[derive(Debug)]
pub(crate) struct Table6 {
    /// 2^16 top entries.
    pub(crate) top: Array<AtomicU32>,
    /// Chunks of 2^(direct_bits - 16) entries.
    pub(crate) chunks: Array<AtomicU32>,
    /// Bits answered by the direct part: 20, 24, 28 or 32.
    pub(crate) direct_bits: u8,
    /// Next-hop ids by the index that slots hold.
    pub(crate) hop_ids: Array<AtomicU32>,
    /// The filters of all levels, one after the other.
    pub(crate) filter: Array<AtomicU32>,
    /// The lines of all levels, one level after the other, then overflow lines.
    pub(crate) lines: Array<AtomicU64>,
    /// What a kernel must know of each level; the last is that of routes past /64, which has a filter and no lines.
    pub(crate) levels: LevelTable,
    /// Prefixes past /64.
    pub(crate) deep: Deep,
}

/// The levels as arrays, indexed by level, routes past /64 last: a vector kernel loads each array into one register.
#[derive(Debug, Default)]
pub(crate) struct LevelTable {
    /// The bits of the first 64 that are the level's key.
    pub(crate) key_mask: [u64; 8],
    /// First filter word.
    pub(crate) filter_start: [u64; 8],
    /// Filter words.
    pub(crate) filter_words: [u64; 8],
    /// First line.
    pub(crate) line_start: [u64; 8],
    /// Lines that hashes map to.
    pub(crate) lines: [u64; 8],
    /// Bits that a key sets in a filter, the same for all levels.
    pub(crate) filter_hashes: u32,
}

impl Table6 {
    pub(crate) fn bytes(&self) -> u64 {
        let arrays = self.top.bytes() + self.chunks.bytes() + self.hop_ids.bytes();
        arrays + self.filter.bytes() + self.lines.bytes() + self.deep.bytes()
    }

    /// The first line of `level` for a key of this hash.
    pub(crate) const fn line(&self, level: usize, hash: u64) -> usize {
        let (start, lines) = (self.levels.line_start[level], self.levels.lines[level]);
        (start + ((hash >> 32) * lines >> 32)) as usize
    }

    /// The slot of `key` of `level`: its line and its number within it. Empty slots are found too if they hold the key.
    fn find(&self, level: usize, key: u64, live: bool) -> Option<(usize, usize)> {
        let mut line = self.line(level, murmur64(key));
        loop {
            let words = &self.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            let hit = (0..LINE_SLOTS).find(|slot| {
                words[*slot].load(Ordering::Relaxed) == key && (index_at(words, *slot) != 0) == live
            });
            if let Some(slot) = hit {
                return Some((line, slot));
            }
            match link_of(words) {
                0 => return None,
                next => line = next as usize,
            }
        }
    }
}

/// The next-hop index of `slot` of a line; 0 means the slot is empty.
#[inline]
pub(crate) fn index_at(words: &[AtomicU64], slot: usize) -> u16 {
    let word = words[LINE_SLOTS + slot / 4].load(Ordering::Acquire);
    (word >> (slot % 4 * 16)) as u16
}

/// The overflow line behind a line, or 0.
#[inline]
pub(crate) fn link_of(words: &[AtomicU64]) -> u32 {
    (words[LINE_WORDS - 1].load(Ordering::Acquire) >> 32) as u32
}

fn set_index(words: &[AtomicU64], slot: usize, index: u16) {
    let word = &words[LINE_SLOTS + slot / 4];
    let shift = slot % 4 * 16;
    let old = word.load(Ordering::Relaxed);
    word.store(old & !(0xffff << shift) | u64::from(index) << shift, Ordering::Release);
}

/// The writer's side of the IPv6 table.
#[derive(Debug)]
pub(crate) struct Writer6 {
    table: Arc<Table6>,
    groups: Vec<RangeInclusive<u8>>,
    /// The length of the prefix that owns each top entry without a chunk, and each chunk entry.
    top_owner: Vec<u8>,
    chunk_owner: Vec<u8>,
    chunks_used: u32,
    chunks_max: u32,
    filters: Vec<CountingFilter>,
    /// The length of the prefix that owns each slot, 8 a line.
    owner: Vec<u8>,
    entries: [u64; LEVELS],
    entries_max: [u64; LEVELS + 1],
    overflow: std::ops::Range<u32>,
    /// Entries below each chunk entry, by level (7: past /64).
    below: FxHashMap<(u32, u8), u32>,
    hops: HopIndex,
    /// Slots were emptied since the last grace period: their keys may not be replaced yet.
    slots_in_limbo: bool,
    unplaced: u64,
}

/// How large the parts are made.
struct Sizes {
    direct_bits: u8,
    levels: [u8; LEVELS],
    chunks: u64,
    /// Entries of each level, and last the routes past /64, with room to grow.
    rooms: [u64; LEVELS + 1],
    filters: [FilterSize; LEVELS + 1],
    lines: [u64; LEVELS],
    overflow: u64,
}

impl Sizes {
    fn of(sorted: &[(Prefix6, NextHopId)], params: &Params) -> Result<Self, EngineError> {
        let (direct_bits, levels, chunks) = shape(sorted);
        let groups = groups_of(direct_bits, &levels);
        let rooms: [u64; LEVELS + 1] = std::array::from_fn(|level| {
            let entries = match level {
                LEVELS => sorted.iter().filter(|(prefix, _)| prefix.len() > 64).count() as u64,
                _ => expanded_entries(sorted, &groups[level + 1]),
            };
            entries.saturating_add(entries / 10 + 256)
        });
        let filters = rooms.map(|room| FilterSize::of(room, params.fpr));
        let lines = std::array::from_fn(|level| rooms[level].saturating_mul(10) / LINE_FILL_TENTHS + 1);
        let primary = lines.iter().fold(0_u64, |sum, lines| sum.saturating_add(*lines));
        let sizes = Self { direct_bits, levels, chunks, rooms, filters, lines, overflow: primary / 4 + 1024 };
        let bytes = sizes.bytes();
        if bytes > params.table_bytes_max || primary > 1 << 30 {
            return Err(EngineError::Full {
                what: "IPv6 table bytes",
                used: bytes,
                limit: params.table_bytes_max,
            });
        }
        Ok(sizes)
    }

    fn chunk_entries(&self) -> u64 {
        1 << (self.direct_bits - 16)
    }

    fn filter_words(&self, level: usize) -> u64 {
        self.filters[level].bits.div_ceil(32)
    }

    fn bytes(&self) -> u64 {
        let lines = self.lines.iter().fold(self.overflow, |sum, lines| sum.saturating_add(*lines));
        let filters: u64 = (0..=LEVELS).map(|level| self.filter_words(level)).fold(0, u64::saturating_add);
        (4 << 16)
            + (HOPS_MAX as u64 + 1) * 4
            + self.chunks * self.chunk_entries() * 4
            + lines.saturating_mul(64).saturating_add(filters.saturating_mul(4))
    }
}

/// The widest direct part whose chunks stay within [`CHUNK_BYTES_MAX`].
fn shape(sorted: &[(Prefix6, NextHopId)]) -> (u8, [u8; LEVELS], u64) {
    let mut blocks = 0_u64;
    let mut last = None;
    for (prefix, _) in sorted.iter().filter(|(prefix, _)| prefix.len() > 16) {
        let block = prefix.address() >> 112;
        if last != Some(block) {
            blocks += 1;
            last = Some(block);
        }
    }
    let chunks = (blocks + blocks / 4 + CHUNKS_SPARE).min(1 << 16);
    let fits = |bits: u8| (chunks << (bits - 16)) * 4 <= CHUNK_BYTES_MAX;
    let (bits, levels) = SHAPES.into_iter().find(|(bits, _)| fits(*bits)).unwrap_or(SHAPES[3]);
    (bits, levels, chunks)
}

fn groups_of(direct_bits: u8, levels: &[u8; LEVELS]) -> Vec<RangeInclusive<u8>> {
    let mut groups = vec![0..=direct_bits];
    let mut from = direct_bits + 1;
    for to in levels {
        groups.push(from..=*to);
        from = to + 1;
    }
    groups.push(65..=128);
    groups
}

impl Writer6 {
    /// A table of `routes`, not yet seen by any reader.
    pub(crate) fn build(routes: &Routes<u128>, params: &Params) -> Result<Self, EngineError> {
        let mut sorted: Vec<(Prefix6, NextHopId)> = routes.iter().map(|(p, n)| (*p, *n)).collect();
        sorted.sort_unstable();
        let sizes = Sizes::of(&sorted, params)?;
        let mut writer = Self::sized(&sizes, params)?;
        let hashed = sorted.iter().filter(|(prefix, _)| (sizes.direct_bits + 1..=64).contains(&prefix.len()));
        writer.hops.fits(hashed.map(|(_, next_hop)| *next_hop))?;
        sorted.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let deep = sorted.partition_point(|(prefix, _)| prefix.len() > 64);
        writer.table.deep.load(&sorted[..deep]);
        for (prefix, _) in &sorted[..deep] {
            writer.count_deep(*prefix, true);
        }
        for (prefix, next_hop) in &sorted[deep..] {
            writer.announce(writer.group_of(prefix.len()), *prefix, *next_hop);
        }
        if writer.unplaced > 0 {
            let used = sizes.overflow + writer.unplaced;
            let limit = sizes.overflow;
            return Err(EngineError::Full { what: "overflow lines of the IPv6 hash tables", used, limit });
        }
        Ok(writer)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "sizes were bounded: fewer than 2^31 lines, 2^16 chunks"
    )]
    fn sized(sizes: &Sizes, params: &Params) -> Result<Self, EngineError> {
        let place = params.placement;
        let mut levels = LevelTable { filter_hashes: sizes.filters[0].hashes, ..LevelTable::default() };
        let (mut filter_start, mut line_start) = (0, 0);
        let mut filters = Vec::new();
        for level in 0..=LEVELS {
            let words = sizes.filter_words(level);
            levels.filter_start[level] = filter_start;
            levels.filter_words[level] = words;
            if level < LEVELS {
                levels.key_mask[level] = u64::MAX << (64 - sizes.levels[level]);
                levels.line_start[level] = line_start;
                levels.lines[level] = sizes.lines[level];
                line_start += sizes.lines[level];
            } else {
                levels.key_mask[level] = u64::MAX;
            }
            filters.push(CountingFilter::new(
                filter_start as u32..(filter_start + words) as u32,
                sizes.filters[level].hashes,
            ));
            filter_start += words;
        }
        let lines = line_start + sizes.overflow;
        let chunk_entries = (sizes.chunks * sizes.chunk_entries()) as usize;
        let table = Table6 {
            top: Array::zeroed(1 << 16, place)?,
            chunks: Array::zeroed(chunk_entries, place)?,
            direct_bits: sizes.direct_bits,
            hop_ids: Array::zeroed(HOPS_MAX + 1, place)?,
            filter: Array::zeroed(filter_start as usize, place)?,
            lines: Array::zeroed(lines as usize * LINE_WORDS, place)?,
            levels,
            deep: Deep::new(),
        };
        Ok(Self {
            groups: groups_of(sizes.direct_bits, &sizes.levels),
            top_owner: vec![0; 1 << 16],
            chunk_owner: vec![0; chunk_entries],
            chunks_used: 0,
            chunks_max: sizes.chunks as u32,
            filters,
            owner: vec![0; lines as usize * LINE_WORDS],
            entries: [0; LEVELS],
            entries_max: sizes.rooms,
            overflow: line_start as u32..lines as u32,
            below: FxHashMap::default(),
            hops: HopIndex::new(),
            slots_in_limbo: false,
            unplaced: 0,
            table: Arc::new(table),
        })
    }

    pub(crate) const fn table(&self) -> &Arc<Table6> {
        &self.table
    }

    pub(crate) fn has_limbo(&self) -> bool {
        self.slots_in_limbo || self.hops.has_limbo()
    }

    pub(crate) fn end_grace(&mut self) {
        self.slots_in_limbo = false;
        self.hops.end_grace();
    }

    /// Whether `changes` fit in place; `added` of them are prefixes that are not in the table.
    pub(crate) fn admits<'a>(
        &self,
        changes: &[Change<u128>],
        added: impl Iterator<Item = &'a Change<u128>>,
    ) -> bool {
        let mut new = [0_u64; LEVELS + 1];
        let mut deep = 0;
        let mut blocks = FxHashSet::default();
        for change in added {
            let group = self.group_of(change.prefix.len());
            if self.is_deep(group) {
                deep += 1;
            } else if group > 0 {
                new[group] = new[group].saturating_add(expansion(change.prefix, &self.groups[group]));
            }
            let top = top_of(change.prefix.address());
            if change.prefix.len() > 16 && self.table.top[top].load(Ordering::Relaxed) & CHUNK == 0 {
                blocks.insert(top);
            }
        }
        let total = new.iter().fold(0, |sum: u64, new| sum.saturating_add(*new));
        let levels = self.entries.iter().zip(&self.entries_max).zip(&new[1..]);
        let hashed = |change: &&Change<u128>| {
            (1..=LEVELS).contains(&self.group_of(change.prefix.len())) && !change.next_hop.is_none()
        };
        blocks.len() <= (self.chunks_max - self.chunks_used) as usize
            && total <= self.overflow.len() as u64
            && (deep == 0 || self.table.deep.len() + deep <= self.entries_max[LEVELS])
            && levels.into_iter().all(|((used, max), new)| *new == 0 || used.saturating_add(*new) <= *max)
            && self.hops.fits(changes.iter().filter(hashed).map(|change| change.next_hop)).is_ok()
    }

    pub(crate) fn writer_bytes(&self) -> u64 {
        let owners = self.top_owner.len() + self.chunk_owner.len() + self.owner.len();
        let below = self.below.capacity() * (size_of::<((u32, u8), u32)>() + 1);
        (owners + below) as u64 + self.filters.iter().map(CountingFilter::writer_bytes).sum::<u64>()
    }

    pub(crate) fn details(&self) -> Vec<(&'static str, f64)> {
        let occupied: usize = self.filters.iter().map(CountingFilter::occupied).sum();
        let words: u64 = self.table.levels.filter_words.iter().sum();
        vec![
            ("v6_direct_bits", f64::from(self.table.direct_bits)),
            ("v6_chunks", f64::from(self.chunks_used)),
            ("v6_entries", count(self.entries.iter().sum())),
            ("v6_filter_bits", count(words * 32)),
            ("v6_filter_occupied", count(occupied as u64)),
            ("v6_overflow_lines_free", f64::from(self.overflow.end - self.overflow.start)),
            ("v6_deep_routes", count(self.table.deep.len())),
        ]
    }

    fn group_of(&self, len: u8) -> usize {
        self.groups.iter().position(|lengths| lengths.contains(&len)).unwrap_or(self.groups.len() - 1)
    }

    /// The index of the chunk entry of `address` within all chunks, with a chunk made for it if there is none.
    fn chunk_entry(&mut self, address: u128) -> usize {
        let low_bits = u32::from(self.table.direct_bits) - 16;
        let top = top_of(address);
        let word = self.table.top[top].load(Ordering::Relaxed);
        let chunk = if word & CHUNK != 0 { word & HOP_MASK } else { self.make_chunk(top, word) };
        let within = (address >> (112 - low_bits)) as usize & ((1 << low_bits) - 1);
        ((chunk as usize) << low_bits) | within
    }

    /// Replaces a top entry by a chunk that answers the same.
    fn make_chunk(&mut self, top: usize, next_hop: u32) -> u32 {
        let low_bits = u32::from(self.table.direct_bits) - 16;
        let chunk = self.chunks_used;
        self.chunks_used += 1;
        let entries = (chunk as usize) << low_bits..(chunk as usize + 1) << low_bits;
        for entry in &self.table.chunks[entries.clone()] {
            entry.store(next_hop, Ordering::Relaxed);
        }
        self.chunk_owner[entries].fill(self.top_owner[top]);
        self.table.top[top].store(CHUNK | chunk, Ordering::Release);
        chunk
    }

    /// One entry more or less of `level` below the chunk entry of `address`.
    #[expect(clippy::cast_possible_truncation, reason = "2^16 chunks of 2^16 entries at most")]
    fn count_below(&mut self, address: u128, level: u8, more: bool) {
        let at = self.chunk_entry(address);
        let entry = &self.table.chunks[at];
        let word = entry.load(Ordering::Relaxed);
        let bit = 1 << (MASK_SHIFT + u32::from(level));
        let below = self.below.entry((at as u32, level)).or_insert(0);
        if more {
            *below += 1;
            if *below == 1 {
                entry.store(word | bit, Ordering::Release);
            }
        } else {
            *below -= 1;
            if *below == 0 {
                self.below.remove(&(at as u32, level));
                entry.store(word & !bit, Ordering::Release);
            }
        }
    }

    /// One route past /64 more or less: its /64 in the filter, then its mark in the chunk entry.
    fn count_deep(&mut self, prefix: Prefix6, more: bool) {
        let hash = filter_hash(murmur64((prefix.address() >> 64) as u64));
        let table = Arc::clone(&self.table);
        if more {
            self.filters[LEVELS].insert(&table.filter, hash);
        } else {
            self.filters[LEVELS].remove(&table.filter, hash);
        }
        self.count_below(prefix.address(), LEVELS as u8, more);
    }

    /// Calls `change` with each direct entry that `prefix` covers: the entry and its owner's length.
    fn for_direct(&mut self, prefix: Prefix6, mut change: impl FnMut(&AtomicU32, &mut u8)) {
        let low_bits = u32::from(self.table.direct_bits) - 16;
        if prefix.len() > 16 {
            let first = self.chunk_entry(prefix.address());
            let count = 1_usize << (self.table.direct_bits - prefix.len());
            for at in first..first + count {
                change(&self.table.chunks[at], &mut self.chunk_owner[at]);
            }
            return;
        }
        for top in top_of(prefix.address())..=top_of(prefix.last_address()) {
            let word = self.table.top[top].load(Ordering::Relaxed);
            if word & CHUNK == 0 {
                change(&self.table.top[top], &mut self.top_owner[top]);
                continue;
            }
            let chunk = (word & HOP_MASK) as usize;
            for at in chunk << low_bits..(chunk + 1) << low_bits {
                change(&self.table.chunks[at], &mut self.chunk_owner[at]);
            }
        }
    }

    fn set_entry(&mut self, group: usize, key: u64, next_hop: NextHopId, len: u8) {
        let level = group - 1;
        let table = Arc::clone(&self.table);
        let index = self.hops.take(&table.hop_ids, next_hop);
        if let Some((line, slot)) = table.find(level, key, true) {
            let words = &table.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            self.hops.release(index_at(words, slot));
            self.owner[line * LINE_WORDS + slot] = len;
            set_index(words, slot, index);
            return;
        }
        let Some((line, slot)) = self.free_slot(&table, level, key) else {
            self.unplaced += 1;
            self.hops.release(index);
            return;
        };
        let words = &table.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
        words[slot].store(key, Ordering::Release);
        self.owner[line * LINE_WORDS + slot] = len;
        set_index(words, slot, index);
        self.entries[level] += 1;
        self.filters[level].insert(&table.filter, filter_hash(murmur64(key)));
        self.count_below(u128::from(key) << 64, level as u8, true);
    }

    /// An empty slot for `key`: one that held the same key before, else any in its lines, else one in a new overflow line.
    fn free_slot(&mut self, table: &Table6, level: usize, key: u64) -> Option<(usize, usize)> {
        if let Some(place) = table.find(level, key, false) {
            return Some(place);
        }
        let mut line = table.line(level, murmur64(key));
        loop {
            let words = &table.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            if let Some(slot) = (0..LINE_SLOTS).find(|slot| index_at(words, *slot) == 0) {
                return Some((line, slot));
            }
            line = match link_of(words) {
                0 => {
                    let fresh = self.overflow.next()?;
                    let last = &words[LINE_WORDS - 1];
                    let old = last.load(Ordering::Relaxed);
                    last.store(old & 0xffff_ffff | u64::from(fresh) << 32, Ordering::Release);
                    fresh as usize
                }
                next => next as usize,
            };
        }
    }

    fn owner_of(&self, group: usize, key: u64) -> Option<u8> {
        let (line, slot) = self.table.find(group - 1, key, true)?;
        Some(self.owner[line * LINE_WORDS + slot])
    }

    const fn is_deep(&self, group: usize) -> bool {
        group > LEVELS
    }
}

impl Store<u128> for Writer6 {
    fn groups(&self) -> &[RangeInclusive<u8>] {
        &self.groups
    }

    fn announce(&mut self, group: usize, prefix: Prefix6, next_hop: NextHopId) {
        let len = prefix.len();
        if group == 0 {
            self.for_direct(prefix, |entry, owner| {
                if *owner <= len {
                    *owner = len;
                    let word = entry.load(Ordering::Relaxed);
                    entry.store(word & !HOP_MASK | next_hop.get(), Ordering::Release);
                }
            });
        } else if self.is_deep(group) {
            if self.table.deep.set(prefix, next_hop) {
                self.count_deep(prefix, true);
            }
        } else {
            for key in entries(prefix, *self.groups[group].end()) {
                if self.owner_of(group, key).is_none_or(|owner| owner <= len) {
                    self.set_entry(group, key, next_hop, len);
                }
            }
        }
    }

    fn withdraw(
        &mut self,
        group: usize,
        prefix: Prefix6,
        heir: Option<(u8, NextHopId)>,
        deletions: &mut Vec<Prefix6>,
    ) {
        let len = prefix.len();
        if group == 0 {
            let (heir_len, next_hop) = heir.unwrap_or((0, NextHopId::NONE));
            self.for_direct(prefix, |entry, owner| {
                if *owner == len {
                    *owner = heir_len;
                    let word = entry.load(Ordering::Relaxed);
                    entry.store(word & !HOP_MASK | next_hop.get(), Ordering::Release);
                }
            });
        } else if self.is_deep(group) {
            deletions.push(prefix);
        } else {
            let to = *self.groups[group].end();
            for key in entries(prefix, to) {
                if self.owner_of(group, key) == Some(len) {
                    match heir {
                        Some((heir_len, next_hop)) => self.set_entry(group, key, next_hop, heir_len),
                        None => deletions.push(Prefix::truncating(u128::from(key) << 64, to)),
                    }
                }
            }
        }
    }

    fn delete(&mut self, group: usize, entry: Prefix6) {
        if self.is_deep(group) {
            if self.table.deep.remove(entry) {
                self.count_deep(entry, false);
            }
            return;
        }
        let level = group - 1;
        let key = (entry.address() >> 64) as u64;
        let table = Arc::clone(&self.table);
        let Some((line, slot)) = table.find(level, key, true) else { return };
        let words = &table.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
        self.hops.release(index_at(words, slot));
        set_index(words, slot, 0);
        self.slots_in_limbo = true;
        self.entries[level] -= 1;
        self.filters[level].remove(&table.filter, filter_hash(murmur64(key)));
        self.count_below(entry.address(), level as u8, false);
    }
}

/// The 32 bits of a key's hash that its filter uses: word from the high half, bits from the low ones.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "two disjoint parts of the hash")]
pub(crate) const fn filter_hash(hash: u64) -> u32 {
    (hash >> 32) as u32
}

const fn top_of(address: u128) -> usize {
    (address >> 112) as usize
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
const fn count(n: u64) -> f64 {
    n as f64
}

/// The first 64 bits of the entries of length `to`, at most 64, that `prefix` covers.
fn entries(prefix: Prefix6, to: u8) -> impl Iterator<Item = u64> {
    let step = 64 - u32::from(to);
    let high = |address: u128| (address >> 64) as u64;
    (high(prefix.address()) >> step..=high(prefix.last_address()) >> step).map(move |entry| entry << step)
}

/// The filter word of a key of `level`, and the first word of the level's filter.
pub(crate) const fn filter_word(levels: &LevelTable, level: usize, hash: u64) -> usize {
    let words = levels.filter_words[level] as u32;
    levels.filter_start[level] as usize + scale(filter_hash(hash), words) as usize
}
