//! Seeded tables and update streams that look like today's Internet: what a measurement needs when there is no real table.
//!
//! [`table`] makes routes: prefix lengths as a full table of January 2024 has them, more-specifics in runs beneath covering
//! allocations, next hops that follow their parent's. [`Updates`] makes the changes that a feed tells about such a table.
//! The same spec gives the same routes on every host.

mod lengths;
mod space;
mod table;
mod updates;

pub use table::table;
pub use updates::Updates;

use crate::{Family, IpPrefix, Key, NextHopId, Prefix};

/// IPv4 routes of a full table today, rounded.
pub const DEFAULT_ROUTES_V4: usize = 950_000;
/// IPv6 routes of a full table today, rounded.
pub const DEFAULT_ROUTES_V6: usize = 200_000;
/// Next hops of a border router with many peers.
pub const DEFAULT_NEXT_HOPS: u32 = 255;

/// The table that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The family of all its routes.
    pub family: Family,
    /// The number of routes.
    pub routes: usize,
    /// Another seed gives another table of the same kind.
    pub seed: u64,
    /// Next hops are ids `1..=next_hops`, a few of them popular.
    pub next_hops: u32,
}

/// Why a table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The typed table of one family was asked for with a spec of the other.
    #[error("a table of {wanted} was asked for with a spec of {given}")]
    Family {
        /// The family of the type.
        wanted: Family,
        /// The family of the spec.
        given: Family,
    },
    /// Not a number of next hops.
    #[error("{given} next hops: 1 to {limit} are possible")]
    NextHops {
        /// The number that was given.
        given: u32,
        /// The most there can be.
        limit: u32,
    },
    /// More routes than the generator finds room for.
    #[error("{given} {family} routes: at most {limit} are possible")]
    Routes {
        /// The family.
        family: Family,
        /// The number that was given.
        given: usize,
        /// The most there can be.
        limit: usize,
    },
}

impl TableSpec {
    /// The routes of the table, sorted and unique, in the form that holds either family.
    ///
    /// # Errors
    /// As [`table`].
    pub fn generate(&self) -> Result<Vec<(IpPrefix, NextHopId)>, GenerateError> {
        fn wrap<K: Key>(routes: Vec<(Prefix<K>, NextHopId)>) -> Vec<(IpPrefix, NextHopId)> {
            routes.into_iter().map(|(prefix, next_hop)| (K::wrap(prefix), next_hop)).collect()
        }
        match self.family {
            Family::V4 => table::<u32>(self).map(wrap),
            Family::V6 => table::<u128>(self).map(wrap),
        }
    }

    /// The most routes of `family` that can be asked for: beyond, IPv4 runs
    /// out of unicast /16s at a real table's share of them, and IPv6 takes long.
    #[must_use]
    pub const fn routes_max(family: Family) -> usize {
        match family {
            Family::V4 => 3_000_000,
            Family::V6 => 2_000_000,
        }
    }

    fn check(&self, wanted: Family) -> Result<(), GenerateError> {
        if self.family != wanted {
            return Err(GenerateError::Family { wanted, given: self.family });
        }
        if self.next_hops == 0 || self.next_hops > NextHopId::MAX.get() {
            return Err(GenerateError::NextHops { given: self.next_hops, limit: NextHopId::MAX.get() });
        }
        let limit = Self::routes_max(wanted);
        if self.routes > limit {
            return Err(GenerateError::Routes { family: wanted, given: self.routes, limit });
        }
        Ok(())
    }
}
