//! Generated tables have the properties of real ones that affect the caches: full tables of January 2024 (public route collectors).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use fib::conformance::Options;
use fib::generate::{GenerateError, TableSpec, table};
use fib::testing::{data, load};
use fib::{Family, Key, NextHopId, Prefix};
use std::collections::{HashMap, HashSet};

#[derive(Debug, PartialEq)]
struct TableShape {
    routes: usize,
    /// Distinct blocks of a length that contain a route at least as long: `(length, blocks)`.
    blocks: Vec<(u8, usize)>,
    /// Distinct blocks of a length that contain the start of a route of any length, since lookups use the first bits first.
    starts: Vec<(u8, usize)>,
    /// Routes covered by another route, of a thousand.
    covered_permille: usize,
    /// Of a thousand covered routes, those with the next hop of the longest route that covers them.
    parent_next_hop_permille: usize,
    /// Routes that directly follow a route of the same length in the address space, of a thousand.
    adjacent_permille: usize,
    /// Of a thousand such routes, those with the same next hop as the route before.
    adjacent_next_hop_permille: usize,
    /// Of a thousand routes of /16 and longer (IPv6: /32), those in the busiest tenth of the /16s (IPv6: /32s).
    busiest_tenth_permille: usize,
}

impl TableShape {
    fn measure<K: Key>(routes: &[(Prefix<K>, NextHopId)]) -> Self {
        let (lens, crowd_len): (&[u8], u8) = match K::FAMILY {
            Family::V4 => (&[16, 20, 24], 16),
            Family::V6 => (&[20, 24, 28, 32, 36, 40, 44, 48], 32),
        };
        let distinct = |len: u8, all: bool| {
            let long = routes.iter().filter(|(prefix, _)| all || prefix.len() >= len);
            long.map(|(prefix, _)| prefix.address() & K::mask(len)).collect::<HashSet<_>>().len()
        };
        let mut above: Vec<(Prefix<K>, NextHopId)> = Vec::new();
        let (mut covered, mut as_parent, mut adjacent, mut as_before) = (0, 0, 0, 0);
        let mut before: Option<(Prefix<K>, NextHopId)> = None;
        let mut crowds: HashMap<K, usize> = HashMap::new();
        for (prefix, next_hop) in routes {
            while above.last().is_some_and(|(over, _)| !over.covers(*prefix)) {
                above.pop();
            }
            if let Some((_, over)) = above.last() {
                covered += 1;
                as_parent += usize::from(over == next_hop);
            }
            if let Some((last, same)) = before
                && last.len() == prefix.len()
                && last.last_address().to_high_bits() >> (128 - u32::from(K::BITS))
                    == (prefix.address().to_high_bits() >> (128 - u32::from(K::BITS))).wrapping_sub(1)
            {
                adjacent += 1;
                as_before += usize::from(same == *next_hop);
            }
            if prefix.len() >= crowd_len {
                *crowds.entry(prefix.address() & K::mask(crowd_len)).or_default() += 1;
            }
            before = Some((*prefix, *next_hop));
            above.push((*prefix, *next_hop));
        }
        let mut crowds: Vec<_> = crowds.into_values().collect();
        crowds.sort_unstable_by(|a, b| b.cmp(a));
        let busiest: usize = crowds.iter().take(crowds.len() / 10).sum();
        Self {
            routes: routes.len(),
            blocks: lens.iter().map(|len| (*len, distinct(*len, false))).collect(),
            starts: lens.iter().map(|len| (*len, distinct(*len, true))).collect(),
            covered_permille: covered * 1000 / routes.len(),
            parent_next_hop_permille: as_parent * 1000 / covered.max(1),
            adjacent_permille: adjacent * 1000 / routes.len(),
            adjacent_next_hop_permille: as_before * 1000 / adjacent.max(1),
            busiest_tenth_permille: busiest * 1000 / crowds.iter().sum::<usize>().max(1),
        }
    }
}

fn real_v4() -> TableShape {
    TableShape {
        routes: 901_899,
        blocks: vec![(16, 33_013), (20, 172_444), (24, 537_971)],
        starts: vec![(16, 35_192), (20, 217_012), (24, 839_650)],
        covered_permille: 506,
        parent_next_hop_permille: 773,
        adjacent_permille: 544,
        adjacent_next_hop_permille: 773,
        busiest_tenth_permille: 482,
    }
}

fn real_v6() -> TableShape {
    TableShape {
        routes: 160_147,
        blocks: vec![
            (20, 617),
            (24, 7246),
            (28, 18_851),
            (32, 29_369),
            (36, 19_994),
            (40, 31_568),
            (44, 39_661),
            (48, 75_568),
        ],
        starts: vec![
            (20, 618),
            (24, 7267),
            (28, 18_927),
            (32, 34_317),
            (36, 49_728),
            (40, 70_825),
            (44, 95_793),
            (48, 153_104),
        ],
        covered_permille: 568,
        parent_next_hop_permille: 737,
        adjacent_permille: 502,
        adjacent_next_hop_permille: 903,
        busiest_tenth_permille: 759,
    }
}

fn near(what: &str, found: usize, real: usize, percent: usize) {
    let distance = found.abs_diff(real) * 100;
    assert!(distance <= real * percent, "{what}: {found}, the real table has {real}");
}

fn compare(found: &TableShape, real: &TableShape) {
    assert_eq!(found.routes, real.routes);
    for ((len, found), (_, real)) in found.blocks.iter().zip(&real.blocks) {
        near(&format!("/{len} blocks with a route"), *found, *real, 18);
    }
    for ((len, found), (_, real)) in found.starts.iter().zip(&real.starts) {
        near(&format!("/{len} blocks in which a route begins"), *found, *real, 18);
    }
    near("covered routes", found.covered_permille, real.covered_permille, 10);
    near("next hop of the parent", found.parent_next_hop_permille, real.parent_next_hop_permille, 10);
    near("adjacent routes", found.adjacent_permille, real.adjacent_permille, 12);
    near("next hop of the neighbour", found.adjacent_next_hop_permille, real.adjacent_next_hop_permille, 10);
    near("routes in the busiest blocks", found.busiest_tenth_permille, real.busiest_tenth_permille, 26);
}

fn spec(family: Family, routes: usize, seed: u64) -> TableSpec {
    TableSpec { family, routes, seed, next_hops: 255 }
}

#[test]
fn ipv4_is_shaped_as_the_real_table() {
    for seed in [1, 2] {
        let routes = table::<u32>(&spec(Family::V4, real_v4().routes, seed)).unwrap();
        compare(&TableShape::measure(&routes), &real_v4());
    }
}

#[test]
fn ipv6_is_shaped_as_the_real_table() {
    for seed in [1, 2, 3] {
        let routes = table::<u128>(&spec(Family::V6, real_v6().routes, seed)).unwrap();
        compare(&TableShape::measure(&routes), &real_v6());
        let firsts: HashSet<_> = routes.iter().map(|(prefix, _)| prefix.address() >> 112).collect();
        assert!((40..=100).contains(&firsts.len()), "{} blocks of /16", firsts.len());
    }
}

#[test]
fn the_real_figures_are_those_of_the_real_tables() {
    let Some(files) = data(["v4-202401.txt.xz", "v6-202401.txt.xz"]) else { return };
    let rib = load(&files);
    assert_eq!(TableShape::measure(&rib.v4.sorted()), real_v4());
    assert_eq!(TableShape::measure(&rib.v6.sorted()), real_v6());
}

fn exact<K: Key>(routes: usize, next_hops: u32) -> Vec<(Prefix<K>, NextHopId)> {
    let spec = TableSpec { family: K::FAMILY, routes, seed: 9, next_hops };
    let made = table::<K>(&spec).unwrap();
    assert_eq!(made.len(), routes, "{}", K::FAMILY);
    assert!(made.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted and unique");
    assert!(made.iter().all(|(_, id)| (1..=next_hops).contains(&id.get())));
    made
}

#[test]
fn any_size_is_exact() {
    for routes in [0, 1, 2, 10, 1000, 12_345] {
        exact::<u32>(routes, 1);
        exact::<u128>(routes, 3);
    }
    let large = if Options::from_env().full { [2_000_000, 500_000] } else { [200_000, 50_000] };
    exact::<u32>(large[0], 100_000);
    exact::<u128>(large[1], 1 << 20);
}

#[test]
fn ipv4_lies_in_unicast_space() {
    let reserved = [(0, 8), (10, 8), (127, 8), (224, 3)];
    for (prefix, _) in exact::<u32>(50_000, 10) {
        let first = prefix.address() >> 24;
        assert!(reserved.iter().all(|(start, len)| first >> (8 - len) != start >> (8 - len)), "{prefix}");
        assert!(prefix.address() >> 16 != 0xc0a8 && prefix.address() >> 20 != 0xac1, "{prefix} is private");
    }
}

/// Results are measured on generated tables, so a change of the generator's output must be deliberate.
#[test]
fn the_same_spec_gives_the_same_table_for_ever() {
    fn digest(routes: &[(fib::IpPrefix, NextHopId)]) -> u64 {
        let text: String = routes.iter().map(|(prefix, id)| format!("{prefix} {id}\n")).collect();
        // FNV-1a, 64 bits.
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
    let digests = [Family::V4, Family::V6].map(|family| digest(&spec(family, 20_000, 7).generate().unwrap()));
    assert_eq!(digests, [13_379_186_808_609_702_904, 7_856_948_103_498_739_529]);
    assert_ne!(digest(&spec(Family::V4, 20_000, 8).generate().unwrap()), digests[0]);
}

#[test]
fn refusals_carry_the_numbers() {
    let wrong = table::<u32>(&spec(Family::V6, 1, 1)).unwrap_err();
    assert_eq!(wrong.to_string(), "the spec is for ipv6, wanted ipv4");
    let none = TableSpec { next_hops: 0, ..spec(Family::V4, 1, 1) }.generate().unwrap_err();
    assert_eq!(none, GenerateError::NextHops { given: 0, limit: (1 << 24) - 1 });
    let many = spec(Family::V4, usize::MAX, 1).generate().unwrap_err();
    assert!(matches!(many, GenerateError::Routes { given: usize::MAX, .. }));
}
