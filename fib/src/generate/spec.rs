//! Parameters of a generated table.

use crate::{Family, NextHopId};

/// IPv4 routes of a full table today, rounded.
pub const DEFAULT_ROUTES_V4: usize = 950_000;
/// IPv6 routes of a full table today, rounded.
pub const DEFAULT_ROUTES_V6: usize = 200_000;
/// Next hops of a border router with many peers.
pub const DEFAULT_NEXT_HOPS: u32 = 255;

/// The parameters of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The family of all its routes.
    pub family: Family,
    /// The number of routes.
    pub routes: usize,
    /// Another seed gives another table with the same properties.
    pub seed: u64,
    /// Next hops are ids `1..=next_hops`, a few of them popular.
    pub next_hops: u32,
}

/// Why a table cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The family of the type is not the family of the spec.
    #[error("the spec is for {given}, wanted {wanted}")]
    Family {
        /// The family of the type.
        wanted: Family,
        /// The family of the spec.
        given: Family,
    },
    /// The number of next hops is out of range.
    #[error("{given} next hops are not possible, wanted 1 to {limit}")]
    NextHops {
        /// The number as given.
        given: u32,
        /// The limit.
        limit: u32,
    },
    /// More routes than the generator supports.
    #[error("{given} {family} routes are not possible, wanted at most {limit}")]
    Routes {
        /// The family.
        family: Family,
        /// The number as given.
        given: usize,
        /// The limit.
        limit: usize,
    },
}

impl TableSpec {
    /// The most routes of `family`. With more the IPv4 generator runs out of unicast /16s at the density of a real table, and the IPv6 generator is slow.
    #[must_use]
    pub const fn routes_max(family: Family) -> usize {
        match family {
            Family::V4 => 3_000_000,
            Family::V6 => 2_000_000,
        }
    }

    pub(super) fn check(&self, wanted: Family) -> Result<(), GenerateError> {
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
