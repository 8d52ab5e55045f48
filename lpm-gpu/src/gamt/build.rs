//! A whole trie at once, from sorted routes.
//!
//! Each route goes to its node, nodes in order of address, so that what lies beside each other in the key lies beside each other
//! in memory; then one pass over each level, from the root down, pushes routes to the leaves.

use super::code::{inf, is_leaf};
use super::level::Level;
use super::shape::Shape;
use super::trie::{Entry, Trie};
use fib::EngineError;

/// Builds a trie. `entries` are in order of key, then length; one without a code makes the nodes that lead to it only.
///
/// # Errors
/// [`EngineError::Memory`].
pub(super) fn build(shape: Shape, entries: &[Entry]) -> Result<Trie, EngineError> {
    let mut trie = Trie::empty(shape).map_err(|(bytes, reason)| EngineError::Memory { bytes, reason })?;
    place(&mut trie, entries);
    let (mut codes, mut inherited) = (Vec::new(), Vec::new());
    for l in 0..trie.levels.len() {
        let (above, below) = trie.levels.split_at_mut(l + 1);
        push_down(&mut above[l], &mut codes, &mut inherited);
        if let Some(below) = below.first_mut() {
            for (node, code) in inherited.drain(..) {
                below.set_route(node, 0, code);
            }
        }
        above[l].built();
    }
    Ok(trie)
}

/// Puts each route where it ends, and makes the nodes on the way.
fn place(trie: &mut Trie, entries: &[Entry]) {
    // The nodes on the way to the route before, and how many of them there are.
    let (mut path, mut depth, mut before) = ([0_u32; 65], 0, 0_u64);
    for entry in entries {
        let target = trie.level_of(entry.len);
        let shared = (entry.key ^ before).leading_zeros();
        let mut l = depth.min(target);
        while u32::from(trie.levels[l].start) > shared {
            l -= 1;
        }
        while l < target {
            let unit = trie.levels[l].unit(path[l], entry.key);
            let code = trie.levels[l].units[unit as usize];
            path[l + 1] = if is_leaf(code) {
                // The shape has room for all nodes: it was made from the same routes.
                let Some(node) = trie.levels[l + 1].add_node(0, unit) else { return };
                let level = &mut trie.levels[l];
                level.units[unit as usize] = super::code::child(node, level.number + 1);
                level.count_up(path[l]);
                node
            } else {
                inf(code)
            };
            l += 1;
        }
        (depth, before) = (target, entry.key);
        let (level, node) = (&mut trie.levels[target], path[target]);
        if entry.len == 0 {
            level.set_route(node, 0, entry.code);
        } else if entry.code != 0 {
            let at = level.place(entry.key, entry.len);
            level.set_route(node, at, entry.code);
            level.count_up(node);
        }
    }
}

/// Gives each leaf of a level the code of the longest route that covers it, and lists for each child node what it inherits.
/// `codes` is scratch: the code at each heap place.
fn push_down(level: &mut Level, codes: &mut Vec<u32>, inherited: &mut Vec<(u32, u32)>) {
    let size = level.node_units() as usize;
    codes.clear();
    codes.resize(2 * size, 0);
    for (routes, units) in level.routes.chunks_exact(2 * size).zip(level.units.chunks_exact_mut(size)) {
        codes[1] = routes[0];
        for at in 2..2 * size {
            codes[at] = if routes[at] == 0 { codes[at / 2] } else { routes[at] };
        }
        for (unit, code) in units.iter_mut().zip(&codes[size..]) {
            if is_leaf(*unit) {
                *unit = *code;
            } else {
                inherited.push((inf(*unit), *code));
            }
        }
    }
}
