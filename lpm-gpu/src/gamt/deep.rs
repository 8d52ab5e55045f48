//! Prefixes longer than the 64 bits that the device searches. They are rare (about 100 of 200,000 routes), so the device
//! finds only their /64: its leaf is marked, and its `inf` is the number of a *group*, which holds all longer routes within
//! that /64. The host resolves every key of a group, also keys that match none of its routes, by the leaf code of its cover,
//! the route that covers the /64. So the answer to a marked key belongs to the generation published at its collect, even if
//! the device's table is older or newer.
//!
//! Readers see a snapshot: chunks of groups behind one pointer, replaced on publish; unchanged chunks are shared. A group
//! without routes stays as a tombstone with its cover's code until no lookup in flight can have its number.

use super::code::INF_MAX;
use arc_swap::ArcSwap;
use fib::{EngineError, NextHopId};
use lpm_core::drops::Witness;
use lpm_core::retire::Retired;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 256;

/// Next hop of an interval that the group's cover resolves.
const FALLBACK: u32 = u32::MAX;

/// Marks a cover's code in [`Found::to_bits`].
const COVER: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    NextHop(NextHopId),
    /// None matches: the leaf code of the group's cover.
    Cover(u32),
}

impl Found {
    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::NextHop(next_hop) => u64::from(next_hop.get()),
            Self::Cover(code) => COVER | u64::from(code),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) fn from_bits(bits: u64) -> Self {
        if bits & COVER == 0 {
            Self::NextHop(NextHopId::from_answer(bits as u32))
        } else {
            Self::Cover(bits as u32)
        }
    }
}

/// A published group: the last 64 bits cut into intervals.
#[derive(Debug, Default)]
struct DeepGroup {
    cover: u32,
    /// First key of each interval, ascending; the first is 0.
    starts: Box<[u64]>,
    next_hops: Box<[u32]>,
}

impl DeepGroup {
    fn new(group: &WriterGroup) -> Self {
        let mut cuts: Vec<(u64, u32)> = vec![(0, FALLBACK)];
        // Enclosing routes, innermost last, each with its last address and next hop.
        let mut open: Vec<(u64, u32)> = vec![(u64::MAX, FALLBACK)];
        for ((start, len), next_hop) in &group.routes {
            close_before(&mut open, &mut cuts, Some(*start));
            cut(&mut cuts, *start, next_hop.get());
            open.push((start | u64::MAX.checked_shr(u32::from(len - 64)).unwrap_or(0), next_hop.get()));
        }
        close_before(&mut open, &mut cuts, None);
        let (starts, next_hops): (Vec<u64>, Vec<u32>) = cuts.into_iter().unzip();
        Self { cover: group.cover, starts: starts.into(), next_hops: next_hops.into() }
    }

    fn bytes(&self) -> u64 {
        (self.starts.len() * size_of::<u64>() + self.next_hops.len() * size_of::<u32>()) as u64
    }

    fn find(&self, low: u64) -> Found {
        let at = self.starts.partition_point(|start| *start <= low);
        match self.next_hops.get(at.wrapping_sub(1)) {
            Some(next_hop) if *next_hop != FALLBACK => Found::NextHop(NextHopId::from_answer(*next_hop)),
            _ => Found::Cover(self.cover),
        }
    }
}

/// Closes the routes that end before `start`, or all: after each the enclosing route continues.
fn close_before(open: &mut Vec<(u64, u32)>, cuts: &mut Vec<(u64, u32)>, start: Option<u64>) {
    while let [.., (_, outer), (end, _)] = open[..] {
        if start.is_some_and(|start| end >= start) {
            return;
        }
        open.pop();
        if let Some(next) = end.checked_add(1) {
            cut(cuts, next, outer);
        }
    }
}

/// Starts an interval; replaces an empty one at the same start.
fn cut(cuts: &mut Vec<(u64, u32)>, start: u64, next_hop: u32) {
    if cuts.last().is_some_and(|last| last.0 == start) {
        cuts.pop();
    }
    cuts.push((start, next_hop));
}

type GroupChunk = Vec<Arc<DeepGroup>>;

#[derive(Debug)]
pub(super) struct Snapshot {
    chunks: Vec<Arc<GroupChunk>>,
    _witness: Witness,
}

impl From<Vec<Arc<GroupChunk>>> for Snapshot {
    fn from(chunks: Vec<Arc<GroupChunk>>) -> Self {
        Self { chunks, _witness: Witness::new("groups of deep routes") }
    }
}

/// The current snapshot, and earlier ones that lookups may still read. Readers share it, since they outlive a rebuilt table.
#[derive(Debug)]
pub(super) struct Snapshots {
    pub(super) place: ArcSwap<Snapshot>,
    retired: Mutex<Retired<Snapshot>>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self { place: ArcSwap::from_pointee(Snapshot::from(Vec::new())), retired: Mutex::default() }
    }
}

impl Snapshots {
    fn retired(&self) -> MutexGuard<'_, Retired<Snapshot>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    pub(super) fn find(&self, group: u32, low: u64) -> Found {
        let (chunk, at) = (group as usize / CHUNK, group as usize % CHUNK);
        self.chunks
            .get(chunk)
            .and_then(|chunk| chunk.get(at))
            .map_or(Found::Cover(0), |group| group.find(low))
    }
}

#[derive(Clone, Debug, Default)]
struct WriterGroup {
    cover: u32,
    /// By first address (its last 64 bits), then length.
    routes: BTreeMap<(u64, u8), NextHopId>,
    is_dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// None, but the group's routes changed: a longer route may have taken keys from the cover.
    Kept {
        cover: u32,
    },
    /// A new group: its /64 must be marked.
    Made(u32),
    /// The group is empty: the unit of its /64 gets the cover's code.
    Gone {
        cover: u32,
    },
}

#[derive(Debug, Default)]
pub(super) struct Deep {
    /// Group number by the first 64 bits.
    numbers: FxHashMap<u64, u32>,
    groups: Vec<WriterGroup>,
    dirty: Vec<u32>,
    free: Vec<u32>,
    /// Groups emptied since the last publish, by their first 64 bits.
    gone: FxHashMap<u64, u32>,
    /// Tombstones, with the update that emptied them.
    retired: VecDeque<(u64, u32)>,
    routes: u64,
    shared: Arc<Snapshots>,
}

impl Deep {
    pub(super) fn shared(&self) -> Arc<Snapshots> {
        Arc::clone(&self.shared)
    }

    pub(super) fn routes(&self) -> u64 {
        self.routes
    }

    /// First 64 bits and number of each group, ascending.
    pub(super) fn groups(&self) -> Vec<(u64, u32)> {
        let mut groups: Vec<(u64, u32)> =
            self.numbers.iter().map(|(high, number)| (*high, *number)).collect();
        groups.sort_unstable();
        groups
    }

    pub(super) fn get(&self, high: u64, low: u64, len: u8) -> NextHopId {
        let group = self.numbers.get(&high).map(|number| &self.groups[*number as usize]);
        group.and_then(|group| group.routes.get(&(low, len)).copied()).unwrap_or(NextHopId::NONE)
    }

    /// Sets the next hop of a route of 65..=128 bits; `NONE` withdraws it. [`EngineError::Full`] when all groups are in use.
    pub(super) fn set(
        &mut self,
        (high, low): (u64, u64),
        len: u8,
        next_hop: NextHopId,
    ) -> Result<Effect, EngineError> {
        let known = self.numbers.get(&high).copied();
        let number = match known {
            Some(number) => number,
            None if next_hop.is_none() => return Ok(Effect::None),
            None => self.add(high)?,
        };
        let group = &mut self.groups[number as usize];
        let before = if next_hop.is_none() {
            group.routes.remove(&(low, len))
        } else {
            group.routes.insert((low, len), next_hop)
        };
        self.routes += u64::from(before.is_none() && !next_hop.is_none());
        self.routes -= u64::from(before.is_some() && next_hop.is_none());
        self.touch(number);
        let group = &self.groups[number as usize];
        if known.is_none() {
            return Ok(Effect::Made(number));
        }
        let cover = group.cover;
        if !group.routes.is_empty() {
            return Ok(Effect::Kept { cover });
        }
        self.numbers.remove(&high);
        self.gone.insert(high, number);
        Ok(Effect::Gone { cover })
    }

    fn add(&mut self, high: u64) -> Result<u32, EngineError> {
        let number = if let Some(number) = self.gone.remove(&high).or_else(|| self.free.pop()) {
            let is_dirty = self.groups[number as usize].is_dirty;
            self.groups[number as usize] = WriterGroup { is_dirty, ..WriterGroup::default() };
            number
        } else {
            let limit = u64::from(INF_MAX);
            let full = EngineError::Full { what: "groups of prefixes beyond /64", used: limit + 1, limit };
            let number =
                u32::try_from(self.groups.len()).ok().filter(|number| *number <= INF_MAX).ok_or(full)?;
            self.groups.push(WriterGroup::default());
            number
        };
        self.numbers.insert(high, number);
        Ok(number)
    }

    pub(super) fn set_cover(&mut self, number: u32, cover: u32) {
        let group = &mut self.groups[number as usize];
        if group.cover != cover {
            group.cover = cover;
            self.touch(number);
        }
    }

    fn touch(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        if !group.is_dirty {
            group.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// Publishes all groups as of `update`. `code` gives the leaf code that the device has for a key: tombstones resolve to it.
    pub(super) fn publish(&mut self, update: u64, code: impl Fn(u64) -> u32) {
        for (high, number) in std::mem::take(&mut self.gone) {
            self.set_cover(number, code(high));
            self.retired.push_back((update, number));
        }
        if self.dirty.is_empty() {
            return;
        }
        let mut chunks = self.shared.place.load().chunks.clone();
        chunks.resize_with(self.groups.len().div_ceil(CHUNK), Arc::default);
        self.dirty.sort_unstable();
        let mut bytes = (chunks.len() * size_of::<Arc<GroupChunk>>()) as u64;
        for dirty in
            std::mem::take(&mut self.dirty).chunk_by(|a, b| *a as usize / CHUNK == *b as usize / CHUNK)
        {
            let chunk = Arc::make_mut(&mut chunks[dirty[0] as usize / CHUNK]);
            bytes += (chunk.len() * size_of::<Arc<DeepGroup>>()) as u64;
            for number in dirty {
                let at = *number as usize % CHUNK;
                if chunk.len() <= at {
                    chunk.resize_with(at + 1, Arc::default);
                }
                let group = &mut self.groups[*number as usize];
                group.is_dirty = false;
                bytes += chunk[at].bytes();
                chunk[at] = Arc::new(DeepGroup::new(group));
            }
        }
        let snapshot = Arc::new(Snapshot::from(chunks));
        self.shared.retired().replace(&self.shared.place, snapshot, bytes);
    }

    pub(super) fn retired_bytes(&self) -> u64 {
        self.shared.retired().bytes()
    }

    pub(super) fn free_retired(&self) {
        self.shared.retired().free();
    }

    pub(super) fn reclaim(&mut self, update: u64) {
        while let Some((_, number)) = self.retired.pop_front_if(|(retired, _)| *retired <= update) {
            self.free.push(number);
        }
    }

    pub(super) fn has_room(&self, groups: usize) -> bool {
        self.groups.len() + groups <= INF_MAX as usize
    }

    pub(super) fn has_unlinked(&self) -> bool {
        !self.retired.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        // Writer and snapshot: a route takes a tree node and two or three intervals.
        self.routes * 96
            + (self.groups.capacity() * size_of::<WriterGroup>() + self.numbers.capacity() * 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Prefix6;
    use fib::oracle::Oracle6;
    use proptest::prelude::*;

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap()
    }

    #[test]
    fn a_group_is_made_published_and_kept_as_a_tombstone() {
        let mut deep = Deep::default();
        let shared = deep.shared();
        let Effect::Made(number) = deep.set((7, 0x100), 128, id(3)).unwrap() else { panic!("no group") };
        deep.set_cover(number, 9 << 8);
        assert_eq!(shared.place.load().find(number, 0x100), Found::Cover(0), "not published yet");
        deep.publish(1, |_| 0);
        assert_eq!(shared.place.load().find(number, 0x100), Found::NextHop(id(3)));
        assert_eq!(shared.place.load().find(number, 0x101), Found::Cover(9 << 8));
        assert_eq!(deep.set((7, 0x100), 128, NextHopId::NONE).unwrap(), Effect::Gone { cover: 9 << 8 });
        assert_eq!(
            deep.set((7, 0x100), 128, id(5)).unwrap(),
            Effect::Made(number),
            "back before anyone knew"
        );
        assert_eq!(deep.set((7, 0x100), 128, NextHopId::NONE).unwrap(), Effect::Gone { cover: 0 });
        deep.publish(2, |high| {
            assert_eq!(high, 7);
            8 << 8
        });
        let Effect::Made(other) = deep.set((8, 0), 65, id(4)).unwrap() else { panic!("no group") };
        assert_ne!(other, number, "a lookup may still come with the number");
        deep.publish(3, |_| 0);
        assert_eq!(shared.place.load().find(number, 0x100), Found::Cover(8 << 8));
        deep.reclaim(2);
        assert_eq!(deep.set((9, 0), 65, id(4)).unwrap(), Effect::Made(number));
        assert_eq!(deep.routes(), 2);
    }

    proptest! {
        #[test]
        fn intervals_answer_as_the_oracle_does(
            routes in proptest::collection::vec((any::<u64>(), 65_u8..=128, 1_u32..9), 1..40),
            keys in proptest::collection::vec(any::<u64>(), 20),
        ) {
            let mut deep = Deep::default();
            let mut oracle = Oracle6::new();
            for (low, len, hop) in &routes {
                let prefix = Prefix6::truncating(u128::from(low & 0xc000_0000_0000_0003), *len);
                oracle.set(prefix, id(*hop));
                let low = u64::try_from(prefix.address()).unwrap();
                deep.set((0, low), *len, id(*hop)).unwrap();
            }
            deep.publish(1, |_| 0);
            prop_assert_eq!(deep.routes(), oracle.len() as u64);
            let edges = routes.iter().flat_map(|(low, len, _)| {
                let prefix = Prefix6::truncating(u128::from(low & 0xc000_0000_0000_0003), *len);
                [prefix.address(), prefix.last_address(), prefix.last_address().wrapping_add(1)]
            });
            let edges = edges.filter_map(|edge| u64::try_from(edge).ok());
            for key in keys.iter().copied().chain(edges) {
                let expected = oracle.lookup(u128::from(key));
                let found = match deep.shared().place.load().find(0, key) {
                    Found::NextHop(next_hop) => next_hop,
                    Found::Cover(_) => NextHopId::NONE,
                };
                prop_assert_eq!(found, expected);
            }
        }
    }
}
