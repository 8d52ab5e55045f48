//! SAIL_L against the paper: the examples of figures 3 and 4, Algorithm 2 over separate arrays, and the invariant between them.

use super::layout::{ENTRIES16, Paper, SailLayout, SailLevel, SailRoom, Wide};
use super::writer::{SailWriter, onchip_bits};
use super::{SailL, SailLookup};
use crate::accesses::CountedLoads;
use crate::chunks::entries_of;
use crate::kernel::scalar::{paper_one, wide_one};
use crate::params::SailParams;
use fib::generate::{TableSpec, table};
use fib::loads::Plain;
use fib::oracle::Oracle;
use fib::{EngineOptions, EngineWriter as _, Family, NextHopId, Prefix4, Rib};
use lpm_core::engine::{CpuEngine, FibTable as _};
use std::sync::atomic::{AtomicU64, Ordering};

fn id(id: u32) -> NextHopId {
    NextHopId::from_answer(id)
}

fn engine<L: SailLookup>(rib: &mut Rib) -> CpuEngine<SailL<L>> {
    let params = SailParams::plain(&EngineOptions::default(), "IPv6", "none").unwrap();
    let mut engine = CpuEngine::new(params).unwrap();
    rib.commit_to(&mut engine).unwrap();
    engine
}

/// The paper's arrays B, N and C of a level, which [`Paper`] combines. N holds next hops instead of codes, 0 for none.
struct Node {
    b: bool,
    n: u32,
    c: u32,
}

fn node(table: &Paper, level: SailLevel, at: usize) -> Node {
    let entry = table.get(level, at);
    let b = if level == SailLevel::L16 { entry & Paper::B16 != 0 } else { entry != 0 };
    let n = table.ids[if b { Paper::code(entry) as usize } else { 0 }].load(Ordering::Relaxed);
    Node { b, n, c: if b { 0 } else { table.chunk(level, at) } }
}

fn algorithm_2(table: &Paper, key: u32) -> u32 {
    let first = node(table, SailLevel::L16, (key >> 16) as usize);
    if first.b {
        return first.n;
    }
    let second = node(table, SailLevel::L24, ((first.c as usize - 1) << 8) + (key >> 8 & 0xff) as usize);
    if second.b {
        return second.n;
    }
    let code = table.get(SailLevel::L32, ((second.c as usize - 1) << 8) + (key & 0xff) as usize);
    table.ids[code as usize].load(Ordering::Relaxed)
}

/// Spreads a six-bit address of the paper's small figures to the bits (14,15), (22,23) and (30,31).
pub(crate) fn stretched(key: u32) -> u32 {
    (key >> 4) << 16 | (key >> 2 & 3) << 8 | key & 3
}

/// A route of the figures, spread: levels 2, 4 and 6 become levels 16, 24 and 32.
fn figure_route(bits: &str, next_hop: u32) -> (Prefix4, NextHopId) {
    let len = u8::try_from(bits.len()).unwrap();
    let key = u32::from_str_radix(&format!("{bits:0<6}"), 2).unwrap();
    let stretch = match len {
        0 => 0,
        1..=2 => 14 + len,
        3..=4 => 20 + len,
        _ => 26 + len,
    };
    (Prefix4::truncating(stretched(key), stretch), id(next_hop))
}

pub(crate) fn figure_rib(routes: &[(&str, u32)]) -> Rib {
    let mut rib = Rib::plain();
    for (bits, next_hop) in routes {
        let (prefix, next_hop) = figure_route(bits, *next_hop);
        rib.v4.set(prefix, next_hop);
    }
    rib
}

#[test]
fn figure_3() {
    let routes = [("", 6), ("1", 4), ("01", 3), ("0010", 3), ("001011", 9), ("0011", 1)];
    let deep = [("1110", 2), ("111000", 8), ("111011", 8), ("1111", 7)];
    let mut rib = figure_rib(&[&routes[..], &deep[..]].concat());
    let engine = engine::<Paper>(&mut rib);
    let table = engine.tables().0.shared();
    let level = |level, places: Vec<usize>| {
        let nodes: Vec<_> = places.into_iter().map(|at| node(table, level, at)).collect();
        let b: Vec<_> = nodes.iter().map(|node| u32::from(node.b)).collect();
        let n: Vec<_> = nodes.iter().map(|node| node.n).collect();
        let c: Vec<_> = nodes.iter().map(|node| node.c).collect();
        [b, n, c]
    };
    let four = |chunk| entries_of(chunk).take(4);
    assert_eq!(
        level(SailLevel::L16, (0..4).collect()),
        [vec![0, 1, 1, 0], vec![0, 3, 4, 0], vec![1, 0, 0, 2]]
    );
    assert_eq!(
        level(SailLevel::L24, four(1).chain(four(2)).collect()),
        [vec![1, 1, 0, 1, 1, 1, 0, 1], vec![6, 6, 0, 1, 4, 4, 0, 7], vec![0, 0, 1, 0, 0, 0, 2, 0]]
    );
    let n32 = four(1)
        .chain(four(2))
        .map(|at| table.ids[table.get(SailLevel::L32, at) as usize].load(Ordering::Relaxed));
    assert_eq!(n32.collect::<Vec<_>>(), [3, 3, 3, 9, 8, 2, 2, 8]);
    let mut counted = CountedLoads::default();
    let Ok(answer) = paper_one(table, stretched(0b11_10_01), &mut counted);
    assert_eq!((answer, algorithm_2(table, stretched(0b11_10_01))), (2, 2));
    assert_eq!(counted.loads, [0, 5], "BCN, BN24, C24, N32, and the id of the code");
}

/// Combined arrays take three loads in the wide layout, and four and one for the id in the paper's layout.
#[test]
fn figure_4() {
    let mut rib = Rib::plain();
    let routes = [(0x0a00_0000, 8), (0x0a01_0000, 16), (0x0b01_0200, 24), (0x0c01_0280, 25)];
    for ((address, len), next_hop) in routes.into_iter().zip(1..) {
        rib.v4.set(Prefix4::truncating(address, len), id(next_hop));
    }
    let (wide, mut again) = (engine::<Wide>(&mut rib), Rib::plain());
    rib.v4.iter().for_each(|(prefix, next_hop)| {
        again.v4.set(prefix, next_hop);
    });
    let paper = engine::<Paper>(&mut again);
    for (key, right, loads) in [
        (0x0a09_0909, 1, [1, 2]),
        (0x0a01_0909, 2, [1, 2]),
        (0x0b01_0209, 3, [2, 3]),
        (0x0c01_0299, 4, [3, 5]),
    ] {
        let (mut of_wide, mut of_paper) = (CountedLoads::default(), CountedLoads::default());
        let Ok(answers) = wide_one(wide.tables().0.shared(), key, &mut of_wide)
            .and_then(|wide| Ok([wide, paper_one(paper.tables().0.shared(), key, &mut of_paper)?]));
        assert_eq!((answers, [of_wide.loads[1], of_paper.loads[1]]), ([right; 2], loads), "{key:#x}");
    }
    // B16, C16 and B24: 2^16 * 17 + 2^24 bits at most, 2.13 MiB (section 4.3), and 2^16 * 17 without chunks.
    assert_eq!((onchip_bits(1 << 16), onchip_bits(0)), ((17 << 16) + (1 << 24), 17 << 16));
    assert_eq!(onchip_bits(1 << 16) / 8 * 100 / (1 << 20), 213);
    let onchip = |stats: fib::EngineStats| stats.details.get("sail_onchip_bytes").unwrap();
    assert_eq!(onchip(wide.stats()), f64::from((17 << 16) + 2 * 256) / 8.0);
}

fn generated(routes: usize) -> Rib {
    let mut rib = Rib::plain();
    let spec = TableSpec { family: Family::V4, routes, seed: 5, next_hops: 40 };
    for (prefix, next_hop) in table::<u32>(&spec).unwrap() {
        rib.v4.set(prefix, next_hop);
    }
    rib
}

/// B = 0 exactly where N = 0 and where C is not 0 (section 4.2), if "no route" counts as a next hop.
#[test]
fn the_invariant_holds_and_algorithm_2_agrees() {
    let mut rib = generated(20_000);
    rib.v4.set(Prefix4::DEFAULT, id(77));
    let oracle: Oracle<u32> = rib.v4.iter().collect();
    let engine = engine::<Paper>(&mut rib);
    let writer: &SailWriter<Paper> = engine.tables().0;
    let table = writer.shared();
    let mut split = 0;
    for at in 0..ENTRIES16 {
        let Node { b, n, c } = node(table, SailLevel::L16, at);
        assert!(b == (n != 0) && b == (c == 0), "entry {at}: B16 = {b}, N16 = {n}, C16 = {c}");
        if c != 0 {
            split += 1;
            for at in entries_of(c) {
                let Node { b, n, c } = node(table, SailLevel::L24, at);
                assert!(b == (n != 0) && b == (c == 0), "entry {at}: B24 = {b}, N24 = {n}, C24 = {c}");
            }
        }
    }
    assert!(split > 500, "{split} entries are split");
    for (prefix, _) in rib.v4.iter() {
        for key in [prefix.address(), prefix.last_address(), prefix.last_address().wrapping_add(1)] {
            let Ok(combined) = paper_one(table, key, &mut Plain);
            let right = oracle.lookup(key).get();
            assert_eq!((combined, algorithm_2(table, key)), (right, right), "{key:#x}");
        }
    }
}

/// An entry of BCN has 16 bits; entries of BN24 and N32 have 8 (section 4.2).
#[test]
fn entries_of_the_paper_s_layout_have_its_widths() {
    let bytes = |chunks24, chunks32| Paper::bytes_for(SailRoom { chunks24, chunks32 });
    let ids = 4 << 8;
    assert_eq!(bytes(0, 0), (16 << 16) / 8 + ids);
    // C24, of 16 bits, is separate.
    assert_eq!([bytes(1, 0), bytes(0, 1)].map(|with| with - bytes(0, 0)), [(8 + 16) << 5, 8 << 5]);
}

#[test]
fn the_wide_layout_keeps_the_flag_apart() {
    let engine = engine::<Wide>(&mut generated(5000));
    let words: Vec<u64> = engine
        .tables()
        .0
        .shared()
        .bcn
        .words()
        .iter()
        .map(|word: &AtomicU64| word.load(Ordering::Relaxed))
        .collect();
    let entries = words.iter().flat_map(|word| [(word & 0xffff_ffff) as u32, (word >> 32) as u32]);
    let mut chunks = 0;
    for entry in entries {
        let id = entry & Wide::ID;
        assert_eq!(entry & !(Wide::ID | Wide::CHUNK), 0);
        assert!(entry & Wide::CHUNK == 0 || id > 0, "chunk ids start from 1");
        chunks += u32::from(entry & Wide::CHUNK != 0);
    }
    assert!(chunks > 100, "{chunks} chunks");
}
