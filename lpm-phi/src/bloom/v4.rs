//! The IPv4 table of Bloomfwd (sections 3.2 and 4.2): a direct lookup array of 2^20 next hops, and the groups G1 (/21-/24 expanded to /24)
//! and G2 (/25-/32 expanded to /32), each a counting Bloom filter with its hash table. Beyond the paper, an entry of the direct array has
//! flags for entries of G1 and G2 below it, so that a key without any never reads a filter; a bucket is one cache line.
//!
//! ```text
//! direct entry   31 G1 below | 30 G2 below | 29 G1 is dense here: skip its filter | 24..29 zero | 0..24 next-hop id
//! line           15 slots of (16 bits of hash, 16 bits of next-hop index), then a link: number of an overflow line << 16, or 0
//! ```
//! A slot identifies its key: the high bits of a bijective hash select the line, and with at least 2^16 lines the low 16 bits are the
//! only ones that the line does not determine.

use super::equations::FilterSize;
use super::filter::CountingFilter;
use super::hash::{Hash32, scale};
use super::params::BloomParams;
use super::update::{self, Grace, HASHED_HOPS, Store, hashed_next_hops};
use crate::cpe::expand::{expanded_entries, expansion};
use fib::{Change, Details, EngineError, NextHopId, Prefix4, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use lpm_core::hops::{HOPS_MAX, HopIndex};
use lpm_core::memory::{Array, Placement};
use lpm_core::publish::Publish as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const DIRECT_BITS: u32 = 20;
pub(crate) const G1_BELOW: u32 = 1 << 31;
pub(crate) const G2_BELOW: u32 = 1 << 30;
/// Direct entry: G1 has so high a share of the /24s below that its filter does not pay.
pub(crate) const G1_DENSE: u32 = 1 << 29;
pub(crate) const HOP_MASK: u32 = (1 << 24) - 1;

/// A line has its slots, then the word that links to an overflow line.
pub(crate) const LINE_WORDS: usize = 16;
pub(crate) const LINE_SLOTS: usize = 15;
/// With fewer lines, 16 bits of hash would not identify a key.
const LINES_MIN: u32 = 1 << 16;
/// Entries a line is sized for: 10 of 15 keep overflow below 1 % of the keys (Poisson).
const LINE_FILL: u64 = 10;
/// Entries a line is sized for in tables of more than [`LARGE`] entries: with 6 of 15, one line in 2,000 overflows.
const LARGE_FILL: u64 = 6;
const LARGE: u64 = 1 << 24;
/// The maximum number of overflow lines, which a link must distinguish.
const OVERFLOW_MAX: u32 = 0xffff;
/// The table is rebuilt larger before its entries exceed the planned number in this proportion to [`LINE_FILL`].
const LINE_FILL_MAX: u64 = 13;

const GROUPS: [RangeInclusive<u8>; 3] = [0..=20, 21..=24, 25..=32];

/// The part of the IPv4 table that lookups read.
#[derive(Debug)]
pub(crate) struct Table4 {
    pub(crate) direct: Array<AtomicU32>,
    pub(crate) hop_ids: Array<AtomicU32>,
    pub(crate) levels: [Level4; 2],
    pub(crate) hash: Hash32,
}

#[derive(Debug)]
pub(crate) struct Level4 {
    pub(crate) filter: Array<AtomicU32>,
    pub(crate) filter_words: u32,
    pub(crate) filter_hashes: u32,
    /// Lines of [`LINE_WORDS`] words: primary lines, then overflow lines.
    pub(crate) lines: Array<AtomicU32>,
    pub(crate) primary: u32,
}

impl Level4 {
    /// The overflow line that a link leads to; `None` for 0.
    #[inline]
    pub(crate) fn linked(&self, link: u32) -> Option<usize> {
        (link != 0).then(|| (self.primary + (link >> 16) - 1) as usize)
    }

    /// The link to an overflow line. Its low half is 0, unlike that half of a used slot.
    const fn link_to(&self, line: u32) -> u32 {
        (line - self.primary + 1) << 16
    }
}

#[derive(Debug)]
struct LevelWriter {
    len: u8,
    filter: CountingFilter,
    owner: Vec<u8>,
    entries: u64,
    entries_max: u64,
    /// The free overflow lines.
    overflow: std::ops::Range<u32>,
    /// Entries that found no slot while the table was built.
    unplaced: u64,
}

#[derive(Debug)]
pub(crate) struct Writer4 {
    table: Arc<Table4>,
    direct_owner: Vec<u8>,
    /// Entries of G1 and G2 below each direct entry.
    below: [Vec<u16>; 2],
    levels: [LevelWriter; 2],
    hops: HopIndex,
    dense: u16,
    grace: Grace,
}

pub(crate) struct Size4([LevelSize; 2]);

#[derive(Clone, Copy, Debug)]
struct LevelSize {
    entries: u64,
    filter: FilterSize,
    filter_words: u32,
    primary: u32,
    overflow: u32,
}

impl LevelSize {
    /// Room for `entries`, plus a tenth to grow in place if there is a reserve.
    fn for_entries(entries: u64, fpr: f64, budget: Budget) -> Result<Self, EngineError> {
        let room = entries + if budget.has_reserve() { entries / 10 } else { 0 } + 1024;
        let filter = FilterSize::blocked(room, fpr);
        let fill = if room > LARGE { LARGE_FILL } else { LINE_FILL };
        let primary = u32::try_from(room / fill + 1).ok().map(|lines| lines.max(LINES_MIN));
        let filter_words = u32::try_from(filter.bits.div_ceil(32)).ok();
        let (Some(primary), Some(filter_words)) = (primary.filter(|p| *p < 1 << 30), filter_words) else {
            return Err(EngineError::Full { what: "expanded IPv4 prefixes", used: entries, limit: 10 << 30 });
        };
        Ok(Self { entries: room, filter, filter_words, primary, overflow: (primary / 8).min(OVERFLOW_MAX) })
    }

    fn bytes(&self) -> u64 {
        u64::from(self.primary + self.overflow) * 64 + u64::from(self.filter_words) * 4
    }
}

impl Writer4 {
    fn sized(size: &Size4, params: &BloomParams) -> Result<Self, EngineError> {
        let place = params.common.placement;
        let Size4([g1, g2]) = *size;
        let table = Table4 {
            direct: Array::zeroed(1 << DIRECT_BITS, place)?,
            hop_ids: Array::zeroed(HOPS_MAX + 1, place)?,
            levels: [level(g1, place)?, level(g2, place)?],
            hash: params.hash,
        };
        Ok(Self {
            table: Arc::new(table),
            direct_owner: vec![0; 1 << DIRECT_BITS],
            below: [vec![0; 1 << DIRECT_BITS], vec![0; 1 << DIRECT_BITS]],
            levels: [LevelWriter::new(24, g1), LevelWriter::new(32, g2)],
            hops: HopIndex::new(u16::MAX, HASHED_HOPS),
            dense: params.dense_for(Self::size_bytes(size)),
            grace: Grace::default(),
        })
    }

    /// Writes direct entry `at`: its next hop and the flags for entries below it, in one store.
    fn store_direct(&self, at: usize, next_hop: u32) {
        let g1 = self.below[0][at];
        let mut word = next_hop;
        word |= if g1 > 0 { G1_BELOW } else { 0 };
        word |= if g1 >= self.dense { G1_DENSE } else { 0 };
        word |= if self.below[1][at] > 0 { G2_BELOW } else { 0 };
        self.table.direct[at].publish(word);
    }

    fn count_below(&mut self, group: usize, address: u32, more: bool) {
        let at = (address >> (32 - DIRECT_BITS)) as usize;
        let below = &mut self.below[group - 1][at];
        *below = if more { *below + 1 } else { *below - 1 };
        let next_hop = self.table.direct[at].load(Ordering::Relaxed) & HOP_MASK;
        self.store_direct(at, next_hop);
    }

    fn hash(&self, group: usize, entry: Prefix4) -> u32 {
        self.table.hash.hash(entry.address() >> (32 - self.levels[group - 1].len))
    }
}

impl FibTable<u32> for Writer4 {
    type Params = BloomParams;
    type Shared = Table4;
    type Size = Size4;

    fn size(
        routes: &[(Prefix4, NextHopId)],
        params: &BloomParams,
        budget: Budget,
    ) -> Result<Size4, EngineError> {
        let size = |group: usize| {
            let entries = expanded_entries(routes, &GROUPS[group]);
            LevelSize::for_entries(entries, params.fpr_for(entries), budget)
        };
        Ok(Size4([size(1)?, size(2)?]))
    }

    fn size_bytes(Size4([g1, g2]): &Size4) -> u64 {
        (4 << DIRECT_BITS) + (HOPS_MAX as u64 + 1) * 4 + g1.bytes() + g2.bytes()
    }

    fn build(size: Size4, mut routes: Routes<u32>, params: &BloomParams) -> Result<Self, EngineError> {
        let mut writer = Self::sized(&size, params)?;
        // Longest first: each entry is written once, by its owner.
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        for (prefix, next_hop) in routes {
            writer.announce(group_of(prefix.len()), prefix, next_hop);
        }
        writer.hops.check()?;
        for (level, shared) in writer.levels.iter().zip(&writer.table.levels) {
            if level.unplaced > 0 {
                // Only keys chosen against the hash fill lines this unevenly.
                let limit = u64::from(level.overflow.end - shared.primary);
                let used = limit + level.unplaced;
                return Err(EngineError::Full { what: "overflow lines of an IPv4 hash table", used, limit });
            }
        }
        Ok(writer)
    }

    fn shared(&self) -> &Arc<Table4> {
        &self.table
    }

    fn bytes(&self) -> u64 {
        let levels = self.table.levels.iter().map(|level| level.filter.bytes() + level.lines.bytes());
        self.table.direct.bytes() + self.table.hop_ids.bytes() + levels.sum::<u64>()
    }

    fn writer_bytes(&self) -> u64 {
        let below: usize = self.below.iter().map(|below| below.capacity() * 2).sum();
        let levels =
            self.levels.iter().map(|level| level.owner.capacity() as u64 + level.filter.writer_bytes());
        (below + self.direct_owner.capacity()) as u64 + levels.sum::<u64>()
    }

    fn details(&self) -> Details {
        let mut details = Details::from([("g1_dense_from", self.dense.into())]);
        for (prefix, level) in ["g1_", "g2_"].iter().zip(&self.levels) {
            let figures = Details::from([
                ("entries", level.entries.into()),
                ("filter_bits", (u64::from(level.filter.span().1) * 32).into()),
                ("filter_occupied", level.filter.occupied().into()),
                ("overflow_lines_free", (level.overflow.end - level.overflow.start).into()),
            ]);
            details.extend(figures.prefixed(prefix));
        }
        details
    }

    fn admits(&self, changes: &[Change<u32>], routes: &RibTable<u32>) -> bool {
        let mut new = [0_u64; 3];
        for change in changes.iter().filter(|change| change.adds()) {
            let group = group_of(change.prefix.len());
            new[group] = new[group].saturating_add(expansion(change.prefix, &GROUPS[group]));
        }
        let lengths_of = |len| (group_of(len) != 0).then(|| GROUPS[group_of(len)].clone());
        self.hops.fits(changes.len(), hashed_next_hops(routes, changes, lengths_of))
            && self.levels.iter().zip(&new[1..]).all(|(level, new)| level.admits(*new))
    }

    fn owes_grace(&self) -> bool {
        self.hops.has_limbo()
    }

    fn grace_over(&mut self) {
        self.hops.end_grace();
        self.grace.ended();
    }

    fn update(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>, synchronize: &dyn Fn()) {
        let mut grace = std::mem::take(&mut self.grace);
        update::apply(self, routes, changes, &mut grace, synchronize);
        self.grace = grace;
    }
}

impl Store<u32> for Writer4 {
    type Place = Option<usize>;

    fn groups(&self) -> &[RangeInclusive<u8>] {
        &GROUPS
    }

    fn set_direct(&mut self, prefix: Prefix4, from: RangeInclusive<u8>, (len, next_hop): (u8, NextHopId)) {
        for at in direct_range(prefix) {
            if from.contains(&self.direct_owner[at]) {
                self.direct_owner[at] = len;
                self.store_direct(at, next_hop.get());
            }
        }
    }

    fn find(&self, group: usize, entry: Prefix4) -> (Option<usize>, Option<u8>) {
        let slot = find(&self.table.levels[group - 1], self.hash(group, entry));
        (slot, slot.map(|slot| self.levels[group - 1].owner[slot]))
    }

    fn set(
        &mut self,
        group: usize,
        entry: Prefix4,
        place: Option<usize>,
        (len, next_hop): (u8, NextHopId),
    ) -> bool {
        let hash = self.hash(group, entry);
        let Self { table, levels, hops, .. } = self;
        let (level, shared) = (&mut levels[group - 1], &table.levels[group - 1]);
        let Some(index) = hops.acquire(&table.hop_ids, next_hop) else {
            debug_assert!(Arc::strong_count(table) == 1, "admits() counts the next hops");
            return false;
        };
        if let Some(slot) = place {
            let old = shared.lines[slot].load(Ordering::Relaxed);
            level.owner[slot] = len;
            shared.lines[slot].publish(old & 0xffff_0000 | u32::from(index));
            hops.release(index_of(old));
            return false;
        }
        let Some(slot) = level.free_slot(shared, hash) else {
            debug_assert!(Arc::strong_count(table) == 1, "admits() reserves a line for each new entry");
            level.unplaced += 1;
            hops.release(index);
            return false;
        };
        level.owner[slot] = len;
        level.entries += 1;
        shared.lines[slot].publish(hash << 16 | u32::from(index));
        level.filter.insert(&shared.filter, hash);
        self.count_below(group, entry.address(), true);
        true
    }

    fn remove(&mut self, group: usize, entry: Prefix4) {
        let hash = self.hash(group, entry);
        let Self { table, levels, hops, .. } = self;
        let (level, shared) = (&mut levels[group - 1], &table.levels[group - 1]);
        let Some(slot) = find(shared, hash) else { return };
        let old = shared.lines[slot].load(Ordering::Relaxed);
        shared.lines[slot].publish(0);
        level.owner[slot] = 0;
        level.entries -= 1;
        level.filter.remove(&shared.filter, hash);
        hops.release(index_of(old));
        self.count_below(group, entry.address(), false);
    }
}

impl LevelWriter {
    fn new(len: u8, size: LevelSize) -> Self {
        let lines = size.primary + size.overflow;
        Self {
            len,
            filter: CountingFilter::new(0..size.filter_words, size.filter.hashes),
            owner: vec![0; lines as usize * LINE_WORDS],
            entries: 0,
            entries_max: size.entries * LINE_FILL_MAX / LINE_FILL,
            overflow: size.primary..lines,
            unplaced: 0,
        }
    }

    /// Returns whether `new` more entries fit for certain: each could need an overflow line.
    fn admits(&self, new: u64) -> bool {
        new == 0
            || (self.entries.saturating_add(new) <= self.entries_max && new <= self.overflow.len() as u64)
    }

    /// A free slot for `hash`, in its line or an overflow line linked from it; `None` when overflow lines have run out.
    fn free_slot(&mut self, shared: &Level4, hash: u32) -> Option<usize> {
        let mut line = scale(hash, shared.primary) as usize;
        loop {
            let slots = line * LINE_WORDS..line * LINE_WORDS + LINE_SLOTS;
            if let Some(slot) =
                slots.into_iter().find(|slot| shared.lines[*slot].load(Ordering::Relaxed) == 0)
            {
                return Some(slot);
            }
            let link = &shared.lines[line * LINE_WORDS + LINE_SLOTS];
            line = match shared.linked(link.load(Ordering::Relaxed)) {
                None => {
                    let fresh = self.overflow.next()?;
                    link.publish(shared.link_to(fresh));
                    fresh as usize
                }
                Some(next) => next,
            };
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the index is the low half of a slot")]
const fn index_of(slot: u32) -> u16 {
    slot as u16
}

fn level(size: LevelSize, placement: Placement) -> Result<Level4, EngineError> {
    Ok(Level4 {
        filter: Array::zeroed(size.filter_words as usize, placement)?,
        filter_words: size.filter_words,
        filter_hashes: size.filter.hashes,
        lines: Array::zeroed((size.primary + size.overflow) as usize * LINE_WORDS, placement)?,
        primary: size.primary,
    })
}

fn find(level: &Level4, hash: u32) -> Option<usize> {
    let mut line = scale(hash, level.primary) as usize;
    loop {
        let words = &level.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
        let tag = hash << 16;
        let hit = words[..LINE_SLOTS].iter().position(|word| {
            let word = word.load(Ordering::Relaxed);
            word & 0xffff_0000 == tag && word & 0xffff != 0
        });
        if let Some(slot) = hit {
            return Some(line * LINE_WORDS + slot);
        }
        line = level.linked(words[LINE_SLOTS].load(Ordering::Relaxed))?;
    }
}

pub(crate) const fn group_of(len: u8) -> usize {
    match len {
        0..=20 => 0,
        21..=24 => 1,
        _ => 2,
    }
}

fn direct_range(prefix: Prefix4) -> std::ops::RangeInclusive<usize> {
    let at = |address: u32| (address >> (32 - DIRECT_BITS)) as usize;
    at(prefix.address())..=at(prefix.last_address())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected number of overflow lines for each line with `mean` entries on average (Poisson).
    fn overflow_per_line(mean: f64) -> f64 {
        let (mut term, mut sum) = ((-mean).exp(), 0.0);
        for slots in 0..=LINE_SLOTS {
            sum += term;
            #[expect(clippy::cast_precision_loss, reason = "at most 16")]
            let next = (slots + 1) as f64;
            term *= mean / next;
        }
        1.0 - sum
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^30")]
    fn overflow_lines_suffice_and_links_reach_them_all() {
        for entries in [0, 1000, 1 << 20, (LARGE - 1024) * 10 / 11, LARGE, 100_000_000, 700_000_000] {
            let size = LevelSize::for_entries(entries, 0.3, Budget::Ample).unwrap();
            let wanted =
                overflow_per_line(entries as f64 / f64::from(size.primary)) * f64::from(size.primary);
            assert!(wanted <= f64::from(size.overflow), "{entries} entries: {wanted} lines of {size:?}");
            assert!(size.overflow <= OVERFLOW_MAX && size.primary >= LINES_MIN, "{size:?}");
        }
    }
}
