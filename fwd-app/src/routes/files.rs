//! Route files: their tables, at the start and read again.
//!
//! The RIB holds their routes by itself, but of prefixes that another source has, too ([`super::candidates`]).

use super::Vrf;
use super::candidates::{Said, SourceId};
use super::vrf::check_routes;
use fib::feed::{self, Hop, LoadOptions, Loaded};
use fib::{IpPrefix, Key, Neighbour, NextHop, NextHopId, NextHopTable, Rib, RibTable};
use rustc_hash::FxHashMap;
use std::path::PathBuf;

/// Progress of reading route files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// Bytes read so far and the total; a total of 0 means unknown.
    Reading { bytes: u64, bytes_total: u64 },
    /// Reading has ended, with these files; the list is empty after an error.
    Read(&'a [Loaded]),
}

/// Reads route files into a new RIB and reports the progress.
///
/// # Errors
/// `FeedError`, with file and line.
pub(crate) fn load_rib(
    paths: &[PathBuf],
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let mut reading = |bytes, bytes_total| on_progress(Progress::Reading { bytes, bytes_total });
    let options = LoadOptions { format: None, on_progress: Some(&mut reading) };
    let files = feed::load(paths, &mut rib, &mut hops, options);
    on_progress(Progress::Read(files.as_deref().unwrap_or_default()));
    Ok((rib, hops, files?))
}

impl Vrf {
    /// Replaces the files' routes and neighbours by those of other tables, and commits the difference. Returns how many routes changed.
    ///
    /// # Errors
    /// As [`Self::commit`], and [`EngineError::Full`](fib::EngineError::Full) for more routes than `--routes-max`. Everything is as before then.
    pub(crate) fn replace_routes(&mut self, rib: &Rib, hops: &NextHopTable) -> anyhow::Result<u64> {
        check_routes(rib.len() as u64, self.spec.routes_max)?;
        for (_, hop) in hops.iter() {
            self.check(hop)?;
        }
        for Neighbour { address, port, .. } in hops.neighbours() {
            self.check(&NextHop::Gateway { gateway: *address, port: port.clone() })?;
        }
        let mut ids = FxHashMap::default();
        for (id, hop) in hops.iter() {
            let hop = if *hop == NextHop::Bare { Hop::Id(id) } else { Hop::Hop(hop.clone()) };
            ids.insert(id, hop.intern(&mut self.hops)?);
        }
        let changes = self.replace_files(|rib| &rib.v4, &rib.v4, &ids)
            + self.replace_files(|rib| &rib.v6, &rib.v6, &ids);
        let before = self.hops.replace_neighbours(hops);
        self.static_neighbours_have_changed();
        self.changes.updates += changes;
        if let Err(error) = self.commit() {
            self.hops.replace_neighbours(&before);
            self.static_neighbours_have_changed();
            self.commit()?;
            return Err(error);
        }
        Ok(changes)
    }

    /// Makes the files' routes of a family those of `other`, whose next hops have the ids that `ids` says. Returns how many changed.
    fn replace_files<K: Key>(
        &mut self,
        family: impl Fn(&Rib) -> &RibTable<K>,
        other: &RibTable<K>,
        ids: &FxHashMap<NextHopId, NextHopId>,
    ) -> u64 {
        let prefixes = family(&self.rib).prefixes();
        let gone: Vec<_> = prefixes.filter(|prefix| other.get(*prefix).is_none()).collect();
        let gone = gone.into_iter().map(|prefix| (prefix, NextHopId::NONE));
        let there = other.iter().map(|(prefix, id)| (prefix, ids.get(&id).copied().unwrap_or(id)));
        gone.chain(there).map(|(prefix, id)| u64::from(self.set_file_route(K::wrap(prefix), id))).sum()
    }

    /// Sets the files' route of a prefix; [`NextHopId::NONE`] removes it. Returns whether it was another one before.
    pub(super) fn set_file_route(&mut self, prefix: IpPrefix, id: NextHopId) -> bool {
        if !self.candidates.has(prefix) {
            return self.set_route(prefix, id) != id;
        }
        let route = self.candidates.of_hop(id);
        let before = self.candidates.said(prefix, SourceId::FILES);
        self.take_for_user(&Said { source: SourceId::FILES, prefix, metric: 0, route });
        before != route
    }
}
