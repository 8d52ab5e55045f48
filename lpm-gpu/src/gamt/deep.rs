//! Prefixes longer than the 64 bits that the device searches.
//!
//! They are rare (some 100 of 200,000 routes), so the device only finds their /64: its leaf is marked, and its `inf` is the
//! number of a *group*, all routes longer than /64 within that /64. The host answers for every key of a group, those that none
//! of its routes match included: a group knows the code of the route that covers it. So the answer to a marked key is
//! the one of the generation that readers see when they collect it, whatever the device was told since.
//!
//! Readers have a snapshot: chunks of groups behind one pointer, replaced whole when an update is published, copied only where it
//! changed. A group without routes goes back to the device; it stays as a tombstone, which answers what the device is being told
//! instead, until no lookup can come with its number.

use super::code::INF_MAX;
use arc_swap::ArcSwap;
use fib::{EngineError, NextHopId};
use lpm_core::drops::Witness;
use lpm_core::retire::Retired;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 256;

/// In an interval of a group: the group's covering route answers.
const FALLBACK: u32 = u32::MAX;

/// In [`Found::to_bits`]: a cover's code.
const COVER: u64 = 1 << 32;

/// Where a key of a group gets its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// From a route longer than 64 bits.
    NextHop(NextHopId),
    /// From the leaf code of the route that covers the group.
    Cover(u32),
}

impl Found {
    /// As a number.
    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::NextHop(next_hop) => u64::from(next_hop.get()),
            Self::Cover(code) => COVER | u64::from(code),
        }
    }

    /// Of [`Self::to_bits`].
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) fn from_bits(bits: u64) -> Self {
        if bits & COVER == 0 {
            Self::NextHop(NextHopId::from_answer(bits as u32))
        } else {
            Self::Cover(bits as u32)
        }
    }
}

/// A group as readers see it: the last 64 bits cut into intervals.
#[derive(Debug, Default)]
struct DeepGroup {
    cover: u32,
    /// Where each interval starts, ascending; the first at 0.
    starts: Box<[u64]>,
    /// The next hop of each interval, or [`FALLBACK`].
    next_hops: Box<[u32]>,
}

impl DeepGroup {
    fn new(group: &WriterGroup) -> Self {
        let mut cuts: Vec<(u64, u32)> = vec![(0, FALLBACK)];
        // Routes that are open, each with its last address and next hop; the innermost is on top.
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

/// Closes the routes that end before `start`, all when there is none: behind each the one around it goes on.
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

/// Starts an interval; one that starts at the same place is empty.
fn cut(cuts: &mut Vec<(u64, u32)>, start: u64, next_hop: u32) {
    if cuts.last().is_some_and(|last| last.0 == start) {
        cuts.pop();
    }
    cuts.push((start, next_hop));
}

type Chunk = Vec<Arc<DeepGroup>>;

/// All groups, as readers see them.
#[derive(Debug)]
pub(super) struct Snapshot {
    chunks: Vec<Arc<Chunk>>,
    _witness: Witness,
}

impl From<Vec<Arc<Chunk>>> for Snapshot {
    fn from(chunks: Vec<Arc<Chunk>>) -> Self {
        Self { chunks, _witness: Witness::of("groups of deep routes") }
    }
}

/// The snapshot in service, and those before that lookups may still read: they are with the readers, which outlive the writer's table
/// when it is built anew.
#[derive(Debug)]
pub(super) struct Snapshots {
    pub(super) place: ArcSwap<Snapshot>,
    /// The writer's alone.
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
    /// Where the key with the last bits `low` in group `group` gets its answer.
    pub(super) fn find(&self, group: u32, low: u64) -> Found {
        let (chunk, at) = (group as usize / CHUNK, group as usize % CHUNK);
        self.chunks
            .get(chunk)
            .and_then(|chunk| chunk.get(at))
            .map_or(Found::Cover(0), |group| group.find(low))
    }
}

/// A group as the writer has it.
#[derive(Clone, Debug, Default)]
struct WriterGroup {
    cover: u32,
    /// By first address (last 64 bits), then length.
    routes: BTreeMap<(u64, u8), NextHopId>,
    /// Whether it is to be published.
    is_dirty: bool,
}

/// What became of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The device need not know.
    None,
    /// Nor here, but the group's routes have changed: keys may have gone from the route that covers the group to a longer one.
    Kept {
        /// The code of the route that covers the group.
        cover: u32,
    },
    /// The group is new: its /64 is to be marked.
    Made(u32),
    /// The group is gone: its /64 gets the code of the route that covers it back.
    Gone {
        /// That code.
        cover: u32,
    },
}

/// All routes longer than 64 bits.
#[derive(Debug, Default)]
pub(super) struct Deep {
    /// By the first 64 bits.
    numbers: FxHashMap<u64, u32>,
    groups: Vec<WriterGroup>,
    dirty: Vec<u32>,
    free: Vec<u32>,
    /// Groups that are gone since groups were published last, by their first 64 bits.
    gone: FxHashMap<u64, u32>,
    /// Numbers of groups that were gone before, with the update that saw them go.
    retired: VecDeque<(u64, u32)>,
    routes: u64,
    shared: Arc<Snapshots>,
}

impl Deep {
    pub(super) fn shared(&self) -> Arc<Snapshots> {
        Arc::clone(&self.shared)
    }

    /// Routes longer than 64 bits.
    pub(super) fn routes(&self) -> u64 {
        self.routes
    }

    /// The groups' first 64 bits and numbers, ascending.
    pub(super) fn groups(&self) -> Vec<(u64, u32)> {
        let mut groups: Vec<(u64, u32)> =
            self.numbers.iter().map(|(high, number)| (*high, *number)).collect();
        groups.sort_unstable();
        groups
    }

    /// The next hop of a route; `NONE` when there is no such route.
    pub(super) fn get(&self, high: u64, low: u64, len: u8) -> NextHopId {
        let group = self.numbers.get(&high).map(|number| &self.groups[*number as usize]);
        group.and_then(|group| group.routes.get(&(low, len)).copied()).unwrap_or(NextHopId::NONE)
    }

    /// Sets the next hop of a route of 65..=128 bits; `NONE` withdraws it.
    ///
    /// # Errors
    /// [`EngineError::Full`] when all groups are in use.
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

    /// Tells which code covers a group from now on.
    pub(super) fn set_cover(&mut self, number: u32, cover: u32) {
        let group = &mut self.groups[number as usize];
        if group.cover != cover {
            group.cover = cover;
            self.touch(number);
        }
    }

    /// Readers do not have the group as it is.
    fn touch(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        if !group.is_dirty {
            group.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// Lets readers see all groups as they are after update `update`. `code` tells the leaf that the device has for a key from
    /// now on: what a group that is gone answers to those who still come with its number.
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
        let mut bytes = (chunks.len() * size_of::<Arc<Chunk>>()) as u64;
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

    /// Snapshots before the one in service that lookups may still read, bytes.
    pub(super) fn retired_bytes(&self) -> u64 {
        self.shared.retired().bytes()
    }

    /// Frees those that no lookup reads any more.
    pub(super) fn free_retired(&self) {
        self.shared.retired().free();
    }

    /// No lookup is in flight from before update `update` was finished.
    pub(super) fn reclaim(&mut self, update: u64) {
        while let Some((_, number)) = self.retired.pop_front_if(|(retired, _)| *retired <= update) {
            self.free.push(number);
        }
    }

    /// Whether there is room for so many groups more.
    pub(super) fn has_room(&self, groups: usize) -> bool {
        self.groups.len() + groups <= INF_MAX as usize
    }

    /// Whether groups that are gone wait to be used again.
    pub(super) fn has_unlinked(&self) -> bool {
        !self.retired.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        // Set and published: a route is in a tree's node and two or three intervals.
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
                // Few distinct high bits, so that routes nest.
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
