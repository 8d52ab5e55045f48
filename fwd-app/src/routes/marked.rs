//! The prefixes that may have a new winner: those that an event of a feed marks, and those that a walk finds.
//!
//! A walk finds, in slices, the prefixes whose winner may change by a link, a sweep, a new order of sources or an engine with other tables.
//! Such an event concerns a part of a full table, which takes tenths of a second to find. An event during a walk applies to the rest of it,
//! and another walk covers the prefixes already passed. Each walk completes, however frequent the events. Invariant: a change of a prefix's
//! routes after the walk's list was made marks that prefix directly.

use super::distinct::RouteId;
use fib::{IpPrefix, Prefix};
use rustc_hash::FxHashSet;

/// Most prefixes of a commit, besides freshly marked ones.
const PREFIXES_PER_COMMIT: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct Marked {
    /// The last `fresh` ones were marked singly since the last [`Self::take_batch`].
    prefixes: Vec<IpPrefix>,
    fresh: usize,
    /// How many others one commit takes.
    pub(super) per_commit: usize,
}

impl Default for Marked {
    fn default() -> Self {
        Self { prefixes: Vec::new(), fresh: 0, per_commit: PREFIXES_PER_COMMIT }
    }
}

impl Marked {
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    pub(super) fn mark(&mut self, prefix: IpPrefix) {
        self.prefixes.push(prefix);
        self.fresh += 1;
    }

    /// Marks many prefixes; singly marked ones go first.
    pub(super) fn mark_all(&mut self, mut prefixes: Vec<IpPrefix>) {
        if prefixes.is_empty() {
            return;
        }
        let mut fresh = self.prefixes.split_off(self.prefixes.len() - self.fresh);
        if !self.prefixes.is_empty() {
            // Repeated marking must not grow the list.
            prefixes.append(&mut self.prefixes);
            prefixes.sort_unstable();
            prefixes.dedup();
        }
        prefixes.append(&mut fresh);
        self.prefixes = prefixes;
    }

    /// How many prefixes can be marked and still all fit into the next commit.
    pub(super) fn room(&self) -> usize {
        self.per_commit.saturating_sub(self.prefixes.len() - self.fresh)
    }

    pub(super) fn take_batch(&mut self) -> Vec<IpPrefix> {
        let count = std::mem::take(&mut self.fresh) + self.per_commit;
        let taken = self.prefixes.split_off(self.prefixes.len().saturating_sub(count));
        if self.prefixes.is_empty() {
            self.prefixes = Vec::new(); // it may have been as long as a full table
        }
        taken
    }
}

#[derive(Debug, Default)]
pub(super) struct Causes {
    pub(super) moved: FxHashSet<RouteId>,
    /// Routes that have become usable or unusable; concerns prefixes with several routes.
    pub(super) revalued: FxHashSet<RouteId>,
    pub(super) has_swept: bool,
    /// Sources have a new order; concerns prefixes with several routes.
    pub(super) is_reordered: bool,
    /// The engine has gained or lost its table for IPv4, for IPv6.
    pub(super) has_other_table: [bool; 2],
}

impl Causes {
    fn is_any(&self) -> bool {
        self.concerns_lone() || self.is_reordered || !self.revalued.is_empty()
    }

    fn concerns_lone(&self) -> bool {
        self.has_swept || !self.moved.is_empty() || self.has_other_table != [false; 2]
    }

    fn add(&mut self, more: &Self) {
        self.moved.extend(&more.moved);
        self.revalued.extend(&more.revalued);
        self.has_swept |= more.has_swept;
        self.is_reordered |= more.is_reordered;
        for (has, more) in self.has_other_table.iter_mut().zip(more.has_other_table) {
            *has |= more;
        }
    }
}

/// The remaining prefixes of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Causes of the current walk; empty between walks.
    pub(super) causes: Causes,
    next: Causes,
    pub(super) v4: Vec<Prefix<u32>>,
    pub(super) v6: Vec<Prefix<u128>>,
}

impl Walk {
    pub(super) fn note(&mut self, causes: &Causes) {
        if self.causes.is_any() {
            self.causes.add(causes);
        }
        self.next.add(causes);
    }

    /// Begins a walk if one is due and no other is running; the caller fills the lists. Returns whether to include prefixes with one route.
    pub(super) fn begin(&mut self) -> Option<bool> {
        if self.causes.is_any() || !self.next.is_any() {
            return None;
        }
        self.causes = std::mem::take(&mut self.next);
        Some(self.causes.concerns_lone())
    }

    pub(super) fn next(&mut self) -> Option<IpPrefix> {
        let next = self.v6.pop().map(IpPrefix::V6).or_else(|| self.v4.pop().map(IpPrefix::V4));
        if next.is_none() {
            // The lists may have been as long as a full table.
            *self = Self { next: std::mem::take(&mut self.next), ..Self::default() };
        }
        next
    }

    pub(super) fn is_pending(&self) -> bool {
        self.causes.is_any() || self.next.is_any()
    }

    pub(crate) fn is_reordering(&self) -> bool {
        self.causes.is_reordered || self.next.is_reordered
    }
}
