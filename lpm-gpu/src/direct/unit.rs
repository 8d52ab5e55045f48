//! A unit: next hop or chunk, and the length of its route: `value << 8 | chunk << 7 | depth`, with 24 bits of next-hop id or
//! chunk number, six bits of prefix length (0..=32). A unit without a route is zero, and a default route has depth 0, too:
//! so withdrawing the default route writes zero, and inserting it passes the depth test exactly where no route is.

use crate::host::PrefixOp;
use fib::{NextHopId, Prefix4};

/// Bit of a unit whose value is a chunk.
pub const CHUNK: u32 = 0x80;
/// Bits of a unit that hold the depth.
pub const DEPTH: u32 = 0x3f;

/// A word of a directly indexed table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit(pub u32);

impl Unit {
    /// The unit of a route of `length` bits.
    #[must_use]
    pub fn route(next_hop: NextHopId, length: u8) -> Self {
        Self(next_hop.get() << 8 | u32::from(length))
    }

    /// The unit that points to chunk `number` of 24 bits.
    #[must_use]
    pub const fn chunk(number: u32) -> Self {
        Self(number << 8 | CHUNK)
    }

    /// Next-hop id or chunk number.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0 >> 8
    }

    /// Length of the unit's route.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.0 & DEPTH
    }

    /// The chunk number of a unit that points to one.
    #[must_use]
    pub const fn to_chunk(self) -> Option<u32> {
        if self.0 & CHUNK == 0 { None } else { Some(self.value()) }
    }
}

/// A route drawn over its units: overwrites units whose depth is in a range. The poster's delete takes two passes over the
/// stencil buffer, because OpenGL's depth test cannot require equality; a kernel compares freely, so one pass suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Least depth that is overwritten.
    pub depth_min: u32,
    /// Greatest depth that is overwritten.
    pub depth_max: u32,
    /// The new unit.
    pub unit: Unit,
}

/// Kind of a [`PrefixOp`]: draw where the depth is at most the route's (GEQUAL).
pub const INSERT: u32 = 1;
/// Kind of a [`PrefixOp`]: draw where the depth equals the route's.
pub const MODIFY: u32 = 2;
/// Kind of a [`PrefixOp`]: draw the parent where the depth equals the route's.
pub const DELETE: u32 = 3;
/// Kind of a [`PrefixOp`]: fill a chunk with the unit of a /24, then point the unit to the chunk.
pub const EXTEND: u32 = 4;
/// Kind of a [`PrefixOp`]: replace the pointer to a uniform chunk by the chunk's unit.
pub const FOLD: u32 = 5;

impl Draw {
    /// Draws a new route.
    #[must_use]
    pub fn insert(length: u8, next_hop: NextHopId) -> Self {
        Self { depth_min: 0, depth_max: u32::from(length), unit: Unit::route(next_hop, length) }
    }

    /// Draws a route's new next hop.
    #[must_use]
    pub fn modify(length: u8, next_hop: NextHopId) -> Self {
        Self { depth_min: u32::from(length), ..Self::insert(length, next_hop) }
    }

    /// Draws `parent` over a withdrawn route.
    #[must_use]
    pub fn delete(length: u8, parent: Unit) -> Self {
        Self { depth_min: u32::from(length), depth_max: u32::from(length), unit: parent }
    }

    /// Whether `unit`, which is not a chunk, is overwritten.
    #[must_use]
    pub const fn hits(self, unit: Unit) -> bool {
        unit.depth() >= self.depth_min && unit.depth() <= self.depth_max
    }
}

/// An operation for the device's update kernel.
#[must_use]
pub fn operation(kind: u32, prefix: Prefix4, unit: Unit) -> PrefixOp {
    let how = kind | u32::from(prefix.len()) << 8 | unit.depth() << 16;
    PrefixOp { address: prefix.address(), how, value: unit.value(), reserved: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    #[test]
    fn a_unit_keeps_its_parts() {
        let unit = Unit::route(NextHopId::MAX, 32);
        assert_eq!((unit.value(), unit.depth(), unit.to_chunk()), (0xff_ffff, 32, None));
        assert_eq!(Unit::chunk(0xff_ffff).to_chunk(), Some(0xff_ffff));
        assert_eq!(Unit::chunk(0).to_chunk(), Some(0));
        assert_eq!(Unit::route(NextHopId::NONE, 0), Unit(0), "no route is zero");
    }

    #[test]
    fn a_wider_route_never_overwrites_a_narrower_one() {
        let narrow = Unit::route(id(1), 24);
        assert!(!Draw::insert(16, id(2)).hits(narrow) && Draw::insert(24, id(2)).hits(narrow));
        assert!(!Draw::modify(25, id(2)).hits(narrow) && Draw::modify(24, id(2)).hits(narrow));
        assert!(!Draw::delete(16, Unit(0)).hits(narrow) && Draw::delete(24, Unit(0)).hits(narrow));
        assert!(Draw::insert(0, id(2)).hits(Unit(0)) && Draw::delete(0, Unit(0)).hits(Unit::route(id(2), 0)));
    }
}
