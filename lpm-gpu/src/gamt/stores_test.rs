//! Updates of GAMT store by store: both layouts, GAMT_T and GAMT_S, both families ([`crate::tests::stores`]).

use crate::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use crate::tests::stores::{StoreRig, Wrong};
use fib::Key;
use std::ops::RangeInclusive;

const VARIANTS: [(Layout, NextHops); 4] = [
    (Layout::Flat, NextHops::Together),
    (Layout::Flat, NextHops::Apart),
    (Layout::Paper, NextHops::Together),
    (Layout::Paper, NextHops::Apart),
];

fn rig<K: Key>(options: GamtOptions, wrong: Wrong) -> StoreRig<K, GamtTable<K>> {
    let mut table = GamtTable::<K>::new(options).unwrap();
    table.set_early_pace(1, Some(true)); // each trie as early as can be
    let answers = table.shared_answers();
    StoreRig::new(table, wrong, move |raw, key: K, steps| {
        #[expect(clippy::cast_possible_truncation, reason = "the low half of 128 bits")]
        let low = key.to_high_bits() as u64;
        answers.resolve_by(raw, low, steps)
    })
}

/// Runs each variant with ample head room, and with so little that levels run short and tables are rebuilt, in the background or not.
fn sequences<K: Key>(levels: [Option<u8>; 2], count: usize, lengths: &[RangeInclusive<u8>]) {
    for (layout, next_hops) in VARIANTS {
        let mut rebuilds = 0;
        for (levels, headroom_percent, builds_early) in
            [(levels[0], 400, false), (levels[1], 0, false), (levels[1], 0, true)]
        {
            let options = GamtOptions {
                layout,
                next_hops,
                levels,
                headroom_percent,
                builds_early,
                ..GamtOptions::default()
            };
            let (stores, built) = rig::<K>(options, Wrong::Nothing).run(count, lengths);
            assert!(stores > 1000, "{layout:?}, {next_hops:?}: {stores} stores");
            rebuilds += built;
        }
        assert!(rebuilds > 0, "{layout:?}, {next_hops:?}: no table was rebuilt");
    }
}

#[test]
fn ipv4_sequences() {
    sequences::<u32>([Some(6), None], 150, &[4..=32, 20..=32]);
}

#[test]
fn ipv6_sequences() {
    sequences::<u128>([Some(12), None], 100, &[12..=128, 40..=64, 60..=128]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn pointers_before_nodes_are_found() {
    rig::<u32>(GamtOptions { headroom_percent: 400, ..GamtOptions::default() }, Wrong::Backwards)
        .run(200, &[8..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn nodes_used_again_too_early_are_found() {
    rig::<u32>(GamtOptions { headroom_percent: 400, ..GamtOptions::default() }, Wrong::NoGrace)
        .run(200, &[8..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn entries_used_again_too_early_are_found() {
    let options = GamtOptions { next_hops: NextHops::Apart, headroom_percent: 400, ..GamtOptions::default() };
    rig::<u32>(options, Wrong::NoGrace).run(200, &[8..=32]);
}
