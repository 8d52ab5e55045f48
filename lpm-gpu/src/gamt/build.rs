//! Builds a whole trie from sorted routes: places them in their nodes in key order, which keeps neighbouring keys close in
//! memory, then pushes them to the leaves in one pass over the levels, from the root down.

use super::code::{inf, is_leaf};
use super::level::TrieLevel;
use super::shape::TrieShape;
use super::trie::{GamtTrie, TrieEntry};
use fib::EngineError;

/// `entries` are sorted by key, then length; one without a code only creates its path. Fails with [`EngineError::Memory`].
pub(super) fn build(shape: TrieShape, entries: &[TrieEntry]) -> Result<GamtTrie, EngineError> {
    let mut trie = GamtTrie::empty(shape).map_err(|(bytes, reason)| EngineError::Memory { bytes, reason })?;
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

fn place(trie: &mut GamtTrie, entries: &[TrieEntry]) {
    // The nodes on the path of the previous route, and their number.
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
                // Cannot fail: the shape was fitted to the same routes.
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

/// Gives each leaf the code of its longest route, and lists the code that each child inherits. `codes` is scratch.
fn push_down(level: &mut TrieLevel, codes: &mut Vec<u32>, inherited: &mut Vec<(u32, u32)>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gamt::code::leaf;
    use crate::gamt::options::Layout;
    use crate::gamt::strides::{Census, StridePlan};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn trie(entries: &[TrieEntry], levels: u8) -> GamtTrie {
        let census = Census::new(32, entries.iter().map(|entry| (entry.key, entry.len)));
        let plan = StridePlan::of_levels(&census, levels, 32);
        build(TrieShape::fit(&census, &plan, Layout::Flat, 25, 1 << 26).unwrap(), entries).unwrap()
    }

    fn longest(entries: &[TrieEntry], key: u64) -> u32 {
        let covers = |entry: &&TrieEntry| (entry.key ^ key).leading_zeros() >= u32::from(entry.len);
        entries.iter().filter(covers).max_by_key(|entry| entry.len).map_or(0, |entry| entry.code)
    }

    fn entries() -> impl Strategy<Value = Vec<TrieEntry>> {
        let route = (any::<u8>(), 0_u64..4, any::<u8>(), 0_u8..=32, 1_u32..100);
        proptest::collection::vec(route, 0..60).prop_map(|routes| {
            let routes: BTreeMap<(u64, u8), u32> = routes
                .into_iter()
                .map(|(high, middle, low, len, code)| {
                    let key = u64::from(high & 0xc1) << 56 | middle << 46 | u64::from(low) << 32;
                    let mask = u64::MAX.checked_shl(64 - u32::from(len)).unwrap_or(0);
                    ((key & mask, len), leaf(code))
                })
                .collect();
            routes.into_iter().map(|((key, len), code)| TrieEntry { key, len, code }).collect()
        })
    }

    proptest! {
        #[test]
        fn a_trie_answers_by_its_routes_however_it_was_made(
            entries in entries(),
            levels in 2_u8..=20,
            keys in proptest::collection::vec(any::<u32>(), 30),
        ) {
            let built = trie(&entries, levels);
            prop_assert_eq!(built.entries(0), entries.clone());
            let mut grown = trie(&[], levels);
            for entry in entries.iter().rev() {
                let place = grown.find_or_make(entry.key, entry.len).unwrap();
                grown.put(place, entry.code);
            }
            prop_assert_eq!(grown.entries(0), entries.clone());
            let near = entries.iter().flat_map(|entry| [entry.key, entry.key ^ 1 << 32, entry.key ^ 1 << 40]);
            for key in keys.iter().map(|key| u64::from(*key) << 32).chain(near) {
                let expected = longest(&entries, key);
                prop_assert_eq!([built.leaf(key), grown.leaf(key)], [expected; 2], "{:x}", key);
            }
            for entry in &entries {
                let place = grown.find(entry.key, entry.len).unwrap();
                prop_assert_eq!(grown.code(place), entry.code);
                grown.remove(place);
            }
            prop_assert!(grown.entries(0).is_empty());
            prop_assert!(keys.iter().all(|key| grown.leaf(u64::from(*key) << 32) == 0));
        }
    }
}
