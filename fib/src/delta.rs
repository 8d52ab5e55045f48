//! Routes announced to the RIB, changes passed on to an engine, and the generations that result.

use crate::prefix::ByFamily;
use crate::{IpPrefix, Key, NextHopId, Prefix};

/// An announced route: its new next hop, or [`NextHopId::NONE`] to withdraw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<K: Key> {
    /// The route's prefix.
    pub prefix: Prefix<K>,
    /// The new next hop; `NONE` withdraws the route, if there is one.
    pub next_hop: NextHopId,
}

impl<K: Key> Route<K> {
    /// The withdrawal of `prefix`.
    #[must_use]
    pub const fn withdrawal(prefix: Prefix<K>) -> Self {
        Self { prefix, next_hop: NextHopId::NONE }
    }
}

impl<K: Key> From<(Prefix<K>, NextHopId)> for Route<K> {
    fn from((prefix, next_hop): (Prefix<K>, NextHopId)) -> Self {
        Self { prefix, next_hop }
    }
}

/// A list for each family.
#[derive(Clone, Debug)]
pub struct PerFamily<T4, T6> {
    /// IPv4.
    pub v4: Vec<T4>,
    /// IPv6.
    pub v6: Vec<T6>,
}

/// Routes announced together, for a [`crate::Rib`]. Of several routes for a prefix, the last one counts.
pub type Routes = PerFamily<Route<u32>, Route<u128>>;

/// The changes from one generation to the next, each prefix at most once. Compiled by [`crate::Rib`].
pub type FibDelta = PerFamily<Change<u32>, Change<u128>>;

impl<T4, T6> Default for PerFamily<T4, T6> {
    fn default() -> Self {
        Self { v4: Vec::new(), v6: Vec::new() }
    }
}

impl<T4, T6> PerFamily<T4, T6> {
    /// Two empty lists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of items of both families.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether both lists are empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Routes {
    /// Adds a route.
    pub fn push(&mut self, prefix: IpPrefix, next_hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push(Route { prefix, next_hop }),
            IpPrefix::V6(prefix) => self.v6.push(Route { prefix, next_hop }),
        }
    }
}

impl ByFamily for FibDelta {
    type Part<K: Key> = [Change<K>];

    fn v4(&self) -> &[Change<u32>] {
        &self.v4
    }

    fn v6(&self) -> &[Change<u128>] {
        &self.v6
    }
}

/// A change of one route of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<K: Key> {
    /// The route's prefix.
    pub prefix: Prefix<K>,
    /// The old next hop; `NONE`: no route.
    pub old: NextHopId,
    /// The new next hop, never equal to `old`; `NONE` withdraws the route.
    pub new: NextHopId,
}

impl<K: Key> Change<K> {
    /// The inverse change.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { prefix: self.prefix, old: self.new, new: self.old }
    }

    /// Whether the change adds a route.
    #[must_use]
    pub const fn adds(&self) -> bool {
        self.old.is_none()
    }

    /// Whether the change removes a route.
    #[must_use]
    pub const fn withdraws(&self) -> bool {
        self.new.is_none()
    }
}

/// A version of an engine's table: 0 is the empty table, and each delta adds one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
