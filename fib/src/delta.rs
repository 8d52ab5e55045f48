//! What crosses from the RIB to an engine: the routes that changed, and the generation that results.

use crate::{IpPrefix, Key, NextHopId, Prefix};

/// One change of a route: a new next hop, or [`NextHopId::NONE`] for a withdraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<K: Key> {
    /// The route's prefix.
    pub prefix: Prefix<K>,
    /// Its next hop from now on; `NONE` withdraws the route.
    pub next_hop: NextHopId,
}

/// The changes that lead from one generation to the next.
///
/// Invariant: a prefix occurs at most once ([`FibDelta::push`] is for producers that know this; [`crate::Rib`] does). A
/// withdraw of a prefix that the engine does not have is no error and changes nothing.
#[derive(Clone, Debug, Default)]
pub struct FibDelta {
    /// Changes of IPv4 routes.
    pub v4: Vec<Change<u32>>,
    /// Changes of IPv6 routes.
    pub v6: Vec<Change<u128>>,
}

impl FibDelta {
    /// A delta that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change; the prefix must not be in the delta yet.
    pub fn push(&mut self, prefix: IpPrefix, next_hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push(Change { prefix, next_hop }),
            IpPrefix::V6(prefix) => self.v6.push(Change { prefix, next_hop }),
        }
    }

    /// The number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A version of an engine's table: 0 is the empty table, each applied delta is one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
