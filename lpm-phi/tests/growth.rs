//! Tables of `bloom` in special states: filters after growth, and keys that differ only in bits that a slot does not store.

use fib::{EngineOptions, EngineWriter, Isa, Keys, NextHopId, Prefix4, Prefix6, Rib};
use lpm_phi::bloom;

#[test]
fn filters_grow_with_a_table_fed_route_by_route() {
    let mut engine = bloom::make(&EngineOptions::default()).unwrap();
    let mut rib = Rib::new();
    for delta in 0..100_u32 {
        for n in 0..500_u32 {
            let prefix = Prefix4::truncating((delta * 500 + n) << 8, 24);
            rib.v4.set(prefix, NextHopId::new(1 + n % 7).unwrap());
        }
        rib.commit_to(&mut *engine).unwrap();
    }
    let stats = engine.stats();
    let detail = |wanted: &str| stats.details.get(wanted).unwrap();
    assert!((detail("g1_entries") - 50_000.0).abs() < 0.5);
    // At a target rate of 0.3 a full filter has half its bits set; with a third more entries than it was sized for, 0.65 of them.
    let share = detail("g1_filter_occupied") / detail("g1_filter_bits");
    assert!(share < 0.7, "{share} of the bits are set");
}

/// An IPv6 slot stores bits 16..64 of a key: the line alone must distinguish the first 16, with and without overflow lines.
#[test]
fn keys_that_differ_in_their_first_16_bits_are_told_apart() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let mut engine = bloom::make(&EngineOptions { isa: Some(isa), ..EngineOptions::default() }).unwrap();
        let hi = |block: u64, site: u64| (0x2000 + block) << 48 | 0xdb8 << 32 | site << 16;
        let hop =
            |block: u64, site: u64| NextHopId::new(u32::try_from(1 + block * 64 + site).unwrap()).unwrap();
        let pairs = || (0..64).flat_map(|block| (0..64).map(move |site| (block, site)));
        let mut rib = Rib::new();
        let mut apply = |engine: &mut dyn EngineWriter, next_hop: &dyn Fn(u64, u64) -> NextHopId| {
            for (block, site) in pairs() {
                let prefix = Prefix6::truncating(u128::from(hi(block, site)) << 64, 48);
                rib.v6.set(prefix, next_hop(block, site));
            }
            rib.commit_to(engine).unwrap();
        };
        let keys: Vec<u64> = pairs().map(|(block, site)| hi(block, site) | 7).collect();
        let check = |engine: &mut dyn EngineWriter, next_hop: &dyn Fn(u64, u64) -> NextHopId| {
            let wanted: Vec<_> = pairs().map(|(block, site)| next_hop(block, site)).collect();
            let mut answers = vec![NextHopId::NONE; keys.len()];
            let mut reader = engine.reader(1, keys.len()).unwrap();
            reader.lookup(Keys::V6 { hi: &keys, lo: &keys }, &mut answers).unwrap();
            assert!(answers == wanted, "{isa}");
        };
        apply(&mut *engine, &hop);
        check(&mut *engine, &hop);
        // Every other block is withdrawn, and the rest changes.
        let rest = |block: u64, site: u64| {
            if block.is_multiple_of(2) { NextHopId::NONE } else { hop(site, block) }
        };
        apply(&mut *engine, &rest);
        check(&mut *engine, &rest);
    }
}
