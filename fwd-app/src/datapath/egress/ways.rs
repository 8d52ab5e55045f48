//! The live paths of a group and their shares of the flows.
//!
//! The flow hash selects one of [`BUCKETS`] buckets, and each bucket belongs to the live path with the least cost (weighted rendezvous
//! hashing):
//!
//! ```text
//! identity = fold(fold(first half ^ K0, last half ^ K1) ^ port ^ K2, K3)   of the gateway as an IPv6 address (mapped, or :: without)
//! rank     = the bucket's place in a permutation of all buckets that the identity makes ([`rank`])
//! cost     = -ln((rank + 0.5) / BUCKETS) / weight                          the first of equal ones counts
//! ```
//! The owner depends on the set of paths only, not on its history: a path that fails or is withdrawn moves no flow of other paths, and a
//! path that returns gets exactly its flows back. So shares only approximate the weights; permutations halve the error of random numbers
//! for two paths.

use super::super::flow::fold;
use fib::NextHopId;
use fib::group::PATHS_MAX;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

pub(crate) const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 12;
const ALL: std::ops::Range<u32> = 0..1 << BUCKET_BITS;
const K: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];
/// Paths whose costs are cached during a build: 16 KB each.
const COSTS_MAX: usize = 1024;

/// The owner of each bucket of a group. An index in `paths` takes 1, 2, 4 or 8 bits: 512 bytes for two paths, which stay in the L1 cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Ways {
    /// Binary logarithm of the bits per index.
    log_bits: u8,
    mask: u8,
    paths: [NextHopId; PATHS_MAX],
    /// Indices in `paths`, packed from the lowest bits of each byte.
    places: [u8; BUCKETS],
}

impl Ways {
    fn new(paths: [NextHopId; PATHS_MAX], places: &[u8; BUCKETS]) -> Self {
        let last = places.iter().copied().max().unwrap_or(0);
        let log_bits = [0, 1, 2].into_iter().find(|log| last < 1 << (1 << log)).unwrap_or(3);
        let mask = u8::MAX >> (8 - (1 << log_bits));
        let mut ways = Self { log_bits, mask, paths, places: [0; BUCKETS] };
        for (bucket, place) in places.iter().enumerate() {
            let bit = bucket << log_bits;
            ways.places[bit / 8] |= place << (bit % 8);
        }
        ways
    }

    /// The path of a flow hash. A group behind this path hashes with [`deeper`].
    #[inline(always)]
    pub(crate) fn path(&self, hash: u64) -> NextHopId {
        self.of_bucket(usize::try_from(hash >> (u64::BITS - BUCKET_BITS)).unwrap_or(0))
    }

    #[inline(always)]
    fn of_bucket(&self, bucket: usize) -> NextHopId {
        let bit = bucket << (self.log_bits % 4);
        let place = self.places[bit / 8 % BUCKETS] >> (bit % 8) & self.mask;
        self.paths[usize::from(place) % PATHS_MAX]
    }

    pub(crate) fn share(&self, path: NextHopId) -> usize {
        (0..BUCKETS).filter(|bucket| self.of_bucket(*bucket) == path).count()
    }
}

/// Moves the unused bits of a hash to the top.
#[inline(always)]
pub(crate) const fn deeper(hash: u64) -> u64 {
    hash.rotate_left(BUCKET_BITS)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Alive {
    pub(crate) id: NextHopId,
    pub(crate) identity: u64,
    pub(crate) weight: u16,
}

/// Identifies a path across groups and processes.
#[expect(clippy::cast_possible_truncation, reason = "the halves of an address")]
pub(crate) fn identity(gateway: Option<IpAddr>, port: Option<u16>) -> u64 {
    let address = match gateway {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(address)) => address.to_bits(),
        None => 0,
    };
    let port = port.map_or(u64::MAX, u64::from);
    fold(fold((address >> 64) as u64 ^ K[0], address as u64 ^ K[1]) ^ port ^ K[2], K[3])
}

const fn rank(identity: u64, bucket: u32) -> u32 {
    const MASK: u32 = ALL.end - 1;
    let (mut place, mut key) = (bucket, identity);
    let mut round = 0;
    while round < 3 {
        // Each step is a permutation: an addition, a multiplication by an odd number, an xor with a right shift.
        #[expect(clippy::cast_possible_truncation, reason = "only the bits of the mask matter")]
        let (add, times) = (key as u32, (key >> BUCKET_BITS) as u32 | 1);
        place = place.wrapping_add(add) & MASK;
        place = place.wrapping_mul(times) & MASK;
        place ^= place >> (BUCKET_BITS / 2);
        key >>= 21;
        round += 1;
    }
    place
}

/// Builds [`Ways`]; caches costs that groups share during the build of a table.
#[derive(Debug, Default)]
pub(crate) struct WaysMaker {
    /// Cost of each rank for weight 1.
    by_rank: Vec<f32>,
    /// Cost of each bucket for weight 1, by identity.
    costs: FxHashMap<u64, Box<[f32]>>,
}

impl WaysMaker {
    /// The ways of a group with the live paths `alive`, at least one.
    pub(crate) fn ways(&mut self, alive: &[Alive]) -> Ways {
        let (mut paths, mut places) = ([NextHopId::NONE; PATHS_MAX], [0; BUCKETS]);
        let mut least = [f32::INFINITY; BUCKETS];
        for ((place, path), slot) in (0..).zip(alive).zip(&mut paths) {
            *slot = path.id;
            let weight = f32::from(path.weight);
            let costs = self.costs_of(path.identity);
            for ((owner, least), cost) in places.iter_mut().zip(&mut least).zip(costs) {
                let cost = cost / weight;
                let is_less = cost < *least;
                *owner = if is_less { place } else { *owner };
                *least = if is_less { cost } else { *least };
            }
        }
        Ways::new(paths, &places)
    }

    fn costs_of(&mut self, identity: u64) -> &[f32] {
        if self.by_rank.is_empty() {
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let cost = |rank| -((f64::from(rank) + 0.5) / BUCKETS as f64).ln() as f32;
            self.by_rank = ALL.map(cost).collect();
        }
        if self.costs.len() >= COSTS_MAX && !self.costs.contains_key(&identity) {
            self.costs.clear();
        }
        let by_rank = &self.by_rank;
        let costs = || ALL.map(|bucket| by_rank[rank(identity, bucket) as usize]).collect();
        self.costs.entry(identity).or_insert_with(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alive(number: u32, weight: u16) -> Alive {
        let gateway = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        Alive { id: NextHopId::from_answer(number + 1), identity: identity(Some(gateway), Some(0)), weight }
    }

    #[test]
    fn ranks_are_permutations() {
        for number in 0..100 {
            let mut seen = vec![false; BUCKETS];
            for bucket in ALL {
                assert!(!std::mem::replace(
                    &mut seen[rank(alive(number, 1).identity, bucket) as usize],
                    true
                ));
            }
        }
    }

    #[test]
    fn identities_tell_gateways_and_ports_apart() {
        let address = |text: &str| Some(text.parse().unwrap());
        let all = [
            identity(None, None),
            identity(None, Some(0)),
            identity(None, Some(1)),
            identity(address("10.0.0.1"), Some(0)),
            identity(address("10.0.0.1"), None),
            identity(address("10.0.0.2"), Some(0)),
            identity(address("fe80::1"), Some(0)),
            identity(address("fe80::1"), Some(1)),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    fn imbalance(paths: u32, weight: impl Fn(u32) -> u16) -> (f64, f64) {
        let mut maker = WaysMaker::default();
        let (mut sum, mut worst) = (0.0, 0.0_f64);
        const GROUPS: u32 = 100;
        for group in 0..GROUPS {
            let alive: Vec<_> = (0..paths).map(|i| alive(group * paths + i, weight(i))).collect();
            let ways = maker.ways(&alive);
            let total: u32 = alive.iter().map(|path| u32::from(path.weight)).sum();
            let off = |path: &Alive| {
                let wanted = BUCKETS as f64 * f64::from(path.weight) / f64::from(total);
                (ways.share(path.id) as f64 / wanted - 1.0).abs() * 100.0
            };
            let most = alive.iter().map(off).fold(0.0, f64::max);
            (sum, worst) = (sum + most, worst.max(most));
        }
        (sum / f64::from(GROUPS), worst)
    }

    #[test]
    fn shares_are_near_the_weights() {
        for (paths, average_max, worst_max) in
            [(2, 1.0, 5.0), (4, 3.0, 9.0), (8, 6.5, 15.0), (16, 11.0, 25.0)]
        {
            let (average, worst) = imbalance(paths, |_| 1);
            println!("{paths} paths: {average:.2} % on average, {worst:.2} % at worst");
            assert!(average < average_max && worst < worst_max, "{paths}: {average} {worst}");
        }
        let (average, worst) = imbalance(3, |i| [1, 2, 5][i as usize]);
        println!("weights 1, 2 and 5: {average:.2} % on average, {worst:.2} % at worst");
        assert!(average < 5.0 && worst < 15.0, "{average} {worst}");
    }

    proptest! {
        #[test]
        fn places_of_any_number_of_bits_are_read_as_they_were_written(
            last in 0..PATHS_MAX,
            some in proptest::collection::vec(any::<u8>(), BUCKETS),
        ) {
            let mut ids = (1..).map(NextHopId::from_answer);
            let paths = std::array::from_fn(|_| ids.next().unwrap());
            let places: [u8; BUCKETS] = std::array::from_fn(|i| some[i] % u8::try_from(last + 1).unwrap());
            let ways = Ways::new(paths, &places);
            for (bucket, place) in places.into_iter().enumerate() {
                prop_assert_eq!(ways.of_bucket(bucket), paths[usize::from(place)]);
            }
        }

        #[test]
        fn a_path_that_goes_moves_its_own_flows_alone(
            weights in proptest::collection::vec(1..=100_u16, 2..=64),
            gone: prop::sample::Index,
            hash: u64,
        ) {
            let all: Vec<_> = (0..).zip(&weights).map(|(i, weight)| alive(i, *weight)).collect();
            let gone = gone.index(all.len());
            let rest: Vec<_> = all.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, path)| *path).collect();
            let mut maker = WaysMaker::default();
            let (before, after) = (maker.ways(&all), maker.ways(&rest));
            for bucket in 0..BUCKETS as u64 {
                let hash = bucket << (u64::BITS - BUCKET_BITS) | hash >> BUCKET_BITS;
                let (was, is) = (before.path(hash), after.path(hash));
                prop_assert!(was == is || was == all[gone].id);
                prop_assert!(is != all[gone].id);
            }
        }
    }
}
