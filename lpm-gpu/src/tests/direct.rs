//! Directly indexed tables under load: random deltas, chunks allocated and freed, real tables.

use crate::host::HostTable;
use crate::testing::{HostRig, real_routes};
use fib::conformance::Options;
use fib::{NextHopId, Prefix4, Route};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

impl<T: HostTable<u32>> HostRig<u32, T> {
    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.random.below(limit as usize)).unwrap()
    }

    /// A delta of random changes to prefixes nested around few addresses, each prefix once.
    fn draw(&mut self, changes: usize, lens: &RangeInclusive<u8>) -> Vec<Route<u32>> {
        let mut drawn = BTreeMap::new();
        while drawn.len() < changes {
            let near = 0x0a01_0000 | self.below(4) << 14 | [0x0, 0x100, 0x200, 0x3f00][self.random.below(4)];
            let len = self.random.between(*lens.start(), *lens.end());
            let prefix = Prefix4::truncating(near | self.below(256), len);
            let withdraw = self.below(100) < 45;
            let id = self.next_hop();
            drawn.insert(prefix, if withdraw { NextHopId::NONE } else { id });
        }
        drawn.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect()
    }

    /// Allocates and frees chunks: adds or withdraws one long route at a time, all over the address space.
    fn flicker(&mut self, deltas: u32) {
        for n in 0..deltas {
            let slot = self.below(24);
            let prefix = Prefix4::truncating(0x0a00_0000 + slot * 0x0081_0100 + self.below(4) * 64, 26);
            let there = !self.rib.v4.get(prefix).is_none();
            let next_hop = if there { NextHopId::NONE } else { self.next_hop() };
            self.apply(&[Route { prefix, next_hop }]).unwrap();
            if n % 256 == 255 {
                self.check_all();
            }
        }
    }

    pub(crate) fn flicker_without_rebuilds(mut self) {
        self.flicker(3000);
        assert_eq!(self.rebuilds, 0);
        self.withdraw_all();
    }

    pub(crate) fn every_length_comes_and_goes(&mut self) {
        for len in (0..=32).rev() {
            self.apply(&[route(0x0a01_0203, len, 100 + u32::from(len))]).unwrap();
        }
        self.check_all();
        for len in [0, 25, 16, 17, 24, 8, 32, 31] {
            self.apply(&[route(0x0a01_0203, len, 0)]).unwrap();
            self.check_all();
            self.apply(&[route(0x0a01_0203, len, 7)]).unwrap();
        }
        self.check_all();
        for len in 0..=32 {
            self.apply(&[route(0x0a01_0203, len, 0)]).unwrap();
        }
    }

    /// Checks that exactly `fit` of `hosts` fit, and that a refusal leaves the table unchanged.
    pub(crate) fn only_so_many_fit(mut self, hosts: &[Route<u32>], fit: usize) {
        assert!(self.apply(hosts).is_err());
        assert_eq!(self.table.routes(), 0);
        self.apply(&hosts[..fit]).unwrap();
        assert!(self.apply(&hosts[fit..=fit]).is_err());
        assert_eq!(self.table.routes(), fit as u64);
        self.apply(&[Route { next_hop: NextHopId::NONE, ..hosts[0] }]).unwrap();
        self.apply(&hosts[fit..=fit]).unwrap();
        assert_eq!(self.table.routes(), fit as u64);
        self.check_all();
    }

    pub(crate) fn real_table_and_stream(mut self) {
        let Some((mut routes, mut updates)) = real_routes() else { return };
        let most = u32::try_from(self.table.next_hops_max()).unwrap();
        for Route { next_hop, .. } in routes.v4.iter_mut().chain(&mut updates.v4) {
            *next_hop =
                NextHopId::from_answer(next_hop.get() - next_hop.get().saturating_sub(1) / most * most);
        }
        let some = if Options::from_env().full { 28_000 } else { 7000 };
        self.follow(&routes.v4, &updates.v4[..some.min(updates.v4.len())], 7);
        self.withdraw_all();
    }

    pub(crate) fn churn(&mut self, deltas: u32, lens: &RangeInclusive<u8>) {
        for n in 0..deltas {
            let changes = [1, 1, 1, 2, 3, 5, 9, 40][self.random.below(8)];
            let delta = self.draw(changes, lens);
            if self.below(6) == 0 {
                self.apply_and_take_back(&delta);
            } else {
                self.apply(&delta).unwrap();
            }
            if n % 64 == 63 {
                self.check_all();
            }
        }
        self.check_all();
    }
}

/// A route; next hop 0 withdraws.
pub(crate) fn route(address: u32, len: u8, next_hop: u32) -> Route<u32> {
    Route { prefix: Prefix4::truncating(address, len), next_hop: NextHopId::from_answer(next_hop) }
}
