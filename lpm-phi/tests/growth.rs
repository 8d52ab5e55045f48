//! A table that grows by small deltas keeps filters that filter.

use fib::{Change, EngineOptions, EngineWriter, FibDelta, NextHopId, Prefix4};
use lpm_phi::bloom::BloomEngine;

#[test]
fn filters_grow_with_a_table_fed_route_by_route() {
    let mut engine = BloomEngine::new(&EngineOptions::default()).unwrap();
    for delta in 0..100_u32 {
        let changes = (0..500_u32).map(|n| {
            let prefix = Prefix4::truncating((delta * 500 + n) << 8, 24);
            // Neighbours differ, so that none is left out.
            Change { prefix, next_hop: NextHopId::new(1 + n % 7).unwrap() }
        });
        engine.apply(&FibDelta { v4: changes.collect(), v6: Vec::new() }).unwrap();
    }
    let stats = engine.stats();
    let detail = |wanted: &str| stats.details.iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert!((detail("g1_entries") - 50_000.0).abs() < 0.5);
    // At an asked rate of 0.3 a full filter has half its bits set; a third more entries than its room, 0.65.
    let share = detail("g1_filter_occupied") / detail("g1_filter_bits");
    assert!(share < 0.7, "{share} of the bits are set");
}
