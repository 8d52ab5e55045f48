//! Updates as deltas of one family. Backward reverts the feed delta by delta, so that updates can repeat without a drift of the table. Updates
//! that change nothing are left out, as a RIB does.

use crate::args::{UpdateArgs, UpdateWork};
use crate::fault::Fault;
use crate::tables::RouteSet;
use fib::feed::{self, Update};
use fib::{Change, Family, IpPrefix, Key, NextHopId, NextHopTable, Prefix, Rib, Route, Routes, generate};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Default)]
pub(crate) struct Deltas {
    pub(crate) forward: Vec<Routes>,
    /// The reverting deltas in order of application: the last delta's first.
    pub(crate) backward: Vec<Routes>,
}

impl Deltas {
    /// The changes of `parts`, a delta each. `each` gets every change: the prefix, and its next hops before and after.
    pub(crate) fn from_parts<Part: Iterator<Item = (IpPrefix, NextHopId)>>(
        rib: &mut Rib,
        parts: impl Iterator<Item = Part>,
        mut each: impl FnMut(IpPrefix, NextHopId, NextHopId),
    ) -> Self {
        let mut deltas = Self::default();
        for part in parts {
            // The last update of a prefix counts, as in a RIB's dirty set.
            let latest: BTreeMap<IpPrefix, NextHopId> = part.collect();
            let (mut there, mut back) = (Routes::new(), Routes::new());
            for (prefix, id) in latest {
                let old = rib.set(prefix, id);
                if old != id {
                    there.push(prefix, id);
                    back.push(prefix, old);
                    each(prefix, old, id);
                }
            }
            if !there.is_empty() {
                deltas.forward.push(there);
                deltas.backward.push(back);
            }
        }
        deltas.backward.reverse();
        deltas
    }

    pub(crate) fn updates_v4(&self) -> [Vec<Vec<Change<u32>>>; 2] {
        let both = self.forward.iter().zip(self.backward.iter().rev());
        let change = |(there, back): (&Route<u32>, &Route<u32>)| Change {
            prefix: there.prefix,
            old: back.next_hop,
            new: there.next_hop,
        };
        let forward: Vec<Vec<_>> =
            both.map(|(there, back)| there.v4.iter().zip(&back.v4).map(change).collect()).collect();
        let reversed = |delta: &Vec<Change<u32>>| delta.iter().map(|change| change.reversed()).collect();
        let backward = forward.iter().rev().map(reversed).collect();
        [forward, backward]
    }

    pub(crate) fn changes(&self) -> usize {
        self.forward.iter().map(Routes::len).sum()
    }

    /// The numbers of new, changed and withdrawn IPv4 routes of a pass forward.
    pub(crate) fn kinds(&self) -> [usize; 3] {
        let before =
            self.backward.iter().rev().flat_map(|delta| delta.v4.iter().map(|change| change.next_hop));
        let after = self.forward.iter().flat_map(|delta| delta.v4.iter().map(|change| change.next_hop));
        let mut kinds = [0; 3];
        for (before, after) in before.zip(after) {
            kinds[if before.is_none() { 0 } else { 1 + usize::from(after.is_none()) }] += 1;
        }
        kinds
    }
}

#[derive(Debug)]
pub(crate) struct UpdateStream {
    pub(crate) deltas: Deltas,
    pub(crate) after: RouteSet,
    /// One route for each changed prefix, to draw keys from.
    pub(crate) touched: RouteSet,
    /// Updates of the family in the stream, redundant ones included.
    pub(crate) update_count: usize,
}

/// Warns of a truncated file; [`Fault::Usage`] when a next hop cannot have an id.
pub(crate) fn read_file(
    path: &Path,
    hops: &mut NextHopTable,
    mut each: impl FnMut(&Update, NextHopId),
) -> Result<(), Fault> {
    let mut updates = feed::updates(path, None)?;
    for update in &mut updates {
        let update = update?;
        let id = update.next_hop(hops).map_err(|why| Fault::Usage(format!("{}: {why}", path.display())))?;
        each(&update, id);
    }
    if let Some(cut) = updates.truncated() {
        eprintln!("lpm-bench: warning: {}: {cut}; the part before it is used", path.display());
    }
    Ok(())
}

pub(crate) fn read(args: &UpdateArgs, tables: &mut RouteSet) -> Result<Vec<(IpPrefix, NextHopId)>, Fault> {
    match (&args.updates, args.generate_updates) {
        _ if !args.work.contains(&UpdateWork::Feed) => Ok(Vec::new()),
        (Some(path), _) => {
            let mut updates = Vec::new();
            read_file(path, &mut tables.hops, |update, id| updates.push((update.prefix, id)))?;
            Ok(updates)
        }
        (None, Some(count)) => {
            Ok(generate::Updates::of_rib(&tables.rib, args.table.seed).take(count).collect())
        }
        (None, None) => Err(Fault::Usage("no updates: give --updates FILE or --generate-updates N".into())),
    }
}

/// A different next hop of a table with this number of next hops.
fn other(next_hop: NextHopId, next_hops: u32) -> NextHopId {
    NextHopId::from_answer(next_hop.get() % next_hops.max(2) + 1)
}

/// The default route of `family`: two next hops in turn, then a withdraw.
fn of_default(family: Family, tables: &RouteSet) -> Vec<(IpPrefix, NextHopId)> {
    let (default, old) = match family {
        Family::V4 => (IpPrefix::V4(Prefix::DEFAULT), tables.rib.v4.get(Prefix::DEFAULT)),
        Family::V6 => (IpPrefix::V6(Prefix::DEFAULT), tables.rib.v6.get(Prefix::DEFAULT)),
    };
    let next_hops = tables.next_hop_max(family);
    let first = other(old, next_hops);
    [first, other(first, next_hops), NextHopId::NONE].map(|next_hop| (default, next_hop)).into()
}

fn of_third(family: Family, tables: &RouteSet) -> Vec<(IpPrefix, NextHopId)> {
    fn third<K: Key>(routes: &[(Prefix<K>, NextHopId)], next_hops: u32) -> Vec<(IpPrefix, NextHopId)> {
        let third = routes.iter().step_by(3);
        third.map(|(prefix, next_hop)| (K::wrap(*prefix), other(*next_hop, next_hops))).collect()
    }
    let next_hops = tables.next_hop_max(family);
    match family {
        Family::V4 => third(&tables.v4, next_hops),
        Family::V6 => third(&tables.v6, next_hops),
    }
}

impl UpdateStream {
    pub(crate) fn of_work(
        work: UpdateWork,
        family: Family,
        updates: &[(IpPrefix, NextHopId)],
        delta: usize,
        tables: &RouteSet,
    ) -> Self {
        match work {
            UpdateWork::Feed => Self::from_updates(family, updates, delta, tables),
            UpdateWork::Default => Self::from_updates(family, &of_default(family, tables), 1, tables),
            UpdateWork::Third => Self::from_updates(family, &of_third(family, tables), usize::MAX, tables),
        }
    }

    pub(crate) fn from_updates(
        family: Family,
        updates: &[(IpPrefix, NextHopId)],
        delta: usize,
        tables: &RouteSet,
    ) -> Self {
        let (mut rib, mut touched) = (of_family(&tables.rib, family), Rib::new());
        let updates: Vec<_> =
            updates.iter().filter(|(prefix, _)| prefix.family() == family).copied().collect();
        let parts = updates.chunks(delta.max(1)).map(|part| part.iter().copied());
        let deltas = Deltas::from_parts(&mut rib, parts, |prefix, old, id| {
            touched.set(prefix, if id.is_none() { old } else { id });
        });
        let after = RouteSet::of_rib(rib, "after the updates".into());
        let touched = RouteSet::of_rib(touched, "what the updates touched".into());
        Self { deltas, after, touched, update_count: updates.len() }
    }

    pub(crate) fn delta(&self) -> usize {
        self.deltas.changes() / self.deltas.forward.len().max(1)
    }
}

pub(crate) fn of_family(rib: &Rib, family: Family) -> Rib {
    match family {
        Family::V4 => Rib { v4: rib.v4.clone(), ..Rib::new() },
        Family::V6 => Rib { v6: rib.v6.clone(), ..Rib::new() },
    }
}

/// A table's position in its deltas: forward to the end, back to the start, and again.
#[derive(Debug)]
pub(crate) struct Player<'a> {
    deltas: &'a Deltas,
    at: usize,
}

impl<'a> Player<'a> {
    pub(crate) fn new(deltas: &'a Deltas) -> Self {
        Self { deltas, at: 0 }
    }

    pub(crate) fn step(&mut self) -> Option<&'a Routes> {
        let count = self.deltas.forward.len();
        let delta = match self.at.checked_sub(count) {
            None => self.deltas.forward.get(self.at),
            Some(back) => self.deltas.backward.get(back),
        };
        self.at = (self.at + 1) % (2 * count).max(1);
        delta
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.deltas.forward.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[(&str, u32)]) -> Vec<(IpPrefix, NextHopId)> {
        lines
            .iter()
            .map(|(prefix, id)| (prefix.parse().unwrap(), NextHopId::new(*id).unwrap_or(NextHopId::NONE)))
            .collect()
    }

    #[test]
    fn forward_and_back_ends_where_it_began() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        let updates = parsed(&[
            ("10.0.0.0/8", 1), // as it is: no change
            ("10.1.0.0/16", 9),
            ("10.1.0.0/16", 8), // in the same delta as the line before
            ("10.2.0.0/16", 4),
            ("2001:db8::/32", 7),
            ("10.0.0.0/8", 0),
        ]);
        let stream = UpdateStream::from_updates(Family::V4, &updates, 3, &tables);
        assert_eq!((stream.update_count, stream.deltas.forward.len(), stream.deltas.changes()), (5, 2, 3));
        assert_eq!((stream.after.v4.len(), stream.touched.v4.len(), stream.after.v6.len()), (2, 3, 0));
        let mut oracle = tables.oracle.clone();
        let mut player = Player::new(&stream.deltas);
        for _ in 0..2 {
            oracle.announce(player.step().unwrap());
        }
        assert!(player.is_at_end());
        assert_eq!(oracle.v4.lookup(0x0a01_0000).get(), 8);
        assert_eq!(oracle.v4.lookup(0x0a03_0000).get(), 0);
        for _ in 0..2 {
            oracle.announce(player.step().unwrap());
        }
        assert!(!player.is_at_end());
        for key in [0x0a00_0000, 0x0a01_0000, 0x0a02_0000] {
            assert_eq!(oracle.v4.lookup(key), tables.oracle.v4.lookup(key));
        }
    }

    #[test]
    fn a_stream_without_changes_is_empty() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1"]);
        let stream = UpdateStream::from_updates(Family::V4, &parsed(&[("10.0.0.0/8", 1)]), 1, &tables);
        assert!(stream.deltas.forward.is_empty() && Player::new(&stream.deltas).step().is_none());
    }
}
