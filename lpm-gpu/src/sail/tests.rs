//! SAIL_L's table and writes against the oracle, on a model of its kernels.

use super::{BCN_WORDS, SailOptions, SailTable};
use crate::direct::{CHUNK_UNITS, Unit};
use crate::host::{Step, Write};
use crate::testing::HostRig;
use crate::tests::direct::told;
use fib::EngineError;

type SailRig = HostRig<u32, SailTable>;

fn rig(options: SailOptions, seed: u64) -> SailRig {
    HostRig::new(Box::new(SailTable::new(options).unwrap()), seed)
}

#[test]
fn every_length_comes_and_goes() {
    let mut rig = rig(SailOptions::default(), 1);
    rig.every_length_comes_and_goes();
    let words = &rig.device.last().unwrap().words;
    assert!(words[..BCN_WORDS].iter().all(|word| Unit(*word).value() == 0), "nothing is left");
}

#[test]
fn no_store_shows_a_lookup_anything_but_old_or_new() {
    for (seed, len_min) in [(0, 12), (1, 12), (2, 0), (3, 20)] {
        let mut rig = rig(SailOptions::default(), seed);
        rig.churn(600, len_min);
        assert!(rig.stores > 50_000);
        rig.withdraw_all();
        assert_eq!(rig.table.chunks_in_use(), (0, 0));
    }
}

#[test]
fn a_lookup_never_meets_a_chunk_used_again() {
    rig(SailOptions::default(), 5).flicker_without_rebuilds();
}

#[test]
fn chunks_run_out_and_a_rebuild_makes_room() {
    let mut rig = rig(SailOptions { headroom_percent: 0, ..SailOptions::default() }, 7);
    for n in 0..400u32 {
        rig.apply(&[told(0x0a00_0000 + (n << 16), 20, 1 + n)]).unwrap();
    }
    let after_bn24 = rig.rebuilds;
    assert!(after_bn24 >= 1, "256 chunks of BN24 are there at first");
    for n in 0..400u32 {
        rig.apply(&[told(0x0a00_0000 + n * 256, 30, 1 + n)]).unwrap();
    }
    assert!(rig.rebuilds > after_bn24, "and as many of N32");
    rig.check_all();
    rig.withdraw_all();
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let bcn = 4 * BCN_WORDS as u64;
    let too_small = SailTable::new(SailOptions { table_bytes_max: bcn - 1, ..SailOptions::default() });
    assert!(matches!(too_small, Err(EngineError::Full { what: "table bytes", .. })));
    let hosts: Vec<_> = (0..4).map(|n| told(0x0a00_0000 + (n << 16), 32, 1 + n)).collect();
    // Each needs a chunk of both arrays.
    rig(SailOptions { table_bytes_max: bcn + 4 * 1024, ..SailOptions::default() }, 3)
        .only_so_many_fit(&hosts, 2);
}

fn writes(rig: &mut SailRig) -> Vec<Write> {
    let writes =
        |step| if let Step::Writes(writes) = step { writes } else { panic!("SAIL_L has no operations") };
    rig.steps().into_iter().flat_map(writes).collect()
}

#[test]
fn what_is_taken_back_is_as_it_was() {
    let mut sail = rig(SailOptions::default(), 1);
    sail.tell(&[told(0x0a00_0000, 20, 5)]);
    assert_eq!(writes(&mut sail).len(), CHUNK_UNITS + 1, "a new chunk and the word that leads there");
    sail.load();
    sail.apply_and_take_back(&[told(0x0a00_0000, 20, 6), told(0x0a00_0001, 32, 6)]);
    assert!(sail.stores <= CHUNK_UNITS as u64, "{} stores", sail.stores);
}

#[test]
fn real_tables_and_the_real_stream() {
    rig(SailOptions::default(), 11).real_table_and_stream();
}
