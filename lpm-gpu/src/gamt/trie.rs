//! The leaf-pushed multi-bit trie on the host (GAMT, sections 3.1 and 3.2); the device has a copy of its units. It is also
//! the FIB: a route is kept in the node in which it ends ([`TrieLevel`]), and a change rewrites only the units that it owns.
//! Empty nodes stay (lazy mode, section 4.3) until their level runs short; then they are unlinked, one unit each, and reused
//! after the grace period.
//!
//! **Each single write is correct.** [`GamtTrie::take_bubbles`] returns two lists. The first fills nodes that no pointer
//! on the device leads to. The second then changes, in any order: a leaf to another leaf; a leaf to a pointer to a node
//! filled with the new state; a pointer to an unlinked node to a leaf. Unlinked nodes are not written, and nodes in use
//! do not move. So the path of a key has at most one unit that changes, from the old answer, or the path to it, to the new
//! one. That holds for nested prefixes in one delta, too: a unit changes once, from its value before to its value after.

use super::bubbles::Bubble;
use super::code::{DEEP, inf, is_leaf, jump};
use super::level::{Brush, TrieLevel, mark_deep};
use super::shape::TrieShape;

/// Most bits of a key that number a slice of the routes.
const SLICE_BITS_MAX: u8 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrieEntry {
    pub(super) key: u64,
    /// 0..=bits.
    pub(super) len: u8,
    /// Leaf code; 0 for a path without a route.
    pub(super) code: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TriePlace {
    level: usize,
    node: u32,
    /// Heap place in the node; 0 is the default route.
    at: u32,
}

#[derive(Debug)]
pub(super) struct GamtTrie {
    shape: TrieShape,
    pub(super) levels: Vec<TrieLevel>,
    /// The level in which a route of each length ends.
    level_of: [u8; 65],
    /// Groups of longer prefixes with a new cover code.
    pub(super) fallbacks: Vec<(u32, u32)>,
    heirs: Vec<(usize, u32)>,
    children: Vec<u32>,
    collapsed: u64,
}

impl GamtTrie {
    pub(super) fn empty(shape: TrieShape) -> Result<Self, (u64, String)> {
        let mut levels: Vec<TrieLevel> = Vec::with_capacity(shape.strides.len());
        let (mut level_of, mut start, mut number) = ([0; 65], 0_u8, 0_u8);
        for (stride, room) in shape.strides.iter().zip(&shape.rooms) {
            for len in start + 1..=start + stride {
                level_of[usize::from(len)] = number;
            }
            levels.push(TrieLevel::new(u32::from(number) + 1, start, *stride, *room)?);
            start += stride;
            number += 1;
        }
        levels[0].add_node(0, 0);
        Ok(Self {
            shape,
            levels,
            level_of,
            fallbacks: Vec::new(),
            heirs: Vec::new(),
            children: Vec::new(),
            collapsed: 0,
        })
    }

    pub(super) fn shape(&self) -> &TrieShape {
        &self.shape
    }

    pub(super) fn level_of(&self, len: u8) -> usize {
        usize::from(self.level_of[usize::from(len)])
    }

    pub(super) fn overflows(&self) -> bool {
        self.levels.iter().any(TrieLevel::overflows)
    }

    /// Whether a level has less than `1 / share` of its head room left, and a new build would help.
    pub(super) fn wants_build(&self, share: u32) -> bool {
        self.levels.iter().any(|level| level.wants_build(share))
    }

    pub(super) fn find(&self, key: u64, len: u8) -> Option<TriePlace> {
        let target = self.level_of(len);
        let mut node = 0;
        for level in &self.levels[..target] {
            let code = level.units[level.unit(node, key) as usize];
            if is_leaf(code) {
                return None;
            }
            node = inf(code);
        }
        Some(TriePlace { level: target, node, at: self.offset_of(target, key, len) })
    }

    pub(super) fn leaf(&self, key: u64) -> u32 {
        let (mut node, mut code) = (0, 0);
        for level in &self.levels {
            code = level.units[level.unit(node, key) as usize];
            if is_leaf(code) {
                break;
            }
            node = inf(code);
        }
        code
    }

    fn offset_of(&self, level: usize, key: u64, len: u8) -> u32 {
        if len == 0 { 0 } else { self.levels[level].place(key, len) }
    }

    /// The place of a route, with the nodes on its path created; `None` when a level has no offsets left.
    pub(super) fn find_or_make(&mut self, key: u64, len: u8) -> Option<TriePlace> {
        let target = self.level_of(len);
        let mut node = 0;
        for l in 0..target {
            let level = &self.levels[l];
            let parent = level.unit(node, key);
            let code = level.units[parent as usize];
            if !is_leaf(code) {
                node = inf(code);
                continue;
            }
            let below = &mut self.levels[l + 1];
            let made = below.add_node(code, parent)?;
            below.stage.mark_fresh(made, below.node_units());
            self.levels[l].link(parent, made);
            self.levels[l].count_up(node);
            node = made;
        }
        Some(TriePlace { level: target, node, at: self.offset_of(target, key, len) })
    }

    /// Adds the nodes that a new route would create, by level from 0.
    pub(super) fn count_missing(&self, key: u64, len: u8, nodes: &mut [u32]) {
        let target = self.level_of(len);
        let mut node = 0;
        for l in 0..target {
            let level = &self.levels[l];
            let code = level.units[level.unit(node, key) as usize];
            if is_leaf(code) {
                return nodes[l + 1..=target].iter_mut().for_each(|count| *count += 1);
            }
            node = inf(code);
        }
    }

    pub(super) fn has_room(&self, nodes: &[u32]) -> bool {
        self.levels.iter().zip(nodes).all(|(level, nodes)| level.has_room(*nodes))
    }

    pub(super) fn has_unlinked(&self) -> bool {
        self.levels.iter().any(TrieLevel::has_unlinked)
    }

    #[inline]
    pub(super) fn code(&self, place: TriePlace) -> u32 {
        self.levels[place.level].route(place.node, place.at)
    }

    #[inline]
    pub(super) fn cover(&self, place: TriePlace) -> u32 {
        if place.at == 0 { 0 } else { self.levels[place.level].cover(place.node, place.at) }
    }

    pub(super) fn put(&mut self, place: TriePlace, code: u32) {
        let level = &mut self.levels[place.level];
        if place.at != 0 && level.route(place.node, place.at) == 0 {
            level.count_up(place.node);
        }
        level.set_route(place.node, place.at, code);
        self.paint(place, code);
    }

    /// Removes a route. Its units get the code of its cover.
    pub(super) fn remove(&mut self, place: TriePlace) {
        let cover = self.cover(place);
        let level = &mut self.levels[place.level];
        level.set_route(place.node, place.at, 0);
        if place.at != 0 {
            level.count_down(place.node);
        }
        self.paint(place, cover);
    }

    fn paint(&mut self, place: TriePlace, code: u32) {
        let mut place = (place.level, place.node, place.at.max(1) as usize);
        loop {
            let (level, node, at) = place;
            Brush::new(&mut self.levels[level], node, code, &mut self.children, &mut self.fallbacks)
                .paint(at);
            self.heirs.extend(self.children.drain(..).map(|child| (level + 1, child)));
            let Some((level, node)) = self.heirs.pop() else { return };
            self.levels[level].set_route(node, 0, code);
            place = (level, node, 1);
        }
    }

    pub(super) fn mark_deep(&mut self, key: u64, place: TriePlace, group: u32) -> u32 {
        let level = &mut self.levels[place.level];
        level.count_up(place.node);
        let unit = level.unit(place.node, key);
        mark_deep(level, unit, group)
    }

    pub(super) fn unmark_deep(&mut self, key: u64, place: TriePlace, code: u32) {
        let level = &mut self.levels[place.level];
        let unit = level.unit(place.node, key);
        debug_assert!(level.units[unit as usize] & DEEP != 0);
        level.units[unit as usize] = code;
        level.stage.mark(unit);
        level.count_down(place.node);
    }

    /// Unlinks the empty nodes of levels with less than `1 / share` of their head room left, deepest level first.
    pub(super) fn collapse(&mut self, update: u64, share: u32) {
        for l in (1..self.levels.len()).rev() {
            if !self.levels[l].is_short(share) {
                continue;
            }
            for node in self.levels[l].take_empties() {
                let level = &mut self.levels[l];
                let (code, parent) = (level.inherited(node), level.parent(node));
                level.retire(node, update);
                let above = &mut self.levels[l - 1];
                above.units[parent as usize] = code;
                above.stage.mark(parent);
                above.count_down(parent & !(above.node_units() - 1));
                self.collapsed += 1;
            }
        }
    }

    pub(super) fn collapsed(&self) -> u64 {
        self.collapsed
    }

    pub(super) fn reclaim(&mut self, update: u64) {
        for level in &mut self.levels {
            level.reclaim(update);
        }
    }

    /// Units that the device does not have yet, an upper bound.
    pub(super) fn pending(&self) -> u64 {
        self.levels.iter().map(|level| level.stage.len(level.node_units())).sum()
    }

    /// The bubbles of fresh nodes and of all other changed units, the deepest stage first (Algorithm 2).
    pub(super) fn take_bubbles(&mut self) -> (Vec<Bubble>, Vec<Bubble>) {
        let (mut fresh, mut rest) = (Vec::new(), Vec::new());
        for level in self.levels.iter_mut().rev() {
            let units = level.node_units();
            level.stage.take_fresh(level.number, &level.units, units, &mut fresh);
            level.stage.take_changed(level.number, &level.units, &mut rest);
        }
        (fresh, rest)
    }

    pub(super) fn forget_bubbles(&mut self) {
        for level in &mut self.levels {
            let units = level.node_units();
            level.stage.clear(units);
        }
    }

    /// All routes, sorted by key, then length.
    pub(super) fn entries(&self, routes: usize) -> Vec<TrieEntry> {
        let mut out = Vec::with_capacity(routes);
        (0..self.slices()).for_each(|slice| self.collect_slice(slice, &mut out));
        out
    }

    fn slice_bits(&self) -> u8 {
        self.levels[0].stride.min(SLICE_BITS_MAX)
    }

    /// The number of slices of [`Self::collect_slice`].
    pub(super) fn slices(&self) -> u32 {
        1 << self.slice_bits()
    }

    /// Appends the routes of a slice. The slices in order are all routes, sorted by key, then length.
    pub(super) fn collect_slice(&self, slice: u32, out: &mut Vec<TrieEntry>) {
        let (root, bits) = (&self.levels[0], self.slice_bits());
        let code = root.inherited(0);
        if slice == 0 && code != 0 {
            out.push(TrieEntry { key: 0, len: 0, code });
        }
        let place = 1 << bits | slice;
        // Shorter routes are in the first slice that they cover.
        for len in (1..bits).filter(|len| slice.trailing_zeros() >= u32::from(bits - len)) {
            let above = place >> (bits - len);
            let code = root.route(0, above);
            if code != 0 {
                let key = u64::from(above ^ 1 << len) << (64 - len);
                out.push(TrieEntry { key, len, code });
            }
        }
        self.collect((0, 0), 0, (place as usize, bits), out);
    }

    /// Appends the routes of a node at and below the heap place `top`, of as many bits of the level.
    fn collect(&self, (l, node): (usize, u32), key: u64, top: (usize, u8), out: &mut Vec<TrieEntry>) {
        let level = &self.levels[l];
        let (size, first) = (level.node_units() as usize, node as usize);
        let routes = &level.routes[2 * first..2 * (first + size)];
        let units = &level.units[first..first + size];
        if routes[1] == 0 {
            return;
        }
        // In-order walk over the heap: `place` has `bits` bits of this level.
        let (mut place, mut bits) = top;
        loop {
            let shift = 64 - u32::from(level.start + bits);
            let key = key | ((place as u64) ^ (1 << bits)).checked_shl(shift).unwrap_or(0);
            if bits > 0 && routes[place] != 0 {
                out.push(TrieEntry { key, len: level.start + bits, code: routes[place] });
            }
            if bits < level.stride {
                (place, bits) = (2 * place, bits + 1);
                continue;
            }
            let code = units[place - size];
            if jump(code) != 0 {
                self.collect((l + 1, inf(code)), key, (1, 0), out);
            }
            // Up while this is a right child, then to the sibling.
            while place & 1 == 1 && bits > top.1 {
                (place, bits) = (place >> 1, bits - 1);
            }
            if bits == top.1 {
                return;
            }
            place += 1;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.levels.iter().map(TrieLevel::bytes).sum()
    }
}
