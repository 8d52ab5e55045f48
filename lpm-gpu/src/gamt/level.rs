//! One level of the trie on the host: its nodes' units, their routes, and the units that the device does not have yet. All
//! nodes have `2^stride` units, so a level is an array of equal nodes. Each node has a heap of the routes that end in it:
//! the route of r bits of this level (r = 1..=stride) is at place `2^r + its bits`, so half of a place is its parent. A
//! route owns the leaves of the heap below it that no longer route covers. Place 0 holds the code that the whole node
//! inherits (in the root: the default route), place 1 the number of the node's routes and child nodes.

use super::bubbles::BubbleRow;
use super::code::{DEEP, LEVEL_UNITS_MAX, child, inf, is_leaf, jump, leaf};
use std::collections::VecDeque;

/// A build in the background needs a level with at least `1 / HEADROOM_MIN_SHARE` of its room as head room.
const HEADROOM_MIN_SHARE: u32 = 32;

/// Set in place 1 of a node that is in `empties`.
const LISTED: u32 = 1 << 31;

#[derive(Clone, Debug, Default)]
pub(super) struct TrieLevel {
    /// From 1, as in jump codes.
    pub(super) number: u32,
    /// First bit of the key that this level reads.
    pub(super) start: u8,
    pub(super) stride: u8,
    /// Codes, as the device has them after the next steps.
    pub(super) units: Vec<u32>,
    /// Leaf codes of routes in heap order, `2^(stride+1)` places a node; 0 without a route.
    pub(super) routes: Vec<u32>,
    pub(super) stage: BubbleRow,
    /// Units that the device's array has room for.
    room: u32,
    headroom: u32,
    free: Vec<u32>,
    /// Unlinked nodes, with the update that unlinked them.
    limbo: VecDeque<(u64, u32)>,
    /// Nodes that have lost their last route or child.
    empties: Vec<u32>,
    /// The unit of the previous level that points to each node.
    parents: Vec<u32>,
}

impl TrieLevel {
    /// A level without nodes, or the bytes that could not be allocated, and why.
    pub(super) fn new(number: u32, start: u8, stride: u8, room: u32) -> Result<Self, (u64, String)> {
        let units = room as usize;
        let mut level = Self { number, start, stride, room, stage: BubbleRow::new(units), ..Self::default() };
        let reserved = level.units.try_reserve_exact(units).and(level.routes.try_reserve_exact(2 * units));
        reserved.map_err(|e| (12 * u64::from(room), e.to_string()))?;
        Ok(level)
    }

    pub(super) fn node_units(&self) -> u32 {
        1 << self.stride
    }

    /// Units in use, unlinked nodes included.
    pub(super) fn used(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn overflows(&self) -> bool {
        self.used() > self.room
    }

    pub(super) fn built(&mut self) {
        self.headroom = self.room.saturating_sub(self.used());
    }

    /// Whether less than `1 / share` of the head room is left.
    pub(super) fn is_short(&self, share: u32) -> bool {
        self.left(self.free.len()) < u64::from(self.headroom / share)
    }

    /// As [`Self::is_short`], also after all unlinked nodes are reclaimed. Not in a level that never had much: near the limit of memory
    /// another build would not gain much either.
    pub(super) fn wants_build(&self, share: u32) -> bool {
        let left = self.left(self.free.len() + self.limbo.len());
        left < u64::from(self.headroom / share) && self.headroom >= self.room / HEADROOM_MIN_SHARE
    }

    /// Units left, with `nodes` unlinked nodes.
    fn left(&self, nodes: usize) -> u64 {
        u64::from(self.room.saturating_sub(self.used())) + ((nodes as u64) << self.stride)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a stride is 24 bits at most")]
    pub(super) fn unit(&self, node: u32, key: u64) -> u32 {
        // The stride is at least 1.
        node + (key << self.start >> (64 - self.stride)) as u32
    }

    /// Heap place of a route that ends in this level: `start < len <= start + stride`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a stride is 24 bits at most")]
    pub(super) fn place(&self, key: u64, len: u8) -> u32 {
        let bits = len - self.start;
        1 << bits | (key << self.start >> (64 - bits)) as u32
    }

    #[inline]
    pub(super) fn route(&self, node: u32, place: u32) -> u32 {
        self.routes[2 * node as usize + place as usize]
    }

    #[inline]
    pub(super) fn set_route(&mut self, node: u32, place: u32, code: u32) {
        self.routes[2 * node as usize + place as usize] = code;
    }

    /// The code of the longest route that covers a place; 0 without one.
    #[inline]
    pub(super) fn cover(&self, node: u32, place: u32) -> u32 {
        let routes = &self.routes[2 * node as usize..];
        let mut at = place >> 1;
        while at > 1 {
            let code = routes[at as usize];
            if code != 0 {
                return code;
            }
            at >>= 1;
        }
        routes[0]
    }

    /// Appends or reuses a node, its units all `code`, for unit `parent` of the previous level. `None` when no offset is left.
    pub(super) fn add_node(&mut self, code: u32, parent: u32) -> Option<u32> {
        let units = self.node_units();
        let node = if let Some(node) = self.free.pop() {
            self.units[node as usize..(node + units) as usize].fill(code);
            node
        } else {
            let node = self.used();
            if u64::from(node) + u64::from(units) > LEVEL_UNITS_MAX {
                return None;
            }
            self.units.resize(self.units.len() + units as usize, code);
            self.routes.resize(self.routes.len() + 2 * units as usize, 0);
            self.parents.push(0);
            node
        };
        self.set_route(node, 0, code);
        self.set_route(node, 1, 0);
        self.parents[(node >> self.stride) as usize] = parent;
        Some(node)
    }

    #[inline]
    pub(super) fn count_up(&mut self, node: u32) {
        self.routes[2 * node as usize + 1] += 1;
    }

    pub(super) fn count_down(&mut self, node: u32) {
        let count = &mut self.routes[2 * node as usize + 1];
        *count -= 1;
        if *count == 0 && self.number > 1 {
            *count = LISTED;
            self.empties.push(node);
        }
    }

    pub(super) fn take_empties(&mut self) -> Vec<u32> {
        let mut empties = std::mem::take(&mut self.empties);
        empties.retain(|node| {
            let count = &mut self.routes[2 * *node as usize + 1];
            *count &= !LISTED;
            *count == 0
        });
        empties
    }

    pub(super) fn parent(&self, node: u32) -> u32 {
        self.parents[(node >> self.stride) as usize]
    }

    pub(super) fn inherited(&self, node: u32) -> u32 {
        self.route(node, 0)
    }

    pub(super) fn retire(&mut self, node: u32, update: u64) {
        self.stage.forget(node, self.node_units());
        self.limbo.push_back((update, node));
    }

    pub(super) fn reclaim(&mut self, update: u64) {
        while let Some((_, node)) = self.limbo.pop_front_if(|(unlinked, _)| *unlinked <= update) {
            self.free.push(node);
        }
    }

    /// Whether `nodes` more nodes fit after all unlinked ones are reclaimed.
    pub(super) fn has_room(&self, nodes: u32) -> bool {
        let again = (self.free.len() + self.limbo.len()) as u64;
        let fresh = u64::from(self.room.saturating_sub(self.used()) >> self.stride);
        u64::from(nodes) <= again + fresh
    }

    pub(super) fn has_unlinked(&self) -> bool {
        !self.limbo.is_empty()
    }

    pub(super) fn link(&mut self, unit: u32, node: u32) {
        self.units[unit as usize] = child(node, self.number + 1);
        self.stage.mark(unit);
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.units.capacity() * 4 + self.routes.capacity() * 4 + self.room as usize / 8) as u64
    }
}

/// Writes a code to the units of one node that lie below a heap place and that no longer route owns.
pub(super) struct Brush<'a> {
    routes: &'a [u32],
    units: &'a mut [u32],
    stage: &'a mut BubbleRow,
    node: u32,
    code: u32,
    pub(super) children: &'a mut Vec<u32>,
    /// Groups of longer prefixes whose cover has the code from now on.
    pub(super) deep: &'a mut Vec<(u32, u32)>,
}

impl<'a> Brush<'a> {
    pub(super) fn new(
        level: &'a mut TrieLevel,
        node: u32,
        code: u32,
        children: &'a mut Vec<u32>,
        deep: &'a mut Vec<(u32, u32)>,
    ) -> Self {
        let (first, size) = (node as usize, level.node_units() as usize);
        Self {
            routes: &level.routes[2 * first..2 * (first + size)],
            units: &mut level.units[first..first + size],
            stage: &mut level.stage,
            node,
            code,
            children,
            deep,
        }
    }

    pub(super) fn paint(&mut self, place: usize) {
        if place >= self.units.len() {
            return self.unit(place - self.units.len());
        }
        for below in [2 * place, 2 * place + 1] {
            if self.routes[below] == 0 {
                self.paint(below);
            }
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a node has 2^24 units at most")]
    fn unit(&mut self, at: usize) {
        let unit = &mut self.units[at];
        if jump(*unit) != 0 {
            self.children.push(inf(*unit));
        } else if *unit & DEEP != 0 {
            self.deep.push((inf(*unit), self.code));
        } else if *unit != self.code {
            *unit = self.code;
            self.stage.mark(self.node + at as u32);
        }
    }
}

/// Marks a unit as having the longer prefixes of `group`. Returns its previous leaf code.
pub(super) fn mark_deep(level: &mut TrieLevel, unit: u32, group: u32) -> u32 {
    let code = &mut level.units[unit as usize];
    debug_assert!(is_leaf(*code));
    let before = *code;
    *code = leaf(group) | DEEP;
    level.stage.mark(unit);
    before
}
