//! What is told to the RIB, what crosses from it to an engine, and the generation that results.

use crate::{IpPrefix, Key, NextHopId, Prefix, Rib};

/// A route as a feed tells it: a new next hop, or [`NextHopId::NONE`] for a withdraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<K: Key> {
    /// The route's prefix.
    pub prefix: Prefix<K>,
    /// Its next hop from now on; `NONE` withdraws it, which changes nothing where it is not there.
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
    /// Of IPv4.
    pub v4: Vec<T4>,
    /// Of IPv6.
    pub v6: Vec<T6>,
}

/// Routes told together, for a [`crate::Rib`]: of those with the same prefix the last one holds.
pub type Routes = PerFamily<Route<u32>, Route<u128>>;

/// The changes that lead from one generation to the next, each prefix at most once. [`crate::Rib`] compiles them.
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

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Routes {
    /// Everything told to `rib`.
    #[must_use]
    pub fn of(rib: &Rib) -> Self {
        Self { v4: rib.v4.iter().map(Route::from).collect(), v6: rib.v6.iter().map(Route::from).collect() }
    }

    /// Adds a route.
    pub fn push(&mut self, prefix: IpPrefix, next_hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push(Route { prefix, next_hop }),
            IpPrefix::V6(prefix) => self.v6.push(Route { prefix, next_hop }),
        }
    }
}

/// One change of what an engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<K: Key> {
    /// The route's prefix.
    pub prefix: Prefix<K>,
    /// Its next hop so far; `NONE`: the engine has no such route.
    pub old: NextHopId,
    /// Its next hop from now on, never the same; `NONE` withdraws the route.
    pub new: NextHopId,
}

impl<K: Key> Change<K> {
    /// The change that takes this one back.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { prefix: self.prefix, old: self.new, new: self.old }
    }

    /// Whether the engine has one route more after it.
    #[must_use]
    pub const fn adds(&self) -> bool {
        self.old.is_none()
    }

    /// Whether the engine has one route less after it.
    #[must_use]
    pub const fn withdraws(&self) -> bool {
        self.new.is_none()
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
