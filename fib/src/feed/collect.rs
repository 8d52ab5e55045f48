//! Collects the routes of all files, and moves them to the RIB once every file has been read without an error.
//!
//! A route's next hop is a [`HopRef`] of four bytes. Gateways get ids only in [`Collected::commit`], after the bare ids of *all* files are
//! reserved, so the two never collide. It changes the RIB and the next-hop table completely or not at all.

use super::{FeedError, FeedErrorKind, Loaded};
use crate::{
    IpPrefix, Key, Neighbour, NextHop, NextHopError, NextHopId, NextHopTable, Prefix, Rib, RibTable,
};
use rustc_hash::FxHashMap;

/// A next hop in a feed, before it is resolved to an id of a [`NextHopTable`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hop {
    /// A bare id given as a number.
    Id(NextHopId),
    /// Any other next hop.
    Hop(NextHop),
}

impl Hop {
    /// The id of this next hop in `hops`; a new next hop gets a new id.
    ///
    /// # Errors
    /// As [`NextHopTable::bare`] and [`NextHopTable::intern`].
    pub fn intern(&self, hops: &mut NextHopTable) -> Result<NextHopId, NextHopError> {
        match self {
            Self::Id(id) => hops.bare(id.get()),
            Self::Hop(hop) => hops.intern(hop.clone()),
        }
    }
}

/// The next hop of a collected route: a bare id, or, with [`Self::INDEX`] set, an index into [`Collected::hops`].
#[derive(Clone, Copy)]
struct HopRef(u32);

impl HopRef {
    const INDEX: u32 = 1 << 31;
}

/// A next hop, and the metric of its routes; `None` for forms without metrics.
type Ranked = (NextHop, Option<u32>);

struct CollectedRoute<K: Key> {
    prefix: Prefix<K>,
    hop: HopRef,
}

/// The first mention of a next hop, for error messages.
#[derive(Clone, Copy)]
pub(super) struct FeedPlace {
    /// The line (text, JSON) or the record (MRT), from 1.
    pub(super) position: u64,
    /// The record's offset in an MRT file; 0 in other formats.
    pub(super) offset_bytes: u64,
}

impl FeedPlace {
    pub(super) const fn line(position: u64) -> Self {
        Self { position, offset_bytes: 0 }
    }
}

#[derive(Default)]
pub(super) struct Collected {
    v4: Vec<CollectedRoute<u32>>,
    v6: Vec<CollectedRoute<u128>>,
    /// Next hops with their metrics, so that a route has no separate metric: a table has few distinct pairs.
    hops: Vec<(Ranked, usize, FeedPlace)>,
    by_hop: FxHashMap<Ranked, HopRef>,
    /// Bare ids seen so far, one bit each: millions of lines share a few ids.
    seen: Vec<u64>,
    ids: Vec<(NextHopId, usize, FeedPlace)>,
    neighbours: Vec<Neighbour>,
    /// The number of IPv4 and IPv6 routes at the end of each finished file.
    ends: Vec<(usize, usize)>,
}

impl Collected {
    pub(super) fn add_bare(&mut self, prefix: IpPrefix, id: NextHopId, place: FeedPlace) {
        if self.seen.is_empty() {
            self.seen = vec![0; (NextHopId::MAX.get() as usize + 1) / 64];
        }
        let (word, bit) = (id.get() as usize / 64, id.get() % 64);
        if let Some(word) = self.seen.get_mut(word)
            && *word & (1 << bit) == 0
        {
            *word |= 1 << bit;
            self.ids.push((id, self.ends.len(), place));
        }
        self.push(prefix, HopRef(id.get()));
    }

    /// Adds a route. Of two routes of a prefix in one file the lower metric wins, then the first; if either has no metric, the later.
    pub(super) fn add(&mut self, prefix: IpPrefix, hop: Hop, metric: Option<u32>, place: FeedPlace) {
        let hop = match hop {
            Hop::Id(id) => return self.add_bare(prefix, id, place),
            Hop::Hop(hop) => (hop, metric),
        };
        let known = self.by_hop.get(&hop).copied();
        let hop = known.unwrap_or_else(|| {
            // 2^31 distinct next hops would not fit in memory.
            let index = u32::try_from(self.hops.len()).unwrap_or(u32::MAX) & !HopRef::INDEX;
            let reference = HopRef(index | HopRef::INDEX);
            self.by_hop.insert(hop.clone(), reference);
            self.hops.push((hop, self.ends.len(), place));
            reference
        });
        self.push(prefix, hop);
    }

    fn push(&mut self, prefix: IpPrefix, hop: HopRef) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push(CollectedRoute { prefix, hop }),
            IpPrefix::V6(prefix) => self.v6.push(CollectedRoute { prefix, hop }),
        }
    }

    pub(super) fn add_neighbour(&mut self, neighbour: Neighbour) {
        self.neighbours.push(neighbour);
    }

    pub(super) fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    pub(super) fn end_file(&mut self) {
        self.ends.push((self.v4.len(), self.v6.len()));
    }

    /// Resolves every next hop and moves all routes to `rib` and `hops`; fills in the counts of `loaded`, one entry per file. An error
    /// names where its next hop was first mentioned; `rib` and `hops` are unchanged then.
    pub(super) fn commit(
        self,
        rib: &mut Rib,
        hops: &mut NextHopTable,
        loaded: &mut [Loaded],
    ) -> Result<(), FeedError> {
        let mut table = hops.clone();
        let mut ids = Ids { moved: FxHashMap::default(), named: Vec::with_capacity(self.hops.len()) };
        for (id, file, place) in &self.ids {
            let got = table.bare(id.get()).map_err(|error| refused(&loaded[*file], *place, error))?;
            if got != *id {
                ids.moved.insert(*id, got);
            }
        }
        for ((hop, metric), file, place) in self.hops {
            let id = table.intern(hop).map_err(|error| refused(&loaded[file], place, error))?;
            ids.named.push((id, metric));
        }
        for neighbour in self.neighbours {
            table.set_neighbour(neighbour);
        }
        let counts_v4 = fill(&mut rib.v4, &self.v4, &ids, self.ends.iter().map(|end| end.0));
        let counts_v6 = fill(&mut rib.v6, &self.v6, &ids, self.ends.iter().map(|end| end.1));
        for ((loaded, v4), v6) in loaded.iter_mut().zip(counts_v4).zip(counts_v6) {
            (loaded.routes_v4, loaded.routes_v6) = (v4.routes, v6.routes);
            loaded.duplicates = v4.duplicates + v6.duplicates;
        }
        *hops = table;
        Ok(())
    }
}

struct Counts {
    routes: u64,
    duplicates: u64,
}

struct Ids {
    /// Bare ids whose number another next hop has since an earlier load: see [`NextHop::Moved`].
    moved: FxHashMap<NextHopId, NextHopId>,
    named: Vec<(NextHopId, Option<u32>)>,
}

impl Ids {
    fn resolve(&self, hop: HopRef) -> (NextHopId, Option<u32>) {
        if hop.0 & HopRef::INDEX != 0 {
            return self.named[(hop.0 & !HopRef::INDEX) as usize];
        }
        let id = NextHopId::from_answer(hop.0);
        (self.moved.get(&id).copied().unwrap_or(id), None)
    }
}

fn fill<K: Key>(
    table: &mut RibTable<K>,
    routes: &[CollectedRoute<K>],
    ids: &Ids,
    ends: impl Iterator<Item = usize>,
) -> Vec<Counts> {
    let mut start = 0;
    let mut counts = Vec::new();
    for end in ends {
        let mut duplicates = 0;
        // Prefixes that have, or may have, an earlier route in this file and a metric to compare.
        let mut contested = FxHashMap::default();
        for route in &routes[start..end] {
            let (id, metric) = ids.resolve(route.hop);
            if !table.set(route.prefix, id).is_none() {
                duplicates += 1;
                if metric.is_some() {
                    contested.insert(route.prefix, None);
                }
            }
        }
        if !contested.is_empty() {
            set_best(table, &routes[start..end], ids, contested);
        }
        counts.push(Counts { routes: (end - start) as u64, duplicates });
        start = end;
    }
    counts
}

/// Sets the best route of each prefix in `contested`, whose values are the best so far.
fn set_best<K: Key>(
    table: &mut RibTable<K>,
    routes: &[CollectedRoute<K>],
    ids: &Ids,
    mut contested: FxHashMap<Prefix<K>, Option<(NextHopId, Option<u32>)>>,
) {
    for route in routes {
        if let Some(best) = contested.get_mut(&route.prefix) {
            let (id, metric) = ids.resolve(route.hop);
            let stays =
                matches!((*best, metric), (Some((_, Some(lowest))), Some(metric)) if lowest <= metric);
            if !stays {
                *best = Some((id, metric));
            }
        }
    }
    for (prefix, best) in contested {
        if let Some((id, _)) = best {
            table.set(prefix, id);
        }
    }
}

fn refused(loaded: &Loaded, place: FeedPlace, error: NextHopError) -> FeedError {
    let kind = if place.offset_bytes > 0 {
        let (record, offset_bytes) = (place.position, place.offset_bytes);
        FeedErrorKind::Record { record, offset_bytes, source: error.into() }
    } else {
        FeedErrorKind::Line { line: place.position, source: error.into() }
    };
    kind.with_path(&loaded.path)
}
