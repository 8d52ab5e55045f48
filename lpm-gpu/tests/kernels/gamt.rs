//! GAMT's lookups and the kernel that writes words.

use crate::model::{Layout, Table, Trie};
use crate::{CANARY, COUNTS, LIMIT, Rig, SHAPES, same};
use lpm_gpu::cu::{Arg, DeviceBuffer, DeviceWords, Kernel, Plain, Shape};
use lpm_gpu::host::{HEADER_WORDS, Write};
use rand_chacha::rand_core::Rng as _;
use std::fmt::LowerHex;

/// Strides of IPv4 tries: few levels and many, equal and unequal; not all use all bits.
const STRIDES_V4: [&[u32]; 7] = [
    &[16, 8, 8],
    &[8, 8, 8, 8],
    &[13, 4, 1, 6, 8],
    &[12],
    &[1, 3, 1],
    &[6, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1],
    &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1],
];

/// Strides of IPv6 tries; the last has the largest number of levels.
const STRIDES_V6: [&[u32]; 6] = [
    &[16, 8, 8, 8, 8, 8, 8],
    &[13, 7, 4, 4, 4, 4, 4, 4, 4, 8, 8],
    &[12, 12, 8],
    &[3; 21],
    &[4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
    &[1; 61],
];

/// The name of the kernel of a family (4 or 6).
fn entry(family: u8, layout: Layout, kind: &str) -> String {
    format!("gamt_lookup_v{family}_{}_{kind}", format!("{layout:?}").to_lowercase())
}

struct Loaded {
    table: Table,
    words: DeviceWords,
    header: DeviceWords,
}

impl Loaded {
    fn new(rig: &mut Rig, trie: &Trie, layout: Layout, key_bits: u32) -> Self {
        let table = trie.image(layout, key_bits);
        let (words, header) = (rig.upload(&table.words), rig.upload(&table.header));
        Self { table, words, header }
    }

    fn parts(&self) -> (&DeviceWords, &DeviceWords) {
        (&self.words, &self.header)
    }
}

/// Compares the lookups of a family (4 or 6) with Algorithm 1 in plain Rust. A key is the first 32 or 64
/// bits of an address; `narrow` drops the others.
fn lookups_are_algorithm_1<K: Plain + Default + LowerHex + Into<u64>>(
    family: u8,
    strides: &[&[u32]],
    narrow: fn(u64) -> K,
) {
    let Some(mut rig) = Rig::new(family.into()) else { return };
    let bits = if family == 6 { 64 } else { 32 };
    for strides in strides {
        let trie = Trie::new(strides, family == 6, &mut rig.rng);
        for layout in [Layout::Flat, Layout::Paper] {
            let loaded = Loaded::new(&mut rig, &trie, layout, bits);
            for kind in ["frozen", "live"] {
                let kernel = rig.kernel("gamt", &entry(family, layout, kind));
                for (number, count) in COUNTS.into_iter().enumerate() {
                    let keys: Vec<K> = (0..count).map(|_| narrow(trie.key(&mut rig.rng))).collect();
                    let wanted: Vec<u32> =
                        keys.iter().map(|&key| loaded.table.lookup(layout, key.into())).collect();
                    let shape = SHAPES[number % SHAPES.len()];
                    let found = rig.lookup(&kernel, shape, loaded.parts(), &keys, (0, 0));
                    same(kernel.entry(), &format!("{strides:?}"), &keys, &found, &wanted);
                }
            }
        }
    }
}

#[test]
fn ipv4_lookups_are_algorithm_1() {
    lookups_are_algorithm_1(4, &STRIDES_V4, |key| (key >> 32) as u32);
}

#[test]
fn ipv6_lookups_are_algorithm_1() {
    lookups_are_algorithm_1(6, &STRIDES_V6, |key| key);
}

/// Vector accesses need an alignment of 16 bytes: the kernels must detect unaligned keys or answers, and then process
/// keys one by one.
#[test]
fn keys_and_answers_may_lie_anywhere() {
    let Some(mut rig) = Rig::new(7) else { return };
    let narrow = Trie::new(&[12, 3, 3, 3, 3, 8], false, &mut rig.rng);
    let wide = Trie::new(&[12, 4, 4, 4, 8, 8, 8, 8, 8], true, &mut rig.rng);
    for layout in [Layout::Flat, Layout::Paper] {
        let loaded = Loaded::new(&mut rig, &narrow, layout, 32);
        let loaded_wide = Loaded::new(&mut rig, &wide, layout, 64);
        for kind in ["frozen", "live"] {
            let v4 = rig.kernel("gamt", &entry(4, layout, kind));
            let v6 = rig.kernel("gamt", &entry(6, layout, kind));
            for (number, offsets) in (0..20).map(|n| (n % 5, n / 5)).enumerate() {
                let (what, count) = (format!("offsets {offsets:?}"), [1, 33, 255][number % 3]);
                let keys: Vec<u32> = (0..count).map(|_| (narrow.key(&mut rig.rng) >> 32) as u32).collect();
                let wanted: Vec<u32> =
                    keys.iter().map(|&key| loaded.table.lookup(layout, key.into())).collect();
                let found = rig.lookup(&v4, SHAPES[1], loaded.parts(), &keys, offsets);
                same(v4.entry(), &what, &keys, &found, &wanted);
                let keys: Vec<u64> = (0..count).map(|_| wide.key(&mut rig.rng)).collect();
                let wanted: Vec<u32> =
                    keys.iter().map(|&key| loaded_wide.table.lookup(layout, key)).collect();
                let found = rig.lookup(&v6, SHAPES[1], loaded_wide.parts(), &keys, offsets);
                same(v6.entry(), &what, &keys, &found, &wanted);
            }
        }
    }
}

/// Figure 3 of the paper: strides {1, 3, 1}; address 10001 leads over codes 2, 3 and 1280 to P5.
#[test]
fn the_paper_s_example() {
    let Some(mut rig) = Rig::new(3) else { return };
    const WIDTH: usize = 8;
    let mut words = vec![0; 4 * WIDTH];
    words[WIDTH + 1] = 2;
    words[2 * WIDTH] = 3;
    words[3 * WIDTH + 1] = 1280;
    let mut header = vec![0; HEADER_WORDS];
    (header[0], header[1], header[2]) = (3, u32::try_from(WIDTH).unwrap(), 32);
    (header[6], header[8], header[10]) = (1, 3, 1);
    let (words, header) = (rig.upload(&words), rig.upload(&header));
    let kernel = rig.kernel("gamt", "gamt_lookup_v4_paper_live");
    let found = rig.lookup(&kernel, SHAPES[0], (&words, &header), &[0b10001_u32 << 27], (0, 0));
    assert_eq!(found, [5]);
}

/// Launches the kernel that writes words.
fn write(rig: &mut Rig, kernel: &Kernel, shape: Shape, words: &DeviceWords, writes: &[Write]) {
    let there: DeviceBuffer<Write> = rig.upload(writes);
    let count = u32::try_from(writes.len()).unwrap();
    let args = &mut [Arg::buffer(words), Arg::buffer(&there), Arg::u32(count)];
    rig.stream.launch(kernel, shape, args).unwrap();
    rig.stream.finish(LIMIT).unwrap();
}

#[test]
fn words_are_written_where_told_and_nowhere_else() {
    let Some(mut rig) = Rig::new(8) else { return };
    let kernel = rig.kernel("gamt", "write_words");
    for (number, count) in COUNTS.into_iter().enumerate() {
        let mut wanted = vec![CANARY; 5000];
        let words = rig.upload(&wanted);
        // Each word at most once, as the steps guarantee: every third, from the back.
        let mut writes = Vec::new();
        for at in (0..5000).rev().filter(|at| count > 1000 || at % 3 == 0).take(count) {
            let value = rig.rng.next_u32();
            wanted[at] = value;
            writes.push(Write { at: u32::try_from(at).unwrap(), value });
        }
        assert_eq!(writes.len(), count);
        write(&mut rig, &kernel, SHAPES[number % SHAPES.len()], &words, &writes);
        assert_eq!(rig.download(&words), wanted, "{count} writes");
    }
}
