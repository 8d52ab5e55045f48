//! Counts a lookup's memory accesses as the paper does: on chip and off chip (section 4.2, figure 4), in the production kernels.

use crate::bit_maps::{BitMapEngine, Levels};
use crate::kernel::scalar::{bit_maps_one, many_one, paper_code};
use crate::params::SailParams;
use crate::sail_b::EveryLevel;
use crate::sail_l::SailL;
use crate::sail_l::layout::Paper;
use crate::sail_m;
use crate::sail_u::EverySixthLevel;
use fib::loads::{Loads, Place};
use fib::{EngineError, EngineOptions, FibId, Rib};
use lpm_core::engine::{Algorithm, CpuEngine, FibTable as _};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

/// An algorithm of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sail {
    /// A bit map for each level up to 24.
    B,
    /// A bit map for every sixth level.
    U,
    /// Three levels, in the paper's layout: at most 254 next hops.
    L,
    /// Several FIBs; counted with one.
    M,
}

/// Looks up an address. Returns the next-hop id and the number of accesses on chip and off chip.
pub type Counter = Box<dyn Fn(u32) -> (u32, [usize; 2])>;

#[derive(Debug, Default)]
pub(crate) struct CountedLoads<'a> {
    onchip: [&'a [AtomicU64]; 2],
    pub(crate) loads: [usize; 2],
}

impl<'a> CountedLoads<'a> {
    pub(crate) const fn new(onchip: [&'a [AtomicU64]; 2]) -> Self {
        Self { onchip, loads: [0; 2] }
    }
}

impl Loads for CountedLoads<'_> {
    type Stop = Infallible;

    fn load(&mut self, place: Place, read: impl FnOnce() -> u64) -> Result<u64, Infallible> {
        let is_onchip = self.onchip.iter().any(|words| place.is_in(words));
        self.loads[usize::from(!is_onchip)] += 1;
        Ok(read())
    }
}

/// Returns a counter over a table with the IPv4 routes of `rib`, whose changes are committed to it.
///
/// # Errors
/// Errors of the engine's `apply`.
pub fn counter(sail: Sail, rib: &mut Rib) -> Result<Counter, EngineError> {
    match sail {
        Sail::B => in_bit_maps::<EveryLevel>(rib),
        Sail::U => in_bit_maps::<EverySixthLevel>(rib),
        Sail::L => {
            let table = engine::<SailL<Paper>>(rib)?.tables().0.shared().clone();
            Ok(Box::new(move |key| {
                let mut counted = CountedLoads::new([table.bcn.words(), table.bn24.words()]);
                let Ok(code) = paper_code(&table, key, &mut counted);
                // One load here reads what the paper keeps in an on-chip array and in N16 or N24: add the off-chip access.
                let [onchip, offchip] = counted.loads;
                (table.ids[code as usize].load(Ordering::Relaxed), [onchip, offchip.max(1)])
            }))
        }
        Sail::M => {
            let mut engine = sail_m::from_options(&EngineOptions::default())?;
            rib.commit_to(&mut engine)?;
            let table = engine.place().load_full();
            Ok(Box::new(move |key| {
                let mut counted = CountedLoads::new([table.bc16.words(), table.b24.words()]);
                let Ok(next_hop) = many_one(&table, FibId::MAIN, key, &mut counted);
                (next_hop, counted.loads)
            }))
        }
    }
}

fn in_bit_maps<S: Levels>(rib: &mut Rib) -> Result<Counter, EngineError> {
    let table = engine::<BitMapEngine<S>>(rib)?.tables().0.shared().clone();
    Ok(Box::new(move |key| {
        let mut counted = CountedLoads::new([table.bits.words(), &[]]);
        let Ok(next_hop) = bit_maps_one(&table, key, &mut counted);
        (next_hop, counted.loads)
    }))
}

fn engine<A: Algorithm<Params = SailParams>>(rib: &mut Rib) -> Result<CpuEngine<A>, EngineError> {
    let params = SailParams::plain(&EngineOptions::default(), "IPv6 routes", "no parameters")?;
    let mut engine = CpuEngine::new(params)?;
    rib.commit_to(&mut engine)?;
    Ok(engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::generate::{TableSpec, table};
    use fib::oracle::Oracle;
    use fib::{Family, NextHopId, Prefix4};
    use std::collections::HashSet;

    /// The accesses by the paper's definition, computed from the routes alone.
    struct Definition {
        all: Oracle<u32>,
        short: Oracle<u32>,
        /// The /16s and the /24s with longer routes.
        split: [HashSet<u32>; 2],
    }

    impl Definition {
        fn new(routes: &[(Prefix4, NextHopId)]) -> Self {
            let split = |level: u8| {
                let long = routes.iter().filter(move |(prefix, _)| prefix.len() > level);
                long.map(|(prefix, _)| prefix.address() >> (32 - level)).collect()
            };
            Self {
                all: routes.iter().copied().collect(),
                short: routes.iter().copied().filter(|(prefix, _)| prefix.len() <= 24).collect(),
                split: [split(16), split(24)],
            }
        }

        fn accesses(&self, sail: Sail, key: u32) -> [usize; 2] {
            let deep = self.split[1].contains(&(key >> 8));
            let found = if deep { Some(24) } else { self.short.longest_match(key).map(|(len, _)| len) };
            // Bit maps are read from level 24 up to the first level at least as long as the match.
            let asked = |levels: &[u8]| {
                let deepest = levels.iter().rposition(|level| found.is_some_and(|len| *level < len));
                levels.len() - deepest.map_or(0, |above| above + 1)
            };
            match sail {
                Sail::B => [asked(&(1..=24).collect::<Vec<_>>()), 1 + usize::from(deep)],
                Sail::U => [asked(&[6, 12, 18, 24]), usize::from(found.is_some()) + usize::from(deep)],
                Sail::L | Sail::M => {
                    [1 + usize::from(self.split[0].contains(&(key >> 16))), 1 + usize::from(deep)]
                }
            }
        }
    }

    #[test]
    fn accesses_are_those_of_the_definition() {
        let spec = TableSpec { family: Family::V4, routes: 20_000, seed: 5, next_hops: 40 };
        let mut routes: Vec<_> = table::<u32>(&spec).unwrap().into_iter().collect();
        let id = NextHopId::from_answer(7);
        routes.extend((1..=32).map(|len| (Prefix4::truncating(0xdead_beef, len), id)));
        let definition = Definition::new(&routes);
        let ends = routes.iter().flat_map(|(prefix, _)| {
            [prefix.address(), prefix.last_address(), prefix.last_address().wrapping_add(1)]
        });
        let keys: Vec<u32> = ends.chain((0..20_000).map(|at: u32| at.wrapping_mul(0x9e37_79b9))).collect();
        for sail in [Sail::B, Sail::U, Sail::L, Sail::M] {
            let mut rib = Rib::plain();
            routes.iter().for_each(|(prefix, next_hop)| {
                rib.v4.set(*prefix, *next_hop);
            });
            let counter = counter(sail, &mut rib).unwrap();
            for key in &keys {
                let right = (definition.all.lookup(*key).get(), definition.accesses(sail, *key));
                assert_eq!(counter(*key), right, "{sail:?}, {key:#x}");
            }
        }
    }
}
