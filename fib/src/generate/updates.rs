//! Generates a stream of updates to a table.

use super::space::{anywhere, is_unicast};
use crate::random::Seeded;
use crate::{IpPrefix, Key, NextHopId, Prefix, Prefix4, Prefix6, Rib};
use rustc_hash::FxHashSet;

/// Percentage of updates that change the next hop of a route.
const PATH_CHANGES: usize = 60;
/// Percentage of updates that withdraw or re-announce one of the few flapping routes.
const FLAPS: usize = 30;
/// One route in this many flaps: in five minutes of a collector's updates, a few hundred of a million prefixes cause most changes.
const ROUTES_A_FLAPPER: usize = 2000;

/// An endless, seeded stream of updates to a table: `(prefix, next hop)`, with [`NextHopId::NONE`] for a withdraw. About 10 % announce a new
/// prefix, withdraw a route for a long time, or bring it back. A withdraw is always of a present route, an announcement changes something.
#[derive(Clone, Debug)]
pub struct Updates {
    rng: Seeded,
    /// Present routes that do not flap.
    present: Vec<(IpPrefix, NextHopId)>,
    gone: Vec<(IpPrefix, NextHopId)>,
    /// Flapping routes, and whether each is present now.
    flapping: Vec<(IpPrefix, NextHopId, bool)>,
    known: FxHashSet<IpPrefix>,
    next_hop_max: u32,
}

impl Updates {
    /// The updates of `seed` to a table, by family in proportion to its routes. For an empty table they begin with new prefixes.
    #[must_use]
    pub fn new(v4: &[(Prefix4, NextHopId)], v6: &[(Prefix6, NextHopId)], seed: u64) -> Self {
        let mut present: Vec<(IpPrefix, NextHopId)> = Vec::with_capacity(v4.len() + v6.len());
        present.extend(v4.iter().map(|(prefix, id)| (u32::wrap(*prefix), *id)));
        present.extend(v6.iter().map(|(prefix, id)| (u128::wrap(*prefix), *id)));
        let mut rng = Seeded::new(seed, 0x0075_7064);
        let next_hop_max = present.iter().map(|(_, id)| id.get()).max().unwrap_or(1).max(2);
        let known = present.iter().map(|(prefix, _)| *prefix).collect();
        let mut flapping = Vec::new();
        for _ in 0..present.len().div_ceil(ROUTES_A_FLAPPER) {
            let (prefix, id) = present.swap_remove(rng.below(present.len()));
            flapping.push((prefix, id, true));
        }
        Self { rng, present, gone: Vec::new(), flapping, known, next_hop_max }
    }

    /// The updates of `seed` to the routes of `rib`.
    #[must_use]
    pub fn of_rib(rib: &Rib, seed: u64) -> Self {
        Self::new(&rib.v4.sorted(), &rib.v6.sorted(), seed)
    }

    fn other_than(&mut self, old: NextHopId) -> NextHopId {
        let others = usize::try_from(self.next_hop_max - 1).unwrap_or(1);
        let drawn = 1 + u32::try_from(self.rng.below(others)).unwrap_or(0);
        let drawn = if drawn >= old.get() { drawn + 1 } else { drawn };
        NextHopId::new(drawn).unwrap_or(old)
    }

    /// A present route. Half of the draws are from the first fiftieth of the table, the busy routes.
    fn draw(&mut self) -> Option<usize> {
        let count = self.present.len();
        let busy = if self.rng.percent(50) { count.div_ceil(50) } else { count };
        (count > 0).then(|| self.rng.below(busy))
    }

    fn path_change(&mut self) -> Option<(IpPrefix, NextHopId)> {
        let at = self.draw()?;
        let (prefix, old) = self.present[at];
        let new = self.other_than(old);
        self.present[at].1 = new;
        Some((prefix, new))
    }

    fn flap(&mut self) -> Option<(IpPrefix, NextHopId)> {
        if self.flapping.is_empty() {
            return None;
        }
        // Take the smaller of two draws, so that the first routes flap most.
        let count = self.flapping.len();
        let at = self.rng.below(count).min(self.rng.below(count));
        let (prefix, id, is_there) = &mut self.flapping[at];
        *is_there = !*is_there;
        Some((*prefix, if *is_there { *id } else { NextHopId::NONE }))
    }

    fn come_or_go(&mut self) -> Option<(IpPrefix, NextHopId)> {
        match self.rng.below(4) {
            0 => {
                let (prefix, id) = self.new_prefix()?;
                self.known.insert(prefix);
                self.present.push((prefix, id));
                Some((prefix, id))
            }
            1 if !self.gone.is_empty() => {
                let at = self.rng.below(self.gone.len());
                let (prefix, id) = self.gone.swap_remove(at);
                self.present.push((prefix, id));
                Some((prefix, id))
            }
            _ if !self.present.is_empty() => {
                let at = self.rng.below(self.present.len());
                let (prefix, id) = self.present.swap_remove(at);
                self.gone.push((prefix, id));
                Some((prefix, NextHopId::NONE))
            }
            _ => None,
        }
    }

    /// A prefix that was never announced: near an existing route, or anywhere if the table is empty.
    fn new_prefix(&mut self) -> Option<(IpPrefix, NextHopId)> {
        let (near, id) = match self.rng.pick(&self.present) {
            Some(near) => *near,
            None => (IpPrefix::V4(Prefix::truncating(anywhere(&mut self.rng), 16)), NextHopId::new(1).ok()?),
        };
        let drawn = match near {
            IpPrefix::V4(near) => self.below(near, 24)?,
            IpPrefix::V6(near) => self.below(near, 48)?,
        };
        (!self.known.contains(&drawn)).then_some((drawn, id))
    }

    fn below<K: Key>(&mut self, near: Prefix<K>, len_max: u8) -> Option<IpPrefix> {
        let host = !K::mask(near.len().saturating_sub(2)).to_high_bits();
        let address = K::from_high_bits(near.address().to_high_bits() ^ self.rng.u128() & host);
        let len = self.rng.between((near.len() + 1).min(len_max), len_max);
        let prefix = Prefix::truncating(address, len);
        is_unicast(prefix).then(|| K::wrap(prefix))
    }
}

impl Iterator for Updates {
    type Item = (IpPrefix, NextHopId);

    fn next(&mut self) -> Option<Self::Item> {
        // A kind that finds nothing (no route, or a drawn prefix that exists) leads to another draw.
        loop {
            let update = match self.rng.below(100) {
                0..PATH_CHANGES => self.path_change(),
                kind if kind < PATH_CHANGES + FLAPS => self.flap(),
                _ => self.come_or_go(),
            };
            if update.is_some() {
                return update;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TableSpec, table};
    use super::*;
    use crate::Family;
    use std::collections::BTreeMap;

    type Routes<K> = Vec<(Prefix<K>, NextHopId)>;

    fn tables() -> (Routes<u32>, Routes<u128>) {
        let spec = |family, routes| TableSpec { family, routes, seed: 3, next_hops: 20 };
        (table(&spec(Family::V4, 3000)).unwrap(), table(&spec(Family::V6, 1000)).unwrap())
    }

    #[test]
    fn every_update_changes_the_table_and_withdraws_what_is_there() {
        let (v4, v6) = tables();
        let mut now: BTreeMap<IpPrefix, NextHopId> =
            v4.iter().map(|(p, id)| (IpPrefix::V4(*p), *id)).collect();
        now.extend(v6.iter().map(|(p, id)| (IpPrefix::V6(*p), *id)));
        let (mut changes, mut withdraws, mut news) = (0, 0, 0);
        for (prefix, id) in Updates::new(&v4, &v6, 5).take(20_000) {
            let old = if id.is_none() { now.remove(&prefix) } else { now.insert(prefix, id) };
            match old {
                Some(old) if id.is_none() => withdraws += usize::from(!old.is_none()),
                Some(old) => {
                    assert_ne!(old, id, "{prefix} announced as it was");
                    changes += 1;
                }
                None => {
                    assert!(!id.is_none(), "{prefix} withdrawn, is not present");
                    news += 1;
                }
            }
        }
        assert!((11_000..13_000).contains(&changes), "{changes} path changes of 20,000");
        assert!((3000..5500).contains(&withdraws) && (3000..5500).contains(&news), "{withdraws} {news}");
    }

    #[test]
    fn a_seed_repeats_and_an_empty_table_grows() {
        let (v4, v6) = tables();
        let stream = |seed| Updates::new(&v4, &v6, seed).take(100).collect::<Vec<_>>();
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
        assert!(Updates::new(&[], &[], 1).take(100).count() == 100);
    }
}
