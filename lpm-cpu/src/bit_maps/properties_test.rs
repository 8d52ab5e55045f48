//! The paper's properties of SAIL_B and SAIL_U: sizes, accesses of a lookup, on-chip stores of an update.

use super::{BitMapEngine, BitMaps, Levels, PIVOT, onchip_bits};
use crate::accesses::CountedLoads;
use crate::kernel::scalar::bit_maps_one;
use crate::params::SailParams;
use crate::sail_b::EveryLevel;
use crate::sail_u::EverySixthLevel;
use fib::{EngineOptions, EngineWriter as _, NextHopId, Prefix4, Rib};
use lpm_core::engine::{CpuEngine, FibTable as _};
use proptest::prelude::*;

fn engine<S: Levels>() -> CpuEngine<BitMapEngine<S>> {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
    CpuEngine::new(SailParams::plain(&options, "IPv6", "none").unwrap()).unwrap()
}

fn table<S: Levels>(engine: &CpuEngine<BitMapEngine<S>>) -> &BitMaps<S> {
    engine.tables().0.shared()
}

fn detail<S: Levels>(engine: &CpuEngine<BitMapEngine<S>>, name: &str) -> f64 {
    engine.stats().details.get(name).unwrap()
}

#[test]
fn bit_maps_have_the_sizes_that_the_paper_says() {
    assert_eq!(onchip_bits(EveryLevel::LEVELS), (1 << 25) - 1);
    assert_eq!(onchip_bits(EverySixthLevel::LEVELS), (1 << 6) + (1 << 12) + (1 << 18) + (1 << 24));
    let hundredths = |bits: u64| (bits.div_ceil(8) * 100) >> 20;
    assert_eq!(
        [EveryLevel::LEVELS, EverySixthLevel::LEVELS].map(|levels| hundredths(onchip_bits(levels))),
        [400, 203]
    );
    // In memory a level begins at a word boundary, which wastes 41 bytes of SAIL_B in levels of fewer than 64 bits.
    assert_eq!((EveryLevel::NODES / 8, EverySixthLevel::NODES / 8), ((1 << 22) + 40, 2_130_440));
}

/// The paper's FPGA (section 5.1): 1,880 block RAMs of 36 Kb, 8.26 MiB. Each level is a pipeline stage in whole block RAMs.
#[test]
fn any_table_fits_the_paper_s_fpga() {
    const BLOCK_RAM_BITS: u64 = 36 << 10;
    let block_rams = |stages: &[u64]| stages.iter().map(|bits| bits.div_ceil(BLOCK_RAM_BITS)).sum::<u64>();
    let levels = |levels: &[u8]| block_rams(&levels.iter().map(|level| 1 << level).collect::<Vec<_>>());
    let used =
        [levels(EveryLevel::LEVELS), levels(EverySixthLevel::LEVELS), block_rams(&[16 << 16, 1 << 24])];
    assert_eq!(used, [929, 466, 485]);
    assert_eq!((1880 * BLOCK_RAM_BITS / 8 * 100) >> 20, 826);
    assert!(used.iter().all(|used| *used <= 1880));
}

fn accesses<S: Levels>() -> [Vec<[usize; 2]>; 2] {
    let (mut engine, mut rib) = (engine::<S>(), Rib::plain());
    let keys = [0xc0a8_0101, 0x0a01_0101, 0x0b01_0101, 0x0c01_0101, 0x0d01_0199];
    let loads = |engine: &CpuEngine<BitMapEngine<S>>| {
        keys.map(|key| {
            let mut counted = CountedLoads::new([table(engine).bits.words(), &[]]);
            let Ok(_) = bit_maps_one(table(engine), key, &mut counted);
            counted.loads
        })
        .to_vec()
    };
    let empty = loads(&engine);
    for (address, len) in [(0, 0), (0x0a00_0000, 7), (0x0b00_0000, 13), (0x0c01_0100, 24), (0x0d01_0180, 25)]
    {
        rib.v4.set(Prefix4::truncating(address, len), NextHopId::from_answer(u32::from(len) + 1));
    }
    rib.commit_to(&mut engine).unwrap();
    let asked = detail(&engine, "sail_onchip_accesses_max");
    let most = loads(&engine).into_iter().chain(empty.clone()).map(|[onchip, _]| onchip).max().unwrap();
    assert!(
        (asked - f64::from(u32::try_from(most).unwrap())).abs() < 0.5,
        "{asked} are told, {most} were seen"
    );
    [empty, loads(&engine)]
}

#[test]
fn a_lookup_has_as_many_accesses_as_the_paper_says() {
    let [empty, some] = accesses::<EveryLevel>();
    assert_eq!(empty, [[24, 1]; 5], "level 0 says that there is no route");
    assert_eq!(some, [[24, 1], [18, 1], [12, 1], [1, 1], [1, 2]]);
    let [empty, some] = accesses::<EverySixthLevel>();
    assert_eq!(empty, [[4, 0]; 5]);
    assert_eq!(some, [[4, 1], [3, 1], [2, 1], [1, 1], [1, 2]]);
}

#[test]
fn routes_are_pushed_to_the_next_level_and_no_further() {
    for (len, level) in [(0, 6), (5, 6), (6, 6), (7, 12), (12, 12), (13, 18), (18, 18), (19, 24), (24, 24)] {
        let (mut engine, mut rib) = (engine::<EverySixthLevel>(), Rib::plain());
        rib.v4.set(Prefix4::truncating(0x0a0b_0c0d, len), NextHopId::from_answer(9));
        rib.commit_to(&mut engine).unwrap();
        let at = EverySixthLevel::LEVELS.iter().position(|known| *known == level).unwrap();
        let [first, end] = [EverySixthLevel::OFFSETS[at], EverySixthLevel::OFFSETS[at + 1]];
        let set = (0..EverySixthLevel::NODES).filter(|at| table(&engine).bits.get(*at) == 1);
        let set: Vec<_> = set.collect();
        assert_eq!(set.len(), 1 << (level - len), "/{len}");
        assert!(set.iter().all(|at| (first..end).contains(at)), "/{len} is pushed to level {level}");
    }
}

fn prefix((bits, len): (u32, u8)) -> Prefix4 {
    // Few distinct addresses, so that routes nest.
    Prefix4::truncating(0x0a00_0000 | (bits & 0xff) << 16 | (bits >> 8 & 1) << 8 | bits >> 9 & 0xff, len)
}

fn follow<S: Levels>(changes: &[((u32, u8), u32)]) {
    let (mut engine, mut rib) = (engine::<S>(), Rib::plain());
    let mut onchip = 0.0;
    for (at, next_hop) in changes {
        rib.v4.set(prefix(*at), NextHopId::from_answer(*next_hop));
        rib.commit_to(&mut engine).unwrap();
        let now = detail(&engine, "sail_onchip_writes");
        assert!(now - onchip < 1.5, "{} := {next_hop}", prefix(*at));
        onchip = now;
    }
    assert!(detail(&engine, "sail_onchip_writes_max") < 1.5);
    let mut built = self::engine::<S>();
    let mut again = Rib::plain();
    rib.v4.iter().for_each(|(prefix, next_hop)| {
        again.v4.set(prefix, next_hop);
    });
    again.commit_to(&mut built).unwrap();
    let (changed, anew) = (table(&engine), table(&built));
    for at in 0..S::NODES {
        assert_eq!(changed.bits.get(at), anew.bits.get(at), "bit {at}");
        let (left, right) = (changed.hops.get(at), anew.hops.get(at));
        let is_chunk = left & super::CHUNK != 0 && right & super::CHUNK != 0;
        assert!(changed.bits.get(at) == 0 || left == right || is_chunk, "entry {at}");
    }
    assert_eq!(detail(&engine, "sail_chunks32").to_bits(), detail(&built, "sail_chunks32").to_bits());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn updates_of_sail_u_are_one_store_on_chip(
        changes in prop::collection::vec(((any::<u32>(), 0..=32_u8), 0..4_u32), 1..150),
    ) {
        follow::<EverySixthLevel>(&changes);
    }

    #[test]
    fn updates_of_sail_b_are_one_store_on_chip(
        changes in prop::collection::vec(((any::<u32>(), 0..=32_u8), 0..4_u32), 1..150),
    ) {
        follow::<EveryLevel>(&changes);
    }
}

#[test]
fn the_pivot_is_the_last_level() {
    assert_eq!([EveryLevel::LEVELS, EverySixthLevel::LEVELS].map(|levels| levels.last()), [Some(&PIVOT); 2]);
}
