//! Generates a table by length, shortest first, in runs of adjacent routes below an existing route or in uncovered space. So the routes that
//! cover a new route exist, and it can share its parent's next hop. A place is drawn several times. If none fits (a small table has no
//! parents, a crowded one no free space), any unused prefix of that length is taken: the number of routes is always exact.

use super::lengths::{LengthShare, shares};
use super::space::{SpaceShape, anywhere, is_unicast, open, run_goes_on_percent};
use super::{GenerateError, TableSpec};
use crate::random::{Seeded, WeightedRanks};
use crate::{Family, IpPrefix, Key, NextHopId, Prefix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

/// Draws of a place for a run before falling back to any free prefix.
const TRIES: usize = 24;
/// The largest octave of a run: octave n has 2^n to 2^(n+1) - 1 routes (the longest runs in real tables have 500 to 1000).
const RUN_OCTAVES: usize = 9;
/// Zipf-Mandelbrot: the k-th next hop has weight 1 / (k + this). Fitted: of 255, the first gets 3 % of the routes, the first 32 get 40 %.
const NEXT_HOP_OFFSET: u64 = 10;

/// Generates the routes of `spec`, sorted by prefix, each prefix once.
///
/// # Errors
/// [`GenerateError`] when `K` and the spec differ in family, or a number is out of range.
pub fn table<K: Key>(spec: &TableSpec) -> Result<Vec<(Prefix<K>, NextHopId)>, GenerateError> {
    spec.check(K::FAMILY)?;
    let mut maker = Maker::<K>::new(spec);
    for share in shares(K::FAMILY, spec.routes) {
        maker.length(share);
    }
    let mut routes: Vec<_> = maker.routes.into_iter().collect();
    routes.sort_unstable();
    Ok(routes)
}

impl TableSpec {
    /// Generates the [`table`], as prefixes of either family.
    ///
    /// # Errors
    /// As [`table`].
    pub fn generate(&self) -> Result<Vec<(IpPrefix, NextHopId)>, GenerateError> {
        fn wrap<K: Key>(routes: Vec<(Prefix<K>, NextHopId)>) -> Vec<(IpPrefix, NextHopId)> {
            routes.into_iter().map(|(prefix, next_hop)| (K::wrap(prefix), next_hop)).collect()
        }
        match self.family {
            Family::V4 => table::<u32>(self).map(wrap),
            Family::V6 => table::<u128>(self).map(wrap),
        }
    }
}

#[derive(Clone, Copy)]
struct Child<K: Key> {
    parent: Prefix<K>,
    first: Prefix<K>,
}

struct RunPlace<K: Key> {
    first: Prefix<K>,
    bounds: Prefix<K>,
    next_hop: NextHopId,
    parent: Option<Prefix<K>>,
}

struct Maker<K: Key> {
    rng: Seeded,
    shape: &'static SpaceShape,
    /// Next hops from 1 on, less one.
    next_hops: WeightedRanks,
    routes: FxHashMap<Prefix<K>, NextHopId>,
    lens: Vec<u8>,
    by_len: Vec<Vec<Prefix<K>>>,
    /// Runs below routes, by their parent's length.
    children: Vec<Vec<Child<K>>>,
    /// First routes of runs of roots no longer than a zone.
    short_roots: Vec<Prefix<K>>,
    registries: Vec<Prefix<K>>,
    known_registries: FxHashSet<Prefix<K>>,
    zone_roots: Vec<Prefix<K>>,
}

impl<K: Key> Maker<K> {
    fn new(spec: &TableSpec) -> Self {
        let lens = usize::from(K::BITS) + 1;
        let mut routes = FxHashMap::default();
        routes.reserve(spec.routes);
        Self {
            rng: Seeded::new(spec.seed, 0x7461_626c + u64::from(K::BITS)),
            shape: SpaceShape::for_family(K::FAMILY),
            next_hops: WeightedRanks::new(
                (1..=u64::from(spec.next_hops)).map(|rank| (1 << 38) / (rank + NEXT_HOP_OFFSET)),
            ),
            routes,
            lens: Vec::new(),
            by_len: vec![Vec::new(); lens],
            children: vec![Vec::new(); lens],
            short_roots: Vec::new(),
            registries: Vec::new(),
            known_registries: FxHashSet::default(),
            zone_roots: Vec::new(),
        }
    }

    fn length(&mut self, share: LengthShare) {
        let len = share.len;
        let parents = self.parent_weights(len);
        let mut left = share.routes;
        while left > 0 {
            let wanted = self.run_length(len).min(left);
            let is_root = self.rng.percent(share.roots_percent);
            let place = (0..TRIES).find_map(|tried| {
                if is_root {
                    self.root_place(len, wanted, tried >= TRIES * 7 / 8)
                } else {
                    self.nested_place(len, wanted, &parents)
                }
            });
            left -= match place {
                Some(place) => self.run(&place, wanted),
                None => self.anywhere(len),
            };
        }
        if share.routes > 0 {
            self.lens.push(len);
        }
    }

    /// Cumulative weights of the lengths that a parent of a route of `len` bits may have.
    fn parent_weights(&self, len: u8) -> Vec<(u8, u64)> {
        let mut sum = 0;
        let mut weight = 1 << 20;
        let mut weights = Vec::new();
        for parent in 8..len {
            let routes = self.by_len[usize::from(parent)].len() as u64;
            if routes > 0 {
                let hub = if parent == self.shape.hub_len { 2 } else { 1 };
                sum += routes * weight * hub;
                weights.push((parent, sum));
            }
            weight = (weight * self.shape.longer_parent_percent / 100).max(1);
        }
        weights
    }

    fn run_length(&mut self, len: u8) -> usize {
        let mut octave = 0;
        while octave < RUN_OCTAVES && self.rng.percent(run_goes_on_percent(K::FAMILY, len, octave)) {
            octave += 1;
        }
        (1 << octave) + self.rng.below(1 << octave)
    }

    /// A place in uncovered space. `is_crowded` forces a new zone, after existing zones had no place.
    fn root_place(&mut self, len: u8, wanted: usize, is_crowded: bool) -> Option<RunPlace<K>> {
        let (first, bounds, neighbour) = if len <= self.shape.zone_len {
            let address = self.short_root_address(len);
            let first = Prefix::truncating(address, len);
            (first, Prefix::truncating(address, len.saturating_sub(6)), None)
        } else {
            let older = self.rng.pick(&self.zone_roots).copied();
            let older = older.filter(|_| !is_crowded && !self.rng.percent(self.shape.new_zone_percent));
            let bounds = self.zone_bounds(len, older);
            (self.aligned(bounds, len, wanted), bounds, older)
        };
        if !is_unicast(first) || self.routes.contains_key(&first) || self.covering(first).is_some() {
            return None;
        }
        let next_hop = match neighbour.and_then(|older| self.routes.get(&older).copied()) {
            Some(next_hop) if self.rng.percent(self.shape.near_next_hop_percent) => next_hop,
            _ => self.any_next_hop(),
        };
        Some(RunPlace { first, bounds, next_hop, parent: None })
    }

    /// The block for a run of roots: near the run `older`, or a new zone.
    fn zone_bounds(&mut self, len: u8, older: Option<Prefix<K>>) -> Prefix<K> {
        let zone_len = self.shape.zone_len;
        if let Some(older) = older {
            let near = self.rng.percent(self.shape.near_root_percent);
            let bounds_len = if near { self.near_len() } else { zone_len };
            return Prefix::truncating(older.address(), bounds_len.min(len - 1));
        }
        let older = self.opened_block();
        Prefix::truncating(open(zone_len, older, &mut self.rng), zone_len)
    }

    fn short_root_address(&mut self, len: u8) -> K {
        let near_len = self.shape.near_short_len;
        if len > near_len
            && self.rng.percent(self.shape.near_short_percent)
            && let Some(older) = self.rng.pick(&self.short_roots).copied()
        {
            let address = (older.address() & K::mask(near_len)).to_high_bits() | self.rng.u128() >> near_len;
            return K::from_high_bits(address);
        }
        let older = self.opened_block();
        open(len, older, &mut self.rng)
    }

    /// Any registry block with probability 1/3, else the block of a random root: popular blocks get more.
    fn opened_block(&mut self) -> Option<Prefix<K>> {
        match self.rng.below(3) {
            0 => self.rng.pick(&self.registries).copied(),
            _ => self.rng.pick(&self.short_roots).copied(),
        }
    }

    fn near_len(&mut self) -> u8 {
        self.shape.near_lens[self.rng.below(2)]
    }

    fn nested_place(&mut self, len: u8, wanted: usize, parents: &[(u8, u64)]) -> Option<RunPlace<K>> {
        let total = parents.last()?.1;
        let at = self.rng.below(usize::try_from(total).ok()?) as u64;
        let (parent_len, _) = parents[parents.partition_point(|(_, sum)| *sum <= at)];
        let parent_len = usize::from(parent_len);
        let popular = if self.rng.percent(self.shape.popular_percent) {
            self.rng.pick(&self.children[parent_len]).copied()
        } else {
            None
        };
        let (parent, bounds) = match popular {
            Some(child) => {
                let near = self.rng.percent(self.shape.near_child_percent);
                let bounds_len = if near { self.near_len() } else { self.shape.zone_len };
                let bounds_len = bounds_len.clamp(child.parent.len(), len - 1);
                (child.parent, Prefix::truncating(child.first.address(), bounds_len))
            }
            None => {
                let parent = *self.rng.pick(&self.by_len[parent_len])?;
                (parent, parent)
            }
        };
        let first = self.aligned(bounds, len, wanted);
        if self.routes.contains_key(&first) {
            return None;
        }
        let above = self.covering(first)?;
        if above != parent && self.rng.percent(self.shape.direct_percent) {
            return None;
        }
        Some(RunPlace { first, bounds, next_hop: self.nested_next_hop(above), parent: Some(above) })
    }

    fn any_next_hop(&mut self) -> NextHopId {
        let rank = self.next_hops.draw(&mut self.rng);
        NextHopId::new(u32::try_from(rank + 1).unwrap_or(1)).unwrap_or(NextHopId::MAX)
    }

    fn nested_next_hop(&mut self, above: Prefix<K>) -> NextHopId {
        match self.routes.get(&above).copied() {
            Some(next_hop) if self.rng.percent(self.shape.parent_next_hop_percent) => next_hop,
            _ => self.any_next_hop(),
        }
    }

    /// A random prefix of `len` bits in `bounds`, aligned to a run of `wanted` routes, as if a larger block had been split.
    fn aligned(&mut self, bounds: Prefix<K>, len: u8, wanted: usize) -> Prefix<K> {
        let bits = u8::try_from(wanted.ilog2()).unwrap_or(0).min(len - bounds.len());
        let address = self.rng.inside(bounds);
        Prefix::truncating(Prefix::truncating(address, len - bits).address(), len)
    }

    fn run(&mut self, place: &RunPlace<K>, wanted: usize) -> usize {
        let len = place.first.len();
        let step = 1u128 << (128 - u32::from(len));
        let mut next_hop = place.next_hop;
        let mut prefix = place.first;
        let mut placed = 0;
        loop {
            if let Entry::Vacant(vacant) = self.routes.entry(prefix) {
                vacant.insert(next_hop);
                self.by_len[usize::from(len)].push(prefix);
                placed += 1;
            }
            let Some(next) = prefix.address().to_high_bits().checked_add(step) else { break };
            prefix = Prefix::truncating(K::from_high_bits(next), len);
            let fits = placed < wanted && place.bounds.contains(prefix.address());
            if !fits || !is_unicast(prefix) || place.parent.is_none() && self.covering(prefix).is_some() {
                break;
            }
            if !self.rng.percent(self.shape.run_next_hop_percent) {
                next_hop = match place.parent {
                    Some(parent) => self.nested_next_hop(parent),
                    None => self.any_next_hop(),
                };
            }
        }
        let first = place.first;
        match place.parent {
            Some(parent) => self.children[usize::from(parent.len())].push(Child { parent, first }),
            None if len <= self.shape.zone_len => {
                let block = Prefix::truncating(first.address(), self.shape.registry_len);
                if first.len() >= block.len() && self.known_registries.insert(block) {
                    self.registries.push(block);
                }
                self.short_roots.push(first);
            }
            None => self.zone_roots.push(first),
        }
        placed
    }

    fn anywhere(&mut self, len: u8) -> usize {
        let prefix = loop {
            let address = anywhere(&mut self.rng);
            let prefix = Prefix::truncating(address, len);
            if is_unicast(prefix) && !self.routes.contains_key(&prefix) {
                break prefix;
            }
        };
        let parent = self.covering(prefix);
        let next_hop = match parent {
            Some(above) => self.nested_next_hop(above),
            None => self.any_next_hop(),
        };
        self.run(&RunPlace { first: prefix, bounds: prefix, next_hop, parent }, 1)
    }

    fn covering(&self, prefix: Prefix<K>) -> Option<Prefix<K>> {
        let shorter = self.lens.iter().rev().filter(|len| **len < prefix.len());
        shorter
            .map(|len| Prefix::truncating(prefix.address(), *len))
            .find(|above| self.routes.contains_key(above))
    }
}
