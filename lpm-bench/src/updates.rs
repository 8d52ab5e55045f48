//! A stream of updates as deltas of one family, forward and back again.
//!
//! Forward is what the feed says; backward undoes it delta by delta, so that a stream can run for as long as a measurement
//! needs and the table never drifts. Updates that change nothing (a route told again as it is) are left out, as a RIB does.

use crate::args::UpdateArgs;
use crate::fault::Fault;
use crate::tables::Tables;
use fib::{Family, IpPrefix, NextHopId, Rib, Routes, feed, generate};
use std::collections::BTreeMap;

/// The deltas of one family.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The deltas, in order.
    pub(crate) forward: Vec<Routes>,
    /// What undoes them, in the order to apply: the last delta's undoing first.
    pub(crate) backward: Vec<Routes>,
    /// The routes after all of `forward`.
    pub(crate) after: Tables,
    /// One route for each prefix that changed, so that keys can be drawn from what the updates touched.
    pub(crate) touched: Tables,
    /// Updates of the family that were told.
    pub(crate) told: usize,
}

/// All updates that the arguments name, as `(prefix, next hop)`; `NONE` is a withdraw.
///
/// # Errors
/// [`Fault::Feed`]; [`Fault::Usage`] when no updates are named, or a next hop cannot have an id.
pub(crate) fn read(args: &UpdateArgs, tables: &mut Tables) -> Result<Vec<(IpPrefix, NextHopId)>, Fault> {
    if let Some(path) = &args.updates {
        let mut updates = feed::updates(path, None)?;
        let mut told = Vec::new();
        for update in &mut updates {
            let update = update?;
            let id = update
                .next_hop(&mut tables.hops)
                .map_err(|why| Fault::Usage(format!("{}: {why}", path.display())))?;
            told.push((update.prefix, id));
        }
        if let Some(cut) = updates.truncated() {
            eprintln!("lpm-bench: warning: {}: {cut}; what was read before is used", path.display());
        }
        return Ok(told);
    }
    match args.generate_updates {
        Some(count) => Ok(generate::Updates::of_rib(&tables.rib, args.table.seed).take(count).collect()),
        None => Err(Fault::Usage("no updates: give --updates FILE or --generate-updates N".into())),
    }
}

impl Stream {
    /// The updates of `family` among `told`, `delta` of them a delta, over the routes of `tables`.
    pub(crate) fn of(family: Family, told: &[(IpPrefix, NextHopId)], delta: usize, tables: &Tables) -> Self {
        let mut rib = of_family(&tables.rib, family);
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let mut touched = Rib::new();
        let told: Vec<_> = told.iter().filter(|(prefix, _)| prefix.family() == family).collect();
        for part in told.chunks(delta.max(1)) {
            // The last word on a prefix counts, as in a RIB's dirty set.
            let latest: BTreeMap<IpPrefix, NextHopId> =
                part.iter().map(|(prefix, id)| (*prefix, *id)).collect();
            let (mut there, mut back) = (Routes::new(), Routes::new());
            for (prefix, id) in latest {
                let old = rib.set(prefix, id);
                if old != id {
                    there.push(prefix, id);
                    back.push(prefix, old);
                    touched.set(prefix, if id.is_none() { old } else { id });
                }
            }
            if !there.is_empty() {
                forward.push(there);
                backward.push(back);
            }
        }
        backward.reverse();
        let after = Tables::of_rib(rib, "after the updates".into());
        let touched = Tables::of_rib(touched, "what the updates touched".into());
        Self { forward, backward, after, touched, told: told.len() }
    }

    /// Changes of one pass forward.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> usize {
        self.forward.iter().map(Routes::len).sum()
    }
}

/// The routes of `family` alone.
fn of_family(rib: &Rib, family: Family) -> Rib {
    match family {
        Family::V4 => Rib { v4: rib.v4.clone(), ..Rib::new() },
        Family::V6 => Rib { v6: rib.v6.clone(), ..Rib::new() },
    }
}

/// Where in a stream a table is: forward to the end, back to the start, and again.
#[derive(Debug)]
pub(crate) struct Player<'a> {
    stream: &'a Stream,
    at: usize,
}

impl<'a> Player<'a> {
    /// A player at the start. The stream is not empty.
    pub(crate) fn new(stream: &'a Stream) -> Self {
        Self { stream, at: 0 }
    }

    /// The next delta to apply.
    pub(crate) fn step(&mut self) -> Option<&'a Routes> {
        let count = self.stream.forward.len();
        let delta = match self.at.checked_sub(count) {
            None => self.stream.forward.get(self.at),
            Some(back) => self.stream.backward.get(back),
        };
        self.at = (self.at + 1) % (2 * count).max(1);
        delta
    }

    /// Whether the table is where `forward` ends.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.stream.forward.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[(&str, u32)]) -> Vec<(IpPrefix, NextHopId)> {
        lines
            .iter()
            .map(|(prefix, id)| (prefix.parse().unwrap(), NextHopId::new(*id).unwrap_or(NextHopId::NONE)))
            .collect()
    }

    #[test]
    fn forward_and_back_ends_where_it_began() {
        let tables = Tables::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        let told = told(&[
            ("10.0.0.0/8", 1), // as it is: no change
            ("10.1.0.0/16", 9),
            ("10.1.0.0/16", 8), // in the same delta as the line before
            ("10.2.0.0/16", 4),
            ("2001:db8::/32", 7),
            ("10.0.0.0/8", 0),
        ]);
        let stream = Stream::of(Family::V4, &told, 3, &tables);
        assert_eq!((stream.told, stream.forward.len(), stream.changes()), (5, 2, 3));
        assert_eq!((stream.after.v4.len(), stream.touched.v4.len(), stream.after.v6.len()), (2, 3, 0));
        let mut oracle = tables.oracle.clone();
        let mut player = Player::new(&stream);
        for _ in 0..2 {
            oracle.tell(player.step().unwrap());
        }
        assert!(player.is_at_end());
        assert_eq!(oracle.v4.lookup(0x0a01_0000).get(), 8);
        assert_eq!(oracle.v4.lookup(0x0a03_0000).get(), 0);
        for _ in 0..2 {
            oracle.tell(player.step().unwrap());
        }
        assert!(!player.is_at_end());
        for key in [0x0a00_0000, 0x0a01_0000, 0x0a02_0000] {
            assert_eq!(oracle.v4.lookup(key), tables.oracle.v4.lookup(key));
        }
    }

    #[test]
    fn a_stream_without_changes_is_empty() {
        let tables = Tables::of_routes(&["10.0.0.0/8 1"]);
        let stream = Stream::of(Family::V4, &told(&[("10.0.0.0/8", 1)]), 1, &tables);
        assert!(stream.forward.is_empty() && Player::new(&stream).step().is_none());
    }
}
