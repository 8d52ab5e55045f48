//! Lists and counts the routes in service, a slice at a time.
//!
//! A slice starts after the prefix at which the one before ended, so a listing holds no copy of the table and nothing in it: whoever wants
//! the next slice names that prefix. A route that is listed was in service when its slice was taken. Routes that come and go between two
//! slices are listed or not, by whether their prefix is still ahead.

use super::Vrf;
use super::candidates::{Origin, SourceId};
use fib::{IpPrefix, NextHop, NextHopId, Prefix};
use std::net::IpAddr;

/// How much a slice may cost: a route that is looked at is 1, and each path of a group that is listed 1 more. It takes some
/// milliseconds, and its text half a megabyte at most.
const SLICE: usize = 1 << 12;

/// Routes that a slice of a count looks at: some 100 us of work.
const COUNTED: usize = 1 << 13;

/// Which routes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteFilter {
    /// The route of this prefix alone.
    pub(crate) prefix: Option<IpPrefix>,
    /// Those of all more specific prefixes, too.
    pub(crate) is_longer: bool,
    /// Those of this source.
    pub(crate) source: Option<SourceId>,
    /// Those that are stale.
    pub(crate) is_stale: bool,
}

impl RouteFilter {
    fn has_prefix(&self, prefix: IpPrefix) -> bool {
        match (self.prefix, prefix) {
            (None, _) => true,
            (Some(wanted), prefix) if !self.is_longer => wanted == prefix,
            (Some(IpPrefix::V4(wanted)), IpPrefix::V4(prefix)) => wanted.covers(prefix),
            (Some(IpPrefix::V6(wanted)), IpPrefix::V6(prefix)) => wanted.covers(prefix),
            _ => false,
        }
    }

    fn has_origin(&self, origin: Option<Origin>) -> bool {
        let is_of = |source| origin.is_some_and(|origin| origin.source == source);
        self.source.is_none_or(is_of) && (!self.is_stale || origin.is_some_and(|origin| origin.is_stale))
    }
}

/// A route in service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedRoute {
    /// Its prefix.
    pub(crate) prefix: IpPrefix,
    /// The id of its next hop, as it was told.
    pub(crate) id: NextHopId,
    /// Its next hop; `None` of a bare id.
    pub(crate) hop: Option<NextHop>,
    /// Where it comes from: see [`Candidates::origin`](super::candidates::Candidates::origin).
    pub(crate) origin: Option<Origin>,
}

/// Some routes in service.
#[derive(Debug)]
pub(crate) struct RouteSlice {
    /// IPv4 before IPv6, in order of address, then length.
    pub(crate) routes: Vec<ListedRoute>,
    /// After which prefix the next slice starts; `None` when this was the last one.
    pub(crate) ended_at: Option<IpPrefix>,
}

/// How many routes are in service, as far as they have been counted.
#[derive(Debug)]
pub(crate) struct RouteCounts {
    /// IPv4 routes by length.
    pub(crate) v4: [u64; 33],
    /// IPv6 routes by length.
    pub(crate) v6: [u64; 129],
    /// Blackholes, unreachable and prohibited routes.
    pub(crate) discards: [u64; 3],
    /// The last prefix that is counted.
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
    /// Whether routes may drop packets.
    pub(crate) fn has_discards(&self) -> bool {
        DISCARDS.iter().any(|hop| self.egress.hops.find(hop).is_some())
    }

    /// Counts the next slice of routes. Returns whether it was the last one. Routes that come and go between two slices count or not, as in
    /// [`Self::list`].
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

    /// The routes that `filter` wants, after a prefix or from the first one on.
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

    /// The route in service of a prefix, whose next hop is `id`.
    fn listed(&self, prefix: IpPrefix, id: NextHopId, origin: Option<Origin>) -> ListedRoute {
        let hop = self.egress.hops.get(id).filter(|hop| !matches!(hop, NextHop::Bare | NextHop::Moved(_)));
        ListedRoute { prefix, id: self.egress.hops.told(id), hop: hop.cloned(), origin }
    }

    /// The longest route in service that covers an address, and the id of its next hop among [`Self::hops`].
    pub(crate) fn longest(&self, address: IpAddr) -> Option<(ListedRoute, NextHopId)> {
        let (prefix, id) = self.rib.longest(address)?;
        Some((self.listed(prefix, id, self.candidates.origin(prefix, id)), id))
    }
}
