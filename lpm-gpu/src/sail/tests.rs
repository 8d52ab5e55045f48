//! SAIL_L's table and writes against the oracle, on a model of its kernels.

use super::{BCN_UNITS, SailOptions, SailTable};
use crate::direct::CHUNK_UNITS;
use crate::gamt::Layout;
use crate::host::{UpdateStep, Write};
use crate::testing::HostRig;
use crate::tests::direct::route;
use fib::EngineError;

type SailRig = HostRig<u32, SailTable>;

const LAYOUTS: [Layout; 2] = [Layout::Flat, Layout::Paper];

fn rig(options: SailOptions, seed: u64) -> SailRig {
    HostRig::new(Box::new(SailTable::new(options).unwrap()), seed)
}

fn options(layout: Layout) -> SailOptions {
    SailOptions { layout, ..SailOptions::default() }
}

#[test]
fn every_length_comes_and_goes() {
    for (layout, bcn_words) in LAYOUTS.into_iter().zip([BCN_UNITS, BCN_UNITS / 2]) {
        let mut rig = rig(options(layout), 1);
        rig.every_length_comes_and_goes();
        let words = &rig.device.last().unwrap().words;
        assert!(words[..bcn_words].iter().all(|word| *word == 0), "nothing is left");
    }
}

#[test]
fn no_store_shows_a_lookup_anything_but_old_or_new() {
    for layout in LAYOUTS {
        for (seed, len_min) in [(0, 12), (1, 12), (2, 0), (3, 20)] {
            let mut rig = rig(options(layout), seed);
            rig.churn(600, &(len_min..=32));
            assert!(rig.stores > if layout == Layout::Flat { 50_000 } else { 15_000 }, "{}", rig.stores);
            rig.withdraw_all();
            assert_eq!(rig.table.chunks_in_use(), (0, 0));
        }
    }
}

#[test]
fn a_lookup_never_meets_a_chunk_used_again() {
    LAYOUTS.into_iter().for_each(|layout| rig(options(layout), 5).flicker_without_rebuilds());
}

#[test]
fn chunks_run_out_and_a_rebuild_makes_room() {
    for layout in LAYOUTS {
        let mut rig = rig(SailOptions { headroom_percent: 0, ..options(layout) }, 7);
        for n in 0..400u32 {
            rig.apply(&[route(0x0a00_0000 + (n << 16), 20, 1 + n % 100)]).unwrap();
        }
        let after_bn24 = rig.rebuilds;
        assert!(after_bn24 >= 1, "256 chunks of BN24 are there at first");
        for n in 0..400u32 {
            rig.apply(&[route(0x0a00_0000 + n * 256, 30, 1 + n % 100)]).unwrap();
        }
        assert!(rig.rebuilds > after_bn24, "and as many of N32");
        rig.check_all();
        rig.withdraw_all();
    }
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let bcn = 4 * BCN_UNITS as u64;
    let too_small = SailTable::new(SailOptions { table_bytes_max: bcn - 1, ..SailOptions::default() });
    assert!(matches!(too_small, Err(EngineError::Full { what: "table bytes", .. })));
    let hosts: Vec<_> = (0..4).map(|n| route(0x0a00_0000 + (n << 16), 32, 1 + n)).collect();
    // Each needs a chunk of both arrays.
    rig(SailOptions { table_bytes_max: bcn + 4 * 1024, ..SailOptions::default() }, 3)
        .only_so_many_fit(&hosts, 2);
    // The paper's layout: 256 bytes of BN24, 512 of C24 and 256 of N32 each, and half of BCN.
    rig(SailOptions { table_bytes_max: bcn / 2 + 2 * 1024, ..options(Layout::Paper) }, 3)
        .only_so_many_fit(&hosts, 2);
}

#[test]
fn the_paper_s_layout_refuses_what_its_entries_cannot_hold() {
    let mut sail = rig(options(Layout::Paper), 3);
    sail.in_flight_max = 0;
    let hosts: Vec<_> = (0..255).map(|n| route(0x0a00_0000 + n, 32, 1 + n)).collect();
    sail.apply(&hosts).unwrap();
    let refused =
        sail.apply(&[route(0x0b00_0000, 8, 1000), route(0x0c00_0000, 8, 7)]).unwrap_err().to_string();
    assert!(refused.contains("next hops") && refused.contains("at most 255 fit"), "{refused}");
    sail.apply(&[route(0x0c00_0000, 8, 7)]).unwrap();
    sail.withdraw_all();
    sail.check_all();
    // A chunk of BN24 for each of 2^15 - 1 /16s, and a chunk of N32 for each of 2^16 - 1 /24s.
    for (what, shift, len, limit) in [("BN24", 16, 17, (1 << 15) - 1), ("N32", 8, 25, (1 << 16) - 1)] {
        let routes: Vec<_> = (0..=limit).map(|n| route(n << shift, len, 1 + n % 200)).collect();
        let refused = sail.apply(&routes).unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains(&format!("at most {limit} fit")), "{refused}");
        sail.apply(&routes[1..]).unwrap();
        sail.check(&routes, 2000);
        sail.apply(&[route(0, 9, 3)]).unwrap();
        sail.check(&routes, 2000);
        sail.withdraw_all();
    }
}

#[test]
fn codes_are_used_again_beside_lookups() {
    let mut sail = rig(options(Layout::Paper), 8);
    for n in 0..2000 {
        sail.apply(&[route(0x0a00_0000 + n % 4 * 64, 26, 1 + n)]).unwrap();
    }
    assert!(sail.collected > 500 && sail.rebuilds == 0);
    sail.check_all();
}

/// Section 4.2: entries of 16 bits in BCN, 8 in BN24 and N32, separate C24; a lookup reads one, two or four of them.
#[test]
fn the_paper_s_layout_has_the_paper_s_entries() {
    let mut sail = rig(options(Layout::Paper), 1);
    sail.apply(&[
        route(0x0a00_0000, 8, 70_001),
        route(0x0a01_0000, 17, 70_002),
        route(0x0a01_8100, 24, 70_003),
        route(0x0a01_8202, 32, 70_004),
    ])
    .unwrap();
    let table = sail.device.last().unwrap();
    let (n32, c24) = (table.header[0] as usize, table.header[1] as usize);
    assert_eq!(table.words[0x0a00 / 2], 0x0001_8001, "B16 and a code for 10.0/16, chunk 1 for 10.1/16");
    let bn24 = BCN_UNITS / 2;
    assert_eq!((table.words[bn24], table.words[bn24 + 0x80 / 4]), (0x0202_0202, 0x0100_0301));
    assert_eq!((table.words[c24 + 0x80 / 2], table.words[c24 + 0x82 / 2]), (0, 1));
    assert_eq!(table.words[n32], 0x0104_0101);
    assert_eq!((c24, n32), (bn24 + 256 * 64, bn24 + 256 * (64 + 128)));
    for (key, loads, right) in [
        (0x0a02_0001, 1, 70_001),
        (0x0a01_0001, 2, 70_002),
        (0x0a01_8101, 2, 70_003),
        (0x0a01_8202, 4, 70_004),
        (0x0a01_8203, 4, 70_001),
        (0x0b00_0000, 1, 0),
    ] {
        let mut count = 0;
        let Ok(_) =
            super::model::search_by::<std::convert::Infallible>(&table.header, Layout::Paper, key, |at| {
                count += 1;
                Ok(table.words[at])
            });
        assert_eq!((count, sail.lookup(key).get()), (loads, right), "{key:#x}");
    }
}

fn writes(rig: &mut SailRig) -> Vec<Write> {
    let writes = |step| {
        if let UpdateStep::Writes(writes) = step { writes } else { panic!("SAIL_L has no operations") }
    };
    rig.steps().into_iter().flat_map(writes).collect()
}

#[test]
fn what_is_taken_back_is_as_it_was() {
    let mut sail = rig(SailOptions::default(), 1);
    sail.apply_to_host(&[route(0x0a00_0000, 20, 5)]);
    assert_eq!(writes(&mut sail).len(), CHUNK_UNITS + 1, "a new chunk and the word that leads there");
    sail.load();
    sail.apply_and_take_back(&[route(0x0a00_0000, 20, 6), route(0x0a00_0001, 32, 6)]);
    assert!(sail.stores <= CHUNK_UNITS as u64, "{} stores", sail.stores);
}

#[test]
fn real_tables_and_the_real_stream() {
    LAYOUTS.into_iter().for_each(|layout| rig(options(layout), 11).real_table_and_stream());
}
