//! The prefixes to which a link, a sweep or an order of sources may give another winner, found some at a time.
//!
//! Such an event concerns a part of a full table, which takes tenths of a second to find. So a walk over the prefixes looks at some of them a
//! turn. An event during a walk counts for the rest of it, and another walk follows for the prefixes before. A walk goes on to its end, however
//! often events come. Invariant: a prefix whose routes change after the list was made is marked by that change.

use super::distinct::RouteId;
use fib::{IpPrefix, Prefix};
use rustc_hash::FxHashSet;

/// Why prefixes may have another winner.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// Routes that have another next hop.
    pub(super) moved: FxHashSet<RouteId>,
    /// Routes that have become usable or unusable, which matters to prefixes with several.
    pub(super) revalued: FxHashSet<RouteId>,
    /// Stale routes of a source count no longer.
    pub(super) has_swept: bool,
    /// Sources have another order, which matters to prefixes with several routes.
    pub(super) is_reordered: bool,
}

impl Causes {
    fn is_any(&self) -> bool {
        self.concerns_lone() || self.is_reordered || !self.revalued.is_empty()
    }

    /// Whether prefixes with one route may have another winner.
    fn concerns_lone(&self) -> bool {
        self.has_swept || !self.moved.is_empty()
    }

    fn add(&mut self, more: &Self) {
        self.moved.extend(&more.moved);
        self.revalued.extend(&more.revalued);
        self.has_swept |= more.has_swept;
        self.is_reordered |= more.is_reordered;
    }
}

/// The prefixes that are still to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Those of the walk in progress; none between two walks.
    pub(super) causes: Causes,
    /// Those of the next walk.
    next: Causes,
    pub(super) v4: Vec<Prefix<u32>>,
    pub(super) v6: Vec<Prefix<u128>>,
}

impl Walk {
    /// Takes note of what has happened.
    pub(super) fn note(&mut self, causes: &Causes) {
        if self.causes.is_any() {
            self.causes.add(causes);
        }
        self.next.add(causes);
    }

    /// Begins a walk if one is due and none is in progress: the caller fills the lists. Returns whether prefixes with one route belong to them.
    pub(super) fn begin(&mut self) -> Option<bool> {
        if self.causes.is_any() || !self.next.is_any() {
            return None;
        }
        self.causes = std::mem::take(&mut self.next);
        Some(self.causes.concerns_lone())
    }

    /// The next prefix to look at; `None` ends the walk.
    pub(super) fn next(&mut self) -> Option<IpPrefix> {
        let next = self.v6.pop().map(IpPrefix::V6).or_else(|| self.v4.pop().map(IpPrefix::V4));
        if next.is_none() {
            // The lists may have been as long as a full table.
            *self = Self { next: std::mem::take(&mut self.next), ..Self::default() };
        }
        next
    }

    /// Whether a walk is in progress or due.
    pub(super) fn is_pending(&self) -> bool {
        self.causes.is_any() || self.next.is_any()
    }

    /// The same of a walk because of another order of sources.
    pub(crate) fn is_reordering(&self) -> bool {
        self.causes.is_reordered || self.next.is_reordered
    }
}
