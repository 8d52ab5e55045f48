//! Lists and counts the routes in service, in slices.
//!
//! A slice starts after the last prefix of the previous slice, which the client names, so a listing needs no copy of the table and no
//! state. A listed route was in service when its slice was taken; a change between two slices is seen if its prefix is still ahead.

use super::Vrf;
use super::candidates::{Origin, SourceId};
use fib::{IpPrefix, NextHop, NextHopId, Prefix};
use std::net::IpAddr;

/// Cost limit of a slice, 1 for each route examined and each path of a listed group: some milliseconds, half a megabyte of text.
const SLICE: usize = 1 << 12;

/// Routes counted in a slice: some 100 us of work.
const COUNTED: usize = 1 << 13;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteFilter {
    /// This prefix only.
    pub(crate) prefix: Option<IpPrefix>,
    /// Also all more specific prefixes.
    pub(crate) is_longer: bool,
    pub(crate) source: Option<SourceId>,
    pub(crate) is_stale: bool,
}

impl RouteFilter {
    fn has_prefix(&self, prefix: IpPrefix) -> bool {
        self.prefix.is_none_or(|wanted| wanted == prefix || self.is_longer && wanted.covers(prefix))
    }

    fn has_origin(&self, origin: Option<Origin>) -> bool {
        let is_of = |source| origin.is_some_and(|origin| origin.source == source);
        self.source.is_none_or(is_of) && (!self.is_stale || origin.is_some_and(|origin| origin.is_stale))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedRoute {
    pub(crate) prefix: IpPrefix,
    /// The id of its next hop, as the user knows it.
    pub(crate) id: NextHopId,
    /// `None` for a bare id.
    pub(crate) hop: Option<NextHop>,
    /// As [`Candidates::origin`](super::candidates::Candidates::origin) returns it.
    pub(crate) origin: Option<Origin>,
}

#[derive(Debug)]
pub(crate) struct RouteSlice {
    /// IPv4 before IPv6, in order of address, then length.
    pub(crate) routes: Vec<ListedRoute>,
    /// The last prefix of this slice; `None` at the end of the list.
    pub(crate) ended_at: Option<IpPrefix>,
}

#[derive(Debug)]
pub(crate) struct RouteCounts {
    /// By length.
    pub(crate) v4: [u64; 33],
    pub(crate) v6: [u64; 129],
    /// Blackhole, unreachable and prohibit routes.
    pub(crate) discards: [u64; 3],
    after: Option<IpPrefix>,
}

impl Default for RouteCounts {
    fn default() -> Self {
        Self { v4: [0; 33], v6: [0; 129], discards: [0; 3], after: None }
    }
}

/// The next hops that drop packets, in the order of [`RouteCounts::discards`].
const DISCARDS: [NextHop; 3] = [NextHop::Blackhole, NextHop::Unreachable, NextHop::Prohibit];

impl Vrf {
    pub(crate) fn has_discards(&self) -> bool {
        DISCARDS.iter().any(|hop| self.egress.hops.find(hop).is_some())
    }

    /// Counts the next slice of routes. Returns whether it was the last. Concurrent changes are treated as in [`Self::list`].
    pub(crate) fn count_routes(&self, counts: &mut RouteCounts) -> bool {
        let RouteCounts { v4, v6, discards, after } = counts;
        let ids = DISCARDS.map(|hop| self.egress.hops.find(&hop));
        let start = *after;
        let all = self.rib.starting_at(start.unwrap_or(IpPrefix::V4(Prefix::DEFAULT)));
        for (at, (prefix, id)) in all.skip_while(|(prefix, _)| Some(*prefix) == start).enumerate() {
            if at == COUNTED {
                return false;
            }
            let by_length = if matches!(prefix, IpPrefix::V4(_)) { &mut v4[..] } else { &mut v6[..] };
            by_length[usize::from(prefix.len())] += 1;
            if let Some(kind) = ids.iter().position(|known| *known == Some(id)) {
                discards[kind] += 1;
            }
            *after = Some(prefix);
        }
        true
    }

    /// A slice of the routes that match `filter`, after the prefix `after` or from the first.
    pub(crate) fn list(&self, filter: &RouteFilter, after: Option<IpPrefix>) -> RouteSlice {
        let start = filter.prefix.max(after).unwrap_or(IpPrefix::V4(Prefix::DEFAULT));
        let (mut routes, mut ended_at, mut cost) = (Vec::new(), None, 0);
        for (prefix, id) in self.rib.starting_at(start).take_while(|(prefix, _)| filter.has_prefix(*prefix)) {
            if Some(prefix) == after {
                continue;
            }
            if cost >= SLICE {
                return RouteSlice { routes, ended_at };
            }
            let origin = self.candidates.origin(prefix, id);
            if filter.has_origin(origin) {
                let route = self.listed(prefix, id, origin);
                cost += if let Some(NextHop::Group(group)) = &route.hop { group.paths().len() } else { 0 };
                routes.push(route);
            }
            cost += 1;
            ended_at = Some(prefix);
        }
        RouteSlice { routes, ended_at: None }
    }

    fn listed(&self, prefix: IpPrefix, id: NextHopId, origin: Option<Origin>) -> ListedRoute {
        let hop = self.egress.hops.get(id).filter(|hop| !matches!(hop, NextHop::Bare | NextHop::Moved(_)));
        ListedRoute { prefix, id: self.egress.hops.announced_id(id), hop: hop.cloned(), origin }
    }

    /// The longest match of an address, and the id of its next hop in [`Self::hops`].
    pub(crate) fn longest(&self, address: IpAddr) -> Option<(ListedRoute, NextHopId)> {
        let (prefix, id) = self.rib.longest(address)?;
        Some((self.listed(prefix, id, self.candidates.origin(prefix, id)), id))
    }
}
