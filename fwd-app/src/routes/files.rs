//! Route files: a reload replaces their routes. Only the RIB holds them, except where another source has a route of the prefix.

use super::Vrf;
use super::candidates::{Said, SourceId};
use super::vrf::check_routes;
use anyhow::Context as _;
use fib::feed::Hop;
use fib::{IpPrefix, NextHop, NextHopId, NextHopTable, Rib};
use rustc_hash::FxHashMap;
use std::task::Poll;

/// Prefixes a turn of a [`Replacement`]: some milliseconds of work.
const SLICE: usize = 1 << 16;

/// Replaces the file routes and neighbours of a VRF, in slices between other work.
///
/// New and changed routes come before removals, so that no address is without a route in between. A slice that the engine refuses is
/// retried once together with all that remains, which may make room. If that is refused too, everything is restored.
pub(crate) struct Replacement {
    rib: Rib,
    hops: NextHopTable,
    neighbours: NextHopTable,
    /// Prefixes of the VRF that are not yet checked against `rib`.
    old: Vec<IpPrefix>,
    /// Routes to set, from `at` on; [`NextHopId::NONE`] removes one.
    todo: Vec<(IpPrefix, NextHopId)>,
    at: usize,
    pub(super) slice: usize,
    undo: Vec<(IpPrefix, NextHopId)>,
    /// Why the previous routes are being restored.
    refusal: Option<anyhow::Error>,
}

impl Replacement {
    pub(crate) fn routes(&self) -> usize {
        self.rib.len()
    }

    /// Does a slice of the work. At the end, returns how many routes have changed.
    ///
    /// # Errors
    /// The errors of [`Vrf::commit`], with the name of the VRF, after everything is restored.
    pub(crate) fn advance(&mut self, vrf: &mut Vrf) -> Poll<anyhow::Result<u64>> {
        self.advance_slice(vrf).map(|done| done.with_context(|| format!("VRF {}", vrf.name)))
    }

    fn advance_slice(&mut self, vrf: &mut Vrf) -> Poll<anyhow::Result<u64>> {
        if let Some(refusal) = self.refusal.take() {
            return self.go_back(vrf, refusal).map(Err);
        }
        if !self.old.is_empty() {
            let Self { old, todo, rib, .. } = self;
            let compared = old.drain(old.len().saturating_sub(self.slice)..);
            todo.extend(compared.filter(|of| rib.get(*of).is_none()).map(|of| (of, NextHopId::NONE)));
            return Poll::Pending;
        }
        let end = self.at.saturating_add(self.slice).min(self.todo.len());
        let (done, is_last) = (self.undo.len(), end == self.todo.len());
        for &(prefix, id) in &self.todo[self.at..end] {
            let before = vrf.set_file_route(prefix, id);
            if before != id {
                self.undo.push((prefix, before));
            }
        }
        if is_last {
            vrf.egress.replace_file_neighbours(&self.hops);
        }
        vrf.updates += (self.undo.len() - done) as u64;
        match vrf.commit() {
            Ok(_) => self.at = end,
            Err(error) => {
                self.undo.truncate(done);
                self.slice = usize::MAX;
                self.refusal = is_last.then_some(error);
                return Poll::Pending;
            }
        }
        if !is_last {
            return Poll::Pending;
        }
        vrf.egress.unused.is_held = false;
        Poll::Ready(Ok(self.undo.len() as u64))
    }

    /// Restores a slice of the previous routes, in reverse order. Returns the refusal when all are restored.
    fn go_back(&mut self, vrf: &mut Vrf, refusal: anyhow::Error) -> Poll<anyhow::Error> {
        let kept = self.undo.len().saturating_sub(SLICE);
        for (prefix, id) in self.undo.drain(kept..).rev() {
            vrf.set_file_route(prefix, id);
        }
        if kept == 0 {
            vrf.egress.replace_file_neighbours(&self.neighbours);
        }
        let undone = vrf.commit();
        if undone.is_ok() && kept > 0 {
            self.refusal = Some(refusal);
            return Poll::Pending;
        }
        vrf.egress.unused.is_held = false;
        Poll::Ready(match undone {
            Ok(_) => refusal,
            Err(error) => refusal.context(format!("cannot restore the routes from before: {error:#}")),
        })
    }
}

impl Vrf {
    /// # Errors
    /// [`EngineError::Full`](fib::EngineError::Full) for more routes than `--routes-max`; a missing port; both with the name of the VRF.
    pub(crate) fn check_routes(&self, rib: &Rib, hops: &NextHopTable) -> anyhow::Result<()> {
        let checked =
            check_routes(rib.len() as u64, self.routes_max).map_err(anyhow::Error::from).and_then(|()| {
                hops.iter().try_for_each(|(_, hop)| self.egress.check(hop))?;
                Ok(hops.neighbours().try_for_each(|neighbour| self.egress.check_neighbour(neighbour))?)
            });
        checked.with_context(|| format!("VRF {}", self.name))
    }

    /// Begins to replace the routes and neighbours of files. No next hop is dropped until it ends.
    ///
    /// # Errors
    /// The errors of [`Self::check_routes`], and when no id is free.
    pub(crate) fn replace_routes(&mut self, rib: Rib, hops: NextHopTable) -> anyhow::Result<Replacement> {
        self.check_routes(&rib, &hops)?;
        let mut ids = FxHashMap::default();
        for (id, hop) in hops.iter() {
            let hop = if *hop == NextHop::Bare { Hop::Id(id) } else { Hop::Hop(hop.clone()) };
            ids.insert(id, hop.intern(&mut self.egress.hops).with_context(|| format!("VRF {}", self.name))?);
        }
        // Old and new routes both need their neighbours until the last slice.
        let neighbours = self.egress.replace_file_neighbours(&hops);
        for before in neighbours.neighbours() {
            if self.egress.hops.neighbour(before.address).is_none() {
                self.egress.hops.set_neighbour(before.clone());
            }
        }
        self.egress.unused.is_held = true;
        let known = |id| ids.get(&id).copied().unwrap_or(id);
        let v4 = rib.v4.iter().map(|(prefix, id)| (IpPrefix::V4(prefix), known(id)));
        let todo = v4.chain(rib.v6.iter().map(|(prefix, id)| (IpPrefix::V6(prefix), known(id)))).collect();
        let old = self.rib.v4.prefixes().map(IpPrefix::V4).chain(self.rib.v6.prefixes().map(IpPrefix::V6));
        let old = old.collect();
        let (at, slice, undo, refusal) = (0, SLICE, Vec::new(), None);
        Ok(Replacement { rib, hops, neighbours, old, todo, at, slice, undo, refusal })
    }

    /// Sets the files' route of a prefix; [`NextHopId::NONE`] removes it. Returns the previous one.
    pub(super) fn set_file_route(&mut self, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        let before = if self.candidates.has(prefix) {
            let before = self.candidates.file_route(prefix);
            let route = self.candidates.of_hop(id);
            self.set_and_choose(&Said { source: SourceId::FILES, prefix, metric: 0, route });
            before
        } else {
            self.set_route(prefix, id)
        };
        self.count_user_route(prefix, !before.is_none(), !id.is_none());
        before
    }
}
