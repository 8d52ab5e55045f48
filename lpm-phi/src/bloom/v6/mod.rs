//! The writer of the IPv6 table. [`table`] is the part that lookups read, [`sizes`] plans its parts.

#![expect(
    clippy::cast_possible_truncation,
    reason = "halves of addresses are cut out on purpose; indices are bounded at build"
)]

mod sizes;
mod table;

use super::deep::Deep;
use super::filter::CountingFilter;
use super::params::BloomParams;
use super::update::{self, Grace, HASHED_HOPS, Store, hashed_next_hops};
use crate::cpe::expand::expansion;
use fib::{Change, Details, EngineError, NextHopId, Prefix6, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use lpm_core::hops::{HOPS_MAX, HopIndex};
use lpm_core::memory::Array;
use lpm_core::publish::Publish as _;
use rustc_hash::{FxHashMap, FxHashSet};
use sizes::{Sizes, groups_of};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use table::*;

#[derive(Debug)]
pub(crate) struct Writer6 {
    table: Arc<Table6>,
    groups: Vec<RangeInclusive<u8>>,
    /// The length of the prefix that owns each top entry without a chunk.
    top_owner: Vec<u8>,
    chunk_owner: Vec<u8>,
    chunks_used: u32,
    chunks_max: u32,
    filters: Vec<CountingFilter>,
    owner: Vec<u8>,
    entries: [u64; LEVELS],
    entries_max: [u64; LEVELS + 1],
    overflow: std::ops::Range<u32>,
    /// Entries below each chunk entry, by level (7: past /64).
    below: FxHashMap<(u32, u8), u32>,
    hops: HopIndex,
    unplaced: u64,
    grace: Grace,
}

impl Writer6 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sizes were bounded: fewer than 2^31 lines, 2^16 chunks"
    )]
    fn sized(sizes: &Sizes, params: &BloomParams) -> Result<Self, EngineError> {
        let place = params.common.placement;
        let mut levels = LevelTable { filter_hashes: sizes.filters[0].hashes, ..LevelTable::default() };
        let (mut filter_start, mut line_start) = (0, 0);
        let mut filters = Vec::new();
        for level in 0..=LEVELS {
            let words = sizes.filter_words(level);
            levels.filter_start[level] = filter_start as u32;
            levels.filter_words[level] = words as u32;
            if level < LEVELS {
                levels.key_mask[level] = rest(u64::MAX << (64 - sizes.levels[level]));
                levels.line_start[level] = line_start as u32;
                levels.lines[level] = sizes.lines[level] as u32;
                line_start += sizes.level_lines(level);
            } else {
                levels.key_mask[level] = rest(u64::MAX);
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
            hash: params.hash,
            deep: Deep::new(sizes.rooms[LEVELS]),
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
            hops: HopIndex::new(u16::MAX, HASHED_HOPS),
            unplaced: 0,
            grace: Grace::default(),
            table: Arc::new(table),
        })
    }

    fn group_of(&self, len: u8) -> usize {
        self.groups.iter().position(|lengths| lengths.contains(&len)).unwrap_or(self.groups.len() - 1)
    }

    /// The index among all chunk entries of the entry of `address`, whose chunk is created if needed.
    fn chunk_entry(&mut self, address: u128) -> usize {
        let low_bits = u32::from(self.table.direct_bits) - 16;
        let chunk = self.chunk(address);
        let within = (address >> (112 - low_bits)) as usize & ((1 << low_bits) - 1);
        ((chunk as usize) << low_bits) | within
    }

    fn chunk(&mut self, address: u128) -> u32 {
        let top = top_of(address);
        let word = self.table.top[top].load(Ordering::Relaxed);
        if word & CHUNK != 0 { word & HOP_MASK } else { self.make_chunk(top, word) }
    }

    /// Replaces a top entry by a chunk with the same answer.
    fn make_chunk(&mut self, top: usize, next_hop: u32) -> u32 {
        let low_bits = u32::from(self.table.direct_bits) - 16;
        let chunk = self.chunks_used;
        self.chunks_used += 1;
        let entries = (chunk as usize) << low_bits..(chunk as usize + 1) << low_bits;
        for entry in &self.table.chunks[entries.clone()] {
            entry.publish(next_hop);
        }
        self.chunk_owner[entries].fill(self.top_owner[top]);
        self.table.top[top].publish(CHUNK | chunk);
        chunk
    }

    fn count_below(&mut self, address: u128, level: u8, more: bool) {
        let at = self.chunk_entry(address);
        let entry = &self.table.chunks[at];
        let word = entry.load(Ordering::Relaxed);
        let bit = 1 << (MASK_SHIFT + u32::from(level));
        let below = self.below.entry((at as u32, level)).or_insert(0);
        if more {
            *below += 1;
            if *below == 1 {
                entry.publish(word | bit);
            }
        } else {
            *below -= 1;
            if *below == 0 {
                self.below.remove(&(at as u32, level));
                entry.publish(word & !bit);
            }
        }
    }

    /// Counts one more or one less route past /64: its /64 in the filter, then its flag in the chunk entry.
    fn count_deep(&mut self, prefix: Prefix6, more: bool) {
        let chunk = self.chunk(prefix.address());
        let hash = filter_hash(self.table.hash.hash_64(rest(high(prefix))), chunk);
        let table = Arc::clone(&self.table);
        if more {
            self.filters[LEVELS].insert(&table.filter, hash);
        } else {
            self.filters[LEVELS].remove(&table.filter, hash);
        }
        self.count_below(prefix.address(), LEVELS as u8, more);
    }

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

    /// An empty slot in `line`, in an overflow line linked from it, or in a new one; `None` when these have run out.
    fn free_slot(&mut self, table: &Table6, mut line: usize) -> Option<usize> {
        loop {
            let start = line * LINE_WORDS;
            let mut slots = start..start + LINE_SLOTS;
            if let Some(slot) = slots.find(|slot| table.lines[*slot].load(Ordering::Relaxed) == 0) {
                return Some(slot);
            }
            let link = &table.lines[start + LINE_SLOTS];
            line = match linked(link.load(Ordering::Relaxed)) {
                None => {
                    let fresh = self.overflow.next()?;
                    link.publish(link_to(fresh));
                    fresh as usize
                }
                Some(next) => next,
            };
        }
    }

    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.table) > 2 // the writer's reference and the caller's
    }
}

impl FibTable<u128> for Writer6 {
    type Params = BloomParams;
    type Shared = Table6;
    type Size = Sizes;

    fn size(
        routes: &[(Prefix6, NextHopId)],
        params: &BloomParams,
        budget: Budget,
    ) -> Result<Sizes, EngineError> {
        Sizes::for_routes(routes, params, budget)
    }

    fn size_bytes(size: &Sizes) -> u64 {
        size.bytes()
    }

    fn build(sizes: Sizes, mut routes: Routes<u128>, params: &BloomParams) -> Result<Self, EngineError> {
        let mut writer = Self::sized(&sizes, params)?;
        // Longest first: each entry is written once, by its owner.
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let deep = routes.partition_point(|(prefix, _)| prefix.len() > 64);
        writer.table.deep.load(&routes[..deep]);
        for (prefix, _) in &routes[..deep] {
            writer.count_deep(*prefix, true);
        }
        for (prefix, next_hop) in &routes[deep..] {
            writer.announce(writer.group_of(prefix.len()), *prefix, *next_hop);
        }
        writer.hops.check()?;
        if writer.unplaced > 0 {
            let used = sizes.overflow + writer.unplaced;
            let limit = sizes.overflow;
            return Err(EngineError::Full { what: "overflow lines of the IPv6 hash tables", used, limit });
        }
        Ok(writer)
    }

    fn shared(&self) -> &Arc<Table6> {
        &self.table
    }

    fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        let owners = self.top_owner.len() + self.chunk_owner.len() + self.owner.len();
        let below = self.below.capacity() * (size_of::<((u32, u8), u32)>() + 1);
        (owners + below) as u64 + self.filters.iter().map(CountingFilter::writer_bytes).sum::<u64>()
    }

    fn retired_bytes(&self) -> u64 {
        self.table.deep.retired_bytes()
    }

    fn free_retired(&mut self) {
        self.table.deep.free_retired();
    }

    fn details(&self) -> Details {
        let words: u64 = self.table.levels.filter_words.iter().map(|words| u64::from(*words)).sum();
        Details::from([
            ("v6_direct_bits", self.table.direct_bits.into()),
            ("v6_chunks", self.chunks_used.into()),
            ("v6_entries", self.entries.iter().sum::<u64>().into()),
            ("v6_filter_bits", (words * 32).into()),
            ("v6_filter_occupied", self.filters.iter().map(CountingFilter::occupied).sum::<usize>().into()),
            ("v6_overflow_lines_free", (self.overflow.end - self.overflow.start).into()),
            ("v6_deep_routes", self.table.deep.len().into()),
        ])
    }

    fn admits(&self, changes: &[Change<u128>], routes: &RibTable<u128>) -> bool {
        let mut new = [0_u64; LEVELS + 1];
        let mut deep = 0;
        let mut blocks = FxHashSet::default();
        for change in changes.iter().filter(|change| change.adds()) {
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
        let lengths_of = |len| {
            let group = self.group_of(len);
            (1..=LEVELS).contains(&group).then(|| self.groups[group].clone())
        };
        blocks.len() <= (self.chunks_max - self.chunks_used) as usize
            && total <= self.overflow.len() as u64
            && (deep == 0 || self.table.deep.len() + deep <= self.entries_max[LEVELS])
            && levels.into_iter().all(|((used, max), new)| *new == 0 || used.saturating_add(*new) <= *max)
            && self.hops.fits(changes.len(), hashed_next_hops(routes, changes, lengths_of))
    }

    fn owes_grace(&self) -> bool {
        self.hops.has_limbo()
    }

    fn grace_over(&mut self) {
        self.hops.end_grace();
        self.grace.ended();
    }

    fn update(&mut self, changes: &[Change<u128>], routes: &RibTable<u128>, synchronize: &dyn Fn()) {
        let mut grace = std::mem::take(&mut self.grace);
        update::apply(self, routes, changes, &mut grace, synchronize);
        self.grace = grace;
    }
}

impl Store<u128> for Writer6 {
    type Place = Option<usize>;

    fn groups(&self) -> &[RangeInclusive<u8>] {
        &self.groups
    }

    fn set_direct(&mut self, prefix: Prefix6, from: RangeInclusive<u8>, (len, next_hop): (u8, NextHopId)) {
        self.for_direct(prefix, |entry, owner| {
            if from.contains(owner) {
                *owner = len;
                let word = entry.load(Ordering::Relaxed);
                entry.publish(word & !HOP_MASK | next_hop.get());
            }
        });
    }

    fn find(&self, group: usize, entry: Prefix6) -> (Option<usize>, Option<u8>) {
        let hi = high(entry);
        let place = self.table.chunk(hi).and_then(|chunk| self.table.find(group - 1, rest(hi), chunk));
        (place, place.map(|at| self.owner[at]))
    }

    fn set(
        &mut self,
        group: usize,
        entry: Prefix6,
        place: Option<usize>,
        (len, next_hop): (u8, NextHopId),
    ) -> bool {
        let (level, hi) = (group - 1, high(entry));
        let table = Arc::clone(&self.table);
        let Some(index) = self.hops.acquire(&table.hop_ids, next_hop) else {
            debug_assert!(!self.is_shared(), "admits() counts the next hops");
            return false;
        };
        let slot = rest(hi) | u64::from(index);
        if let Some(at) = place {
            let old = table.lines[at].load(Ordering::Relaxed);
            self.owner[at] = len;
            table.lines[at].publish(slot);
            self.hops.release(index_of(old));
            return false;
        }
        let (chunk, hash) = (self.chunk(entry.address()), table.hash.hash_64(rest(hi)));
        let Some(at) = self.free_slot(&table, table.line(level, hash, chunk)) else {
            self.unplaced += 1;
            self.hops.release(index);
            return false;
        };
        self.owner[at] = len;
        table.lines[at].publish(slot);
        self.entries[level] += 1;
        self.filters[level].insert(&table.filter, filter_hash(hash, chunk));
        self.count_below(entry.address(), level as u8, true);
        true
    }

    fn remove(&mut self, group: usize, entry: Prefix6) {
        let (level, hi) = (group - 1, high(entry));
        let table = Arc::clone(&self.table);
        let Some(chunk) = table.chunk(hi) else { return };
        let Some(at) = table.find(level, rest(hi), chunk) else { return };
        let old = table.lines[at].load(Ordering::Relaxed);
        table.lines[at].publish(0);
        self.owner[at] = 0;
        self.hops.release(index_of(old));
        self.entries[level] -= 1;
        self.filters[level].remove(&table.filter, filter_hash(table.hash.hash_64(rest(hi)), chunk));
        self.count_below(entry.address(), level as u8, false);
    }

    fn is_deep(&self, group: usize) -> bool {
        group > LEVELS
    }

    /// A route is added before its flag is set, and removed before its flag is cleared.
    fn set_deep(&mut self, prefix: Prefix6, next_hop: NextHopId) -> bool {
        let has_changed = self.table.deep.set(prefix, next_hop);
        if has_changed {
            self.count_deep(prefix, !next_hop.is_none());
        }
        has_changed
    }
}

const fn index_of(slot: u64) -> u16 {
    (slot & INDEX_MASK) as u16
}

const fn top_of(address: u128) -> usize {
    (address >> 112) as usize
}

const fn high(prefix: Prefix6) -> u64 {
    (prefix.address() >> 64) as u64
}
