//! The lookups of GALE and SAIL_L, and GALE's operations.

use crate::{KernelRig, LIMIT, sizes};
use fib::random::Seeded;
use lpm_gpu::cu::{Arg, Shape};
use lpm_gpu::direct::unit::{DELETE, EXTEND, FOLD, INSERT, MODIFY};
use lpm_gpu::direct::{CHUNK_UNITS, Unit};
use lpm_gpu::gale::DIRECT_UNITS;
use lpm_gpu::gale::model::GaleModel;
use lpm_gpu::gamt::Layout;
use lpm_gpu::host::{HEADER_WORDS, Image, PrefixOp};
use lpm_gpu::sail::BCN_UNITS;
use lpm_gpu::sail::model::search_by;
use std::convert::Infallible;

const CHUNKS: u32 = 40;

fn leaf(random: &mut Seeded) -> u32 {
    random.u32() & !0xff | below(random, 33)
}

fn below(random: &mut Seeded, limit: u32) -> u32 {
    u32::try_from(random.below(limit as usize)).unwrap()
}

#[test]
fn gale_reads_a_word_or_two() {
    let Some(mut rig) = KernelRig::new(11) else { return };
    let mut words = vec![0_u32; DIRECT_UNITS + CHUNKS as usize * CHUNK_UNITS];
    let mut slots = Vec::new();
    for number in 0..2000 {
        let slot = below(&mut rig.random, 1 << 24) as usize;
        words[slot] = if number < CHUNKS { Unit::chunk(number).0 } else { leaf(&mut rig.random) };
        slots.push(slot);
    }
    for word in &mut words[DIRECT_UNITS..] {
        *word = rig.random.u32() & !0xff | 32;
    }
    let (there, header) = (rig.upload(&words), rig.upload(&[0_u32; HEADER_WORDS]));
    let key = |random: &mut Seeded, at: usize| match slots.get(at / 2 * 7 % 2000) {
        Some(&slot) if at.is_multiple_of(2) => u32::try_from(slot << 8).unwrap() | below(random, 256),
        _ => random.u32(),
    };
    rig.compare(("gale", "gale_lookup_v4"), (&there, &header), &sizes(), key, |key| {
        match Unit(words[(key >> 8) as usize]) {
            unit if unit.to_chunk().is_none() => unit.value(),
            unit => words[DIRECT_UNITS + unit.value() as usize * CHUNK_UNITS + (key & 0xff) as usize] >> 8,
        }
    });
}

/// With random chunk bits, which one stage must ignore.
#[test]
fn gale_of_one_stage_reads_a_word_and_tests_nothing() {
    let Some(mut rig) = KernelRig::new(14) else { return };
    let mut words = vec![0_u32; DIRECT_UNITS];
    let slots: Vec<usize> = (0..2000).map(|_| below(&mut rig.random, 1 << 24) as usize).collect();
    slots.iter().for_each(|slot| words[*slot] = rig.random.u32());
    let (there, header) = (rig.upload(&words), rig.upload(&[0_u32; HEADER_WORDS]));
    let key = |random: &mut Seeded, at: usize| match slots.get(at / 2 * 7 % 2000) {
        Some(&slot) if at.is_multiple_of(2) => u32::try_from(slot << 8).unwrap() | below(random, 256),
        _ => random.u32(),
    };
    rig.compare(("gale", "gale_lookup_v4_direct"), (&there, &header), &sizes(), key, |key| {
        words[(key >> 8) as usize] >> 8
    });
    // GAMT, section 4.1: "one lookup requires only one global memory access".
    let keys: Vec<u32> = (0..1000).map(|at| key(&mut rig.random, at)).collect();
    for entry in ["gale_lookup_v4_direct_frozen", "gale_lookup_v4_direct_live"] {
        let loads = rig.table_loads(("gale", entry), (&there, &header), &keys, 0);
        assert!(loads.is_none_or(|loads| loads == 1000), "{loads:?}");
    }
}

#[test]
fn sail_reads_three_words_at_most() {
    let Some(mut rig) = KernelRig::new(12) else { return };
    let n32 = BCN_UNITS + CHUNKS as usize * CHUNK_UNITS;
    let mut words = vec![0_u32; n32 + CHUNKS as usize * CHUNK_UNITS];
    for (at, word) in words.iter_mut().enumerate() {
        let chunk = at < n32 && rig.random.u32().is_multiple_of(4);
        *word = if chunk { Unit::chunk(below(&mut rig.random, CHUNKS)).0 } else { leaf(&mut rig.random) };
    }
    let mut header = vec![0; HEADER_WORDS];
    header[0] = u32::try_from(n32).unwrap();
    let (there, header) = (rig.upload(&words), rig.upload(&header));
    let chunk = |first: usize, unit: Unit, byte: u32| {
        Unit(words[first + unit.value() as usize * CHUNK_UNITS + byte as usize])
    };
    rig.compare(
        ("sail", "sail_lookup_v4"),
        (&there, &header),
        &sizes(),
        |random, _| random.u32(),
        |key| {
            let mut unit = Unit(words[(key >> 16) as usize]);
            if unit.to_chunk().is_some() {
                unit = chunk(BCN_UNITS, unit, key >> 8 & 0xff);
                if unit.to_chunk().is_some() {
                    unit = chunk(n32, unit, key & 0xff);
                }
            }
            unit.value()
        },
    );
}

/// Entries of 16 and 8 bits: existing chunks, codes, and no route.
#[test]
fn sail_in_the_paper_s_layout_reads_four_entries_at_most() {
    let Some(mut rig) = KernelRig::new(15) else { return };
    let bytes = CHUNK_UNITS * CHUNKS as usize;
    let (bcn, c24) = (BCN_UNITS / 2, BCN_UNITS / 2 + bytes / 4);
    let n32 = c24 + bytes / 2;
    let half = |random: &mut Seeded, b16: u32| match below(random, 4) {
        0 => below(random, CHUNKS + 1),
        _ => b16 | below(random, 256),
    };
    let byte = |random: &mut Seeded| if random.u32().is_multiple_of(3) { 0 } else { below(random, 256) };
    let mut words = Vec::with_capacity(n32 + bytes / 4);
    for at in 0..n32 + bytes / 4 {
        words.push(match at {
            _ if at < bcn => half(&mut rig.random, 0x8000) | half(&mut rig.random, 0x8000) << 16,
            _ if (c24..n32).contains(&at) => {
                below(&mut rig.random, CHUNKS + 1) | below(&mut rig.random, CHUNKS + 1) << 16
            }
            _ => (0..4).fold(0, |word, _| word << 8 | byte(&mut rig.random)),
        });
    }
    let mut header = [0; HEADER_WORDS];
    [header[0], header[1]] = [n32, c24].map(|at| u32::try_from(at).unwrap());
    let (there, header_there) = (rig.upload(&words), rig.upload(&header));
    rig.compare(
        ("sail", "sail_lookup_v4_paper"),
        (&there, &header_there),
        &sizes(),
        |random, _| random.u32(),
        |key| {
            let Ok(code) = search_by::<Infallible>(&header, Layout::Paper, key, |at| Ok(words[at]));
            code
        },
    );
    let keys: Vec<u32> = (0..1000).map(|_| rig.random.u32()).collect();
    let mut wanted = 0;
    for key in &keys {
        let Ok(_) = search_by::<Infallible>(&header, Layout::Paper, *key, |at| {
            wanted += 1;
            Ok(words[at])
        });
    }
    assert!(wanted > 1200, "{wanted}");
    let (entry, table) = ("sail_lookup_v4_paper_live", (&there, &header_there));
    let loads = rig.table_loads(("sail", entry), table, &keys, 2);
    assert!(loads.is_none_or(|loads| loads == wanted), "{loads:?}, {wanted}");
}

#[test]
fn gale_s_operations_are_the_model_s() {
    let Some(mut rig) = KernelRig::new(13) else { return };
    let words = vec![0_u32; DIRECT_UNITS + 8 * CHUNK_UNITS];
    let mut model =
        GaleModel::new(&Image { header: [0; HEADER_WORDS], runs: Vec::new(), words: words.len() });
    let (there, header) = (rig.upload(&words), rig.upload(&[0_u32; HEADER_WORDS]));
    let kernel = rig.kernel("gale", "gale_operations");
    // Within one /12 with few /24s that have chunks, so that routes overlap.
    let base = 0x0a10_0000;
    let op = |kind: u32, address: u32, length: u32, value: u32, depth: u32| PrefixOp {
        address,
        how: kind | length << 8 | depth << 16,
        value,
        reserved: 0,
    };
    let mut batches =
        vec![(0..8).map(|chunk| op(EXTEND, base | chunk << 16, 24, chunk, 0)).collect::<Vec<_>>()];
    for size in [1, 2, 7, 40] {
        let mut batch = Vec::new();
        for _ in 0..size {
            let length = 12 + below(&mut rig.random, 21);
            let within = if length > 24 {
                below(&mut rig.random, 8) << 16 | below(&mut rig.random, 256)
            } else {
                rig.random.u32() & 0x000f_ffff
            };
            let address = base | within & u32::MAX << (32 - length);
            let value = rig.random.u32() >> 8;
            batch.push(match below(&mut rig.random, 4) {
                0 => op(MODIFY, address, length, value, length),
                1 => op(DELETE, address, length, value, 11),
                _ => op(INSERT, address, length, value, length),
            });
        }
        batches.push(batch);
    }
    batches.push(vec![op(FOLD, base | 3 << 16, 24, 3, 0), op(DELETE, base, 12, 0, 0)]);
    for (number, batch) in batches.iter().enumerate() {
        let ops = rig.upload(batch);
        let count = u32::try_from(batch.len()).unwrap();
        let threads = [32, 256, 1024][number % 3];
        let args = &mut [Arg::buffer(&there), Arg::buffer(&header), Arg::buffer(&ops), Arg::u32(count)];
        rig.stream.launch(&kernel, Shape::new(1, threads), args).unwrap();
        rig.stream.finish(LIMIT).unwrap();
        model.run(batch);
        let found = rig.download(&there);
        let wrong = found.iter().zip(&model.words).position(|(found, wanted)| found != wanted);
        assert_eq!(wrong, None, "the first word that differs after batch {number}");
    }
}
