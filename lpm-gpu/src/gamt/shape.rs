//! The shape of a table on the device: position and room of each level.

use super::code::{LEVEL_UNITS_MAX, stride_at};
use super::options::Layout;
use super::strides::{Census, StridePlan};
use crate::host::HEADER_WORDS;
use fib::EngineError;

/// Least head room of a level, units, so that small tables can grow.
const ROOM_UNITS_MIN: u64 = 4096;

/// Alignment of levels in the flat layout, words: a cache line of 128 bytes.
const ALIGN_WORDS: u64 = 32;

/// Position and room of each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrieShape {
    /// Bits of a key that are searched: 32 or 64.
    pub bits: u8,
    /// Stride of each level, bits.
    pub strides: Vec<u8>,
    /// Layout of the levels.
    pub layout: Layout,
    /// First word of each level.
    pub bases: Vec<u32>,
    /// Units that each level has room for.
    pub rooms: Vec<u32>,
    /// The array width (section 4.2): units of the level with the most room.
    pub width: u32,
    /// Words of the array.
    pub words: u64,
}

impl TrieShape {
    /// Lays out a plan with as much of `headroom_percent` as `words_max` words allow.
    ///
    /// # Errors
    /// [`EngineError::Full`] when the plan has more words even without head room, or a level has more units than `inf` can
    /// address.
    pub fn fit(
        census: &Census,
        plan: &StridePlan,
        layout: Layout,
        headroom_percent: u32,
        words_max: u64,
    ) -> Result<Self, EngineError> {
        let words_max = words_max.min(u64::from(u32::MAX));
        // Less and less head room, down to none. Share 0 drops the least room, too.
        let (percent, mut last) = (u64::from(headroom_percent), 0);
        let tries = [(percent, 1), (percent / 2, 1), (percent / 4, 2), (percent / 8, 8), (0, 64), (0, 0)];
        for (percent, share) in tries {
            let shape = Self::with_room(census, plan, layout, percent, share)?;
            if shape.words <= words_max {
                return Ok(shape);
            }
            last = shape.words;
        }
        Err(EngineError::Full { what: "table bytes", used: last * 4, limit: words_max * 4 })
    }

    /// Divides [`ROOM_UNITS_MIN`] by `share`; 0 leaves it out.
    fn with_room(
        census: &Census,
        plan: &StridePlan,
        layout: Layout,
        percent: u64,
        share: u64,
    ) -> Result<Self, EngineError> {
        let mut rooms = Vec::with_capacity(plan.strides.len());
        let mut depth = 0;
        for stride in &plan.strides {
            let node = 1_u64 << stride;
            // A depth without inner nodes has an empty level; the root always exists.
            let nodes = census.nodes(depth).max(u64::from(depth == 0));
            let used = nodes.saturating_mul(node);
            if used > LEVEL_UNITS_MAX {
                return Err(EngineError::Full { what: "units of a level", used, limit: LEVEL_UNITS_MAX });
            }
            let least = ROOM_UNITS_MIN.checked_div(share).map_or(0, |room| room.max(node));
            let room = if depth == 0 { 0 } else { (used * percent / 100).max(least) };
            let units = (used + room).min(LEVEL_UNITS_MAX) / node * node;
            rooms.push(u32::try_from(units).unwrap_or(u32::MAX));
            depth += stride;
        }
        Ok(Self::lay_out(census.bits(), plan.strides.clone(), layout, rooms))
    }

    fn lay_out(bits: u8, strides: Vec<u8>, layout: Layout, rooms: Vec<u32>) -> Self {
        let width = rooms.iter().copied().max().unwrap_or(0);
        let mut next = if layout == Layout::Paper { u64::from(width) } else { 0 };
        let mut bases = Vec::with_capacity(rooms.len());
        for room in &rooms {
            bases.push(u32::try_from(next).unwrap_or(u32::MAX));
            next += match layout {
                Layout::Flat => u64::from(*room).next_multiple_of(ALIGN_WORDS),
                Layout::Paper => u64::from(width),
            };
        }
        Self { bits, strides, layout, bases, rooms, width, words: next }
    }

    /// The header that the kernels read.
    #[must_use]
    pub fn header(&self) -> [u32; HEADER_WORDS] {
        let mut header = [0; HEADER_WORDS];
        header[0] = u32::try_from(self.strides.len()).unwrap_or(0);
        header[1] = self.width;
        header[2] = u32::from(self.bits);
        for (level, (stride, base)) in (1..).zip(self.strides.iter().zip(&self.bases)) {
            header[stride_at(level)] = u32::from(*stride);
            header[stride_at(level) + 1] = *base;
        }
        header
    }
}

/// Most bytes that a plan without head room takes on the device.
#[must_use]
pub fn plan_bytes(plan: &StridePlan, layout: Layout) -> u64 {
    match layout {
        Layout::Flat => plan.units.saturating_add(ALIGN_WORDS * plan.strides.len() as u64).saturating_mul(4),
        Layout::Paper => plan.width.saturating_mul(4 * (plan.strides.len() as u64 + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census() -> Census {
        Census::new(32, (0..1000_u64).map(|n| (n << 44, 24)))
    }

    #[test]
    fn levels_do_not_overlap_and_the_header_says_where_they_are() {
        let census = census();
        let plan = StridePlan::of_levels(&census, 5, 32);
        for layout in [Layout::Flat, Layout::Paper] {
            let shape = TrieShape::fit(&census, &plan, layout, 25, 1 << 30).unwrap();
            let ends = shape.bases.iter().zip(&shape.rooms).map(|(base, room)| u64::from(base + room));
            let starts = shape.bases.iter().skip(1).map(|base| u64::from(*base)).chain([shape.words]);
            assert!(ends.zip(starts).all(|(end, start)| end <= start), "{shape:?}");
            let header = shape.header();
            assert_eq!((header[0], header[1], header[2]), (5, shape.width, 32));
            assert_eq!((header[6], header[7]), (u32::from(shape.strides[0]), shape.bases[0]));
            if layout == Layout::Paper {
                assert_eq!(shape.words, 6 * u64::from(shape.width));
            }
        }
    }

    #[test]
    fn head_room_gives_way_before_the_table_is_refused() {
        let census = census();
        let plan = StridePlan::of_levels(&census, 5, 32);
        let tight = plan.units + 5 * ALIGN_WORDS;
        let shape = TrieShape::fit(&census, &plan, Layout::Flat, 100, tight).unwrap();
        assert!(shape.words <= tight);
        let refused = TrieShape::fit(&census, &plan, Layout::Flat, 100, plan.units / 2).unwrap_err();
        assert!(matches!(refused, EngineError::Full { what: "table bytes", used, limit } if used > limit));
    }
}
