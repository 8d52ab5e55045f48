//! GAMT's updates store by store, both layouts, both places of next hops, both families: see [`crate::tests::stores`].

use crate::gamt::code::search_by;
use crate::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use crate::tests::stores::{Rig, Wrong};
use fib::Key;
use fib::stores::Steps;
use std::ops::RangeInclusive;

const VARIANTS: [(Layout, NextHops); 4] = [
    (Layout::Flat, NextHops::Together),
    (Layout::Flat, NextHops::Apart),
    (Layout::Paper, NextHops::Together),
    (Layout::Paper, NextHops::Apart),
];

#[expect(clippy::cast_possible_truncation, reason = "halves of 128 bits")]
fn rig<K: Key>(options: GamtOptions, wrong: Wrong) -> Rig<K, GamtTable<K>> {
    let layout = options.layout;
    let table = GamtTable::<K>::new(options).unwrap();
    let answers = table.shared_answers();
    Rig::new(table, wrong, |device| {
        move |key: K, steps: &mut Steps<'_>| {
            let (high, low) = ((key.to_high_bits() >> 64) as u64, key.to_high_bits() as u64);
            let (table, header) = device.open(steps)?;
            let raw = search_by(&header, layout, high, |at| device.load(steps, table, at))?;
            answers.resolve_by(raw, low, steps)
        }
    })
}

/// Each variant with head room for everything, and with so little that levels run short and tables are built anew.
fn sequences<K: Key>(levels: [Option<u8>; 2], count: usize, lengths: &[RangeInclusive<u8>]) {
    for (layout, next_hops) in VARIANTS {
        let mut rebuilds = 0;
        for (levels, headroom_percent) in levels.into_iter().zip([400, 0]) {
            let options =
                GamtOptions { layout, next_hops, levels, headroom_percent, ..GamtOptions::default() };
            let (stores, built) = rig::<K>(options, Wrong::Nothing).run(count, lengths);
            assert!(stores > 1000, "{layout:?}, {next_hops:?}: {stores} stores");
            rebuilds += built;
        }
        assert!(rebuilds > 0, "{layout:?}, {next_hops:?}: no table was built anew");
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
