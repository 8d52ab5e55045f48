//! Properties of a traffic over a table, counted from the routes without a clock: the basis of the analysis sentences.

use crate::keys::KeySet;
use crate::tables::RouteSet;
use fib::{Family, Key, Prefix};
use std::collections::HashSet;

const KEYS: usize = 1 << 20;
/// Keys for the counts of lengths, fewer since the oracle is slow.
const LENGTH_KEYS: usize = 1 << 14;
const ENTRIES_A_LINE: u32 = 16;

/// Blocks with longer prefixes, at the depths of DPDK's second-level groups (24, 32, ..), and at the width of a direct array.
#[derive(Debug)]
pub(crate) struct Blocks {
    family: Family,
    longer: HashSet<(u8, u128)>,
}

impl Blocks {
    pub(crate) fn from_routes(tables: &RouteSet, family: Family) -> Self {
        let (mut longer, depths) = (HashSet::new(), Self::group_depths(family));
        match family {
            Family::V4 => mark(tables.rib.v4.prefixes(), &depths, &mut longer),
            Family::V6 => mark(tables.rib.v6.prefixes(), &depths, &mut longer),
        }
        Self { family, longer }
    }

    /// The blocks of `family` at `depths`, from routes that change an answer.
    fn of_used(tables: &RouteSet, family: Family, depths: &[u8]) -> Self {
        let mut longer = HashSet::new();
        match family {
            Family::V4 => mark(tables.rib.v4.used().map(|(prefix, _)| prefix), depths, &mut longer),
            Family::V6 => mark(tables.rib.v6.used().map(|(prefix, _)| prefix), depths, &mut longer),
        }
        Self { family, longer }
    }

    /// The depths of DPDK's groups: after 24 bits, then after each byte.
    fn group_depths(family: Family) -> Vec<u8> {
        (24..family.bits()).step_by(8).collect()
    }

    #[cfg(any(feature = "dpdk", test))]
    pub(crate) fn count(&self) -> usize {
        self.longer.len()
    }

    /// Whether the block of `depth` bits around `key` (aligned to the most significant bit) has longer prefixes.
    fn has_longer(&self, depth: u8, key: u128) -> bool {
        self.longer.contains(&(depth, key & u128::mask(depth)))
    }
}

fn mark<K: Key>(prefixes: impl Iterator<Item = Prefix<K>>, depths: &[u8], longer: &mut HashSet<(u8, u128)>) {
    for prefix in prefixes {
        for depth in depths.iter().filter(|depth| **depth < prefix.len()) {
            longer.insert((*depth, prefix.address().to_high_bits() & u128::mask(*depth)));
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    pub(crate) matched: f64,
    /// Mean length of the longest match, over keys with a route.
    pub(crate) len_mean: f64,
    /// Share of keys whose entry in a direct array of [`Profile::direct_bits`] has longer prefixes that change an answer.
    pub(crate) below_direct: f64,
    pub(crate) direct_bits: u8,
    pub(crate) oracle_probes: f64,
    /// Dependent loads of DIR24_8 or TRIE a key, after the first.
    pub(crate) group_loads: f64,
    /// Bytes of the 64-byte lines that these keys touch in an array of 2^24 4-byte entries and its groups.
    pub(crate) touched_bytes: u64,
    pub(crate) keys: usize,
}

impl Profile {
    pub(crate) fn measure(keys: &KeySet, tables: &RouteSet, blocks: &Blocks, direct_bits: u8) -> Self {
        let mut profile = Self { direct_bits, ..Self::default() };
        profile.count_lengths(keys, tables, direct_bits);
        profile.count_lines(keys, blocks);
        profile
    }

    fn count_lengths(&mut self, keys: &KeySet, tables: &RouteSet, direct_bits: u8) {
        let direct = Blocks::of_used(tables, keys.family(), &[direct_bits]);
        let mut used = [false; 129];
        tables.lens(keys.family()).into_iter().for_each(|len| used[usize::from(len)] = true);
        let count = keys.len().min(LENGTH_KEYS);
        let (mut matched, mut bits, mut probes, mut below) = (0_u64, 0_u64, 0_u64, 0_u64);
        for at in 0..count {
            let found = keys.longest_match(tables, at);
            let len = found.map_or(0, |(len, _)| len);
            matched += u64::from(found.is_some());
            bits += u64::from(len);
            probes += used[usize::from(len)..].iter().filter(|used| **used).count() as u64;
            below += u64::from(direct.has_longer(direct_bits, keys.high_bits(at)));
        }
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        self.matched = share(matched, count as u64);
        self.len_mean = share(bits, matched);
        self.oracle_probes = share(probes, count as u64);
        self.below_direct = share(below, count as u64);
    }

    fn count_lines(&mut self, keys: &KeySet, blocks: &Blocks) {
        let depths = Blocks::group_depths(blocks.family);
        let mut direct_lines = HashSet::new();
        let mut group_lines = HashSet::new();
        let (count, mut loads) = (keys.len().min(KEYS), 0_u64);
        for at in 0..count {
            let key = keys.high_bits(at);
            direct_lines.insert((key >> (128 - 24)) / u128::from(ENTRIES_A_LINE));
            for depth in &depths {
                if !blocks.has_longer(*depth, key) {
                    break;
                }
                loads += 1;
                // A group has 256 entries: 16 lines, selected by the first 4 of its 8 bits.
                group_lines.insert((*depth, key & u128::mask(depth + 4)));
            }
        }
        self.keys = count;
        self.group_loads = if count == 0 { 0.0 } else { loads as f64 / count as f64 };
        self.touched_bytes = (direct_lines.len() + group_lines.len()) as u64 * 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::traffic::Traffic;

    #[test]
    fn groups_are_counted_as_dpdk_makes_them() {
        let tables = RouteSet::of_routes(&[
            "10.0.0.0/24 1",
            "10.0.0.0/25 2",
            "10.0.0.128/32 3",
            "10.0.1.0/30 4",
            "2001:d00::/24 1",
            "2001:db8::/32 2",
            "2001:db8:1::/48 3",
        ]);
        let v4 = Blocks::from_routes(&tables, Family::V4);
        assert_eq!(v4.count(), 2);
        // Below 24 bits: one for the /32 and the /48 together; below 32 and 40 bits: one each for the /48.
        let v6 = Blocks::from_routes(&tables, Family::V6);
        assert_eq!(v6.count(), 3);
    }

    #[test]
    fn a_profile_counts_loads_lines_and_lengths() {
        let tables = RouteSet::of_routes(&["10.0.0.0/24 1", "10.0.0.0/25 2"]);
        let keys = KeySet::make(&Traffic::Table, Family::V4, &tables, 4096, 3, false).unwrap();
        let blocks = Blocks::from_routes(&tables, Family::V4);
        let profile = Profile::measure(&keys, &tables, &blocks, 20);
        // One line of the direct array and at most 16 of the one group.
        assert_eq!((profile.matched, profile.group_loads, profile.below_direct), (1.0, 1.0, 1.0));
        assert_eq!(profile.touched_bytes, 17 * 64);
        assert!(profile.len_mean > 24.0 && profile.len_mean < 25.0);
        assert!(profile.oracle_probes > 1.0 && profile.oracle_probes < 2.0);
        let same = RouteSet::of_routes(&["10.0.0.0/8 1", "10.0.0.0/24 1", "10.9.0.0/16 2", "10.9.0.0/24 2"]);
        let profile = Profile::measure(&keys, &same, &Blocks::from_routes(&same, Family::V4), 20);
        assert_eq!(profile.below_direct, 0.0, "the /24s change no answer");
    }
}
