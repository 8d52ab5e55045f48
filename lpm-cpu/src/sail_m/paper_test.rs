//! SAIL_M against section 4.3: the example of figure 5, the accesses of a lookup, and memory on chip.

use super::from_options;
use super::table::OverlayTable;
use crate::accesses::CountedLoads;
use crate::kernel::scalar::many_one;
use crate::sail_l::figures_test::{figure_rib, stretched};
use fib::loads::Plain;
use fib::{EngineOptions, EngineWriter as _, FibId, NextHopId, Prefix4, Rib};
use std::sync::Arc;

fn id(id: u32) -> NextHopId {
    NextHopId::from_answer(id)
}

fn engine(ribs: &mut [Rib]) -> super::SailM {
    let fibs = ribs.len().to_string();
    let mut engine = from_options(&EngineOptions::with_parameters(&[("fibs", &fibs)])).unwrap();
    for (fib, rib) in (0..).map(FibId).zip(ribs) {
        rib.commit(|delta, rib| engine.apply_to(fib, delta, rib)).unwrap();
    }
    engine
}

fn vector(table: &OverlayTable, vector: usize) -> Vec<u32> {
    (0..table.fibs).map(|fib| table.hops.get(table.place(vector, FibId(fib)))).collect()
}

/// Two tries, their overlay trie, and the pair of next hops at each leaf. Levels 2 and 4 of the figure are levels 16 and 24 here.
#[test]
fn figure_5() {
    let [a, c, e, g] = [1, 2, 3, 4];
    let first = figure_rib(&[("00", a), ("10", c), ("110", g)]);
    let second = figure_rib(&[("00", a), ("10", c), ("100", e)]);
    let engine = engine(&mut [first, second]);
    let table: Arc<OverlayTable> = engine.place().load_full();
    // Nodes 00 and 01 are leaves; below 10 and 11 there are chunks, whose first four entries the figure uses.
    assert_eq!(
        [0, 1].map(|node| (table.below(node), vector(&table, node))),
        [(None, vec![a, a]), (None, vec![0, 0])]
    );
    let below = |node: usize| table.below(node).unwrap().take(4).map(|at| vector(&table, at));
    assert_eq!(below(2).collect::<Vec<_>>(), [[c, e], [c, e], [c, c], [c, c]]);
    assert_eq!(below(3).collect::<Vec<_>>(), [[g, 0], [g, 0], [0, 0], [0, 0]]);
    assert!(
        [2, 3].into_iter().flat_map(|node| table.below(node).unwrap()).all(|at| table.below(at).is_none())
    );
    let leaves =
        [("00", [a, a]), ("01", [0, 0]), ("100", [c, e]), ("101", [c, c]), ("110", [g, 0]), ("111", [0, 0])];
    for (leaf, pair) in leaves {
        for host in 0..1_u32 << (6 - leaf.len()) {
            let key = u32::from_str_radix(leaf, 2).unwrap() << (6 - leaf.len()) | host;
            let answers = [0, 1].map(|fib| {
                let Ok(answer) = many_one(&table, FibId(fib), stretched(key), &mut Plain);
                answer
            });
            assert_eq!(answers, pair, "{leaf}, {key:06b}");
        }
    }
}

/// BC16 and B24 are on chip, the other arrays off chip (section 4.3, "Two-dimensional Splitting").
#[test]
fn accesses_of_a_lookup() {
    let mut ribs = [Rib::plain(), Rib::plain(), Rib::plain()];
    let routes = [(0x0a00_0000, 8), (0x0a01_0000, 16), (0x0b01_0200, 24), (0x0c01_0280, 25)];
    for ((address, len), next_hop) in routes.into_iter().zip(1..) {
        ribs[1].v4.set(Prefix4::truncating(address, len), id(next_hop));
    }
    let engine = engine(&mut ribs);
    let table = engine.place().load_full();
    let mut counted = CountedLoads::new([table.bc16.words(), table.b24.words()]);
    for (key, right, accesses) in [
        (0x0a09_0909, 1, [1, 1]),
        (0x0a01_0909, 2, [1, 1]),
        (0x0b01_0209, 3, [2, 1]),
        (0x0c01_0299, 4, [2, 2]),
    ] {
        for (fib, right) in [(0, 0), (1, right), (2, 0)] {
            counted.loads = [0; 2];
            let Ok(answer) = many_one(&table, FibId(fib), key, &mut counted);
            assert_eq!((answer, counted.loads), (right, accesses), "{key:#x} in FIB {fib}");
        }
    }
    let stats = engine.stats();
    let figure = |name: &str| stats.details.get(name).unwrap();
    assert_eq!([figure("sail_onchip_accesses_max"), figure("sail_offchip_accesses_max")], [2.0, 2.0]);
}

/// At most 2^16 * 17 + 2^24 bits, 2.13 MiB.
#[test]
fn on_chip_memory_does_not_grow_with_the_number_of_fibs() {
    let onchip_bytes = |fibs: u32, step: u32| {
        let mut ribs: Vec<_> = (0..fibs).map(|_| Rib::plain()).collect();
        for node in (0..1 << 16).step_by(step as usize) {
            let rib = &mut ribs[(node / step % fibs) as usize];
            rib.v4.set(Prefix4::truncating(node << 16, 17 + (node % 8) as u8), id(node + 1));
        }
        let engine = engine(&mut ribs);
        let table = engine.place().load_full();
        // In memory an entry of BC16 takes 32 bits.
        let used: usize = (0..1 << 16).filter_map(|node| table.below(node)).map(|below| below.len()).sum();
        assert_eq!(used, (1 << 24) / step as usize);
        assert!(table.bc16.bytes() + table.b24.bytes() <= (1 << 18) + (1 << 21));
        engine.stats().details.get("sail_onchip_bytes").unwrap()
    };
    let most = f64::from((17 << 16) + (1 << 24)) / 8.0;
    assert_eq!([1, 4].map(|fibs| onchip_bytes(fibs, 1)), [most; 2]);
    assert_eq!((most / f64::from(1 << 20) * 100.0).round(), 213.0);
    let few = f64::from((17 << 16) + (1 << 14)) / 8.0;
    assert_eq!([1, 2, 16, 64].map(|fibs| onchip_bytes(fibs, 1 << 10)), [few; 4]);
}
