//! Memory transactions by step: `lpm_gpu::model` must count the same as the mock for the kernels' loads.

use crate::{KernelRig, LIMIT};
use fib::{Change, Key, NextHopId, Prefix, Rib};
use lpm_gpu::cu::{Plain, Shape, testing};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout};
use lpm_gpu::host::{Due, HostTable};
use lpm_gpu::model::{LoadedTable, high_bits, transactions};
use lpm_gpu::sail::{SailOptions, SailTable};
use std::ops::Range;

const KEYS: usize = 512;
/// One thread a key: between keys a device reconverges a warp's lanes, the mock may not.
const SHAPE: Shape = Shape::new(8, 64);

/// The range of the table that each step loads from; ranges do not overlap.
fn parts(table: &LoadedTable, keys: impl IntoIterator<Item = u64>) -> Vec<Range<usize>> {
    let part = |words: Vec<usize>| *words.iter().min().unwrap()..words.iter().max().unwrap() + 1;
    let parts: Vec<_> = table.loads_by_step(keys).into_iter().map(part).collect();
    assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "{parts:?}");
    parts
}

fn counted<K: Key>(table: &LoadedTable, warps: &[Vec<K>], steps: usize, bytes: usize) -> Vec<u64> {
    let mut all = vec![0; steps];
    for warp in warps {
        for (step, words) in table.loads_by_step(warp.iter().copied().map(high_bits)).iter().enumerate() {
            all[step] += transactions(words, bytes) as u64;
        }
    }
    all
}

/// Looks up keys in `table` with random routes on the device. `narrow` converts a key to the kernel's.
fn compare<K: Key, N: Plain + Default>(
    mut table: impl HostTable<K>,
    lens: Range<usize>,
    a_vector: usize,
    narrow: fn(K) -> N,
) {
    let Some(mut rig) = KernelRig::new(31) else { return };
    let Some(mock) = testing::driver().and_then(testing::TestDriver::mock) else {
        return eprintln!("SKIPPED: only the mock counts transactions");
    };
    let mut rib = Rib::plain();
    let mut near = Vec::new();
    for number in 1..3000 {
        // Half of the routes are close together, so that a warp's lookups end at different levels.
        let spread = if number % 2 == 0 { 0 } else { 12 };
        let address = K::from_high_bits(rig.random.u128() >> spread);
        let len = lens.start + rig.random.below(lens.len());
        let prefix = Prefix::truncating(address, u8::try_from(len).unwrap());
        near.push(prefix);
        rib.set(K::wrap(prefix), NextHopId::from_answer(number));
    }
    rib.take_delta();
    let routes = K::part(&rib);
    let changes: Vec<_> =
        routes.used().map(|(prefix, new)| Change { prefix, old: NextHopId::NONE, new }).collect();
    if table.apply(&changes, routes).unwrap() == Due::Steps {
        table.rebuild().unwrap();
    }
    let (model, names) = (LoadedTable::new(&table, routes), table.kernels());
    let (words, header) = (rig.upload(&model.words), rig.upload(&model.header));
    let keys: Vec<K> = (0..KEYS)
        .map(|at| match at % 3 {
            0 => K::from_high_bits(rig.random.u128()),
            _ => rig.random.inside(near[at * 7 % near.len()]),
        })
        .collect();
    let sent: Vec<N> = keys.iter().copied().map(narrow).collect();
    // Scalar loads: a warp has 32 adjacent keys, as in Algorithm 1. Vector loads: it has the keys at the same place of 32 vectors.
    let in_a_row: Vec<Vec<K>> = keys.chunks(32).map(<[K]>::to_vec).collect();
    let place = |part: &[K], at: usize| part.iter().copied().skip(at).step_by(a_vector).collect();
    let vectors: Vec<Vec<K>> =
        keys.chunks(32 * a_vector).flat_map(|part| (0..a_vector).map(move |at| place(part, at))).collect();
    let parts = parts(&model, keys.iter().copied().map(high_bits));
    for entry in [names.frozen, names.live] {
        let kernel = rig.kernel(names.module, entry);
        for (warps, offsets) in [(&in_a_row, (1, 1)), (&vectors, (0, 0))] {
            let mut found = vec![[0; 2]; parts.len()];
            for (part, found) in parts.iter().zip(&mut found) {
                mock.watch_loads(words.address() + 4 * part.start as u64, 4 * part.len() as u64);
                rig.lookup(&kernel, SHAPE, (&words, &header), &sent, offsets);
                *found = [32, 128].map(|bytes| mock.transactions(bytes));
            }
            mock.watch_loads(words.address(), words.bytes());
            rig.lookup(&kernel, SHAPE, (&words, &header), &sent, offsets);
            for (size, bytes) in [32, 128].into_iter().enumerate() {
                let wanted = counted(&model, warps, parts.len(), bytes);
                assert_eq!(
                    found.iter().map(|sizes| sizes[size]).collect::<Vec<_>>(),
                    wanted,
                    "{entry}, offsets {offsets:?}, {bytes} bytes"
                );
                assert_eq!(
                    mock.transactions(bytes as u64),
                    wanted.iter().sum::<u64>(),
                    "{entry}: loads elsewhere"
                );
                assert!(wanted.iter().filter(|count| **count > 0).count() > 1, "{entry}: {wanted:?}");
            }
        }
    }
    mock.watch_loads(0, 0);
    rig.stream.finish(LIMIT).unwrap();
}

fn gamt<K: Key>(layout: Layout, levels: u8) -> GamtTable<K> {
    GamtTable::new(GamtOptions { layout, levels: Some(levels), ..GamtOptions::default() }).unwrap()
}

#[test]
fn the_model_s_transactions_are_those_of_gamt_s_loads() {
    for layout in [Layout::Flat, Layout::Paper] {
        compare(gamt(layout, 6), 8..33, 4, |key: u32| key);
        compare(gamt(layout, 20), 16..65, 2, |key: u128| (key >> 64) as u64);
    }
}

#[test]
fn the_model_s_transactions_are_those_of_gale_s_and_sail_s_loads() {
    compare(GaleTable::new(GaleOptions::default()).unwrap(), 8..33, 4, |key| key);
    compare(SailTable::new(SailOptions::default()).unwrap(), 8..33, 4, |key| key);
}
