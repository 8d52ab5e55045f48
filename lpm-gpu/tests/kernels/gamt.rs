//! GAMT's lookups and its write kernel.

use crate::model::RandomTrie;
use crate::{CANARY, COUNTS, KernelRig, LIMIT, SHAPES, sizes};
use lpm_gpu::cu::{Arg, DeviceBuffer, DeviceWords, Kernel, Plain, Shape};
use lpm_gpu::gamt::Layout;
use lpm_gpu::host::Write;
use std::fmt::LowerHex;

/// Strides of IPv4 tries: few and many levels, equal and unequal strides; not all cover all bits.
const STRIDES_V4: [&[u32]; 7] = [
    &[16, 8, 8],
    &[8, 8, 8, 8],
    &[13, 4, 1, 6, 8],
    &[12],
    &[1, 3, 1],
    &[6, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1],
    &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1],
];

const STRIDES_V6: [&[u32]; 6] = [
    &[16, 8, 8, 8, 8, 8, 8],
    &[13, 7, 4, 4, 4, 4, 4, 4, 4, 8, 8],
    &[12, 12, 8],
    &[3; 21],
    &[4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
    &[1; 61],
];

/// Compares the lookups of a family (4 or 6) with Algorithm 1. `narrow` converts a left-aligned key to the kernel's.
fn lookups_are_algorithm_1<K: Plain + Default + LowerHex + Into<u64>>(
    family: u8,
    strides: &[&[u32]],
    batches: &[(usize, (usize, usize))],
    narrow: fn(u64) -> K,
) {
    let Some(mut rig) = KernelRig::new(family.into()) else { return };
    let bits = if family == 6 { 64 } else { 32 };
    for strides in strides {
        let trie = RandomTrie::new(strides, family == 6, &mut rig.random);
        for layout in [Layout::Flat, Layout::Paper] {
            let table = trie.image(layout, bits);
            let (words, header) = (rig.upload(&table.words), rig.upload(&table.header));
            let entry = format!("gamt_lookup_v{family}_{layout:?}").to_lowercase();
            println!("{strides:?}");
            let key = |random: &mut _, _| narrow(trie.key(random));
            rig.compare(("gamt", &entry), (&words, &header), batches, key, |key| {
                table.lookup(layout, key.into())
            });
        }
    }
}

#[test]
fn ipv4_lookups_are_algorithm_1() {
    lookups_are_algorithm_1(4, &STRIDES_V4, &sizes(), |key| (key >> 32) as u32);
}

#[test]
fn ipv6_lookups_are_algorithm_1() {
    lookups_are_algorithm_1(6, &STRIDES_V6, &sizes(), |key| key);
}

/// Vector accesses need 16-byte alignment: kernels must process unaligned keys or answers one by one.
#[test]
fn keys_and_answers_may_lie_anywhere() {
    let batches: Vec<_> = (0..20).map(|n| ([1, 33, 255][n % 3], (n % 5, n / 5))).collect();
    lookups_are_algorithm_1(4, &[&[12, 3, 3, 3, 3, 8]], &batches, |key| (key >> 32) as u32);
    lookups_are_algorithm_1(6, &[&[12, 4, 4, 4, 8, 8, 8, 8, 8]], &batches, |key| key);
}

fn write(rig: &mut KernelRig, kernel: &Kernel, shape: Shape, words: &DeviceWords, writes: &[Write]) {
    let there: DeviceBuffer<Write> = rig.upload(writes);
    let count = u32::try_from(writes.len()).unwrap();
    let args = &mut [Arg::buffer(words), Arg::buffer(&there), Arg::u32(count)];
    rig.stream.launch(kernel, shape, args).unwrap();
    rig.stream.finish(LIMIT).unwrap();
}

#[test]
fn words_are_written_where_told_and_nowhere_else() {
    let Some(mut rig) = KernelRig::new(8) else { return };
    let kernel = rig.kernel("gamt", "write_words");
    for (number, count) in COUNTS.into_iter().enumerate() {
        let mut wanted = vec![CANARY; 5000];
        let words = rig.upload(&wanted);
        // Each word at most once, as steps guarantee: every third, from the end.
        let mut writes = Vec::new();
        for at in (0..5000).rev().filter(|at| count > 1000 || at % 3 == 0).take(count) {
            let value = rig.random.u32();
            wanted[at] = value;
            writes.push(Write { at: u32::try_from(at).unwrap(), value });
        }
        assert_eq!(writes.len(), count);
        write(&mut rig, &kernel, SHAPES[number % SHAPES.len()], &words, &writes);
        assert_eq!(rig.download(&words), wanted, "{count} writes");
    }
}
